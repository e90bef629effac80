//! `vdnn profile`: every distinct kernel of some training iterations, measured on a GPU, into a file that planning reads.

use super::Report;
use super::args::{Dtype, Fuse, ModelArgs, fuse};
use super::resolve;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use vdnn::device::DeviceName;
use vdnn_cuda::CudaDevice;
use vdnn_cuda::profile::{ProfileOptions, Profiled, profile};
use vdnn_graph::Graph;
use vdnn_layers::Mode;
use vdnn_schedule::{PIECES, Profile};
use vdnn_train::{Optimization, program};

/// Options of `vdnn profile`.
#[derive(Args)]
pub struct ProfileArgs {
    /// Networks, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "vgg16")]
    models: Vec<String>,
    /// Batch sizes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    batch_sizes: Vec<u64>,
    /// Arithmetic, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "f32")]
    dtypes: Vec<Dtype>,
    /// Batch norm, ReLU and the residual sum between them in one kernel: with tf32, bf16 and f16 (auto), never, or always.
    #[arg(long, value_parser = fuse, default_value = "auto")]
    fuse: Fuse,
    /// Also the convolutions of each batch's halves, quarters and so on, separated by commas: with `--pieces 2,4,8` a plan may
    /// run them in so many pieces of the batch.
    #[arg(long, value_delimiter = ',', value_parser = pieces)]
    pieces: Vec<u64>,
    /// Also the iterations of each batch split into so many parts, separated by commas; see `vdnn plan --help`.
    #[arg(long, value_name = "K", value_delimiter = ',')]
    split_batch: Vec<u64>,
    /// Also the iterations of networks that are fed images as bytes; see `vdnn plan --help`.
    #[arg(long)]
    bytes: bool,
    /// The GPU.
    #[arg(long, default_value = "cuda")]
    device: DeviceName,
    /// Start no further kernel after this many seconds; run again to go on.
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
    /// Also kernels whose results vary between runs.
    #[arg(long)]
    nondeterministic: bool,
    /// The profile file. What it already holds is not measured again, unless it is older and its kernels were
    /// timed one at a time.
    #[arg(long)]
    out: PathBuf,
}

/// Measures and reports.
pub fn run(args: &ProfileArgs) -> Result<Report> {
    let DeviceName::Cuda(ordinal) = args.device else {
        bail!("a profile is of a GPU: expected --device cuda, found cpu")
    };
    let known = read_known(args)?;
    let replaced = known.as_ref().filter(|known| !known.rehearsed).map_or(0, |known| known.kernels.len());
    let (graphs, pieces) = (graphs(args, &[1])?, graphs(args, &args.pieces)?);
    let mut device = CudaDevice::open(ordinal)?;
    let options = ProfileOptions { deterministic: !args.nondeterministic, seconds: args.seconds };
    let [graphs, pieces] = [&graphs, &pieces].map(|graphs| graphs.iter().collect::<Vec<&Graph>>());
    let Profiled { profile, missing } = profile(&mut device, &graphs, &pieces, options, known)?;
    std::fs::write(&args.out, profile.to_json())
        .with_context(|| format!("cannot write the profile {}", args.out.display()))?;
    let document = json!({
        "device": profile.device, "made": profile.made, "kernels": profile.kernels.len(), "missing": missing,
        "replaced": replaced,
        "d2h": profile.d2h, "h2d": profile.h2d, "duplex_each": profile.duplex_each,
        "launch_overhead": profile.launch_overhead, "launch_delay_d2h": profile.launch_delay_d2h,
        "launch_delay_h2d": profile.launch_delay_h2d,
    });
    let us = |time: Option<f64>| time.map_or_else(|| "unknown".to_string(), |time| format!("{:.1} us", time * 1e6));
    let older = match replaced {
        0 => String::new(),
        _ => format!(
            "{replaced} kernels that were there before were timed one at a time, not among each other: they are gone\n"
        ),
    };
    let text = format!(
        "{older}{}: {} kernels measured, {missing} to go; d2h {:.1} GB/s, h2d {:.1} GB/s, both at once {:.1} GB/s each\n\
         launches timed by themselves take {} more; they begin {} later beside d2h, {} beside h2d\nwritten to {}",
        profile.device,
        profile.kernels.len(),
        profile.d2h / 1e9,
        profile.h2d / 1e9,
        profile.duplex_each / 1e9,
        us(profile.launch_overhead),
        us(profile.launch_delay_d2h),
        us(profile.launch_delay_h2d),
        args.out.display()
    );
    Ok(Report::new(document, text))
}

fn read_known(args: &ProfileArgs) -> Result<Option<Profile>> {
    if !args.out.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&args.out).with_context(|| format!("cannot read {}", args.out.display()))?;
    let known = Profile::parse(&text).with_context(|| format!("in the profile {}", args.out.display()))?;
    Ok(Some(known))
}

/// A number of pieces that planning looks for.
fn pieces(text: &str) -> Result<u64, String> {
    let found = text.parse().ok().filter(|pieces| PIECES.contains(pieces));
    found.ok_or_else(|| format!("expected one of {}, found {text}", PIECES.map(|pieces| pieces.to_string()).join(", ")))
}

/// The training iterations asked for, plain and encoded, with the batch divided by each of `pieces` that divides it: SGD with
/// momentum, each network's own image size. Whole batches also with images as bytes, where asked for, and split.
fn graphs(args: &ProfileArgs, pieces: &[u64]) -> Result<Vec<Graph>> {
    let mut graphs = Vec::new();
    for model in &args.models {
        for (&whole, &pieces) in args.batch_sizes.iter().flat_map(|whole| pieces.iter().map(move |n| (whole, n))) {
            let batch_size = whole / pieces;
            if batch_size * pieces != whole {
                continue;
            }
            for &dtype in &args.dtypes {
                let model = ModelArgs { batch_size, dtype, fuse: args.fuse, ..ModelArgs::of(model) };
                graphs.extend(iterations(&model, resolve::FromData::default())?);
                if pieces > 1 {
                    continue;
                }
                if args.bytes {
                    graphs.extend(iterations(&model, resolve::FromData::bytes_for(&model)?)?);
                }
                for &parts in &args.split_batch {
                    let split = ModelArgs { split_batch: Some(parts), ..model.clone() };
                    graphs.extend(iterations(&split, resolve::FromData::default())?);
                }
            }
        }
    }
    Ok(graphs)
}

/// The training iterations that a budget chooses from, plain and encoded.
fn iterations(model: &ModelArgs, data: resolve::FromData) -> Result<Vec<Graph>> {
    let build = resolve::network(model, data, 0)?;
    let net = program::network(&build, model.batch_size, Mode::Train)?;
    let mut graphs = Vec::new();
    for program in program::training_within(net, &Optimization::sgd(0.9, 5e-4), Some(u64::MAX))? {
        let encoded = vdnn_autograd::encode(&program)?;
        graphs.push(program.graph);
        graphs.extend(encoded.map(|encoded| encoded.graph));
    }
    Ok(graphs)
}
