//! What the host gives an iteration: images as bytes or as numbers, and labels.

use vdnn_tensor::DType;

/// A batch of images, `[N, C, H, W]`, in the form that the network takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Images<'a> {
    /// As they are stored: for a network that normalises (`NetOptions::bytes`), a quarter of the bytes of numbers.
    Bytes(&'a [u8]),
    /// Normalised by the host.
    Floats(&'a [f32]),
}

/// One batch on its way to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feed<'a> {
    /// Images, `[N, C, H, W]`.
    pub images: Images<'a>,
    /// Labels, `[N]`.
    pub labels: &'a [i32],
}

impl<'a> Feed<'a> {
    /// A batch of bytes or of numbers, whichever `images` are.
    pub fn new(images: impl Into<Images<'a>>, labels: &'a [i32]) -> Self {
        Feed { images: images.into(), labels }
    }
}

impl<'a> From<&'a [u8]> for Images<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Images::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Images<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Images::Bytes(bytes)
    }
}

impl<'a> From<&'a [f32]> for Images<'a> {
    fn from(numbers: &'a [f32]) -> Self {
        Images::Floats(numbers)
    }
}

impl<'a> From<&'a Vec<f32>> for Images<'a> {
    fn from(numbers: &'a Vec<f32>) -> Self {
        Images::Floats(numbers)
    }
}

impl Images<'_> {
    /// How many bytes or numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Images::Bytes(bytes) => bytes.len(),
            Images::Floats(numbers) => numbers.len(),
        }
    }

    /// True when there is no image.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a network whose images are of this type takes these.
    pub(crate) fn fit(&self, dtype: DType) -> bool {
        match self {
            Images::Bytes(_) => dtype == DType::U8,
            Images::Floats(_) => dtype.is_float(),
        }
    }
}
