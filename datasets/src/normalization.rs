//! From bytes to numbers: what a network does with the images it is given, and what the host can do in its place.

use crate::Error;

/// Mean and standard deviation of each channel, of pixels read as 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// Mean per channel, `[C]`.
    pub mean: Vec<f32>,
    /// Standard deviation per channel, `[C]`, above zero.
    pub std: Vec<f32>,
}

impl Normalization {
    /// Mean 0 and deviation 1: pixels stay 0 to 1.
    pub fn identity(channels: usize) -> Normalization {
        Normalization { mean: vec![0.0; channels], std: vec![1.0; channels] }
    }

    /// (byte / 255 − mean) / std of images `[N, C, plane]`, for a network that takes numbers. One that takes bytes makes the same
    /// numbers of them.
    pub fn apply(&self, images: &[u8], plane: usize) -> Vec<f32> {
        let levels: Vec<[f32; 256]> = (0..self.mean.len()).map(|channel| self.levels(channel)).collect();
        let planes = images.chunks(plane.max(1)).zip(levels.iter().cycle());
        planes.flat_map(|(plane, levels)| plane.iter().map(|&byte| levels[usize::from(byte)])).collect()
    }

    pub(crate) fn check(&self, name: &str, channels: usize) -> Result<(), Error> {
        let finite = self.mean.iter().all(|m| m.is_finite()) && self.std.iter().all(|s| s.is_finite() && *s > 0.0);
        if finite && self.mean.len() == channels && self.std.len() == channels {
            return Ok(());
        }
        let expected = format!("{channels} means and {channels} deviations above zero");
        Err(Error::Inconsistent { name: name.into(), expected, found: format!("{:?} and {:?}", self.mean, self.std) })
    }

    /// The normalised value of every byte in a channel.
    fn levels(&self, channel: usize) -> [f32; 256] {
        let (mean, std) = (f64::from(self.mean[channel]), f64::from(self.std[channel]));
        std::array::from_fn(|byte| ((byte as f64 / 255.0 - mean) / std) as f32)
    }
}
