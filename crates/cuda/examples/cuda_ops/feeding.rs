//! Batches of bytes copied while a step runs: the bits of copying before each step, and no byte beyond plan and context.

use crate::feeds::Run;
use crate::policies::body;
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Instant;
use vdnn_cuda::context::Context;
use vdnn_graph::op::Normalise;
use vdnn_graph::passes::Passes;
use vdnn_layers::{Mode, Net, NetOptions};
use vdnn_memory::PlanError;
use vdnn_runtime::Device;
use vdnn_schedule::Space;
use vdnn_tensor::{DType, Philox};
use vdnn_train::{Feed, Network, TrainError, Trainer};

const IMAGE: [u64; 3] = [3, 64, 64];
const BATCH: u64 = 96;
const STEPS: u64 = 6;
/// What `hybrid` is given above its floor.
const ROOM: u64 = 8 << 20;

fn network(storage: Option<DType>) -> impl Network {
    move |batch_size: u64, mode: Mode| -> Result<Net, Box<dyn Error + Send + Sync>> {
        let bytes = Normalise { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225], dtype: DType::F32 };
        let passes = Passes { fuse: storage.is_some(), storage, ..Passes::NONE };
        let options =
            NetOptions { batch_size, image: IMAGE, mode, seed: 5, bytes: Some(bytes), passes, ..NetOptions::default() };
        let mut net = Net::new("net", &options)?;
        let image = net.image();
        let logits = body(&mut net, image)?;
        net.classify(logits, 0.0)?;
        Ok(net)
    }
}

fn batch(step: u64) -> (Vec<u8>, Vec<i32>) {
    let mut random = Philox::new(2000 + step, 0);
    let pixels = BATCH * IMAGE.iter().product::<u64>();
    let images = (0..pixels).map(|_| (random.uniform() * 256.0) as u8).collect();
    (images, (0..BATCH).map(|_| ((random.uniform() * 10.0) as i32).min(9)).collect())
}

/// What a run ends with, and how long its steps took.
struct End {
    losses: Vec<u64>,
    weights: String,
    seconds: f64,
}

fn direct(trainer: &mut Trainer) -> Outcome<End> {
    let batches: Vec<_> = (0..STEPS).map(batch).collect();
    let started = Instant::now();
    let mut losses = Vec::new();
    for (images, labels) in &batches {
        losses.push(trainer.step(Feed::new(images, labels), 0.02)?.loss.to_bits());
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(End { losses, weights: trainer.weights_sha256()?, seconds })
}

/// Each batch staged while the step before runs, some twice: what is staged last counts.
fn staged(trainer: &mut Trainer) -> Outcome<End> {
    let batches: Vec<_> = (0..=STEPS).map(batch).collect();
    let feed = |step: u64| Feed::new(&batches[step as usize].0, &batches[step as usize].1);
    let started = Instant::now();
    let mut losses = Vec::new();
    let mut loaded = trainer.load(feed(0))?;
    for step in 0..STEPS {
        let mut running = trainer.begin_step(loaded, 0.02)?;
        if step % 2 == 1 {
            drop(running.stage(feed(step))?);
        }
        let next = running.stage(feed(step + 1))?;
        losses.push(running.finish()?.loss.to_bits());
        loaded = trainer.load_staged(next)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(End { losses, weights: trainer.weights_sha256()?, seconds })
}

pub fn run(report: &mut Report) -> Outcome {
    for storage in [None, Some(DType::BF16)] {
        let network = network(storage);
        for (policy, replay) in [("none", true), ("none", false), ("all", true), ("all", false), ("hybrid", true)] {
            let name = format!("{policy}, {}, replay {replay}", storage.map_or("f32", DType::name));
            let outcome = compare(&network, policy, replay);
            report.outcome(&name, outcome);
        }
    }
    Ok(())
}

fn compare(network: &dyn Network, policy: &str, replay: bool) -> Outcome<(bool, Value)> {
    let mut run = Run { policy, staging: true, ..Run::small(BATCH, IMAGE) };
    run.options.min_offload = 1 << 12;
    if policy == "hybrid" {
        run.budget = Some(1);
        run.budget = match run.trainer(network, Box::new(cuda()?)).err().map(|error| error.downcast::<TrainError>()) {
            Some(Ok(error)) => match *error {
                TrainError::Plan(PlanError::Infeasible(refusal)) => Some(refusal.floor + ROOM),
                other => return Err(other.into()),
            },
            _ => return Err("expected a refusal of one byte".into()),
        };
    }
    let mut device = cuda()?;
    device.set_replay(replay);
    let mut trainer = run.trainer(network, Box::new(device))?;
    let found = staged(&mut trainer)?;
    let (planned, measured) = (trainer.peak_bytes(Space::Device), trainer.measured_peak());
    let context = trainer.description();
    let (free, total) = Context::open(0)?.memory()?;
    let taken = total - free;
    let budget = run.budget;
    run.algos_from = Some((*trainer.planned().schedule).clone());
    drop(trainer);
    let plain = Run { policy: "none", budget: None, staging: false, ..run };
    let mut trainer = plain.trainer(network, Box::new(cuda()?))?;
    let want = direct(&mut trainer)?;
    let facts = json!({
        "losses": found.losses.iter().map(|&bits| f64::from_bits(bits)).collect::<Vec<_>>(), "planned": planned,
        "measured": measured, "budget": budget, "context": context.context_bytes, "in_use": taken,
        "details": context.details, "ms_a_step": found.seconds * 1e3 / STEPS as f64,
        "ms_a_step_loaded_before": want.seconds * 1e3 / STEPS as f64,
    });
    let same = found.losses == want.losses && found.weights == want.weights;
    Ok((same && measured == Some(planned) && budget.is_none_or(|budget| planned <= budget), facts))
}
