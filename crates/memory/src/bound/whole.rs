//! Storages leave whole: fewer bytes than lack cannot leave, and often not as few as lack.
//!
//! Let some storages be smaller than a size and together hold `small` bytes. If more than that must leave, the others let
//! at least the rest go, so at least one of them does; and if all their sizes are multiples of a unit, so is what they let go.

use super::cuts::Member;

/// Sizes looked at, largest first. Fewer only weaken the bound.
const SIZES: usize = 16;

/// What bytes of some storages leave at least when any number of bytes must.
pub(super) struct Whole {
    thresholds: Vec<Threshold>,
}

/// One size, and what holds of the storages of at least that size.
struct Threshold {
    size: u64,
    /// Bytes of the smaller ones.
    small: f64,
    /// A common divisor of the sizes of the others.
    unit: u64,
}

impl Whole {
    pub fn of<'a>(members: impl Iterator<Item = &'a Member>) -> Self {
        let mut sizes: Vec<u64> = members.map(|member| member.bytes as u64).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut small: f64 = sizes.iter().map(|&size| size as f64).sum();
        let mut thresholds: Vec<Threshold> = Vec::new();
        for size in sizes {
            small -= size as f64;
            if let Some(last) = thresholds.last_mut()
                && last.size == size
            {
                last.small = small;
                continue;
            }
            if thresholds.len() == SIZES {
                break;
            }
            let unit = gcd(size, thresholds.last().map_or(0, |last| last.unit));
            thresholds.push(Threshold { size, small, unit });
        }
        Whole { thresholds }
    }

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
