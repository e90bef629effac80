//! From arguments as typed to what they mean.

use super::args::{Dtype, Fuse, MethodArgs, ModelArgs, Opt, OptimizerArgs, PlanArgs, Update};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use vdnn::device::DeviceName;
use vdnn_autograd::{Optimizer, UpdateAt};
use vdnn_graph::Precision;
use vdnn_graph::op::{Adam, Normalise, Sgd};
use vdnn_graph::passes::{Passes, SplitBatch};
use vdnn_layers::{Mode, Net};
use vdnn_memory::{Budgets, MemoryPolicy, Options, policies};
use vdnn_models::Options as ModelOptions;
use vdnn_schedule::Schedule;
use vdnn_sim::{Links, Machine};
use vdnn_tensor::{Bytes, DType};
use vdnn_train::{Optimization, Settings};

/// The error a network builder returns.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// What a data set decides of a network; what is `None` the network or the arguments decide.
#[derive(Clone, Debug, Default)]
pub struct FromData {
    /// Height and width of the images.
    pub image_size: Option<u64>,
    /// Channels of the images.
    pub channels: Option<u64>,
    /// Number of classes.
    pub classes: Option<u64>,
    /// Images come as bytes, to be normalised so.
    pub bytes: Option<Normalise>,
}

impl FromData {
    /// Bytes, each as likely as another, where there is no data set.
    pub fn bytes_for(args: &ModelArgs) -> Result<Self> {
        let channels = vdnn_models::find(&args.model)?.channels as usize;
        let [mean, std] = [0.5, 0.289_805].map(|number| vec![number; channels]);
        Ok(FromData { bytes: Some(Normalise { mean, std, dtype: DType::F32 }), ..FromData::default() })
    }
}

/// A network builder from arguments, with what the data set decides filled in.
pub fn network(
    args: &ModelArgs,
    data: FromData,
    seed: u64,
) -> Result<impl Fn(u64, Mode) -> Result<Net, BuildError> + use<>> {
    let spec = vdnn_models::find(&args.model)?;
    let (dtype, precision, storage) = dtype(args.dtype);
    let passes = passes(args.fuse, storage);
    let options = ModelOptions {
        batch_size: args.batch_size,
        image_size: args.image_size.or(data.image_size),
        channels: data.channels,
        classes: args.classes.or(data.classes),
        dropout: args.dropout,
        label_smoothing: args.smoothing,
        mode: Mode::Train,
        seed,
        dtype,
        precision,
        bytes: data.bytes,
        passes,
        split_batch: args.split_batch.map(|parts| SplitBatch { parts, at: args.split_at.clone() }),
    };
    Ok(move |batch_size, mode| spec.build(&ModelOptions { batch_size, mode, ..options.clone() }).map_err(Into::into))
}

/// What layers push, how products of it are multiplied, and what maps are stored as where that is something else.
fn dtype(dtype: Dtype) -> (DType, Precision, Option<DType>) {
    match dtype {
        Dtype::F32 => (DType::F32, Precision::F32, None),
        Dtype::Tf32 => (DType::F32, Precision::Tf32, Some(DType::F32)),
        Dtype::F64 => (DType::F64, Precision::F32, None),
        Dtype::Bf16 => (DType::F32, Precision::F32, Some(DType::BF16)),
        Dtype::F16 => (DType::F32, Precision::F32, Some(DType::F16)),
    }
}

/// The passes of maps that are stored so. f32 maps, whose type is no choice of the user's, are only stored in another order as
/// layers are fused: without that the network stays as it was built.
fn passes(fuse: Fuse, storage: Option<DType>) -> Passes {
    let fuse = match fuse {
        Fuse::Auto => storage.is_some(),
        Fuse::Never => false,
        Fuse::Always => true,
    };
    Passes { fuse, storage: storage.filter(|dtype| fuse || dtype.is_half()), ..Passes::NONE }
}

/// The device asked for, or the best one present; refuses arithmetic it does not have.
pub fn device(asked: Option<DeviceName>, dtype: Dtype) -> Result<DeviceName> {
    let device = asked.unwrap_or_else(DeviceName::best);
    match (device, dtype) {
        (DeviceName::Cpu, Dtype::Tf32) => bail!("--dtype tf32 needs a GPU's tensor cores; use f32 on the CPU"),
        (DeviceName::Cuda(_), Dtype::F64) => bail!("--dtype f64 runs on the CPU only; add --device cpu"),
        _ => Ok(device),
    }
}

