//! ReLU and its gradient.

use super::elementwise::{Elementwise, elementwise};
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
