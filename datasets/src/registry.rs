//! The data sets by name: what each is, where it comes from, how it is opened and verified.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::idx::Idx;
use crate::{Error, ImageFolder, Normalization, Source, Splits, Synthetic, folder, sample};

/// A data set that can be opened by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub description: &'static str,
    /// Where its bytes come from.
    pub origin: Origin,
    /// Names of the classes; empty where options decide.
    pub classes: &'static [&'static str],
    /// Shape of an image, `[C, H, W]`; of synthetic images the default.
    pub shape: [usize; 3],
    /// Number of train and test images of the complete data set; of a synthetic one the default.
    pub n_samples: [usize; 2],
    /// Mean and deviation of the train part, pixels read as 0 to 1.
    pub mean_std: (f32, f32),
    /// Licence of the data.
    pub licence: &'static str,
    /// Where it can be had.
    pub advice: &'static str,
    /// SHA-256 of the decoded files, in the order train images, train labels, test images, test labels.
    pub sha256: Option<[&'static str; 4]>,
}

/// Where the bytes of a data set come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program itself.
    Embedded,
    /// A folder that the user names.
    Folder,
    /// A folder of images that the user names.
    Images,
    /// A random number generator.
    Generated,
}

impl Entry {
    /// Mean and deviation that images are normalised with.
    pub fn normalization(&self) -> Normalization {
        let (mean, std) = self.mean_std;
        Normalization { mean: vec![mean; self.shape[0]], std: vec![std; self.shape[0]] }
    }
}

/// What opening a data set may need beside its name.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions<'a> {
    /// The folder of a data set that is read from one.
    pub folder: Option<&'a Path>,
    /// Height and width of the images; nothing for the data set's own.
    pub image_size: Option<usize>,
    /// Classes of a synthetic data set; nothing for 1,000.
    pub n_classes: Option<usize>,
    /// Train images of a synthetic data set; nothing for 12,800. A tenth of it, at least one, are test images.
    pub n_samples: Option<usize>,
    /// Seed of a synthetic data set.
    pub seed: u64,
}

/// One file of a data set, compared with what was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCheck {
    /// The file.
    pub file: String,
    /// Length of the decoded file.
    pub bytes: u64,
    /// SHA-256 of the decoded file, in hexadecimal.
    pub found: String,
    /// The published sum, where there is one.
    pub expected: Option<&'static str>,
}

impl FileCheck {
    /// Whether the file is the published one; nothing where no sum was published.
    pub fn matches(&self) -> Option<bool> {
        self.expected.map(|expected| expected == self.found)
    }
}

/// All data sets, the default first.
pub fn entries() -> [&'static Entry; 5] {
    [&FASHION_MNIST_SAMPLE, &FASHION_MNIST, &MNIST, &JPEG_FOLDER, &SYNTHETIC]
}

/// The data set of this name.
///
/// # Errors
/// [`Error::UnknownDataset`] with the nearest name, if one is near, and all names.
pub fn find(name: &str) -> Result<&'static Entry, Error> {
    let lower = name.to_lowercase().replace('_', "-");
    if let Some(entry) = entries().into_iter().find(|e| e.name == lower) {
        return Ok(entry);
    }
    let scored = entries().map(|e| (strsim::jaro_winkler(&lower, e.name), e.name));
    let best = scored.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.75);
    Err(Error::UnknownDataset {
        name: name.into(),
        nearest: best.map(|(_, name)| name.to_string()),
        known: entries().map(|e| e.name.to_string()).to_vec(),
    })
}

/// Opens a data set by name, ready for a loader.
///
/// # Errors
/// An unknown name, a folder that is needed and was not given, and everything that can be wrong with the files.
pub fn open(name: &str, options: &OpenOptions<'_>) -> Result<Splits<Arc<dyn Source>>, Error> {
    let entry = find(name)?;
    let splits = match entry.origin {
        Origin::Embedded => sample::fashion_mnist_sample()?,
        Origin::Folder => folder::load_folder(entry, needed_folder(entry, options.folder)?)?,
        Origin::Images => {
            let size = options.image_size.unwrap_or(entry.shape[1]);
            let Splits { train, test } = ImageFolder::open_splits(needed_folder(entry, options.folder)?, size)?;
            return Ok(Splits { train: Arc::new(train), test: Arc::new(test) });
        }
        Origin::Generated => return open_synthetic(entry, options),
    };
    let Splits { mut train, mut test } = splits;
    if let Some(size) = options.image_size {
        (train, test) = (train.with_image_size(size)?, test.with_image_size(size)?);
    }
    Ok(Splits { train: Arc::new(train), test: Arc::new(test) })
}

/// Decodes every file of a data set and compares it with the published sums. A generated one has no files.
///
/// # Errors
/// A missing folder or file, and a file that does not decode. A sum that differs is a result, not an error.
pub fn verify(entry: &Entry, folder: Option<&Path>) -> Result<Vec<FileCheck>, Error> {
    let files: Vec<(String, Idx)> = match entry.origin {
        // What a user's own folder holds nobody has published.
        Origin::Generated | Origin::Images => return Ok(Vec::new()),
        Origin::Embedded => sample::decode_all()?.map(|(name, idx)| (name.to_string(), idx)).into(),
        Origin::Folder => {
            let read = folder::read_folder(entry, needed_folder(entry, folder)?)?;
            read.map(|(path, idx)| (path.display().to_string(), idx)).into()
        }
    };
    let check = |(i, (file, idx)): (usize, (String, Idx))| FileCheck {
        file,
        bytes: (idx.header.len() + idx.bytes.len()) as u64,
        found: sha256(&[&idx.header, &idx.bytes]),
        expected: entry.sha256.map(|sums| sums[i]),
    };
    Ok(files.into_iter().enumerate().map(check).collect())
}

