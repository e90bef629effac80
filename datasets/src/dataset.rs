//! A labelled set of byte images in memory, normalised and padded as it is read.
//!
//! ```text
//!  images [len, C, h, w] u8  ──read(i)──►  image [C, H, W] f32 = (u8 / 255 - mean[c]) / std[c]
//!                                          H, W ≥ h, w: the border is what a black pixel normalises to
//! ```
//!
//! Images are never scaled: interpolation is a choice that belongs to whoever prepares the data.

use crate::{Error, Source, Split};

/// Mean and standard deviation of each channel, of pixels read as 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// Mean per channel, `[C]`.
    pub mean: Vec<f32>,
    /// Standard deviation per channel, `[C]`, above zero.
    pub std: Vec<f32>,
}

/// A labelled set of byte images in memory.
#[derive(Clone, Debug)]
pub struct Dataset {
    name: String,
    split: Split,
    images: Vec<u8>,          // [len, C, h, w]
    labels: Vec<i32>,         // [len]
    stored_shape: [usize; 3], // [C, h, w]
    size: [usize; 2],         // [H, W] of what is read
    classes: Vec<String>,
    normalization: Normalization,
    levels: Vec<[f32; 256]>, // [C][byte] → normalised value
}

impl Dataset {
    /// A data set from `images` (`[len, C, H, W]`), `labels` (`[len]`) and the `shape` of an image (`[C, H, W]`).
    ///
    /// # Errors
    /// Where counts, labels, classes and normalisation contradict each other.
    pub fn new(
        name: &str,
        split: Split,
        images: Vec<u8>,
        labels: Vec<i32>,
        shape: [usize; 3],
        classes: Vec<String>,
        normalization: Normalization,
    ) -> Result<Dataset, Error> {
        check_images(name, &images, labels.len(), shape)?;
        check_labels(name, &labels, classes.len())?;
        normalization.check(name, shape[0])?;
        let levels = (0..shape[0]).map(|c| normalization.levels(c)).collect();
        let size = [shape[1], shape[2]];
        let name = name.to_string();
        Ok(Dataset { name, split, images, labels, stored_shape: shape, size, classes, normalization, levels })
    }

    /// The same data set with images padded with black to `size` × `size`, centred; where the border is odd, the
    /// extra row or column is at the bottom or right.
    ///
    /// # Errors
    /// [`Error::ImageSizeTooSmall`] for a size below that of the images.
    pub fn with_image_size(mut self, size: usize) -> Result<Dataset, Error> {
        let [_, height, width] = self.stored_shape;
        if size < height.max(width) {
            let source_size = [height, width];
            return Err(Error::ImageSizeTooSmall { name: self.name, asked: size, source_size });
        }
        self.size = [size, size];
        Ok(self)
    }

    /// Which part of the data set this is.
    pub fn split(&self) -> Split {
        self.split
    }

    /// The images as stored, `[len, C, h, w]`, unpadded.
    pub fn images(&self) -> &[u8] {
        &self.images
    }

    /// The labels, `[len]`.
    pub fn labels(&self) -> &[i32] {
        &self.labels
    }

    /// Mean and deviation that reading subtracts and divides by.
    pub fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    /// Mean and deviation of this very data (unpadded), from exact integer sums.
    pub fn measure(&self) -> Normalization {
        let [channels, height, width] = self.stored_shape;
        let (mean, std) = (0..channels).map(|c| measure_channel(&self.images, c, channels, height * width)).unzip();
        Normalization { mean, std }
    }
}

impl Source for Dataset {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> [usize; 3] {
        [self.stored_shape[0], self.size[0], self.size[1]]
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, image: &mut [f32]) -> Result<i32, Error> {
        let [channels, height, width] = self.stored_shape;
        let [out_height, out_width] = self.size;
        let (top, left) = ((out_height - height) / 2, (out_width - width) / 2);
        let stored = &self.images[index * channels * height * width..];
        for (c, levels) in self.levels.iter().enumerate() {
            let plane = &mut image[c * out_height * out_width..][..out_height * out_width];
            if self.size != [height, width] {
                plane.fill(levels[0]);
            }
            for y in 0..height {
                let from = &stored[(c * height + y) * width..][..width];
                let to = &mut plane[(top + y) * out_width + left..][..width];
                for (to, &byte) in to.iter_mut().zip(from) {
                    *to = levels[usize::from(byte)];
                }
            }
        }
        Ok(self.labels[index])
    }
}

impl Normalization {
    /// Mean 0 and deviation 1: pixels stay 0 to 1.
    pub fn identity(channels: usize) -> Normalization {
        Normalization { mean: vec![0.0; channels], std: vec![1.0; channels] }
    }

    fn check(&self, name: &str, channels: usize) -> Result<(), Error> {
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

/// Whether every label names a class.
pub(crate) fn check_labels(origin: &str, labels: &[i32], n_classes: usize) -> Result<(), Error> {
    let bad = labels.iter().position(|&label| usize::try_from(label).map_or(true, |l| l >= n_classes));
    match bad {
        None => Ok(()),
        Some(index) => {
            let (origin, label) = (origin.into(), i64::from(labels[index]));
            Err(Error::LabelOutOfRange { origin, index, label, n_classes })
        }
    }
}

fn check_images(name: &str, images: &[u8], n_labels: usize, shape: [usize; 3]) -> Result<(), Error> {
    let size: usize = shape.iter().product();
    if size == 0 || n_labels == 0 || images.is_empty() {
        let found = format!("{} bytes of images of shape {shape:?} and {n_labels} labels", images.len());
        return Err(Error::Inconsistent { name: name.into(), expected: "at least one image".into(), found });
    }
    if !images.len().is_multiple_of(size) {
        let expected = format!("whole images of {size} bytes (shape {shape:?})");
        return Err(Error::Inconsistent { name: name.into(), expected, found: format!("{} bytes", images.len()) });
    }
    let n_images = images.len() / size;
    if n_images != n_labels {
        return Err(Error::CountMismatch { origin: name.into(), images: n_images, labels: n_labels });
    }
    Ok(())
}

/// Population mean and deviation of one channel of `[len, C, plane]` bytes, in units of 255.
fn measure_channel(images: &[u8], channel: usize, channels: usize, plane: usize) -> (f32, f32) {
    let (mut sum, mut squares, mut n) = (0u64, 0u64, 0u64);
    for pixels in images.chunks_exact(plane).skip(channel).step_by(channels) {
        n += pixels.len() as u64;
        sum += pixels.iter().map(|&b| u64::from(b)).sum::<u64>();
        squares += pixels.iter().map(|&b| u64::from(b) * u64::from(b)).sum::<u64>();
    }
    let mean = sum as f64 / n as f64;
    let variance = squares as f64 / n as f64 - mean * mean;
    ((mean / 255.0) as f32, (variance.max(0.0).sqrt() / 255.0) as f32)
}
