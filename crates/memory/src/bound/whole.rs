//! Storages leave whole: fewer bytes than lack cannot leave, and often not as few as lack.
//!
//! Let some storages be smaller than a size and together hold `small` bytes. If more than that must leave, the others let
//! at least the rest go, so at least one of them does; and if all their sizes are multiples of a unit, so is what they let go.

use vdnn_tensor::Bytes;

/// Sizes looked at, largest first. Fewer only weaken the bound.
const SIZES: usize = 16;

/// The sizes that storages have, largest first.
pub(super) struct Sizes(Vec<Bytes>);

impl Sizes {
    /// Those that occur.
    pub fn of(sizes: impl Iterator<Item = Bytes>) -> Self {
        let mut sizes: Vec<Bytes> = sizes.collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        Sizes(sizes)
    }

    /// The number of a size that occurs.
    pub fn number(&self, size: Bytes) -> u32 {
        self.0.partition_point(|&other| other > size) as u32
    }
}

/// Some storages, by size: ever more of them.
pub(super) struct Gathered<'a> {
    sizes: &'a Sizes,
    /// How many there are of each size.
    counts: Vec<u32>,
    bytes: Bytes,
}

impl<'a> Gathered<'a> {
    /// None yet.
    pub fn of(sizes: &'a Sizes) -> Self {
        Gathered { sizes, counts: vec![0; sizes.0.len()], bytes: 0 }
    }

    /// One more, of the size of this number.
    pub fn add(&mut self, size: u32) {
        self.counts[size as usize] += 1;
        self.bytes += self.sizes.0[size as usize];
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> f64 {
        self.bytes as f64
    }

    /// What they let go at least.
    pub fn whole(&self) -> Whole {
        let mut small = self.bytes;
        let mut thresholds: Vec<Threshold> = Vec::with_capacity(SIZES);
        let held = self.sizes.0.iter().zip(&self.counts).filter(|(_, count)| **count > 0);
        for (&size, &count) in held.take(SIZES) {
            small -= size * Bytes::from(count);
            let unit = gcd(size, thresholds.last().map_or(0, |last| last.unit));
            thresholds.push(Threshold { size, small: small as f64, unit });
        }
        Whole { thresholds }
    }
}

/// What bytes of some storages leave at least when any number of bytes must.
pub(super) struct Whole {
    thresholds: Vec<Threshold>,
}

/// One size, and what holds of the storages of at least that size.
struct Threshold {
    size: Bytes,
    /// Bytes of the smaller ones.
    small: f64,
    /// A common divisor of the sizes of the others.
    unit: Bytes,
}

impl Whole {
    /// Bytes that leave at least when `absent` must.
    pub fn at_least(&self, absent: f64) -> f64 {
        let of_large = |threshold: &Threshold| {
            let large = absent - threshold.small;
            let unit = threshold.unit as f64;
            if large > 0.0 { ((large / unit).ceil() * unit).max(threshold.size as f64) } else { 0.0 }
        };
        self.thresholds.iter().map(of_large).fold(absent, f64::max)
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
