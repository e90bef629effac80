//! Dropout. The mask is made again from (seed, stream, iteration, element), see `vdnn_graph::op::Dropout`; forward and
//! backward are the same kernel.

use super::launch::Launch;
use super::real::Real;
use super::stretch::visit;
use crate::DeviceError;
use vdnn_graph::op::Dropout;
use vdnn_tensor::philox4x32_10;

/// (X, iteration) → X · mask / (1 − p), also in place.
pub(super) fn mask<T: Real>(op: &Dropout, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.source::<T>(0, 0)?;
    let iteration = launch.iteration(1)?;
    let y = launch.output::<T>(0)?;
    let scale = T::of(op.scale());
    visit(launch.samples(), x, y, |start, x, y| {
        let mut words = Words { key: op.key(), iteration, block: u64::MAX, words: [0; 4] };
        for (index, y) in y.iter_mut().enumerate() {
            let value = x.map_or(*y, |x| x[index]);
            let dropped = words.at((start + index) as u64) < op.threshold();
            *y = if dropped { T::ZERO } else { value * scale };
        }
    });
    Ok(())
}

/// Random words by element, one block of four at a time.
struct Words {
    key: [u32; 2],
    iteration: u64,
    block: u64,
    words: [u32; 4],
}

impl Words {
    fn at(&mut self, element: u64) -> u32 {
        let block = element / 4;
        if block != self.block {
            let counter = [block as u32, (block >> 32) as u32, self.iteration as u32, (self.iteration >> 32) as u32];
            self.words = philox4x32_10(counter, self.key);
            self.block = block;
        }
        self.words[(element % 4) as usize]
    }
}
