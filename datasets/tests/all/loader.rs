//! Batches in order whatever the number of workers, resumable anywhere, and failures that arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use vdnn_datasets::{
    Batch, Dataset, Error, LastBatch, Loader, LoaderOptions, Normalization, Order, Position, Sampler, Source, Synthetic,
};

use crate::small;

/// What a batch holds, detached from the loader's buffers.
type Held = (u64, usize, usize, Vec<u8>, Vec<i32>);

fn sampler(last: LastBatch) -> Sampler {
    Sampler::new(50, 8, Order::Shuffled { seed: 11 }, last).unwrap()
}

fn loader(source: impl Source + 'static, last: LastBatch, options: LoaderOptions) -> Loader {
    Loader::new(Arc::new(source), sampler(last), &options).unwrap()
}

fn options(workers: usize, epochs: u64) -> LoaderOptions {
    LoaderOptions { workers, epochs, ..LoaderOptions::default() }
}

fn all(loader: Loader) -> Vec<Held> {
    let held = |b: Batch| (b.epoch, b.index, b.len, b.images.clone(), b.labels.clone());
    loader.map(|batch| held(batch.unwrap())).collect()
}

#[test]
fn an_epoch_holds_every_sample_once() {
    let batches = all(loader(small(50), LastBatch::Keep, options(2, 1)));
    let mut seen: Vec<usize> = batches.iter().flat_map(|b| b.3.chunks(6).map(|image| usize::from(image[0]))).collect();
    let labels: Vec<i32> = batches.iter().flat_map(|b| b.4.clone()).collect();
    assert!(seen.iter().zip(labels).all(|(&sample, label)| (sample % 3) as i32 == label), "labels follow their images");
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..50));
}

#[test]
fn the_number_of_workers_changes_nothing() {
    let one = all(loader(small(50), LastBatch::Keep, options(1, 3)));
    assert_eq!(one.len(), 21);
    for workers in [0, 2, 3, 30] {
        assert_eq!(all(loader(small(50), LastBatch::Keep, options(workers, 3))), one, "{workers} workers");
    }
}

#[test]
fn the_last_batch_is_never_padded() {
    let kept = all(loader(small(50), LastBatch::Keep, options(1, 1)));
    let last = kept.last().unwrap();
    assert_eq!((last.2, last.3.len(), last.4.len()), (2, 12, 2));
    let dropped = all(loader(small(50), LastBatch::Drop, options(1, 1)));
    assert_eq!(dropped.len(), 6);
    assert!(dropped.iter().all(|b| b.2 == 8 && b.3.len() == 48));
}

#[test]
fn a_resumed_run_is_the_rest_of_the_straight_one() {
    let straight = all(loader(small(50), LastBatch::Keep, options(2, 3)));
    for done in 0..=straight.len() {
        // What a checkpoint keeps after `done` batches is the loader's position, not what was made ahead.
        let mut first = loader(small(50), LastBatch::Keep, options(3, 3));
        for _ in 0..done {
            first.next().unwrap().unwrap();
        }
        let start = first.position();
        drop(first);
        let resumed = loader(small(50), LastBatch::Keep, LoaderOptions { start, ..options(2, 3) });
        assert_eq!(all(resumed), straight[done..], "after {done} batches");
    }
}

#[test]
fn a_start_at_the_end_of_an_epoch_is_the_next_epoch() {
    let start = Position { epoch: 0, batch: 7 };
    let mut resumed = loader(small(50), LastBatch::Keep, LoaderOptions { start, ..options(1, 2) });
    assert_eq!(resumed.position(), Position { epoch: 1, batch: 0 });
    assert_eq!(resumed.next().unwrap().unwrap().position(), Position { epoch: 1, batch: 0 });
    let over = LoaderOptions { start: Position { epoch: 2, batch: 0 }, ..options(1, 2) };
    assert!(loader(small(50), LastBatch::Keep, over).next().is_none());
}

#[test]
fn a_start_outside_an_epoch_is_refused() {
    let start = Position { epoch: 0, batch: 8 };
    let result = Loader::new(Arc::new(small(50)), sampler(LastBatch::Keep), &LoaderOptions { start, ..options(1, 2) });
    assert!(result.unwrap_err().to_string().contains("another batch size"));
}

#[test]
fn a_sampler_of_another_length_is_refused() {
    let result = Loader::new(Arc::new(small(49)), sampler(LastBatch::Keep), &options(1, 1));
    assert!(matches!(result, Err(Error::BadOption { .. })));
}

#[test]
fn absurd_numbers_are_refused() {
    for bad in [options(usize::MAX, 1), LoaderOptions { prefetch: usize::MAX, ..options(1, 1) }] {
        assert!(Loader::new(Arc::new(small(50)), sampler(LastBatch::Keep), &bad).is_err());
    }
}

