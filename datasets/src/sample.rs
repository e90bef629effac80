//! The class-balanced sample of Fashion-MNIST that is part of the program: 10,000 train and 2,000 test images.
//!
//! How it was cut, and its licence (MIT, Zalando SE), are in `data/README.md` beside the sources.

use std::path::Path;

use crate::folder::{FILES, assemble};
use crate::idx::{self, Idx};
use crate::{Dataset, Error, Splits, registry};

const PACKED: [&[u8]; 4] = [
    include_bytes!("../data/train-images-idx3-ubyte.gz"),
    include_bytes!("../data/train-labels-idx1-ubyte.gz"),
    include_bytes!("../data/t10k-images-idx3-ubyte.gz"),
    include_bytes!("../data/t10k-labels-idx1-ubyte.gz"),
];

/// Decodes the embedded sample.
///
/// # Errors
/// Those of decoding, which the tests rule out for the bytes shipped.
pub fn fashion_mnist_sample() -> Result<Splits<Dataset>, Error> {
    let entry = &registry::FASHION_MNIST_SAMPLE;
    let files = decode_all()?.map(|(name, idx)| (Path::new("embedded").join(name), idx));
    assemble(entry, entry.name, files)
}

/// The decoded files by name.
pub(crate) fn decode_all() -> Result<[(&'static str, Idx); 4], Error> {
    let mut files = Vec::with_capacity(4);
    for (packed, (_, content, name)) in PACKED.into_iter().zip(FILES) {
        files.push((name, idx::decode(packed, &Path::new("embedded").join(name), content)?));
    }
    Ok(files.try_into().expect("four packed files give four files"))
}
