//! What add, ReLU and copies share: a kernel over rows of equal length, one output, any element type and order.

use super::plan::{KernelArg, KernelLaunch, SAMPLE_LIMIT, THREADS, at_most, divisor, in_packs, lanes};
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

/// Packs of a walk that a thread takes. `WALKED` in `common.cuh`.
const WALKED: u64 = 4;

/// How an elementwise kernel walks its operands: rows of `len` elements in packs of `lanes`, numbered through all rows.
/// `WALK` in `common.cuh`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Walk {
    pub rows: u64,
    pub len: u64,
    /// Elements moved by one access: those of 16 bytes when every row of every operand starts on 16 bytes, else 1.
    pub lanes: u64,
    /// Packs of one row.
    pub packs: u64,
}

impl Walk {
    /// One row when all operands are in one piece, else a row each of theirs. All operands have the same elements.
    pub(super) fn merged(operands: &[Operand<'_>]) -> Self {
        let first = operands[0];
        if operands.iter().all(Operand::is_contiguous) {
            return Walk::cut(1, first.ty.stored_elements(), operands);
        }
        Walk::cut(first.rows(), first.row(), operands)
    }

    fn cut(rows: u64, len: u64, operands: &[Operand<'_>]) -> Self {
        let lanes = if operands.iter().all(|operand| in_packs(operand, rows)) { lanes(operands[0].ty) } else { 1 };
        Walk { rows, len, lanes, packs: len.div_ceil(lanes) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.len == 0
    }

    pub(super) fn blocks(&self) -> u64 {
        self.rows.saturating_mul(self.packs).div_ceil(u64::from(THREADS) * WALKED)
    }

    /// The function for these accesses.
    pub(super) fn pick(&self, packed: &'static str, single: &'static str) -> &'static str {
        if self.lanes > 1 { packed } else { single }
    }

    /// (length of a row, packs of a row, their divisor, packs) as arguments.
    pub(super) fn args(&self, op: &'static str) -> Result<[KernelArg; 4], KernelError> {
        let total = at_most(op, "the number of packs", self.rows.saturating_mul(self.packs), SAMPLE_LIMIT)?;
        let packs = self.packs as u32;
        Ok([KernelArg::U64(self.len), KernelArg::U32(packs), divisor(packs), KernelArg::U32(total)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

    #[test]
    fn packs_need_alignment_of_every_row() {
        let ty = TensorType::new([2, 3, 5, 5], DType::F32);
        let whole = Operand::contiguous(&ty, 1024);
        let slice = Operand { ty: &ty, address: 1024, row_stride: 100 };
        let odd = Operand { ty: &ty, address: 1028, row_stride: 100 };
        assert_eq!(Walk::merged(&[whole, whole]), Walk { rows: 1, len: 150, lanes: 4, packs: 38 });
        assert_eq!(Walk::merged(&[whole, slice]), Walk { rows: 2, len: 75, lanes: 1, packs: 75 });
        assert_eq!(Walk::merged(&[slice, slice]), Walk { rows: 2, len: 75, lanes: 4, packs: 19 });
        assert_eq!(Walk::merged(&[slice, odd]).lanes, 1);
    }

    #[test]
    fn rows_are_pixels_where_channels_are_innermost() {
        let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 0 };
        let ty = TensorType { layout, ..TensorType::new([2, 16, 3, 3], DType::BF16) };
        let slice = Operand { ty: &ty, address: 1024, row_stride: 40 };
        assert_eq!(Walk::merged(&[slice]), Walk { rows: 18, len: 16, lanes: 8, packs: 2 });
        assert_eq!(Walk::merged(&[Operand::contiguous(&ty, 1024)]), Walk { rows: 1, len: 288, lanes: 8, packs: 36 });
    }
}
