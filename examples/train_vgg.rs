//! A small VGG composed from layers, trained on the embedded Fashion-MNIST sample under a memory budget.
//!
//! It teaches the way from layers to a trained network: a network is a function of batch size and mode, a recipe says how
//! to train and how to plan, the trainer runs schedules that were checked before the first step. What the device measures
//! is compared with what was planned.
//!
//! ```text
//! cargo run --release -p vdnn-examples --example train_vgg             # the best device present
//! cargo run --release -p vdnn-examples --example train_vgg -- cpu 40MiB
//! ```

use anyhow::{Context, Result};
use vdnn::layers::{Conv2d, Flatten, Linear, MaxPool2d, Relu, Sequential};
use vdnn::prelude::*;

const BATCH: u64 = 64;

/// Two groups of convolutions and a classifier, for images `[N, 1, 28, 28]` of bytes, which the network normalises.
fn network(batch_size: u64, mode: Mode) -> Result<Net, BuildError> {
    let bytes = Normalise { mean: vec![0.286_041], std: vec![0.353_024], dtype: DType::F32 };
    let options = NetOptions { batch_size, image: [1, 28, 28], bytes: Some(bytes), mode, ..NetOptions::default() };
    let mut net = Net::new("tiny-vgg", &options)?;
    let body = Sequential::new()
        .then("conv1_1", Conv2d::new(1, 16, 3).padding(1)) // [N, 16, 28, 28]
        .then("relu1_1", Relu)
        .then("conv1_2", Conv2d::new(16, 16, 3).padding(1))
        .then("relu1_2", Relu)
        .then("pool1", MaxPool2d::new(2, 2)) // [N, 16, 14, 14]
        .then("conv2_1", Conv2d::new(16, 32, 3).padding(1)) // [N, 32, 14, 14]
        .then("relu2_1", Relu)
        .then("pool2", MaxPool2d::new(2, 2)) // [N, 32, 7, 7]
        .then("flatten", Flatten)
        .then("fc", Linear::new(32 * 7 * 7, 10));
    let image = net.image();
    let logits = body.push(&mut net, "", image)?;
    net.classify(logits, 0.0)?;
    Ok(net)
}

/// The network on a device, its convolutions' inputs in host memory between forward and backward.
fn trainer(device: DeviceName, budget: Option<u64>) -> Result<Trainer> {
    let policy = policies::find("conv").context("no such policy")?;
    let mut settings = Settings::new(policy, device.links());
    settings.budgets.device = budget;
    let recipe = Recipe {
        batch_size: BATCH,
        partial_batches: vec![],
        eval_batches: vec![BATCH],
        optimization: Optimization::sgd(0.9, 5e-4),
        settings,
        staging: true,
        deterministic: true,
        seed: 0,
    };
    Ok(Trainer::new(&network, open_device(device)?, &recipe)?)
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().map(|name| name.parse()).transpose().map_err(anyhow::Error::msg)?;
    let budget = args.next().map(|bytes| parse_bytes(&bytes)).transpose()?;
    let mut trainer = trainer(device.unwrap_or_else(DeviceName::best), budget)?;

    let data = datasets::open("fashion-mnist-sample", &OpenOptions::default())?;
    let order = Order::Shuffled { seed: 0 };
    let sampler = Sampler::new(data.train.len(), BATCH as usize, order, LastBatch::Drop)?;
    let mut loader = Loader::new(data.train, sampler, &LoaderOptions { epochs: 2, ..LoaderOptions::default() })?;
    let first = loader.next().context("no training images")??;
    let mut coming = Some(trainer.load(Feed::new(&first.images, &first.labels))?);
    while let Some(batch) = coming {
        let step = trainer.iteration();
        let mut running = trainer.begin_step(batch, 0.02)?;
        // The next batch is fetched, and copied beside the one in use, while the device works.
        let next = loader.next().transpose()?;
        let staged = next.map(|next| running.stage(Feed::new(&next.images, &next.labels))).transpose()?;
        let result = running.finish()?;
        if step.is_multiple_of(50) {
            println!("step {step:3}  loss {:.4}  right {}/{}", result.loss, result.correct, result.samples);
        }
        coming = staged.map(|staged| trainer.load_staged(staged)).transpose()?;
    }

    let sampler = Sampler::new(data.test.len(), BATCH as usize, Order::Sequential, LastBatch::Drop)?;
    let mut sum = EvaluationSum::default();
    for batch in Loader::new(data.test, sampler, &LoaderOptions::default())? {
        let batch = batch?;
        trainer.evaluate_batch(Feed::new(&batch.images, &batch.labels), &mut sum)?;
    }
    let test = sum.result().context("no test images")?;
    println!("test    loss {:.4}  accuracy {:.2} % of {}", test.loss, test.accuracy * 100.0, test.samples);
    report_memory(&mut trainer);
    Ok(())
}

/// What was planned, what the device says was used, and what went over the link.
fn report_memory(trainer: &mut Trainer) {
    let schedule = &trainer.planned().schedule;
    let moved = schedule.transfer_bytes(Direction::Offload);
    let planned = trainer.peak_bytes(Space::Device);
    let measured = trainer.measured_peak().map_or("nothing".to_string(), format_bytes);
    let host = format_bytes(trainer.peak_bytes(Space::Host));
    let (planned, moved) = (format_bytes(planned), format_bytes(moved));
    println!("device memory: planned {planned}, measured {measured}; host {host}; offloaded {moved} a step");
}
