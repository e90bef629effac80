//! `vdnn eval`: accuracy and loss of a checkpoint.

use super::Report;
use super::args::{DataArgs, DeviceArgs, ModelArgs, PlanArgs};
use super::data::{Run, open_data, with_data_shape};
use super::resolve;
use super::train::{checkpoint_file, open_device};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use vdnn_autograd::{Optimizer, UpdateAt};
use vdnn_train::{Checkpoint, Optimization, Recipe, Trainer};

/// Options of `vdnn eval`.
#[derive(Args)]
pub struct EvalArgs {
    /// The checkpoint: a file, or the folder given to `train --output`.
    pub checkpoint: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    plan: PlanArgs,
}

/// Evaluates and reports.
pub fn run(args: &EvalArgs) -> Result<Report> {
    let path = checkpoint_file(&args.checkpoint);
    let checkpoint = Checkpoint::load(&path)?;
    let mut model = args.model.clone();
    if let Some(state) = &checkpoint.state {
        model.model.clone_from(&state.model);
    }
    let splits = open_data(&args.data, &model, 0)?;
    let build = with_data_shape(&model, &splits, args.data.images, 0)?;
    let name = resolve::device(args.device.device, model.dtype)?;
    let mut device = open_device(name, &args.device)?;
    device.set_disk_folder(&resolve::disk_folder(&args.plan.method));
    let settings = resolve::settings(&args.plan, name.links(), false)?;
    let run = Run::new(&splits, model.batch_size, 0, &args.data)?;
    let recipe = Recipe {
        batch_size: model.batch_size,
        partial_batches: Vec::new(),
        eval_batches: run.eval_sizes(),
        optimization: Optimization { optimizer: Optimizer::None, update_at: UpdateAt::Layer, decay_vectors: true },
        settings,
        staging: false,
        deterministic: args.plan.deterministic,
        seed: 0,
    };
    let mut trainer = Trainer::new(&build, device, &recipe)?;
    checkpoint.restore(&mut trainer, &path)?;
    let result = run.evaluate(&mut trainer)?;
    let document = json!({
        "device": trainer.description().name, "model": model.model, "test_loss": result.loss,
        "test_accuracy": result.accuracy, "samples": result.samples, "weights_sha256": trainer.weights_sha256()?,
    });
    let text = format!(
        "{} on {} test images: accuracy {:.2} %, loss {:.4}",
        model.model,
        result.samples,
        result.accuracy * 100.0,
        result.loss
    );
    Ok(Report::new(document, text))
}
