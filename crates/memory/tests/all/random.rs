//! A stream of choices that follows from a seed.

use vdnn_tensor::Philox;

/// Choices made one after the other.
pub struct Random(Philox);

impl Random {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Self {
        Random(Philox::new(seed, 0))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        u64::from(self.0.word()) % n.max(1)
    }

    /// A number from `low` to `high`, both possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }

    /// A number in [-0.5, 0.5).
    pub fn centred(&mut self) -> f32 {
        self.0.uniform() - 0.5
    }
}
