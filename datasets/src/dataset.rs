//! A labelled set of byte images in memory, padded as it is read.
//!
//! ```text
//!  images [len, C, h, w] u8  ──read(i)──►  image [C, H, W] u8, H, W ≥ h, w: the border is black
//! ```
//!
//! Images are never scaled: interpolation is a choice that belongs to whoever prepares the data.

use crate::{Error, Normalization, Source, Split};

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
        let size = [shape[1], shape[2]];
        let name = name.to_string();
        Ok(Dataset { name, split, images, labels, stored_shape: shape, size, classes, normalization })
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

    fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    fn read(&self, index: usize, image: &mut [u8]) -> Result<i32, Error> {
        let [channels, height, width] = self.stored_shape;
        let [out_height, out_width] = self.size;
        let (top, left) = ((out_height - height) / 2, (out_width - width) / 2);
        let stored = &self.images[index * channels * height * width..][..channels * height * width];
        if self.size == [height, width] {
            image.copy_from_slice(stored);
            return Ok(self.labels[index]);
        }
        image.fill(0);
        for (row, from) in stored.chunks_exact(width).enumerate() {
            let (c, y) = (row / height, row % height);
            let at = (c * out_height + top + y) * out_width + left;
            image[at..at + width].copy_from_slice(from);
        }
        Ok(self.labels[index])
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
