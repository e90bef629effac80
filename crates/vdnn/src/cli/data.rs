//! The data of a run: which set, what it decides of the network, in what form its batches are fed, how it is walked through.

use super::args::{DataArgs, Form, ModelArgs};
use super::resolve::{self, BuildError, FromData};
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use vdnn_datasets::registry::{self, OpenOptions};
use vdnn_datasets::{Batch, LastBatch, Loader, LoaderOptions, Normalization, Order, Position, Sampler, Source, Splits};
use vdnn_graph::op::Normalise;
use vdnn_layers::{Mode, Net};
use vdnn_tensor::DType;
use vdnn_train::{Evaluation, EvaluationSum, Feed, Trainer};

/// Opens the data set, with the images as large as asked for, or of the network's own size where the data can be made so.
pub fn open_data(data: &DataArgs, model: &ModelArgs, seed: u64) -> Result<Splits<Arc<dyn Source>>> {
    let synthetic = data.data == "synthetic";
    let spec = vdnn_models::find(&model.model)?;
    let own = synthetic.then_some(spec.image_size);
    let options = OpenOptions {
        folder: data.data_dir.as_deref(),
        image_size: model.image_size.or(own).map(|size| size as usize),
        n_classes: if synthetic { Some(model.classes.unwrap_or(spec.classes) as usize) } else { None },
        n_samples: data.samples,
        seed,
    };
    Ok(registry::open(&data.data, &options)?)
}

/// A network builder for images and classes as the data set has them, in the form in which they are fed.
pub fn with_data_shape(
    model: &ModelArgs,
    splits: &Splits<Arc<dyn Source>>,
    form: Form,
    seed: u64,
) -> Result<impl Fn(u64, Mode) -> Result<Net, BuildError> + use<>> {
    let [channels, height, _] = splits.train.shape();
    let classes = splits.train.classes().len() as u64;
    if model.classes.is_some_and(|asked| asked < classes) {
        bail!("--classes: the data set has {classes} classes, found {}", model.classes.unwrap_or(0));
    }
    let Normalization { mean, std } = splits.train.normalization().clone();
    let normalise = Normalise { mean, std, dtype: DType::F32 };
    let data = FromData {
        image_size: Some(height as u64),
        channels: Some(channels as u64),
        classes: Some(classes),
        bytes: (form == Form::Bytes).then_some(normalise),
    };
    resolve::network(model, data, seed)
}

/// The data of a run and how it is walked through.
pub struct Run {
    /// Both parts of the data set.
    pub splits: Splits<Arc<dyn Source>>,
    /// What becomes of a last batch that is not full.
    pub last: LastBatch,
    /// The first batch.
    pub start: Position,
    batch_size: usize,
    seed: u64,
    workers: usize,
    form: Form,
}

impl Run {
    /// A run over a data set from its start.
    pub fn new(splits: &Splits<Arc<dyn Source>>, batch_size: u64, seed: u64, data: &DataArgs) -> Result<Self> {
        let batch_size = usize::try_from(batch_size).context("--batch-size")?;
        let splits = Splits { train: Arc::clone(&splits.train), test: Arc::clone(&splits.test) };
        let (last, start) = (LastBatch::Keep, Position { epoch: 0, batch: 0 });
        Ok(Run { splits, batch_size, seed, workers: data.workers, form: data.images, last, start })
    }

    /// Training batches: shuffled.
    pub fn train_sampler(&self) -> Result<Sampler> {
        Ok(Sampler::new(self.splits.train.len(), self.batch_size, Order::Shuffled { seed: self.seed }, self.last)?)
    }

    /// Number of full training batches in an epoch.
    pub fn full_batches(&self) -> Result<u64> {
        let sampler = self.train_sampler()?;
        Ok((sampler.batches_per_epoch() - usize::from(sampler.partial_len().is_some())) as u64)
    }

    /// Training batches from the start of the run to the end of so many epochs.
    pub fn train_loader(&self, epochs: u64) -> Result<Loader> {
        let options = LoaderOptions { start: self.start, epochs, workers: self.workers, ..LoaderOptions::default() };
        Ok(Loader::new(Arc::clone(&self.splits.train), self.train_sampler()?, &options)?)
    }

    fn eval_sampler(&self) -> Result<Sampler> {
        let batch = self.batch_size.min(self.splits.test.len().max(1));
        Ok(Sampler::new(self.splits.test.len(), batch, Order::Sequential, LastBatch::Keep)?)
    }

    /// Sizes of evaluation batches: the full one and the last.
    pub fn eval_sizes(&self) -> Vec<u64> {
        let Ok(sampler) = self.eval_sampler() else { return Vec::new() };
        let full = (sampler.batches_per_epoch() > 0).then(|| sampler.batch_len(0) as u64);
        full.into_iter().chain(sampler.partial_len().map(|len| len as u64)).collect()
    }

    /// Does something with a batch in the form in which the network takes it.
    pub fn fed<T>(&self, batch: &Batch, act: impl FnOnce(Feed<'_>) -> T) -> T {
        match self.form {
            Form::Bytes => act(Feed::new(&batch.images, &batch.labels)),
            Form::Numbers => {
                let [_, height, width] = self.splits.train.shape();
                let numbers = self.splits.train.normalization().apply(&batch.images, height * width);
                act(Feed::new(&numbers, &batch.labels))
            }
        }
    }

    /// Loss and accuracy over the test part.
    pub fn evaluate(&self, trainer: &mut Trainer) -> Result<Evaluation> {
        let options = LoaderOptions { epochs: 1, workers: self.workers, ..LoaderOptions::default() };
        let mut sum = EvaluationSum::default();
        for batch in Loader::new(Arc::clone(&self.splits.test), self.eval_sampler()?, &options)? {
            self.fed(&batch?, |feed| trainer.evaluate_batch(feed, &mut sum))?;
        }
        sum.result().context("the data set has no test images")
    }
}
