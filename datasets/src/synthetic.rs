//! Random images of any shape, for measuring a network's speed without its data.
//!
//! An image is a pure function of (seed, index) and costs a few instructions per eight bytes, so that loading
//! does not hide what is measured. There is nothing to learn in it: labels do not depend on pixels.

use crate::{Error, Normalization, Source};

/// Mean and deviation of bytes of which each is as likely as another: 1/2, and √((256² − 1) / 12) / 255.
pub(crate) const MEAN_STD: (f32, f32) = (0.5, 0.289_805);

/// Random images with random labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    len: usize,
    shape: [usize; 3], // [C, H, W]
    classes: Vec<String>,
    normalization: Normalization,
    seed: u64,
}

impl Synthetic {
    /// `len` images of `shape` (`[C, H, W]`) in `n_classes` classes.
    ///
    /// # Errors
    /// Where any number is zero, an image has too many elements to address, or a label would not fit.
    pub fn new(len: usize, shape: [usize; 3], n_classes: usize, seed: u64) -> Result<Synthetic, Error> {
        let n_elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let bad =
            |option, found: String, expected: &str| Err(Error::BadOption { option, found, expected: expected.into() });
        if len == 0 || len > 1 << 28 {
            return bad("number of synthetic samples", len.to_string(), "1 to 268435456");
        }
        if !n_elements.is_some_and(|n| n > 0 && n <= isize::MAX as usize) {
            return bad("shape of synthetic samples", format!("{shape:?}"), "C, H, W of at least 1 that fit in memory");
        }
        if n_classes == 0 || n_classes > 1 << 24 {
            return bad("classes of synthetic samples", n_classes.to_string(), "1 to 16777216");
        }
        let classes = (0..n_classes).map(|i| format!("class {i}")).collect();
        let (mean, std) = MEAN_STD;
        let normalization = Normalization { mean: vec![mean; shape[0]], std: vec![std; shape[0]] };
        Ok(Synthetic { len, shape, classes, normalization, seed })
    }
}

impl Source for Synthetic {
    fn name(&self) -> &str {
        "synthetic"
    }

    fn len(&self) -> usize {
        self.len
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    fn read(&self, index: usize, image: &mut [u8]) -> Result<i32, Error> {
        let mut state = mix(self.seed) ^ mix(index as u64 ^ 0x5d8f_1c2b_93a7_e461);
        let label = mix(state) % self.classes.len() as u64;
        for eight in image.chunks_mut(8) {
            state = state.wrapping_add(GOLDEN);
            eight.copy_from_slice(&mix(state).to_le_bytes()[..eight.len()]);
        }
        Ok(label as i32)
    }
}

/// 2⁶⁴ divided by the golden ratio, made odd: the step of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser (Steele, Lea, Flood 2014).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
