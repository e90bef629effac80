//! Statistics from the sums that a convolution of cuDNN leaves: the second half of a convolution that makes its statistics.

use super::plan::{KernelArg, KernelLaunch, THREADS, at_most};
use super::{KernelError, LaunchPlan, Operand, Takes, check, whole};
use KernelArg::{F64, U32, U64};

const OP: &str = "conv2d_stats";

/// Mean and biased variance, f32 `[C]` each, from the f32 sums of `count` numbers a channel and of their squares, which lie at
/// these addresses.
///
/// # Errors
/// [`KernelError`] when an operand has a type or place that the kernel does not take.
pub fn statistics_of_sums(
    [sum, squares]: [u64; 2],
    count: u64,
    mean: Operand<'_>,
    variance: Operand<'_>,
) -> Result<LaunchPlan, KernelError> {
    check(OP, Takes::Plain, &[mean, variance])?;
    whole(OP, &[mean, variance])?;
    let channels = at_most(OP, "the number of channels", mean.elements(), (1 << 31) - 1)?;
    if channels == 0 {
        return Ok(LaunchPlan::default());
    }
    let (from, to) = ([sum, squares].map(U64), [mean, variance].map(|operand| U64(operand.address)));
    let args = [&from[..], &[U32(channels), F64(count.max(1) as f64)], &to].concat();
    let blocks = u64::from(channels.div_ceil(THREADS));
    Ok(vec![KernelLaunch::new(OP, "conv2d_stats.cu", OP, blocks, args)?].into())
}
