//! Options that several commands share, as typed; what they mean is in `resolve`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use vdnn::device::DeviceName;
use vdnn_memory::{Placement, Prefetch, State, Sync};
use vdnn_tensor::Bytes;
use vdnn_train::Encodings;

/// The network.
#[derive(Args, Clone)]
pub struct ModelArgs {
    /// Network; see `vdnn models`.
    #[arg(long, default_value = "vgg-small")]
    pub model: String,
    /// Samples in a batch.
    #[arg(long, short = 'b', default_value_t = 64)]
    pub batch_size: u64,
    /// Height and width of the images (the data set's or the network's own unless given).
    #[arg(long)]
    pub image_size: Option<u64>,
    /// Number of classes (the data set's or the network's own unless given).
    #[arg(long)]
    pub classes: Option<u64>,
    /// Arithmetic.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// Batch norm, ReLU and the residual sum between them in one kernel: with tf32, bf16 and f16 (auto), never, or always.
    #[arg(long, value_parser = fuse, default_value = "auto")]
    pub fuse: Fuse,
    /// Parts of the batch that the network runs on one after the other from the images on, as far as samples are treated
    /// independently and it lowers what the largest kernel needs (1: the whole batch at once).
    #[arg(long, value_name = "K")]
    pub split_batch: Option<u64>,
    /// The value at which the parts of --split-batch are joined, in place of the one that was found.
    #[arg(long, value_name = "VALUE", requires = "split_batch")]
    pub split_at: Option<String>,
    /// Probability of dropping, for networks that have dropout.
    #[arg(long)]
    pub dropout: Option<f64>,
    /// Label smoothing of the loss.
    #[arg(long, default_value_t = 0.0)]
    pub smoothing: f64,
    /// Seed of initial values, shuffling and dropout (0 unless given).
    #[arg(long)]
    pub seed: Option<u64>,
}

impl ModelArgs {
    /// A network with everything else as by default.
    pub fn of(model: &str) -> Self {
        ModelArgs {
            model: model.to_string(),
            batch_size: 64,
            image_size: None,
            classes: None,
            dtype: Dtype::F32,
            fuse: Fuse::Auto,
            split_batch: None,
            split_at: None,
            dropout: None,
            smoothing: 0.0,
            seed: None,
        }
    }
}

/// How numbers are stored and multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// Single precision throughout.
    F32,
    /// Single precision storage, channels last, products on tensor cores (CUDA).
    Tf32,
    /// bfloat16 feature maps; single precision weights, statistics and sums.
    Bf16,
    /// Half precision feature maps, likewise; training scales the loss.
    F16,
    /// Double precision (CPU).
    F64,
}

/// Whether layers are fused before differentiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// With half-precision feature maps, and with tf32.
    Auto,
    /// Each layer by itself; in tf32 maps then stay in NCHW order.
    Never,
    /// In every arithmetic.
    Always,
}

/// The optimizer's memory, as far as planning needs it.
#[derive(Args, Clone)]
pub struct OptimizerArgs {
    /// Optimizer.
    #[arg(long, value_enum, default_value_t = Opt::Sgd)]
    pub opt: Opt,
    /// Momentum of SGD; 0 for none.
    #[arg(long, value_parser = number, default_value_t = 0.9)]
    pub momentum: f64,
    /// Nesterov's form of momentum.
    #[arg(long)]
    pub nesterov: bool,
    /// Weight decay.
    #[arg(long, value_parser = number, default_value_t = 5e-4)]
    pub weight_decay: f64,
    /// When parameters are updated: right after their gradient, or all at the end (in f16 always).
    #[arg(long, value_enum, default_value_t = Update::Layer)]
    pub update: Update,
}

/// Optimizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Opt {
    /// Stochastic gradient descent.
    Sgd,
    /// Adam with L2 penalty.
    Adam,
    /// Adam with decoupled decay.
    Adamw,
}

/// When updates run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Update {
    /// Right after the parameter's gradient.
    Layer,
    /// After all gradients.
    End,
}

