//! What a loader reads from: numbered samples of one shape, each with a label.

use std::fmt;

use crate::{Error, Normalization};

/// Numbered samples of one shape, each with a label.
///
/// Reading must be pure: the same index gives the same bits, whoever asks and however often.
pub trait Source: Send + Sync {
    /// Name of the data set.
    fn name(&self) -> &str;
    /// Number of samples.
    fn len(&self) -> usize;
    /// Shape of one sample, `[C, H, W]`.
    fn shape(&self) -> [usize; 3];
    /// Names of the classes; label `i` is class `i`.
    fn classes(&self) -> &[String];
    /// Mean and deviation of each channel.
    fn normalization(&self) -> &Normalization;
    /// Writes every byte of `image` (`[C, H, W]`) and returns the label of sample `index` < `len()`.
    ///
    /// # Errors
    /// [`Error::Sample`] where the sample cannot be read; it names the file.
    fn read(&self, index: usize, image: &mut [u8]) -> Result<i32, Error>;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of one sample, C × H × W.
    fn n_elements(&self) -> usize {
        self.shape().iter().product()
    }
}

/// The part of a data set that one learns from, or the part that one measures on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// To learn from.
    Train,
    /// To measure on.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Split::Train => "train",
            Split::Test => "test",
        })
    }
}

/// Both parts of a data set.
#[derive(Clone, Debug)]
pub struct Splits<S> {
    /// To learn from.
    pub train: S,
    /// To measure on.
    pub test: S,
}