#[test]
fn buffers_are_used_again() {
    for workers in [0, 1] {
        let mut pointers = std::collections::BTreeSet::new();
        let mut n_batches = 0;
        for batch in loader(small(50), LastBatch::Drop, LoaderOptions { prefetch: 2, ..options(workers, 20) }) {
            pointers.insert(batch.unwrap().images.as_ptr() as usize);
            n_batches += 1;
        }
        // Two waiting, one in the making, one in use, and one between two of these places.
        assert!(n_batches == 120 && pointers.len() <= 5, "{workers} workers: {} buffers", pointers.len());
    }
}

#[test]
fn a_held_batch_is_not_written_again() {
    let mut loader = loader(small(50), LastBatch::Drop, options(2, 20));
    let held = loader.next().unwrap().unwrap();
    let before = held.images.clone();
    assert_eq!(loader.by_ref().filter(|b| b.is_ok()).count(), 119);
    assert_eq!(held.images, before);
    drop(loader); // the batch may outlive it
    assert_eq!(held.images, before);
}

/// Fails in one way or another at one sample.
struct Faulty {
    inner: Dataset,
    bad: usize,
    panics: bool,
    reads: Arc<AtomicUsize>,
}

impl Faulty {
    fn new(bad: usize, panics: bool) -> (Faulty, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        (Faulty { inner: small(50), bad, panics, reads: Arc::clone(&reads) }, reads)
    }
}

impl Source for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn shape(&self) -> [usize; 3] {
        self.inner.shape()
    }
    fn classes(&self) -> &[String] {
        self.inner.classes()
    }
    fn normalization(&self) -> &Normalization {
        self.inner.normalization()
    }
    fn read(&self, index: usize, image: &mut [u8]) -> Result<i32, Error> {
        self.reads.fetch_add(1, SeqCst);
        if index == self.bad && self.panics {
            panic!("sample {index} is bad");
        }
        if index == self.bad {
            return Err(Error::Sample { index, reason: "photo.jpg is cut short".into() });
        }
        self.inner.read(index, image)
    }
}

/// Where the sampler of these tests puts a sample in epoch 0.
fn batch_of(sample: usize) -> usize {
    sampler(LastBatch::Keep).permutation(0).iter().position(|&s| s == sample).unwrap() / 8
}

#[test]
fn a_failing_sample_reaches_the_consumer_in_its_place() {
    for workers in [0, 1, 3] {
        for panics in [false, true] {
            let mut loader = loader(Faulty::new(23, panics).0, LastBatch::Keep, options(workers, 2));
            let good = batch_of(23);
            for _ in 0..good {
                loader.next().unwrap().unwrap();
            }
            let error = loader.next().unwrap().unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, Error::Batch { epoch: 0, batch, .. } if batch == good), "{message}");
            let expected = if panics { "sample 23 is bad" } else { "photo.jpg" };
            assert!(message.contains(expected), "{message}");
            assert_eq!(loader.position(), Position { epoch: 0, batch: good }, "the failed batch was not consumed");
            assert!(loader.next().is_none(), "a loader ends after an error");
        }
    }
}

#[test]
fn dropping_the_loader_ends_its_threads() {
    let (source, reads) = Faulty::new(usize::MAX, false);
    let source: Arc<dyn Source> = Arc::new(source);
    let mut loader = Loader::new(Arc::clone(&source), sampler(LastBatch::Keep), &options(3, u64::MAX)).unwrap();
    loader.next().unwrap().unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&source), 1, "no thread holds the source any more");
    let after = reads.load(SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(reads.load(SeqCst), after);
}

#[test]
fn no_more_is_made_ahead_than_asked_for() {
    let (source, reads) = Faulty::new(usize::MAX, false);
    let loader = loader(source, LastBatch::Drop, LoaderOptions { prefetch: 3, ..options(1, u64::MAX) });
    // Three waiting and one in the making, 8 samples each; then the worker stands still.
    for _ in 0..1000 {
        if reads.load(SeqCst) >= 32 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(reads.load(SeqCst), 32);
    drop(loader);
}

#[test]
fn a_batch_beyond_memory_is_an_error() {
    // 8 images of 2^60 bytes: more bytes than there are addresses, refused before anything is taken.
    let huge = Synthetic::new(8, [1, 1 << 30, 1 << 30], 10, 0).unwrap();
    let sampler = Sampler::new(8, 8, Order::Sequential, LastBatch::Keep).unwrap();
    let error = Loader::new(Arc::new(huge), sampler, &options(1, 1)).unwrap().next().unwrap().unwrap_err();
    let Error::Batch { cause, .. } = error else { panic!("{error}") };
    assert!(matches!(*cause, Error::NoMemory { len: 8, .. }), "{cause}");
}
