//! The order in which samples are seen: a pure function of (seed, epoch), cut into batches.
//!
//! ```text
//!  epoch 0   | batch 0 | batch 1 | … | last |     permutation(0)
//!  epoch 1   | batch 0 | …                        permutation(1), made without going through epoch 0
//! ```
//!
//! Nothing is carried from one epoch to the next, so a run resumes at any [`Position`] by naming it.

use rand::SeedableRng;
use rand::rand_core::Rng;
use rand::rngs::ChaCha8Rng;

use crate::Error;

/// Changes when the same (seed, epoch) would give another order; a checkpoint that resumes an order keeps it.
///
/// Version 1: ChaCha8 keyed with the seed (little-endian, zero-extended to 32 bytes), its stream number the epoch,
/// drives a Fisher–Yates shuffle from the last index down; bounded draws are the high word of a 64×64 bit product,
/// drawn again where that would be biased.
pub const SHUFFLE_VERSION: u32 = 1;

/// In which order an epoch sees the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By index, the same in every epoch.
    Sequential,
    /// Shuffled, another way in every epoch.
    Shuffled {
        /// Together with the epoch this decides the order.
        seed: u64,
    },
}

/// What happens to the samples that are left over when an epoch does not divide into full batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastBatch {
    /// They are not seen in this epoch.
    Drop,
    /// They make a smaller last batch. It is never padded.
    Keep,
}

/// A batch of a run: the place from which a run can resume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Batch in the epoch, from 0.
    pub batch: usize,
}

/// Cuts the samples of each epoch into batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    len: usize,
    batch_size: usize,
    order: Order,
    last: LastBatch,
}

impl Sampler {
    /// Batches of `batch_size` out of `len` samples.
    ///
    /// # Errors
    /// For a zero length or batch size, and where an epoch would have no batch at all.
    pub fn new(len: usize, batch_size: usize, order: Order, last: LastBatch) -> Result<Sampler, Error> {
        for (option, value) in [("number of samples", len), ("batch size", batch_size)] {
            if value == 0 {
                return Err(Error::BadOption { option, found: "0".into(), expected: "at least 1".into() });
            }
        }
        if last == LastBatch::Drop && len < batch_size {
            return Err(Error::NoFullBatch { len, batch_size });
        }
        Ok(Sampler { len, batch_size, order, last })
    }

    /// Number of samples in the data set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a sampler has at least one sample.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Samples in a full batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Batches in each epoch, at least 1.
    pub fn batches_per_epoch(&self) -> usize {
        match self.last {
            LastBatch::Drop => self.len / self.batch_size,
            LastBatch::Keep => self.len.div_ceil(self.batch_size),
        }
    }

    /// Samples seen in each epoch.
    pub fn samples_per_epoch(&self) -> usize {
        self.len.min(self.batches_per_epoch() * self.batch_size)
    }

    /// Samples in one batch of an epoch: the batch size, less for a last partial batch, 0 beyond the epoch.
    pub fn batch_len(&self, batch: usize) -> usize {
        if batch >= self.batches_per_epoch() {
            return 0;
        }
        self.batch_size.min(self.len - batch * self.batch_size)
    }

    /// Size of the smaller last batch, where there is one: it needs a schedule of its own.
    pub fn partial_len(&self) -> Option<usize> {
        let last = self.batch_len(self.batches_per_epoch() - 1);
        (last < self.batch_size).then_some(last)
    }

    /// All sample indices in the order in which `epoch` sees them.
    pub fn permutation(&self, epoch: u64) -> Vec<usize> {
        match self.order {
            Order::Sequential => (0..self.len).collect(),
            Order::Shuffled { seed } => shuffled(self.len, seed, epoch),
        }
    }

    /// The samples of one batch out of its epoch's permutation; none beyond the epoch.
    pub fn batch<'a>(&self, permutation: &'a [usize], batch: usize) -> &'a [usize] {
        match self.batch_len(batch) {
            0 => &[],
            len => &permutation[batch * self.batch_size..][..len],
        }
    }

    /// The position of the `number`-th batch of a run that began at epoch 0, batch 0.
    pub fn position(&self, number: u64) -> Position {
        let per_epoch = self.batches_per_epoch() as u64;
        Position { epoch: number / per_epoch, batch: (number % per_epoch) as usize }
    }

    /// How many batches come before a position. The end of an epoch is the start of the next.
    ///
    /// # Errors
    /// For a batch beyond its epoch, and beyond 2⁶⁴ batches.
    pub fn number(&self, position: Position) -> Result<u64, Error> {
        let per_epoch = self.batches_per_epoch();
        let before = position.epoch.checked_mul(per_epoch as u64);
        match before.and_then(|n| n.checked_add(position.batch as u64)) {
            Some(number) if position.batch <= per_epoch => Ok(number),
            _ => Err(Error::BadOption {
                option: "start of the loader",
                found: format!("batch {} of epoch {}", position.batch, position.epoch),
                expected: format!(
                    "a batch from 0 to {per_epoch}: an epoch of {} samples has {per_epoch} batches of {}; was the run \
                     saved with another batch size or data set?",
                    self.len, self.batch_size
                ),
            }),
        }
    }
}

/// See [`SHUFFLE_VERSION`]. The shuffle is written out here, because libraries change theirs between versions.
fn shuffled(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(epoch);
    let mut order: Vec<usize> = (0..len).collect();
    for i in (1..len).rev() {
        order.swap(i, below(&mut rng, i as u64 + 1) as usize);
    }
    order
}

/// A number from 0 to `bound - 1`, each as likely as the other.
fn below(rng: &mut ChaCha8Rng, bound: u64) -> u64 {
    let biased = bound.wrapping_neg() % bound; // 2^64 mod bound
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        if product as u64 >= biased {
            return (product >> 64) as u64;
        }
    }
}