/// The optimizer asked for.
pub fn optimization(args: &OptimizerArgs) -> Result<Optimization> {
    let optimizer = match args.opt {
        Opt::Sgd => {
            if args.nesterov && args.momentum == 0.0 {
                bail!("--nesterov needs momentum: expected --momentum above 0, found 0");
            }
            let (momentum, weight_decay) = (args.momentum, args.weight_decay);
            Optimizer::Sgd(Sgd { momentum, dampening: 0.0, weight_decay, nesterov: args.nesterov })
        }
        Opt::Adam | Opt::Adamw => Optimizer::Adam(Adam {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: args.weight_decay,
            decoupled: args.opt == Opt::Adamw,
        }),
    };
    let update_at = match args.update {
        Update::Layer => UpdateAt::Layer,
        Update::End => UpdateAt::End,
    };
    Ok(Optimization { optimizer, update_at, decay_vectors: true })
}

/// The policy asked for: `none`, or `hybrid` when there is a budget, unless named.
pub fn policy(args: &PlanArgs) -> Result<Box<dyn MemoryPolicy>> {
    let default = if args.budget.0.is_some() { "hybrid" } else { "none" };
    policy_named(args.policy.as_deref().unwrap_or(default))
}

/// The policy of this name.
pub fn policy_named(name: &str) -> Result<Box<dyn MemoryPolicy>> {
    policies::find(name).with_context(|| unknown("policy", name, policies::REGISTRY.iter().map(|entry| entry.name)))
}

/// How to plan.
pub fn settings(args: &PlanArgs, links: Links, modelled: bool) -> Result<Settings> {
    let algos_from = args.algos_from.as_deref().map(read_schedule).transpose()?;
    let budgets = budgets(args.budget.0, &args.method);
    let (policy, options, encodings) = (policy(args)?, options(&args.method, modelled), args.method.encodings);
    Ok(Settings { policy, options, budgets, links, algos_from, encodings })
}

/// The limits, with this one on device memory.
pub fn budgets(device: Option<Bytes>, args: &MethodArgs) -> Budgets {
    Budgets { device, host: args.host_budget.0, disk: args.disk_budget.0 }
}

/// The folder for what rests on disk.
pub fn disk_folder(args: &MethodArgs) -> PathBuf {
    args.disk_dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// Choices of method. On a modelled machine (m) means no workspace at all, as in the paper.
pub fn options(args: &MethodArgs, modelled: bool) -> Options {
    let defaults = Options::default();
    Options {
        prefetch: args.prefetch,
        sync: args.sync,
        placement: args.placement,
        state: args.state,
        min_offload: args.min_offload,
        memory_optimal_workspace: if modelled { 0 } else { defaults.memory_optimal_workspace },
        ..defaults
    }
}

/// A machine description by name, or from a file when the name looks like one.
pub fn machine(name: &str) -> Result<Machine> {
    let looks_like_file = name.contains('/') || name.ends_with(".json");
    if !looks_like_file {
        return Ok(Machine::named(name)?);
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("cannot read the machine description {name}"))?;
    Ok(Machine::parse_file(name, &text)?)
}

fn read_schedule(path: &Path) -> Result<Schedule> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the schedule {}", path.display()))?;
    vdnn_schedule::read_schedule(&text).with_context(|| format!("in the schedule {}", path.display()))
}

/// Writes a schedule as text or JSON, by the file's ending.
pub fn write_schedule(path: &Path, schedule: &Schedule) -> Result<()> {
    let text = match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => schedule.to_json(),
        Some("txt") => schedule.to_text(),
        _ => bail!("--out {}: expected a file ending in .txt or .json", path.display()),
    };
    write_file(path, &text).with_context(|| format!("cannot write the schedule {}", path.display()))
}

/// Planning may take minutes: a file that cannot be written is better known before.
pub fn check_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() && path.file_name().is_some() {
        return Ok(());
    }
    bail!("cannot write {}: expected a file in a folder that exists; create {} first", path.display(), folder.display())
}

/// Writes a file, whole or not at all.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    write_file(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a file beside its target under a temporary name, then renames it, so that nobody reads half of it.
fn write_file(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_synced(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // What failed is reported; a leftover that cannot be removed either is not.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_synced(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The message for an unknown name, with the nearest known ones.
pub fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut ranked: Vec<(f64, &str)> = known.map(|known| (strsim::jaro_winkler(name, known), known)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let nearest: Vec<&str> = ranked.iter().take(3).map(|&(_, known)| known).collect();
    format!("unknown {what} {name:?}; the nearest are {}", nearest.join(", "))
}
