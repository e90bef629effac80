//! Tests of the package through its public face, one module per concern, in one program.

mod files;
mod images;
mod loader;
mod registry;
mod sample;
mod sampler;
mod sources;

use std::path::Path;

use vdnn_datasets::{Dataset, Normalization, Split};

/// An IDX file: magic number, dimensions, content.
fn idx(magic: u32, dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = magic.to_be_bytes().to_vec();
    dims.iter().for_each(|d| file.extend(d.to_be_bytes()));
    file.extend(bytes);
    file
}

/// `n` images of 3×2 whose bytes count up, and labels that count modulo 10.
fn images(n: u32) -> Vec<u8> {
    let bytes: Vec<u8> = (0..n * 6).map(|i| i as u8).collect();
    idx(0x803, &[n, 3, 2], &bytes)
}

fn labels(n: u32) -> Vec<u8> {
    let bytes: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
    idx(0x801, &[n], &bytes)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).unwrap();
}

/// A sound folder of 20 train and 10 test images.
fn write_all(folder: &Path) {
    write(folder, "train-images-idx3-ubyte", &images(20));
    write(folder, "train-labels-idx1-ubyte", &labels(20));
    write(folder, "t10k-images-idx3-ubyte", &images(10));
    write(folder, "t10k-labels-idx1-ubyte", &labels(10));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// `len` images of `[1, 2, 3]` in memory; every byte of image `i` is `i`, its label `i % 3`.
fn small(len: usize) -> Dataset {
    let images = (0..len).flat_map(|i| [i as u8; 6]).collect();
    let labels = (0..len).map(|i| (i % 3) as i32).collect();
    let classes = ["a", "b", "c"].map(String::from).to_vec();
    Dataset::new("small", Split::Train, images, labels, [1, 2, 3], classes, Normalization::identity(1)).unwrap()
}
