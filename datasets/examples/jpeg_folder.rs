//! Makes a folder of JPEGs of ImageNet's usual size, and times how fast a loader reads one.
//!
//! ```text
//! cargo run --release -p vdnn-datasets --example jpeg_folder -- make DIR TRAIN VAL CLASSES
//! cargo run --release -p vdnn-datasets --example jpeg_folder -- time DIR WORKERS BATCHES [SIZE]
//! ```
//!
//! What is made has no meaning: waves and noise, of a colour that goes with the class; about as many bytes as photographs have.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vdnn_datasets::registry::{self, OpenOptions};
use vdnn_datasets::{LastBatch, Loader, LoaderOptions, Order, Sampler};

const WIDTH: u16 = 500;
const HEIGHT: u16 = 375;
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["make", dir, train, val, classes] => make(Path::new(dir), [train.parse()?, val.parse()?], classes.parse()?),
        ["time", dir, workers, batches] => time(Path::new(dir), workers.parse()?, batches.parse()?, None),
        ["time", dir, workers, batches, size] => {
            time(Path::new(dir), workers.parse()?, batches.parse()?, Some(size.parse()?))
        }
        _ => Err("expected make DIR TRAIN VAL CLASSES, or time DIR WORKERS BATCHES [SIZE]".into()),
    }
}

fn make(dir: &Path, counts: [usize; 2], classes: usize) -> Result<(), Box<dyn Error>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(few) = counts.into_iter().find(|&count| count < classes) {
        return Err(format!("expected a picture of each of {classes} classes in either part, found {few}").into());
    }
    for (part, count) in ["train", "val"].into_iter().zip(counts) {
        for class in 0..classes {
            std::fs::create_dir_all(dir.join(part).join(format!("class{class:04}")))?;
        }
        let each = |first: usize| {
            (first..count).step_by(threads).try_for_each(|index| {
                let class = index % classes;
                picture(&dir.join(part).join(format!("class{class:04}")).join(format!("{index:07}.jpg")), index, class)
            })
        };
        let made: Result<Vec<()>, jpeg_encoder::EncodingError> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || each(first))).collect();
            workers.into_iter().map(|worker| worker.join().expect("a thread that writes pictures")).collect()
        });
        made?;
    }
    println!("{} JPEGs of {WIDTH}x{HEIGHT} in {}", counts.iter().sum::<usize>(), dir.display());
    Ok(())
}

fn picture(path: &Path, index: usize, class: usize) -> Result<(), jpeg_encoder::EncodingError> {
    let mut state = index as u64 * 0x9e37_79b9_7f4a_7c15 + 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut pixels = Vec::with_capacity(usize::from(WIDTH) * usize::from(HEIGHT) * 3);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let grain = noise() * 34.0;
            for channel in 0..3 {
                let slant = f32::from(x) * (0.02 + 0.01 * channel as f32) + f32::from(y) * 0.03 + index as f32;
                let colour = (class * (3 + channel * 5) % 97) as f32;
                pixels.push((70.0 + colour + 50.0 * slant.sin() + grain).clamp(0.0, 255.0) as u8);
            }
        }
    }
    let mut encoder = Encoder::new_file(path, 88)?;
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    encoder.encode(&pixels, WIDTH, HEIGHT, ColorType::Rgb)
}

fn time(dir: &Path, workers: usize, batches: usize, size: Option<usize>) -> Result<(), Box<dyn Error>> {
    let options = OpenOptions { folder: Some(dir), image_size: size, ..OpenOptions::default() };
    let train = registry::open("jpeg-folder", &options)?.train;
    let [_, side, _] = train.shape();
    let sampler = Sampler::new(train.len(), BATCH, Order::Shuffled { seed: 0 }, LastBatch::Drop)?;
    let options = LoaderOptions { workers, epochs: u64::MAX, prefetch: 2 * workers, ..LoaderOptions::default() };
    let mut loader = Loader::new(Arc::clone(&train), sampler, &options)?;
    // What was made ahead before the clock starts is not counted, and neither is the first reading of files.
    for _ in 0..workers.max(1) * 3 {
        loader.next().ok_or("no batch")??;
    }
    let started = Instant::now();
    for _ in 0..batches {
        loader.next().ok_or("no batch")??;
    }
    let rate = (batches * BATCH) as f64 / started.elapsed().as_secs_f64();
    let each = rate / workers.max(1) as f64;
    println!("{rate:.0} images/s of {side}x{side} by {workers} workers, {each:.0} each");
    Ok(())
}
