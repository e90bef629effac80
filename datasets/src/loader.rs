//! Makes batches ahead of time on worker threads and hands them out in order.
//!
//! ```text
//!  worker 0   | batch 0 | batch 3 | …  ──► channel 0 ─┐
//!  worker 1   | batch 1 | batch 4 | …  ──► channel 1 ─┼─► next(): channel 0, 1, 2, 0, 1, …
//!  worker 2   | batch 2 | batch 5 | …  ──► channel 2 ─┘
//! ```
//!
//! Each worker knows from the sampler which batches are its own, so no queue is shared and the order cannot depend
//! on timing. Channels are bounded: memory is at most `prefetch` batches waiting, rounded up to the workers, one in
//! the making per worker, and what the consumer holds.
//!
//! Left to others: copies to pinned or device memory, augmentation.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::batch::{Batch, Pool};
use crate::{Error, Position, Sampler, Source};

/// How a loader runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// The first batch to make.
    pub start: Position,
    /// Number of epochs in the run, counted from epoch 0: the loader ends before this one.
    pub epochs: u64,
    /// Threads that make batches; 0 makes them on the caller's thread, when asked for.
    pub workers: usize,
    /// Batches made ahead of time, by all workers together; at least one per worker.
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions { start: Position::default(), epochs: 1, workers: 1, prefetch: 4 }
    }
}

impl LoaderOptions {
    /// Bounds that keep a slip of the keyboard from taking all threads or all memory.
    fn check(&self) -> Result<(), Error> {
        for (option, value, limit) in [("workers", self.workers, 1024), ("prefetch", self.prefetch, 65_536)] {
            if value > limit {
                return Err(Error::BadOption {
                    option,
                    found: value.to_string(),
                    expected: format!("at most {limit}"),
                });
            }
        }
        Ok(())
    }
}

/// An iterator of batches. After an error it ends. Dropping it stops and joins its threads.
#[derive(Debug)]
pub struct Loader {
    sampler: Sampler,
    feed: Feed,
    start: u64,
    next: u64,
    end: u64,
    failed: bool,
}

#[derive(Debug)]
enum Feed {
    Inline(Maker),
    Threads { channels: Vec<Receiver<Result<Batch, Error>>>, threads: Vec<JoinHandle<()>> },
}

impl Loader {
    /// Starts loading the batches of `sampler` out of `source`.
    ///
    /// # Errors
    /// Where the sampler was made for another number of samples, the start is no batch of the run, or a thread
    /// cannot be started.
    pub fn new(source: Arc<dyn Source>, sampler: Sampler, options: &LoaderOptions) -> Result<Loader, Error> {
        options.check()?;
        if sampler.len() != source.len() {
            let expected = format!("{}, the samples of {}", source.len(), source.name());
            return Err(Error::BadOption {
                option: "samples of the sampler",
                found: sampler.len().to_string(),
                expected,
            });
        }
        let start = sampler.number(options.start)?;
        let end = options.epochs.saturating_mul(sampler.batches_per_epoch() as u64).max(start);
        let per_worker = options.prefetch.div_ceil(options.workers.max(1)).max(1);
        // Waiting, in the making, and two with the consumer: the one in use and the one before it.
        let pool = Arc::new(Pool::new(options.workers.saturating_mul(per_worker + 1).saturating_add(2)));
        let maker = Maker { source, sampler: sampler.clone(), pool, permutation: None };
        let feed = match options.workers {
            0 => Feed::Inline(maker),
            workers => start_threads(&maker, workers, per_worker, start..end)?,
        };
        Ok(Loader { sampler, feed, start, next: start, end, failed: false })
    }

    /// The batch that comes next: what a checkpoint keeps, whatever has been made ahead.
    pub fn position(&self) -> Position {
        self.sampler.position(self.next)
    }

    /// How the epochs are cut into batches.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.next >= self.end {
            return None;
        }
        let made = match &mut self.feed {
            Feed::Inline(maker) => maker.make(self.next),
            Feed::Threads { channels, .. } => {
                let worker = ((self.next - self.start) % channels.len() as u64) as usize;
                channels[worker].recv().unwrap_or(Err(Error::WorkerGone { worker }))
            }
        };
        match &made {
            Ok(_) => self.next += 1,
            Err(_) => self.failed = true,
        }
        Some(made)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Feed::Threads { channels, threads } = &mut self.feed {
            channels.clear(); // a worker that waits for room, or brings the next batch, finds nobody there and ends
            for thread in threads.drain(..) {
                // A worker catches its source's panics and has nothing else to say here.
                let _ = thread.join();
            }
        }
    }
}

fn start_threads(
    maker: &Maker,
    workers: usize,
    per_worker: usize,
    numbers: std::ops::Range<u64>,
) -> Result<Feed, Error> {
    let (mut channels, mut threads) = (Vec::new(), Vec::new());
    for worker in 0..workers {
        let (sender, receiver) = sync_channel(per_worker);
        let maker = maker.clone();
        let own = numbers.clone().skip(worker).step_by(workers);
        let thread = Builder::new()
            .name(format!("vdnn-loader-{worker}"))
            .spawn(move || deliver(maker, own, &sender))
            .map_err(|cause| Error::NoThread { worker, workers, cause })?;
        channels.push(receiver);
        threads.push(thread);
    }
    Ok(Feed::Threads { channels, threads })
}

/// A worker's life: its own batches, one after the other, until one fails or nobody takes them.
fn deliver(mut maker: Maker, numbers: impl Iterator<Item = u64>, sender: &SyncSender<Result<Batch, Error>>) {
    for number in numbers {
        let made = maker.make(number);
        let failed = made.is_err();
        if sender.send(made).is_err() || failed {
            return;
        }
    }
}

/// Makes batches by number; each worker has its own.
#[derive(Clone)]
struct Maker {
    source: Arc<dyn Source>,
    sampler: Sampler,
    pool: Arc<Pool>,
    permutation: Option<(u64, Vec<usize>)>, // of the epoch last worked on
}

impl Maker {
    fn make(&mut self, number: u64) -> Result<Batch, Error> {
        let position = self.sampler.position(number);
        let made = catch_unwind(AssertUnwindSafe(|| self.fill(position)));
        let made = made.unwrap_or_else(|panic| Err(Error::SourcePanicked { message: panic_message(&*panic) }));
        let Position { epoch, batch } = position;
        made.map_err(|cause| Error::Batch { epoch, batch, cause: Box::new(cause) })
    }

    fn fill(&mut self, position: Position) -> Result<Batch, Error> {
        let permutation = match self.permutation.take() {
            Some((epoch, permutation)) if epoch == position.epoch => permutation,
            _ => self.sampler.permutation(position.epoch),
        };
        let n_elements = self.source.n_elements();
        let samples = self.sampler.batch(&permutation, position.batch);
        let mut batch = Batch::unfilled(&self.pool, position, samples.len(), n_elements)?;
        let Batch { images, labels, .. } = &mut batch;
        for ((&sample, image), label) in samples.iter().zip(images.chunks_exact_mut(n_elements)).zip(labels) {
            *label = self.source.read(sample, image)?;
        }
        self.permutation = Some((position.epoch, permutation));
        Ok(batch)
    }
}

impl std::fmt::Debug for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maker").field("source", &self.source.name()).field("sampler", &self.sampler).finish()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
