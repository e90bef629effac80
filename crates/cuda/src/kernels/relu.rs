//! ReLU and its gradient, from Y or from a mask.

use super::elementwise::{Elementwise, address_and_stride, elementwise};
use super::plan::{KernelArg, KernelLaunch, Rows};
use super::{KernelError, LaunchPlan, Operand, operands};

/// (X) → Y.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([x], [y]) = (operands("relu", inputs)?, operands("relu", outputs)?);
    elementwise(&[x], &y, Elementwise { op: "relu", file: "relu.cu", functions: ["relu_v4", "relu_v1"] })
}

/// (Y, dY) → dX.
pub(super) fn prepare_grad(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([y, dy], [dx]) = (operands("relu_grad", inputs)?, operands("relu_grad", outputs)?);
    let functions = ["relu_grad_v4", "relu_grad_v1"];
    elementwise(&[y, dy], &dx, Elementwise { op: "relu_grad", file: "relu.cu", functions })
}

/// (X) → Y, mask.
pub(super) fn prepare_mask(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([x], [y, mask]) = (operands("relu_mask", inputs)?, operands("relu_mask", outputs)?);
    masked("relu_mask", ["relu_mask_v4", "relu_mask_v1"], [x, y], [x, y, mask])
}

/// (mask, dY) → dX.
pub(super) fn prepare_mask_grad(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let name = "relu_mask_grad";
    let ([mask, dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    masked(name, ["relu_mask_grad_v4", "relu_mask_grad_v1"], [dy, dx], [mask, dy, dx])
}

/// A walk over `maps`, by samples where a sample's mask ends within a byte.
fn masked(
    op: &'static str,
    functions: [&'static str; 2],
    maps: [Operand<'_>; 2],
    all: [Operand<'_>; 3],
) -> Result<LaunchPlan, KernelError> {
    let whole_bytes = maps[0].sample().is_multiple_of(8);
    let rows = if whole_bytes { Rows::merged(&maps) } else { Rows::by_sample(&maps) };
    if rows.is_empty() {
        return Ok(LaunchPlan::default());
    }
    let mut args: Vec<KernelArg> = all.iter().flat_map(address_and_stride).collect();
    args.extend([KernelArg::U64(rows.len), rows.tiles_arg(op)?]);
    let function = rows.pick(functions[0], functions[1]);
    Ok(vec![KernelLaunch::new(op, "relu.cu", function, rows.blocks(), args)?].into())
}