fn needed_folder<'a>(entry: &Entry, folder: Option<&'a Path>) -> Result<&'a Path, Error> {
    folder.ok_or_else(|| Error::FolderNeeded { name: entry.name.into(), advice: entry.advice.into() })
}

fn open_synthetic(entry: &Entry, options: &OpenOptions<'_>) -> Result<Splits<Arc<dyn Source>>, Error> {
    let [channels, height, width] = entry.shape;
    let shape = options.image_size.map_or([channels, height, width], |size| [channels, size, size]);
    let n_classes = options.n_classes.unwrap_or(1000);
    let n_train = options.n_samples.unwrap_or(entry.n_samples[0]);
    let train = Synthetic::new(n_train, shape, n_classes, options.seed)?;
    let test = Synthetic::new((n_train / 10).max(1), shape, n_classes, !options.seed)?;
    Ok(Splits { train: Arc::new(train), test: Arc::new(test) })
}

fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

const FASHION_CLASSES: &[&str] =
    &["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"];

/// Of the 60,000 train images; `data/make_sample.py` computes it. The sample uses it too, so that a checkpoint
/// trained on one can be evaluated on the other.
const FASHION_MEAN_STD: (f32, f32) = (0.286_041, 0.353_024);

/// The default: a sample of Fashion-MNIST that is part of the program.
pub const FASHION_MNIST_SAMPLE: Entry = Entry {
    name: "fashion-mnist-sample",
    description: "10,000 + 2,000 images of Fashion-MNIST, class-balanced, part of the program (the default)",
    origin: Origin::Embedded,
    classes: FASHION_CLASSES,
    shape: [1, 28, 28],
    n_samples: [10_000, 2_000],
    mean_std: FASHION_MEAN_STD,
    licence: "MIT (Zalando SE)",
    advice: "It is part of the program.",
    sha256: Some([
        "d33512cfdc636a0d8972818e6659995be209a88891df7fa2109d7895922c8985",
        "620cb8e3b9348037c5ff9a07b02d773ab165330e072dfd19e0d21c59f8042dcf",
        "15a92dd1e9b16ea361928086e77df4dfa890c255c00b5a8c8162c1040ce8eef1",
        "234596aeb6eb48133ec99a62541f90bc0728c9559a681f1e0638037462458f2c",
    ]),
};

/// The complete Fashion-MNIST.
pub const FASHION_MNIST: Entry = Entry {
    name: "fashion-mnist",
    description: "Fashion-MNIST, 60,000 + 10,000 grey images of clothing, 28×28, from a folder of IDX files",
    origin: Origin::Folder,
    classes: FASHION_CLASSES,
    shape: [1, 28, 28],
    n_samples: [60_000, 10_000],
    mean_std: FASHION_MEAN_STD,
    licence: "MIT (Zalando SE)",
    advice: "Get it from the Debian package dataset-fashion-mnist (/usr/share/datasets/fashion-mnist) or the folder \
             data/fashion of github.com/zalandoresearch/fashion-mnist.",
    sha256: Some([
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ]),
};

/// The handwritten digits.
pub const MNIST: Entry = Entry {
    name: "mnist",
    description: "MNIST, 60,000 + 10,000 grey images of handwritten digits, 28×28, from a folder of IDX files",
    origin: Origin::Folder,
    classes: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
    shape: [1, 28, 28],
    n_samples: [60_000, 10_000],
    mean_std: (0.1307, 0.3081),
    licence: "its authors' (LeCun, Cortes, Burges)",
    advice: "torchvision.datasets.MNIST(folder, download=True) leaves the four files in folder/MNIST/raw.",
    sha256: None,
};

/// A folder of JPEGs of one's own.
pub const JPEG_FOLDER: Entry = Entry {
    name: "jpeg-folder",
    description: "JPEGs of any size from a folder, one folder a class: DIR/train/CLASS/….jpg and DIR/val/CLASS/….jpg",
    origin: Origin::Images,
    classes: &[],
    shape: [3, 224, 224],
    n_samples: [0, 0],
    mean_std: (0.449, 0.226),
    licence: "its owner's",
    advice: "ImageNet as torchvision keeps it is such a folder.",
    sha256: None,
};

/// Random images, for measuring speed.
pub const SYNTHETIC: Entry = Entry {
    name: "synthetic",
    description: "random images of any size and number of classes, made as they are read; for measuring speed",
    origin: Origin::Generated,
    classes: &[],
    shape: [3, 224, 224],
    n_samples: [12_800, 1_280],
    mean_std: crate::synthetic::MEAN_STD,
    licence: "none needed",
    advice: "It is made as it is read.",
    sha256: None,
};
