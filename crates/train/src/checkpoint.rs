//! Checkpoints: safetensors with torchvision's names, plus what a bit-exact resume needs.
//!
//! A checkpoint is one file, written beside its target under a temporary name, synced and renamed, so that a crash or a
//! full disk leaves the previous one whole; the rename is the mark of completeness.

use crate::{TrainError, Trainer};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use vdnn_autograd::{GOOD_STEPS, LOSS_SCALE, SKIPPED_STEPS};
use vdnn_graph::Role;
use vdnn_graph::op::LossScaleUpdate;
use vdnn_tensor::{DType, HostTensor};

const FORMAT: &str = "vdnn-checkpoint-1";

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// Name of the model.
    pub model: String,
    /// Steps done.
    pub iteration: u64,
    /// Epochs done.
    pub epoch: u64,
    /// Batches done of the epoch under way.
    pub batch: u64,
    /// The run's seed.
    pub seed: u64,
}

/// A checkpoint in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Where the run stands; `None` for plain weights from elsewhere.
    pub state: Option<RunState>,
    /// All tensors by name.
    pub tensors: Vec<(String, HostTensor)>,
}

impl Checkpoint {
    /// Takes a checkpoint of a trainer.
    ///
    /// # Errors
    /// A device failure.
    pub fn take(trainer: &mut Trainer, state: RunState) -> Result<Self, TrainError> {
        let tensors = trainer.tensors()?.into_iter().map(|(name, _, tensor)| (name, tensor)).collect();
        Ok(Checkpoint { state: Some(state), tensors })
    }

    /// Puts the tensors into a trainer built for the same model. Optimizer states that plain weights lack stay at zero, and a
    /// loss scale that the file lacks as it starts: a run may go on in another arithmetic.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`] when a parameter is missing, left over, or of another shape, or when a loss scale is none that a
    /// run can have; nothing is changed then.
    pub fn restore(&self, trainer: &mut Trainer, path: &Path) -> Result<(), TrainError> {
        let refuse = |reason: String| TrainError::Checkpoint { path: path.to_path_buf(), reason };
        let wanted = trainer.tensors()?;
        let have: HashMap<&str, &HostTensor> = self.tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
        let optimizer = |name: &str| [".momentum", ".exp_avg", ".exp_avg_sq"].iter().any(|end| name.ends_with(end));
        for (name, _, tensor) in &wanted {
            match have.get(name.as_str()) {
                None if optimizer(name) && self.state.is_none() || is_loss_scale(name) => {}
                None => {
                    return Err(refuse(format!(
                        "{name} is missing; this is a checkpoint of another model or optimizer"
                    )));
                }
                Some(found) if found.ty() != tensor.ty() => {
                    return Err(refuse(format!("{name}: expected {}, found {}", tensor.ty(), found.ty())));
                }
                Some(_) => {}
            }
        }
        let known: HashMap<&str, Role> = wanted.iter().map(|(name, role, _)| (name.as_str(), *role)).collect();
        let passed_over = |name: &str| optimizer(name) || is_loss_scale(name) || name.ends_with("num_batches_tracked");
        let leftover = have.keys().find(|name| !known.contains_key(**name) && !passed_over(name));
        if let Some(name) = leftover {
            return Err(refuse(format!("{name} is not in the model; this is a checkpoint of another model")));
        }
        if let Some(scale) = have.get(LOSS_SCALE).filter(|_| known.contains_key(LOSS_SCALE)) {
            check_loss_scale(scale).map_err(refuse)?;
        }
        for (name, tensor) in self.tensors.iter().filter(|(name, _)| known.contains_key(name.as_str())) {
            trainer.set_tensor(name, tensor)?;
        }
        if let Some(state) = &self.state {
            trainer.set_iteration(state.iteration);
        }
        Ok(())
    }

