//! B48: an iteration that was captured once, launched ten times while batch, learning rate and iteration change, with evaluations
//! between: the bits of issuing every command.

use super::hash;
use crate::feeds::Run;
use crate::nets::{network, vgg};
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use vdnn_cuda::context::Context;
use vdnn_runtime::Device;
use vdnn_schedule::Schedule;
use vdnn_train::{EvaluationSum, Feed, Network, Trainer};

const STEPS: u64 = 10;
const IMAGE: [u64; 3] = [3, 32, 32];

pub fn run(report: &mut Report) -> Outcome {
    let network = network(IMAGE, vgg);
    let mut algos_from = None;
    for policy in ["none", "all"] {
        let mut run = Run { policy, algos_from: algos_from.clone(), eval_batches: vec![32], ..Run::small(32, IMAGE) };
        run.options.min_offload = 1 << 10;
        let outcome = compare(&run, &network).map(|(outcome, schedule)| {
            algos_from.get_or_insert(schedule);
            outcome
        });
        report.outcome(&format!("B48 captured iterations, {policy}"), outcome);
    }
    report.outcome("B48 masks change from replay to replay", masks(&network));
    Ok(())
}

/// Fails where a replay reads an old batch, rate or iteration, where another schedule's graph disturbs it, or where memory is
/// taken once iterations run.
fn compare(run: &Run<'_>, network: &dyn Network) -> Outcome<((bool, Value), Schedule)> {
    let mut issuing = cuda()?;
    issuing.set_replay(false);
    let mut trainer = run.trainer(network, Box::new(issuing))?;
    let want = steps(run, &mut trainer)?;
    let schedule = Schedule::clone(&trainer.planned().schedule);
    drop(trainer);
    let run = Run { algos_from: Some(schedule.clone()), eval_batches: run.eval_batches.clone(), ..*run };
    let mut trainer = run.trainer(network, Box::new(cuda()?))?;
    let context = Context::open(0)?;
    let before = context.memory()?.0;
    let got = steps(&run, &mut trainer)?;
    let taken = before as i64 - context.memory()?.0 as i64;
    let details = trainer.description().details;
    let differs = got.iter().zip(&want).position(|(a, b)| a != b);
    let facts = json!({"first_step_that_differs": differs, "bytes_taken_by_steps": taken, "details": details});
    Ok(((got == want && taken == 0 && !details.contains("one by one"), facts), schedule))
}

/// Loss, weights and, after every third step, the loss of an evaluation.
fn steps(run: &Run<'_>, trainer: &mut Trainer) -> Outcome<Vec<[u64; 3]>> {
    let one = |step: u64| -> Outcome<[u64; 3]> {
        let (images, labels) = run.batch(step);
        let feed = Feed::new(&images, &labels);
        let loss = trainer.step(feed, 0.05 / (1 + step) as f64)?.loss;
        let mut sum = EvaluationSum::default();
        if step % 3 == 2 {
            trainer.evaluate_batch(feed, &mut sum)?;
        }
        let evaluated = sum.result().map_or(0, |evaluation| evaluation.loss.to_bits());
        Ok([loss.to_bits(), hash(trainer)?, evaluated])
    };
    (0..STEPS).map(one).collect()
}

/// The same batch at a rate of zero: only the iteration changes, and with it the dropout mask. Set back, it is the same mask.
fn masks(network: &dyn Network) -> Outcome<(bool, Value)> {
    let run = Run::small(32, IMAGE);
    let mut trainer = run.trainer(network, Box::new(cuda()?))?;
    let (images, labels) = run.batch(0);
    let loss = |trainer: &mut Trainer, iteration: u64| -> Outcome<f64> {
        trainer.set_iteration(iteration);
        Ok(trainer.step(Feed::new(&images, &labels), 0.0)?.loss)
    };
    let (first, second, again) = (loss(&mut trainer, 5)?, loss(&mut trainer, 6)?, loss(&mut trainer, 5)?);
    let facts = json!({"losses": [first, second, again]});
    Ok((first != second && first.to_bits() == again.to_bits(), facts))
}
