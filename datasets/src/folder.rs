//! Loads the four IDX files of MNIST and its kin from a folder.
//!
//! `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same with `t10k`, each plain or with `.gz` (the
//! plain one is taken where both are there).

use std::path::{Path, PathBuf};

use crate::dataset::check_labels;
use crate::idx::{self, Content, Idx};
use crate::registry::Entry;
use crate::{Dataset, Error, Split, Splits};

/// The four files, in the order in which they are looked for.
pub(crate) const FILES: [(Split, Content, &str); 4] = [
    (Split::Train, Content::Images, "train-images-idx3-ubyte"),
    (Split::Train, Content::Labels, "train-labels-idx1-ubyte"),
    (Split::Test, Content::Images, "t10k-images-idx3-ubyte"),
    (Split::Test, Content::Labels, "t10k-labels-idx1-ubyte"),
];

/// Loads a data set of this kind from a folder.
///
/// # Errors
/// Where the folder or a file is missing, and all that [`idx::read`] finds; where images and labels, or train and
/// test part, do not belong together; where a label names no class.
pub fn load_folder(entry: &Entry, folder: &Path) -> Result<Splits<Dataset>, Error> {
    let files = read_folder(entry, folder)?;
    assemble(entry, &folder.display().to_string(), files)
}

/// Reads and decodes the four files of a folder without putting them together, each with the path it was found at.
///
/// # Errors
/// Where the folder or a file is missing, and all that [`idx::read`] finds.
pub fn read_folder(entry: &Entry, folder: &Path) -> Result<[(PathBuf, Idx); 4], Error> {
    let paths = find_files(entry, folder)?;
    let mut files = Vec::with_capacity(4);
    for (path, (_, content, _)) in paths.into_iter().zip(FILES) {
        let decoded = idx::read(&path, content)?;
        files.push((path, decoded));
    }
    Ok(files.try_into().expect("four paths give four files"))
}

/// Puts decoded files together; `origin` is the data set or folder in errors.
pub(crate) fn assemble(entry: &Entry, origin: &str, files: [(PathBuf, Idx); 4]) -> Result<Splits<Dataset>, Error> {
    let [train_images, train_labels, test_images, test_labels] = files;
    let (train_shape, test_shape) = (image_shape(&train_images.1), image_shape(&test_images.1));
    if train_shape != test_shape {
        return Err(Error::ShapeMismatch { origin: origin.into(), train: train_shape, test: test_shape });
    }
    Ok(Splits {
        train: pair(entry, Split::Train, train_images, train_labels)?,
        test: pair(entry, Split::Test, test_images, test_labels)?,
    })
}

/// Images and labels of one part.
fn pair(entry: &Entry, split: Split, images: (PathBuf, Idx), labels: (PathBuf, Idx)) -> Result<Dataset, Error> {
    let ((images_path, images), (labels_path, labels)) = (images, labels);
    let (n_images, n_labels) = (images.dims[0], labels.dims[0]);
    if n_images != n_labels {
        let origin = format!("{} and {}", images_path.display(), labels_path.display());
        return Err(Error::CountMismatch { origin, images: n_images, labels: n_labels });
    }
    let shape = image_shape(&images);
    let labels: Vec<i32> = labels.bytes.iter().map(|&l| i32::from(l)).collect();
    check_labels(&labels_path.display().to_string(), &labels, entry.classes.len())?;
    let classes = entry.classes.iter().map(|&c| c.to_string()).collect();
    Dataset::new(entry.name, split, images.bytes, labels, shape, classes, entry.normalization())
}

/// `[C, H, W]` of IDX images `[n, H, W]`.
fn image_shape(images: &Idx) -> [usize; 3] {
    [1, images.dims[1], images.dims[2]]
}

fn find_files(entry: &Entry, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let looked_for: Vec<String> = FILES.iter().map(|(_, _, file)| (*file).to_string()).collect();
    let advice = entry.advice.to_string();
    if !folder.is_dir() {
        return Err(Error::FolderMissing { folder: folder.into(), looked_for, advice });
    }
    let (mut paths, mut missing) = (Vec::new(), Vec::new());
    for (_, _, file) in FILES {
        let candidates = [folder.join(file), folder.join(format!("{file}.gz"))];
        match candidates.into_iter().find(|path| path.is_file()) {
            Some(path) => paths.push(path),
            None => missing.push(file.to_string()),
        }
    }
    if missing.is_empty() {
        Ok(paths)
    } else {
        Err(Error::FilesMissing { folder: folder.into(), looked_for, missing, advice })
    }
}
