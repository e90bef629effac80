//! Elementwise addition.

use super::elementwise::{Elementwise, elementwise};
use super::{KernelError, LaunchPlan, Operand, operands};

/// (A, B) → A + B.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([a, b], [y]) = (operands("add", inputs)?, operands("add", outputs)?);
    elementwise(&[a, b], &y, Elementwise { op: "add", file: "add.cu", functions: ["add_v4", "add_v1"] })
}
