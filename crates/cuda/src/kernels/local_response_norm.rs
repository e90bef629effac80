//! Local response normalisation and its gradient.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan, THREADS, at_most, sample_len};
use super::window::addresses;
use super::{KernelError, Operand, operands};
use KernelArg::{F32, U32};
use vdnn_graph::op::LocalResponseNorm;

/// Channels a thread walks.
const CHUNK: u32 = 32;
/// Shared memory a block may ask for without raising its limit.
const SHARED_LIMIT: u64 = 48 << 10;

/// (X) → Y.
pub(super) fn prepare(
    op: &LocalResponseNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "local_response_norm";
    let ([x], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    launch(name, op, &[x, y], THREADS, 0)
}

/// (X, dY) → dX. A thread keeps two numbers for each channel of a window, which bounds the window or the block.
pub(super) fn prepare_grad(
    op: &LocalResponseNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "local_response_norm_grad";
    let ([x, dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    let ring = op.size.saturating_mul(8);
    let threads = [256, 128, 64, 32].into_iter().find(|&t| ring.saturating_mul(u64::from(t)) <= SHARED_LIMIT);
    let limit = SHARED_LIMIT / 8 / 32;
    let threads = threads.ok_or(KernelError::TooLarge { op: name, what: "its window", found: op.size, limit })?;
    launch(name, op, &[x, dy, dx], threads, ring)
}

fn launch(
    name: &'static str,
    op: &LocalResponseNorm,
    all: &[Operand<'_>],
    most_threads: u32,
    ring_bytes: u64,
) -> Result<LaunchPlan, KernelError> {
    let x = &all[0];
    if x.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    sample_len(name, x)?;
    let size = at_most(name, "its window", op.size, 1 << 30)?;
    let (channels, hw) = x.channels();
    let (channels, hw) = (channels as u32, hw as u32);
    let threads = hw.next_multiple_of(32).min(most_threads);
    let (tiles, chunks) = (hw.div_ceil(threads), channels.div_ceil(CHUNK));
    let mut args = addresses(all);
    args.extend([channels, hw, tiles, chunks, CHUNK, size].map(U32));
    args.extend([op.k, op.alpha / op.size as f64, op.beta].map(|v| F32(v as f32)));
    let blocks = x.samples() * u64::from(tiles) * u64::from(chunks);
    let mut launch = KernelLaunch::new(name, "local_response_norm.cu", name, blocks, args)?;
    launch.block[0] = threads;
    launch.shared_bytes = (ring_bytes * u64::from(threads)) as u32;
    Ok(vec![launch].into())
}
