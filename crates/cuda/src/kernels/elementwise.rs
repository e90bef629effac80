//! What add, ReLU and copies share: a kernel over rows of equal length, one output.

use super::plan::{KernelArg, KernelLaunch, Rows};
use super::{KernelError, LaunchPlan, Operand};

/// The kernel: its op for messages, its file, its functions for packs and for single elements.
pub(super) struct Elementwise {
    pub op: &'static str,
    pub file: &'static str,
    pub functions: [&'static str; 2],
}

/// One launch with arguments (address, stride) of each input and the output, row length, tiles of a row.
pub(super) fn elementwise(
    inputs: &[Operand<'_>],
    output: &Operand<'_>,
    kernel: Elementwise,
) -> Result<LaunchPlan, KernelError> {
    let all: Vec<Operand<'_>> = inputs.iter().chain([output]).copied().collect();
    let rows = Rows::merged(&all);
    if rows.is_empty() {
        return Ok(LaunchPlan::default());
    }
    let mut args: Vec<KernelArg> = all.iter().flat_map(address_and_stride).collect();
    args.extend([KernelArg::U64(rows.len), rows.tiles_arg(kernel.op)?]);
    let function = rows.pick(kernel.functions[0], kernel.functions[1]);
    Ok(vec![KernelLaunch::new(kernel.op, kernel.file, function, rows.blocks(), args)?].into())
}

/// An operand as two arguments.
pub(super) fn address_and_stride(operand: &Operand<'_>) -> [KernelArg; 2] {
    [KernelArg::U64(operand.address), KernelArg::U64(operand.batch_stride)]
}