    /// Writes the checkpoint so that `path` is always either the old or the new one, whole.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`] with the system's reason; the previous file is untouched and no temporary is left.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let bytes = self.to_bytes().map_err(|reason| TrainError::Checkpoint { path: path.to_path_buf(), reason })?;
        let temporary = temporary_beside(path);
        let written = write_synced(&temporary, &bytes).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            let reason = format!(
                "cannot save the checkpoint ({} bytes): {error}; the previous one, if any, is intact",
                bytes.len()
            );
            TrainError::Checkpoint { path: path.to_path_buf(), reason }
        })?;
        sync_folder(path);
        Ok(())
    }

    /// Reads a checkpoint, or plain weights in safetensors.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`] when the file is missing, damaged or of another format.
    pub fn load(path: &Path) -> Result<Self, TrainError> {
        let refuse = |reason: String| TrainError::Checkpoint { path: path.to_path_buf(), reason };
        let bytes = fs::read(path).map_err(|error| refuse(format!("cannot read the checkpoint: {error}")))?;
        Self::from_bytes(&bytes).map_err(refuse)
    }

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let view = |(name, tensor): &'_ (String, HostTensor)| {
            let shape = tensor.shape().dims().iter().map(|&dim| dim as usize).collect();
            let dtype = safetensors_dtype(tensor.dtype())
                .ok_or_else(|| format!("{name}: {} cannot be saved", tensor.dtype()))?;
            Ok((name.clone(), dtype, shape))
        };
        let described: Vec<(String, Dtype, Vec<usize>)> =
            self.tensors.iter().map(view).collect::<Result<_, String>>()?;
        let views: Result<Vec<(String, TensorView<'_>)>, String> = described
            .into_iter()
            .zip(&self.tensors)
            .map(|((name, dtype, shape), (_, tensor))| {
                let view = TensorView::new(dtype, shape, tensor.as_bytes()).map_err(|error| error.to_string())?;
                Ok((name, view))
            })
            .collect();
        let metadata = self.state.as_ref().map(metadata);
        safetensors::serialize(views?, metadata).map_err(|error| error.to_string())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let damaged = |error: safetensors::SafeTensorError| format!("not a whole safetensors file: {error}");
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let state = header.metadata().as_ref().map(run_state).transpose()?.flatten();
        let mut tensors = Vec::new();
        for (name, view) in file.tensors() {
            let Some(dtype) = tensor_dtype(view.dtype()) else { continue };
            let dims: Vec<u64> = view.shape().iter().map(|&dim| dim as u64).collect();
            let tensor =
                HostTensor::from_bytes(dims, dtype, view.data().to_vec()).map_err(|error| error.to_string())?;
            tensors.push((name, tensor));
        }
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Checkpoint { state, tensors })
    }
}

fn is_loss_scale(name: &str) -> bool {
    [LOSS_SCALE, GOOD_STEPS, SKIPPED_STEPS].contains(&name)
}

/// A scale of 0 or no number would pass finite gradients and make no numbers of them.
fn check_loss_scale(tensor: &HostTensor) -> Result<(), String> {
    let LossScaleUpdate { least, most, .. } = LossScaleUpdate::default();
    match tensor.to_vec::<f32>().as_deref() {
        Ok(&[scale]) if (least..=most).contains(&f64::from(scale)) => Ok(()),
        found => {
            let found = found.map_or_else(ToString::to_string, |found| format!("{found:?}"));
            Err(format!("{LOSS_SCALE}: expected a number from {least} to {most}, found {found}; the file is damaged"))
        }
    }
}

fn metadata(state: &RunState) -> HashMap<String, String> {
    let entries = [
        ("format", FORMAT.to_string()),
        ("model", state.model.clone()),
        ("iteration", state.iteration.to_string()),
        ("epoch", state.epoch.to_string()),
        ("batch", state.batch.to_string()),
        ("seed", state.seed.to_string()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// The run state in a file's metadata; `None` when the file is not one of ours.
fn run_state(metadata: &HashMap<String, String>) -> Result<Option<RunState>, String> {
    match metadata.get("format") {
        None => return Ok(None),
        Some(format) if format == "pt" || format == "np" => return Ok(None),
        Some(format) if format != FORMAT => return Err(format!("expected format {FORMAT}, found {format}")),
        Some(_) => {}
    }
    let text = |key: &str| metadata.get(key).ok_or_else(|| format!("the run state lacks {key}"));
    let number = |key: &str| {
        let found = text(key)?;
        found.parse::<u64>().map_err(|_| format!("expected a number for {key}, found {found:?}"))
    };
    Ok(Some(RunState {
        model: text("model")?.clone(),
        iteration: number("iteration")?,
        epoch: number("epoch")?,
        batch: number("batch")?,
        seed: number("seed")?,
    }))
}

fn safetensors_dtype(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F64 => Some(Dtype::F64),
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::BF16),
        DType::I32 => Some(Dtype::I32),
        DType::U64 => Some(Dtype::U64),
        DType::U8 => Some(Dtype::U8),
    }
}

fn tensor_dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::I32 => Some(DType::I32),
        Dtype::U64 => Some(DType::U64),
        Dtype::U8 => Some(DType::U8),
        _ => None,
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    path.with_file_name(name)
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the rename itself durable, where the system lets folders be synced.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
