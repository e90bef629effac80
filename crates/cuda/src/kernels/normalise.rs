//! Images of bytes as numbers: the 256 numbers of each channel are arguments, for three channels of a launch.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, SAMPLE_LIMIT, THREADS, at_most, lanes};
use super::{KernelError, Operand, file_of, files, operands};
use KernelArg::{U32, Word};
use vdnn_graph::op::Normalise;

const OP: &str = "normalise";
/// Channels of a launch: their numbers are 3 KiB of arguments. `CHANNELS` in `normalise.cu`.
const CHANNELS: u64 = 3;
/// Packs that a thread takes. `WALKED` in `common.cuh`.
const WALKED: u64 = 4;

/// (image of bytes) → its numbers.
pub(super) fn prepare(
    op: &Normalise,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([x], [y]) = (operands(OP, inputs)?, operands(OP, outputs)?);
    let (channels, pixels) = x.channels();
    at_most(OP, "a plane's pixels", pixels, SAMPLE_LIMIT)?;
    if x.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let pack = lanes(y.ty);
    let packed = x.address.is_multiple_of(pack)
        && y.address.is_multiple_of(16)
        && [pixels, x.row_stride, y.row_stride].iter().all(|elements| elements.is_multiple_of(pack));
    let (lanes, function) = if packed { (pack, "normalise_packed") } else { (1, "normalise_single") };
    let tiles = pixels.div_ceil(u64::from(THREADS) * lanes * WALKED);
    let file = file_of(y.ty.dtype, files!("normalise"));
    let mut launches = Vec::new();
    for first in (0..channels).step_by(CHANNELS as usize) {
        let count = CHANNELS.min(channels - first);
        let from = |operand: &Operand<'_>| {
            let skipped = first * pixels * operand.ty.dtype.size();
            address_and_stride(&Operand { address: operand.address + skipped, ..*operand })
        };
        let sizes = [pixels, count, tiles].map(|size| U32(size as u32));
        let args = [&levels(op, first, count)[..], &from(&x), &from(&y), &sizes].concat();
        launches.push(KernelLaunch::new(OP, file, function, x.samples() * count * tiles, args)?);
    }
    Ok(launches.into())
}

/// The numbers of some channels, two in a word, filled up with nothing. `Levels` in `normalise.cu`.
fn levels(op: &Normalise, first: u64, count: u64) -> Vec<KernelArg> {
    let bits = |channel: u64, byte: u64| match channel < first + count {
        true => u64::from((op.level(channel as usize, byte as u8) as f32).to_bits()),
        false => 0,
    };
    let pairs = (first..first + CHANNELS).flat_map(|channel| (0..256).step_by(2).map(move |byte| (channel, byte)));
    let mut words: Vec<KernelArg> =
        pairs.map(|(channel, byte)| Word(bits(channel, byte) | bits(channel, byte + 1) << 32)).collect();
    words[0] = KernelArg::U64(words[0].slot());
    words
}