/// How memory is planned.
#[derive(Args, Clone)]
pub struct PlanArgs {
    /// Memory policy; see `vdnn policies`. (`none`, or `hybrid` with a budget, unless given.)
    #[arg(long)]
    pub policy: Option<String>,
    /// Device memory the plan may use, e.g. 12GiB; `none` for unlimited.
    #[arg(long, value_parser = budget, default_value = "none")]
    pub budget: Budget,
    #[command(flatten)]
    pub method: MethodArgs,
    /// Take every kernel's algorithm from this schedule file.
    #[arg(long)]
    pub algos_from: Option<PathBuf>,
    /// Machine description by name or file.
    #[arg(long)]
    pub machine: Option<String>,
    /// Recorded profile of a device.
    #[arg(long)]
    pub profile: Option<PathBuf>,
    /// Only kernels whose results never vary between runs.
    #[arg(long)]
    pub deterministic: bool,
    /// Write the schedule to this file (`.txt` or `.json`).
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Choices of method that hold for every policy.
#[derive(Args, Clone)]
pub struct MethodArgs {
    /// Pinned host memory the plan may use; `none` for unlimited.
    #[arg(long, value_parser = budget, default_value = "none")]
    pub host_budget: Budget,
    /// Bytes of a file in which what the host budget does not hold may rest; `none` for no such file.
    #[arg(long, value_parser = budget, default_value = "none")]
    pub disk_budget: Budget,
    /// Folder of that file while training (the system's folder for temporary files unless given). It has no name there, and
    /// nothing of it is left.
    #[arg(long)]
    pub disk_dir: Option<PathBuf>,
    /// When offloaded bytes come back: paper, lookahead:N or cost.
    #[arg(long, value_parser = prefetch, default_value = "cost")]
    pub prefetch: Prefetch,
    /// How streams wait for copies.
    #[arg(long, value_parser = sync, default_value = "events")]
    pub sync: Sync,
    /// How addresses are found: planned, first-fit or size-class.
    #[arg(long, value_parser = placement, default_value = "planned")]
    pub placement: Placement,
    /// Where parameters and optimizer states live between iterations: device, host (they are fetched for each use), or auto
    /// (on the device, but `hybrid` may have some in host memory).
    #[arg(long, value_parser = state, default_value = "auto")]
    pub state: State,
    /// Values smaller than this stay on the device.
    #[arg(long, value_parser = size, default_value = "1MiB")]
    pub min_offload: Bytes,
    /// Masks and indices in place of the feature maps that gradients of ReLU and max pooling read: where `hybrid` plans
    /// better with them (auto), or never.
    #[arg(long, value_parser = encodings, default_value = "auto")]
    pub encodings: Encodings,
}

/// An upper limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub Option<Bytes>);

/// Where to run.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// cpu, cuda or cuda:NUMBER; the best one present unless given.
    #[arg(long)]
    pub device: Option<DeviceName>,
    /// Threads of the CPU device; all cores unless given.
    #[arg(long)]
    pub threads: Option<usize>,
    /// On a GPU: issue commands one by one instead of launching each iteration as one captured graph.
    #[arg(long)]
    pub no_replay: bool,
}

/// The data.
#[derive(Args, Clone)]
pub struct DataArgs {
    /// Data set; see `vdnn data`.
    #[arg(long, default_value = "fashion-mnist-sample")]
    pub data: String,
    /// Folder of a data set that is not embedded.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Images of a synthetic data set.
    #[arg(long)]
    pub samples: Option<usize>,
    /// Threads that prepare batches.
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// How images reach the device: as the bytes they are stored as, which the network normalises, or as numbers, four times as
    /// many bytes. The results are the same.
    #[arg(long, value_enum, default_value_t = Form::Bytes)]
    pub images: Form,
}

/// In what form a batch of images is copied to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Bytes.
    Bytes,
    /// Numbers, normalised by the host.
    Numbers,
}

/// A number that a run can go on with.
pub fn number(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    found.ok_or_else(|| format!("expected a number of at least 0, found {text}"))
}

/// A factor: a number above 0.
pub fn factor(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    found.ok_or_else(|| format!("expected a number above 0, found {text}"))
}

fn size(text: &str) -> Result<Bytes, String> {
    vdnn_tensor::parse_bytes(text).map_err(|error| error.to_string())
}

/// A size in bytes, or `none`.
pub fn budget(text: &str) -> Result<Budget, String> {
    if text == "none" { Ok(Budget(None)) } else { size(text).map(|bytes| Budget(Some(bytes))) }
}

fn prefetch(text: &str) -> Result<Prefetch, String> {
    match text.split_once(':') {
        None if text == "paper" => Ok(Prefetch::Paper),
        None if text == "cost" => Ok(Prefetch::Cost),
        Some(("lookahead", n)) => {
            n.parse().map(Prefetch::Lookahead).map_err(|_| format!("expected lookahead:NUMBER, found {text}"))
        }
        _ => Err(format!("expected paper, lookahead:N or cost, found {text}")),
    }
}

fn encodings(text: &str) -> Result<Encodings, String> {
    match text {
        "auto" => Ok(Encodings::Auto),
        "never" => Ok(Encodings::Never),
        _ => Err(format!("expected auto or never, found {text}")),
    }
}

/// When layers are fused.
pub fn fuse(text: &str) -> Result<Fuse, String> {
    match text {
        "auto" => Ok(Fuse::Auto),
        "never" => Ok(Fuse::Never),
        "always" => Ok(Fuse::Always),
        _ => Err(format!("expected auto, never or always, found {text}")),
    }
}

fn sync(text: &str) -> Result<Sync, String> {
    match text {
        "per-layer" => Ok(Sync::PerLayer),
        "events" => Ok(Sync::Events),
        _ => Err(format!("expected per-layer or events, found {text}")),
    }
}

fn state(text: &str) -> Result<State, String> {
    match text {
        "device" => Ok(State::Device),
        "auto" => Ok(State::Auto),
        "host" => Ok(State::Host),
        _ => Err(format!("expected device, auto or host, found {text}")),
    }
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "planned" => Ok(Placement::Planned),
        "first-fit" => Ok(Placement::FirstFit),
        "size-class" => Ok(Placement::SizeClass),
        _ => Err(format!("expected planned, first-fit or size-class, found {text}")),
    }
}
