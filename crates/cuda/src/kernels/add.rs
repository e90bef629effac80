//! Elementwise addition.

use super::elementwise::{Elementwise, elementwise};
use super::{KernelError, LaunchPlan, Operand, files, operands};

/// (A, B) → A + B.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([a, b], [y]) = (operands("add", inputs)?, operands("add", outputs)?);
    elementwise(&[a, b], &y, Elementwise { op: "add", files: files!("add"), functions: ["add_packed", "add_single"] })
}
