//! What add, ReLU and copies share: a kernel over rows of equal length, one output, any element type and order.

use super::plan::{KernelArg, KernelLaunch, Walk};
use super::{KernelError, LaunchPlan, Operand};

/// The kernel: its op for messages, its files by element type, its functions for packs and for single elements.
pub(super) struct Elementwise {
    pub op: &'static str,
    pub files: [&'static str; 3],
    pub functions: [&'static str; 2],
}

/// One launch with arguments (address, stride) of each input and the output, and the walk.
pub(super) fn elementwise(
    inputs: &[Operand<'_>],
    output: &Operand<'_>,
    kernel: Elementwise,
) -> Result<LaunchPlan, KernelError> {
    let all: Vec<Operand<'_>> = inputs.iter().chain([output]).copied().collect();
    let walk = Walk::merged(&all);
    if walk.is_empty() {
        return Ok(LaunchPlan::default());
    }
    let mut args: Vec<KernelArg> = all.iter().flat_map(address_and_stride).collect();
    args.extend(walk.args(kernel.op)?);
    let function = walk.pick(kernel.functions[0], kernel.functions[1]);
    let file = super::file_of(output.ty.dtype, kernel.files);
    Ok(vec![KernelLaunch::new(kernel.op, file, function, walk.blocks(), args)?].into())
}

/// An operand as two arguments.
pub(super) fn address_and_stride(operand: &Operand<'_>) -> [KernelArg; 2] {
    [KernelArg::U64(operand.address), KernelArg::U64(operand.row_stride)]
}
