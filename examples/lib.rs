//! What the two planning examples share: a training program on a described machine, and what policies make of it.
//!
//! ```text
//!  model, batch ─► Program ┐
//!  machine ─► kernel table ┼─► policy ─► schedule, checked ─► simulated ─► Outcome, a row of a table
//!  budget ─────────────────┘
//! ```
//!
//! | program | teaches |
//! | --- | --- |
//! | `train_vgg` | composing a network from layers, training it under a budget, measuring what was planned |
//! | `train_resnet` | that a policy changes time and memory and never numbers |
//! | `custom_policy` | a memory policy of your own in one file, against the paper's |
//! | `compare_policies` | all policies on a model, a batch, a machine and a budget |

use std::sync::Arc;
use vdnn::prelude::*;
use vdnn::sim::oracle_seconds;
use vdnn::train::TrainError;

/// A training program and its encoded alternative, and what their kernels cost on a machine.
pub struct Case {
    subject: Subject,
    homes: HomeLayout,
    links: Links,
}

/// What a policy makes of a case.
pub struct Outcome {
    /// Extent of the device arena.
    pub peak: u64,
    /// Extent of the pinned host arena.
    pub host: u64,
    /// Bytes copied per iteration, both directions.
    pub moved: u64,
    /// Simulated time of an iteration.
    pub seconds: f64,
}

impl Case {
    /// A network's training iteration (SGD with momentum) on a described machine.
    ///
    /// # Errors
    /// Unknown names, and batches the network does not take.
    pub fn new(model: &str, batch_size: u64, machine: &str) -> anyhow::Result<Self> {
        let network = |batch_size, mode| {
            let options = ModelOptions { batch_size, mode, ..ModelOptions::default() };
            vdnn::models::build(model, &options).map_err(Into::into)
        };
        let net = program::network(&network, batch_size, Mode::Train)?;
        let program = program::training(net, &Optimization::sgd(0.9, 5e-4))?;
        let machine = Machine::named(machine)?;
        let price = |program: &Program| Ok::<_, anyhow::Error>(machine.kernel_table(program)?);
        let homes = plan::layout(&[&program.graph], &MemoryOptions::default());
        let subject = Subject::priced(Arc::new(program), true, price)?;
        Ok(Case { subject, homes, links: machine.links() })
    }

    /// Plans, compiles, checks and simulates one iteration.
    ///
    /// # Errors
    /// [`TrainError`] when the policy cannot keep the budget, or its schedule does not pass the check.
    pub fn plan(&self, policy: Box<dyn MemoryPolicy>, budget: Option<u64>) -> Result<Outcome, TrainError> {
        let mut settings = Settings::new(policy, self.links);
        settings.budgets.device = budget;
        // On a described machine "memory-optimal" means no workspace at all, as in the paper.
        settings.options.memory_optimal_workspace = 0;
        let planned = plan::plan(self.subject.clone(), &self.homes, &settings)?;
        let schedule = &planned.schedule;
        let timeline = simulate(schedule, &planned.kernels, &self.links).expect("a checked schedule runs");
        Ok(Outcome {
            peak: schedule.peak_bytes(Space::Device),
            host: schedule.peak_bytes(Space::Host),
            moved: schedule.transfer_bytes(Direction::Offload) + schedule.transfer_bytes(Direction::Prefetch),
            seconds: timeline.seconds,
        })
    }

    /// Time of an iteration with the fastest kernels and unlimited memory, in seconds.
    pub fn oracle_seconds(&self) -> f64 {
        oracle_seconds(&self.subject.plain.program, &self.subject.plain.kernels)
    }

    /// A row of a table: the outcome, or why there is none.
    pub fn row(&self, policy: Box<dyn MemoryPolicy>, budget: Option<u64>) -> String {
        let name = policy.name().to_string();
        match self.plan(policy, budget) {
            Ok(outcome) => format!(
                "{name:12} {:>11} {:>11} {:>11} {:>10.1} ms {:>+8.1} %",
                format_bytes(outcome.peak),
                format_bytes(outcome.host),
                format_bytes(outcome.moved),
                outcome.seconds * 1e3,
                (outcome.seconds / self.oracle_seconds() - 1.0) * 100.0,
            ),
            Err(TrainError::Plan(vdnn::memory::PlanError::Infeasible(refusal))) => {
                format!("{name:12} does not fit: needs {}, at {}", format_bytes(refusal.floor), refusal.step)
            }
            Err(error) => format!("{name:12} {error}"),
        }
    }

    /// The heads of [`Case::row`]'s columns.
    pub fn header() -> &'static str {
        "policy              peak        host       moved    predicted    slower"
    }
}

#[cfg(test)]
mod tests {
    /// The code a reader meets first is the code that runs.
    #[test]
    fn the_readme_shows_the_example() {
        let readme = include_str!("../README.md");
        let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a Rust block");
        assert!(include_str!("train_vgg.rs").contains(shown), "README.md and train_vgg.rs differ:\n{shown}");
    }
}
