//! Figures and peers: programs that time this framework, one JSON line each, and scripts that time others the same way.
//!
//! | program | what |
//! | --- | --- |
//! | `step` | median training step, memory, bytes moved, overlap and the simulator's prediction for one policy |
//! | `loss_curve` | losses from given weights and batches, to compare with another framework's |
//! | `rounding` | losses of each of the CPU's convolution algorithms, against f64 |
//! | `cpu_feeding` | steps on the CPU by how batches reach it, in turns |
//! | `peers/torch_step.py` | PyTorch's training step, eager, compiled or under its own memory savers, with fixed data on the device |
//! | `peers/torch_curve.py` | writes weights and batches, and PyTorch's losses on them |

pub mod kernels;

use anyhow::{Result, bail};
use clap::Args;
use vdnn::graph::Precision;
use vdnn::graph::op::Normalise;
use vdnn::graph::passes::{Passes, SplitBatch};
use vdnn::memory::{State, Sync};
use vdnn::prelude::*;

/// What both programs can set.
#[derive(Args, Clone)]
pub struct Setup {
    /// Network.
    #[arg(long)]
    pub model: String,
    /// Samples in a batch.
    #[arg(long)]
    pub batch_size: u64,
    /// Height and width of the images.
    #[arg(long)]
    pub image_size: Option<u64>,
    /// Channels of the images.
    #[arg(long)]
    pub channels: Option<u64>,
    /// Number of classes.
    #[arg(long)]
    pub classes: Option<u64>,
    /// f32, tf32, bf16 or f16.
    #[arg(long, default_value = "f32")]
    pub dtype: String,
    /// Fuse layers also where that is not the default (f32).
    #[arg(long)]
    pub fuse: bool,
    /// Leave layers as they are where fusing is the default (tf32, bf16 and f16).
    #[arg(long)]
    pub no_fuse: bool,
    /// Parts of the batch that the network runs on one after the other from the images on.
    #[arg(long)]
    pub split_batch: Option<u64>,
    /// The value at which they are joined, in place of the one that was found.
    #[arg(long, requires = "split_batch")]
    pub split_at: Option<String>,
    /// Device.
    #[arg(long, default_value = "cuda")]
    pub device: DeviceName,
    /// Policy.
    #[arg(long, default_value = "none")]
    pub policy: String,
    /// Device budget.
    #[arg(long)]
    pub budget: Option<String>,
    /// Host budget; without it as much as the plan wants.
    #[arg(long)]
    pub host_budget: Option<String>,
    /// per-layer or events.
    #[arg(long, default_value = "events")]
    pub sync: String,
    /// Where parameters and states live between iterations: device, auto or host.
    #[arg(long, default_value = "auto")]
    pub state: String,
    /// Only kernels whose results never vary.
    #[arg(long)]
    pub deterministic: bool,
    /// Weight decay.
    #[arg(long, default_value_t = 1e-4)]
    pub weight_decay: f64,
    /// Issue commands one by one instead of launching a captured graph.
    #[arg(long)]
    pub no_replay: bool,
    /// Images come to the device as bytes, which the network normalises.
    #[arg(long)]
    pub bytes: bool,
    /// Room for a second batch on the device; `step` then copies one while each step runs, as training does.
    #[arg(long)]
    pub stage: bool,
    /// Take algorithms from this schedule file.
    #[arg(long)]
    pub algos_from: Option<std::path::PathBuf>,
}

impl Setup {
    /// Builds the trainer: dropout off, momentum 0.9.
    ///
    /// # Errors
    /// Whatever building, planning or the device says.
    pub fn trainer(&self) -> Result<Trainer> {
        let (precision, storage) = match self.dtype.as_str() {
            "f32" => (Precision::F32, None),
            "tf32" => (Precision::Tf32, Some(DType::F32)),
            "bf16" => (Precision::F32, Some(DType::BF16)),
            "f16" => (Precision::F32, Some(DType::F16)),
            other => bail!("--dtype: expected f32, tf32, bf16 or f16, found {other}"),
        };
        let fuse = self.fuse || storage.is_some() && !self.no_fuse;
        // As `vdnn --dtype tf32 --fuse never`: f32 maps change their order only as layers are fused.
        let passes = Passes { fuse, storage: storage.filter(|dtype| fuse || dtype.is_half()), ..Passes::NONE };
        let setup = self.clone();
        let build = move |batch_size, mode| {
            let options = ModelOptions {
                batch_size,
                mode,
                image_size: setup.image_size,
                channels: setup.channels,
                classes: setup.classes,
                dropout: Some(0.0),
                precision,
                passes,
                split_batch: setup.split_batch.map(|parts| SplitBatch { parts, at: setup.split_at.clone() }),
                bytes: setup.bytes.then(|| evenly(setup.channels.unwrap_or(3))),
                ..ModelOptions::default()
            };
            vdnn::models::build(&setup.model, &options).map_err(Into::into)
        };
        let mut device = open_device(self.device)?;
        device.set_replay(!self.no_replay);
        Ok(Trainer::new(&build, device, &self.recipe()?)?)
    }

    fn recipe(&self) -> Result<Recipe> {
        let Some(policy) = policies::find(&self.policy) else { bail!("unknown policy {}", self.policy) };
        let mut settings = Settings::new(policy, self.device.links());
        settings.budgets.device = self.budget.as_deref().map(parse_bytes).transpose()?;
        settings.budgets.host = self.host_budget.as_deref().map(parse_bytes).transpose()?;
        settings.options.sync = if self.sync == "per-layer" { Sync::PerLayer } else { Sync::Events };
        settings.options.state = match self.state.as_str() {
            "device" => State::Device,
            "auto" => State::Auto,
            "host" => State::Host,
            other => bail!("--state: expected device, auto or host, found {other}"),
        };
        if let Some(path) = &self.algos_from {
            settings.algos_from = Some(vdnn::schedule::read_schedule(&std::fs::read_to_string(path)?)?);
        }
        Ok(Recipe {
            batch_size: self.batch_size,
            partial_batches: Vec::new(),
            eval_batches: Vec::new(),
            optimization: Optimization::sgd(0.9, self.weight_decay),
            settings,
            staging: self.stage,
            deterministic: self.deterministic,
            seed: 0,
        })
    }
}

/// For bytes of which each is as likely as another.
fn evenly(channels: u64) -> Normalise {
    let of = |number: f32| vec![number; channels as usize];
    Normalise { mean: of(0.5), std: of(0.289_805), dtype: DType::F32 }
}
