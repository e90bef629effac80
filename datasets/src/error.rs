//! What can go wrong with a data set: each message says what was expected, what was found and what to try.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder given for a data set is not there.
    #[error(
        "no data set folder at {}: expected a folder with {} (each plain or ending in .gz). {advice}",
        folder.display(), looked_for.join(", ")
    )]
    FolderMissing {
        /// The folder asked for.
        folder: PathBuf,
        /// The file names that should be in it.
        looked_for: Vec<String>,
        /// Where the files can be had.
        advice: String,
    },
    /// The folder is there, some of its files are not.
    #[error(
        "the data set in {} is not complete: looked for {}, missing {} (each may be plain or end in .gz). {advice}",
        folder.display(), looked_for.join(", "), missing.join(", ")
    )]
    FilesMissing {
        /// The folder asked for.
        folder: PathBuf,
        /// The file names that should be in it.
        looked_for: Vec<String>,
        /// Those of them that are neither there plain nor with `.gz`.
        missing: Vec<String>,
        /// Where the files can be had.
        advice: String,
    },
    /// A folder of images has none.
    #[error(
        "no JPEGs at {}: expected folders train and val (or test), in each a folder for every class, in each of these files \
         ending in .jpg or .jpeg", folder.display()
    )]
    NoImages {
        /// The folder that is not there, or lacks classes or images.
        folder: PathBuf,
    },
    /// A data set that is read from a folder was asked for without one.
    #[error("the data set '{name}' is read from a folder and none was given: pass --data-dir. {advice}")]
    FolderNeeded {
        /// The data set.
        name: String,
        /// Where the files can be had.
        advice: String,
    },
    /// The operating system could not open or read a file.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        cause: std::io::Error,
    },
    /// A gzip stream does not decode.
    #[error("{} is damaged: expected a sound gzip stream, found that {reason}; get the file again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// A file ends before its header says so.
    #[error("{} is cut short: expected {expected} bytes (decoded), found {found}; get the file again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes that the header announces, header included.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A file goes on after what its header announces.
    #[error(
        "{} has trailing bytes: expected an end after the {expected} bytes (decoded) that its header announces, \
         found more; the file or its header is damaged, get it again", path.display()
    )]
    TrailingBytes {
        /// The file.
        path: PathBuf,
        /// Bytes that the header announces, header included.
        expected: u64,
    },
    /// A file is no IDX file.
    #[error(
        "{} is not an IDX file of {content}: expected the magic number {expected:#010x}, found {found:#010x}",
        path.display()
    )]
    WrongMagic {
        /// The file.
        path: PathBuf,
        /// What the file should hold.
        content: &'static str,
        /// The magic number of that content.
        expected: u32,
        /// The file's first four bytes, big-endian.
        found: u32,
    },
    /// An IDX file holds the other kind of content.
    #[error(
        "{} is mislabelled: expected {expected}, found {found}; were the two files swapped?", path.display()
    )]
    Mislabelled {
        /// The file.
        path: PathBuf,
        /// What its name says.
        expected: &'static str,
        /// What its header says.
        found: &'static str,
    },
    /// A header announces nothing, or more than can be addressed.
    #[error("{} has unusable dimensions {dims:?}: expected each at least 1 and a product below 2^63", path.display())]
    BadDimensions {
        /// The file.
        path: PathBuf,
        /// The dimensions in the header, outermost first.
        dims: Vec<u32>,
    },
    /// Images and labels do not pair up.
    #[error(
        "images and labels of {origin} do not belong together: expected as many labels as images, \
         found {images} images and {labels} labels"
    )]
    CountMismatch {
        /// The data set or folder.
        origin: String,
        /// Number of images.
        images: usize,
        /// Number of labels.
        labels: usize,
    },
    /// The parts of a data set have images of different sizes.
    #[error("train and test images of {origin} differ: expected one size, found {train:?} and {test:?} (C, H, W)")]
    ShapeMismatch {
        /// The data set or folder.
        origin: String,
        /// Shape of a train image, `[C, H, W]`.
        train: [usize; 3],
        /// Shape of a test image, `[C, H, W]`.
        test: [usize; 3],
    },
    /// A label names no class.
    #[error("{origin}: label {label} of sample {index} is out of range: expected 0 to {} ({n_classes} classes)", n_classes.saturating_sub(1))]
    LabelOutOfRange {
        /// The file or data set.
        origin: String,
        /// Index of the first such sample.
        index: usize,
        /// Its label.
        label: i64,
        /// Number of classes.
        n_classes: usize,
    },
    /// Images, shape and normalisation of a data set in memory contradict each other.
    #[error("data set {name}: expected {expected}, found {found}")]
    Inconsistent {
        /// The data set.
        name: String,
        /// What should hold.
        expected: String,
        /// What does.
        found: String,
    },
    /// An image size below the data set's own was asked for.
    #[error(
        "image size {asked} is smaller than the {}×{} images of {name}: images are padded, never shrunk; \
         ask for {} or more", source_size[0], source_size[1], source_size[0].max(source_size[1])
    )]
    ImageSizeTooSmall {
        /// The data set.
        name: String,
        /// The size asked for.
        asked: usize,
        /// Height and width of its images.
        source_size: [usize; 2],
    },
    /// No data set has this name.
    #[error("no data set is called '{name}'{}; known: {}",
        nearest.as_ref().map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default(), known.join(", "))]
    UnknownDataset {
        /// The name asked for.
        name: String,
        /// The nearest known name, if one is near.
        nearest: Option<String>,
        /// All names.
        known: Vec<String>,
    },
    /// An option has a value that cannot work.
    #[error("{option} = {found}: expected {expected}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Every batch of an epoch would be dropped.
    #[error(
        "an epoch would have no batch: {len} samples are fewer than the batch size {batch_size} and the last partial \
         batch is dropped; lower the batch size or keep the last batch"
    )]
    NoFullBatch {
        /// Number of samples.
        len: usize,
        /// Samples per batch.
        batch_size: usize,
    },
    /// One sample could not be read; for sources outside this crate.
    #[error("sample {index} cannot be read: {reason}")]
    Sample {
        /// Index of the sample.
        index: usize,
        /// Which file it is, what was expected of it and what was found.
        reason: String,
    },
    /// A batch could not be made.
    #[error("loading batch {batch} of epoch {epoch} failed: {cause}")]
    Batch {
        /// Epoch of the batch.
        epoch: u64,
        /// Index of the batch in its epoch.
        batch: usize,
        /// What went wrong.
        #[source]
        cause: Box<Error>,
    },
    /// A batch does not fit in memory.
    #[error(
        "no memory for a batch: {len} samples of {n_elements} elements each were asked for; lower the batch size, \
         the image size or the number of batches made ahead"
    )]
    NoMemory {
        /// Samples in the batch.
        len: usize,
        /// Elements of a sample.
        n_elements: usize,
    },
    /// A source panicked in a worker; this is a bug of the source.
    #[error("the data source panicked: {message}")]
    SourcePanicked {
        /// The panic's message.
        message: String,
    },
    /// A worker thread ended without a word.
    #[error("loader worker {worker} ended early: expected it to deliver its next batch")]
    WorkerGone {
        /// Index of the worker.
        worker: usize,
    },
    /// The operating system gave no thread.
    #[error("cannot start loader worker {worker} of {workers}: {cause}; ask for fewer workers")]
    NoThread {
        /// Index of the worker.
        worker: usize,
        /// Number of workers asked for.
        workers: usize,
        /// What the operating system said.
        #[source]
        cause: std::io::Error,
    },
}
