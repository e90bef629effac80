//! A batch in host memory, and the pool its buffers come from and go back to.
//!
//! A buffer is written again only after the batch that owned it is gone, so a copy to a device may read a batch for
//! as long as it holds it.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Position};

/// A batch in host memory. Dropping it gives its buffers back to the loader.
#[derive(Debug)]
pub struct Batch {
    /// Images as they are stored, `[len, C, H, W]`.
    pub images: Vec<u8>,
    /// Labels, `[len]`.
    pub labels: Vec<i32>,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Index of the batch in its epoch, from 0.
    pub index: usize,
    /// Samples in this batch; fewer than the batch size in a last partial batch.
    pub len: usize,
    pool: Arc<Pool>,
}

impl Batch {
    /// Which batch of the run this is.
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, batch: self.index }
    }

    /// A batch of `len` samples of `n_elements`, with buffers from `pool`. What they hold is left from earlier use.
    pub(crate) fn unfilled(
        pool: &Arc<Pool>,
        position: Position,
        len: usize,
        n_elements: usize,
    ) -> Result<Batch, Error> {
        let no_memory = || Error::NoMemory { len, n_elements };
        let wanted = len.checked_mul(n_elements).ok_or_else(no_memory)?;
        let (mut images, mut labels) = pool.take();
        images.try_reserve_exact(wanted.saturating_sub(images.len())).map_err(|_| no_memory())?;
        images.resize(wanted, 0);
        labels.resize(len, 0);
        let Position { epoch, batch: index } = position;
        Ok(Batch { images, labels, epoch, index, len, pool: Arc::clone(pool) })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pool.give((take(&mut self.images), take(&mut self.labels)));
    }
}

type Buffers = (Vec<u8>, Vec<i32>);

/// Buffers of dropped batches, waiting for the next ones.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Buffers>>,
    limit: usize,
}

impl Pool {
    /// A pool that keeps at most `limit` buffers.
    pub(crate) fn new(limit: usize) -> Pool {
        Pool { free: Mutex::new(Vec::new()), limit }
    }

    fn take(&self) -> Buffers {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, buffers: Buffers) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.limit && buffers.0.capacity() > 0 {
            free.push(buffers);
        }
    }
}
