//! Batches on their way to the device.
//!
//! ```text
//!   load          host ──► image, label                        before a step
//!   stage         host ──► staged image, staged label          while a step runs, or at any time
//!   load_staged            staged ──► image, label             before the next step, on the device
//! ```

use super::{Ready, Trainer};
use crate::{Feed, Images, TrainError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use vdnn_runtime::ScheduleId;
use vdnn_tensor::DType;

/// The inputs that a batch fills.
pub(super) const FED: [&str; 2] = ["image", "label"];

/// A training batch that is on the device.
#[derive(Clone, Copy, Debug)]
pub struct LoadedBatch {
    pub(super) id: ScheduleId,
    pub(super) samples: u64,
}

/// A training batch on its way to the device, or there beside the one in use.
#[derive(Debug)]
#[must_use = "Trainer::load_staged brings it to where steps read it"]
pub struct StagedBatch(LoadedBatch);

impl Trainer {
    /// Copies a training batch to the device.
    ///
    /// # Errors
    /// [`TrainError::BatchSize`] for a size without a schedule, [`TrainError::NoLabels`] when no label counts,
    /// [`TrainError::Images`] for bytes where numbers are wanted, for numbers where bytes are, and for too many or too few.
    pub fn load(&mut self, feed: Feed<'_>) -> Result<LoadedBatch, TrainError> {
        let batch = self.accept(feed)?;
        self.feed(batch.id, feed)?;
        Ok(batch)
    }

    /// Copies a training batch to the device beside the one that is there, and does not wait for it. A batch that was staged
    /// before and not loaded is overwritten.
    ///
    /// # Errors
    /// As [`Trainer::load`]; [`TrainError::NoStaging`] where the recipe made no room.
    pub fn stage(&mut self, feed: Feed<'_>) -> Result<StagedBatch, TrainError> {
        let batch = self.accept(feed)?;
        let places = FED.map(|name| self.homes.staged(name));
        let [Some(image), Some(label)] = places else { return Err(TrainError::NoStaging) };
        let images = self.image_bytes(feed.images);
        self.executor.stage(batch.id, FED[0], image, &images)?;
        self.executor.stage(batch.id, FED[1], label, bytemuck::cast_slice(feed.labels))?;
        Ok(StagedBatch(batch))
    }

    /// Brings the batch staged last to where steps read it: a copy on the device, which waits for the one from the host.
    ///
    /// # Errors
    /// A device failure.
    pub fn load_staged(&mut self, batch: StagedBatch) -> Result<LoadedBatch, TrainError> {
        let StagedBatch(batch) = batch;
        for name in FED {
            let place = self.homes.staged(name).ok_or(TrainError::NoStaging)?;
            self.executor.load_staged(batch.id, name, place)?;
        }
        Ok(batch)
    }

    /// Whether there is room for a second batch.
    pub fn can_stage(&self) -> bool {
        self.homes.staging().is_some()
    }

    /// Finds a training batch's schedule, and that it has what that wants.
    fn accept(&self, feed: Feed<'_>) -> Result<LoadedBatch, TrainError> {
        let samples = counted(feed.labels);
        if samples == 0 {
            return Err(TrainError::NoLabels { step: self.iteration, count: feed.labels.len() });
        }
        let ready = ready(&self.train, feed.labels.len())?;
        check_images(ready, feed.images)?;
        Ok(LoadedBatch { id: ready.id, samples })
    }

    pub(super) fn accept_for_evaluation(&self, feed: Feed<'_>) -> Result<ScheduleId, TrainError> {
        let ready = ready(&self.eval, feed.labels.len())?;
        check_images(ready, feed.images)?;
        Ok(ready.id)
    }

    pub(super) fn feed(&mut self, id: ScheduleId, feed: Feed<'_>) -> Result<(), TrainError> {
        let images = self.image_bytes(feed.images);
        self.executor.write(id, FED[0], &images)?;
        Ok(self.executor.write(id, FED[1], bytemuck::cast_slice(feed.labels))?)
    }

    /// Images as the network stores them; without a copy unless numbers are wanted in f64.
    fn image_bytes<'a>(&self, images: Images<'a>) -> Cow<'a, [u8]> {
        match images {
            Images::Bytes(bytes) => Cow::Borrowed(bytes),
            Images::Floats(numbers) => in_dtype(numbers, self.dtype),
        }
    }
}

/// The bytes of numbers in f64 or f32.
pub(super) fn in_dtype(numbers: &[f32], dtype: DType) -> Cow<'_, [u8]> {
    match dtype {
        DType::F64 => Cow::Owned(numbers.iter().flat_map(|&number| f64::from(number).to_le_bytes()).collect()),
        _ => Cow::Borrowed(bytemuck::cast_slice(numbers)),
    }
}

fn ready(compiled: &BTreeMap<u64, Ready>, samples: usize) -> Result<&Ready, TrainError> {
    let found = samples as u64;
    compiled.get(&found).ok_or_else(|| TrainError::BatchSize { found, compiled: compiled.keys().copied().collect() })
}

fn check_images(ready: &Ready, images: Images<'_>) -> Result<(), TrainError> {
    let graph = &ready.planned.program.graph;
    let Some(expected) = graph.find_value(FED[0]).map(|id| &graph.value(id).ty) else { return Ok(()) };
    if images.fit(expected.dtype) && images.len() as u64 == expected.shape.elements() {
        return Ok(());
    }
    let form = if matches!(images, Images::Bytes(_)) { "bytes" } else { "f32 numbers" };
    Err(TrainError::Images { expected: Box::new(expected.clone()), found: images.len(), form })
}

/// Labels that count: all but the ignored ones.
pub(super) fn counted(labels: &[i32]) -> u64 {
    let ignored = vdnn_graph::op::SoftmaxCrossEntropy::default().ignore_index;
    labels.iter().filter(|&&label| label != ignored).count() as u64
}
