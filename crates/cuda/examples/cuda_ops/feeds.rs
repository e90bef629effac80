//! Batches for networks, and networks on a device.

use crate::Outcome;
use vdnn_autograd::{Optimizer, UpdateAt};
use vdnn_graph::op::Sgd;
use vdnn_memory::{Budgets, Options, policies};
use vdnn_runtime::Device;
use vdnn_schedule::Schedule;
use vdnn_sim::Links;
use vdnn_tensor::{HostTensor, Philox};
use vdnn_train::{Encodings, Feed, Network, Optimization, Recipe, Settings, Trainer};

/// What planning assumes of the link.
pub const LINKS: Links = Links { latency: 9e-6, ..Links::new(55.0e9, 55.2e9, 47.8e9) };

/// How a network is trained here.
pub struct Run<'a> {
    pub batch_size: u64,
    pub image: [u64; 3],
    pub classes: u64,
    pub policy: &'a str,
    pub options: Options,
    pub budget: Option<u64>,
    pub host_budget: Option<u64>,
    pub disk_budget: Option<u64>,
    pub links: Links,
    pub optimizer: Optimizer,
    pub algos_from: Option<Schedule>,
    pub encodings: Encodings,
    pub eval_batches: Vec<u64>,
    pub staging: bool,
}

impl Run<'_> {
    /// Small images, momentum, everything kept.
    pub fn small(batch_size: u64, image: [u64; 3]) -> Self {
        let optimizer = Optimizer::Sgd(Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 1e-4, nesterov: false });
        Run {
            batch_size,
            image,
            classes: 10,
            policy: "none",
            options: Options::default(),
            budget: None,
            host_budget: None,
            disk_budget: None,
            links: LINKS,
            optimizer,
            algos_from: None,
            encodings: Encodings::Auto,
            eval_batches: Vec::new(),
            staging: false,
        }
    }

    /// The network on a device with its initial weights.
    pub fn trainer(&self, network: &dyn Network, device: Box<dyn Device>) -> Outcome<Trainer> {
        let policy = policies::find(self.policy).ok_or_else(|| format!("no policy {}", self.policy))?;
        let settings = Settings {
            options: self.options,
            budgets: Budgets { device: self.budget, host: self.host_budget, disk: self.disk_budget },
            algos_from: self.algos_from.clone(),
            encodings: self.encodings,
            ..Settings::new(policy, self.links)
        };
        let optimization = Optimization { optimizer: self.optimizer, update_at: UpdateAt::Layer, decay_vectors: true };
        let recipe = Recipe {
            batch_size: self.batch_size,
            partial_batches: Vec::new(),
            eval_batches: self.eval_batches.clone(),
            optimization,
            settings,
            staging: self.staging,
            deterministic: true,
            seed: 1,
        };
        Ok(Trainer::new(network, device, &recipe)?)
    }

    /// Images and labels of a step.
    pub fn batch(&self, step: u64) -> (Vec<f32>, Vec<i32>) {
        let mut random = Philox::new(1000 + step, 0);
        let count = self.batch_size * self.image.iter().product::<u64>();
        let images = (0..count).map(|_| (random.uniform() - 0.5) * 3.4).collect();
        let label = |_| ((random.uniform() * self.classes as f32) as i32).min(self.classes as i32 - 1);
        (images, (0..self.batch_size).map(label).collect())
    }

    /// Some steps; the loss of each.
    pub fn steps(&self, trainer: &mut Trainer, steps: u64) -> Outcome<Vec<f64>> {
        let mut losses = Vec::new();
        for step in 0..steps {
            let (images, labels) = self.batch(step);
            losses.push(trainer.step(Feed::new(&images, &labels), 0.02)?.loss);
        }
        Ok(losses)
    }
}

/// Parameters and states by name.
pub fn numbers(trainer: &mut Trainer) -> Outcome<Vec<(String, Vec<f32>)>> {
    let floats = |tensor: &HostTensor| {
        tensor.as_bytes().chunks_exact(4).map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect()
    };
    Ok(trainer.tensors()?.iter().map(|(name, _, tensor)| (name.clone(), floats(tensor))).collect())
}
