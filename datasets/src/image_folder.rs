//! A folder of JPEGs, one folder a class, as ImageNet is kept: decoded, scaled and cut by whoever reads, so by the loader's
//! threads.
//!
//! ```text
//!   DIR/train/CLASS/….jpg      DIR/val/CLASS/….jpg (or test)      label = place of CLASS in alphabetical order
//!   file ──decode──► [h, w, 3] ──shorter side to size · 256 / 224, middle size × size──► [3, size, size]
//! ```
//!
//! Left to others: other formats, augmentation. A picture stored sideways with a note to turn it is not turned.

use crate::resample::{Cut, resample};
use crate::{Error, Normalization, Source, Split, Splits};
use std::path::{Path, PathBuf};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Mean and deviation of ImageNet's pixels, as torchvision's networks expect them.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// The JPEGs below a folder, labelled by the folder that each is in.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageFolder {
    name: String,
    files: Vec<(PathBuf, i32)>,
    classes: Vec<String>,
    size: usize,
    normalization: Normalization,
}

impl ImageFolder {
    /// The images of `folder/CLASS/`, read as `size` × `size` pixels. Files of other kinds than `.jpg` and `.jpeg` are left out.
    ///
    /// # Errors
    /// [`Error::NoImages`] where there is no folder, no class or a class without images; [`Error::Unreadable`].
    pub fn open(folder: &Path, size: usize) -> Result<ImageFolder, Error> {
        if size == 0 {
            let (option, found) = ("image size", "0".to_string());
            return Err(Error::BadOption { option, found, expected: "at least 1".into() });
        }
        let classes = entries(folder, Path::is_dir)?;
        let mut files = Vec::new();
        for (label, class) in classes.iter().enumerate() {
            let images = entries(class, |path| path.is_file() && is_jpeg(path))?;
            files.extend(images.into_iter().map(|path| (path, label as i32)));
        }
        let names = classes.iter().map(|path| name_of(path)).collect();
        let normalization = Normalization { mean: MEAN.to_vec(), std: STD.to_vec() };
        Ok(ImageFolder { name: folder.display().to_string(), files, classes: names, size, normalization })
    }

    /// Both parts of a data set: `train`, and `val` or else `test`.
    ///
    /// # Errors
    /// As [`ImageFolder::open`]; [`Error::Inconsistent`] where the two have different classes.
    pub fn open_splits(folder: &Path, size: usize) -> Result<Splits<ImageFolder>, Error> {
        let train = ImageFolder::open(&folder.join(Split::Train.to_string()), size)?;
        let validation = folder.join("val");
        let second = if validation.is_dir() { validation } else { folder.join(Split::Test.to_string()) };
        let test = ImageFolder::open(&second, size)?;
        if train.classes != test.classes {
            let odd =
                |a: &ImageFolder, b: &ImageFolder| a.classes.iter().find(|class| !b.classes.contains(class)).cloned();
            let class = odd(&test, &train).or_else(|| odd(&train, &test)).unwrap_or_default();
            let expected = format!("the same classes in {} and {}", train.name, test.name);
            let found = format!("{} and {}; only one of them has {class}", train.classes.len(), test.classes.len());
            return Err(Error::Inconsistent { name: folder.display().to_string(), expected, found });
        }
        Ok(Splits { train, test })
    }

    /// The files and their labels, in the order of indices.
    pub fn files(&self) -> &[(PathBuf, i32)] {
        &self.files
    }
}

impl Source for ImageFolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> usize {
        self.files.len()
    }

    fn shape(&self) -> [usize; 3] {
        [3, self.size, self.size]
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    fn read(&self, index: usize, image: &mut [u8]) -> Result<i32, Error> {
        let (path, label) = &self.files[index];
        let refuse = |what: String| Error::Sample { index, reason: format!("{}: {what}", path.display()) };
        let file = std::fs::read(path).map_err(|cause| refuse(cause.to_string()))?;
        let (pixels, source) = decode(&file).map_err(refuse)?;
        let shorter = (self.size * 256).div_ceil(224);
        resample(&pixels, &Cut::centre(source, shorter, self.size), image);
        Ok(*label)
    }
}

/// Pixels `[h, w, 3]` and [h, w] of a JPEG of any colours.
fn decode(file: &[u8]) -> Result<(Vec<u8>, [usize; 2]), String> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    let broken = |error: &dyn std::fmt::Display| format!("expected a sound JPEG, found that {error}");
    let pixels = decoder.decode().map_err(|error| broken(&error))?;
    let (width, height) = decoder.dimensions().ok_or("expected the size of a JPEG, found none")?;
    if width == 0 || height == 0 || pixels.len() != width * height * 3 {
        return Err(format!("expected {height}×{width} pixels of three bytes, found {} bytes", pixels.len()));
    }
    Ok((pixels, [height, width]))
}

fn is_jpeg(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("jpg") || ending.eq_ignore_ascii_case("jpeg"))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a folder holds of a kind, in alphabetical order; never nothing.
fn entries(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |cause| Error::Unreadable { path: folder.to_path_buf(), cause };
    let none = || Error::NoImages { folder: folder.to_path_buf() };
    if !folder.is_dir() {
        return Err(none());
    }
    let all = std::fs::read_dir(folder).map_err(unreadable)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = all.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    paths.retain(|path| wanted(path));
    paths.sort();
    if paths.is_empty() { Err(none()) } else { Ok(paths) }
}
