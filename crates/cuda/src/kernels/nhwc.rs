//! How kernels over maps with channels innermost are cut. `nhwc.cuh` has the picture.

use super::plan::{KernelArg, KernelLaunch, THREADS, at_most, divisor, in_packs, lanes};
use super::{KernelError, Operand};
use vdnn_tensor::{Bytes, TensorType};

/// Threads side by side in a tile at most: with packs of eight they sum as many channels as a block has threads.
const WIDEST: u64 = 32;
/// Blocks of a reduction: four on each of 132 multiprocessors, all of them at once. Any card gets the same number, so that the
/// order of a sum depends on shapes and alignment alone.
const REDUCING_BLOCKS: u64 = 528;
/// Blocks that keep every multiprocessor busy until the end, where the order does not matter.
const APPLYING_BLOCKS: u64 = 1056;
/// Channels that one block adds up over all stretches.
const FINISHED_CHANNELS: u64 = 8;

/// Rows of channels, cut into tiles of channels and stretches of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub rows: u64,
    pub channels: u64,
    /// Elements moved by one access: those of 16 bytes where every row allows it, else 1.
    pub lanes: u64,
    /// Packs of a row.
    packs: u64,
    /// Packs of a tile.
    width: u64,
    /// Tiles of a row.
    tiles: u64,
    /// Rows of a stretch.
    each: u64,
    pub stretches: u64,
}

impl Columns {
    /// For sums over rows: as many stretches as shapes call for, whatever the alignment.
    pub fn reducing(operands: &[Operand<'_>]) -> Self {
        let cut = Columns::uncut(operands);
        let stretches = stretches(operands[0].ty);
        Columns { each: cut.rows.div_ceil(stretches), stretches, ..cut }
    }

    /// For what happens to each element by itself.
    pub fn applying(operands: &[Operand<'_>]) -> Self {
        let cut = Columns::uncut(operands);
        let height = u64::from(THREADS) / cut.width;
        // Sixteen rows a thread make up for loading a channel's constants; fewer where blocks would be too few.
        let blocks = |rows: u64| cut.rows.div_ceil(height * rows) * cut.tiles;
        let rows = [16, 8].into_iter().find(|&rows| blocks(rows) >= APPLYING_BLOCKS).unwrap_or(4);
        Columns { each: height * rows, stretches: cut.rows.div_ceil(height * rows), ..cut }
    }

    fn uncut(operands: &[Operand<'_>]) -> Self {
        let (rows, channels) = (operands[0].rows(), operands[0].ty.shape.dim(1));
        let wide = lanes(operands[0].ty);
        let aligned = channels.is_multiple_of(wide) && operands.iter().all(|operand| in_packs(operand, rows));
        let lanes = if aligned { wide } else { 1 };
        let packs = channels / lanes;
        let tiles = packs.div_ceil(WIDEST).max(1);
        Columns { rows, channels, lanes, packs, width: packs.div_ceil(tiles).max(1), tiles, each: 0, stretches: 0 }
    }

    /// The function for these accesses.
    pub fn pick(&self, packed: &'static str, single: &'static str) -> &'static str {
        if self.lanes > 1 { packed } else { single }
    }

    /// `COLUMNS` as arguments.
    pub fn args(&self, op: &'static str) -> Result<[KernelArg; 5], KernelError> {
        let narrow = |what, value| at_most(op, what, value, (1 << 31) - 1).map(KernelArg::U32);
        let (packs, each) = (narrow("the number of packs of a row", self.packs)?, narrow("a stretch", self.each)?);
        let [width, tiles] = [self.width, self.tiles].map(|v| KernelArg::U32(v as u32));
        Ok([KernelArg::U64(self.rows), packs, width, tiles, each])
    }

    pub fn blocks(&self) -> u64 {
        self.tiles * self.stretches
    }

    /// The launch that adds up stretches; further arguments follow (partial, channels, stretches).
    pub fn finish(
        &self,
        op: &'static str,
        file: &'static str,
        function: &'static str,
        partial: u64,
        further: &[KernelArg],
    ) -> Result<KernelLaunch, KernelError> {
        let sizes = [self.channels, self.stretches].map(|v| KernelArg::U32(v as u32));
        let args = [&[KernelArg::U64(partial)], &sizes[..], further].concat();
        KernelLaunch::new(op, file, function, self.channels.div_ceil(FINISHED_CHANNELS), args)
    }
}

/// A thread for each pack of channels of each pixel of `written`. `PIXELS` in `nhwc.cuh`.
pub(super) struct Pixels {
    pub args: [KernelArg; 5],
    pub blocks: u64,
    packed: bool,
}

impl Pixels {
    /// The walk over `written`, in packs where all of `maps` allow it and they are wanted.
    pub fn of(op: &'static str, written: &Operand<'_>, maps: &[Operand<'_>], packs: bool) -> Result<Self, KernelError> {
        let mut cut = Columns::uncut(maps);
        if !packs {
            (cut.lanes, cut.packs) = (1, cut.channels);
        }
        let total = at_most(op, "the number of packs", cut.packs.saturating_mul(written.rows()), (1 << 31) - 1)?;
        let (plane, row) = (written.channels().1 as u32, written.ty.shape.dim(3) as u32);
        let packs = cut.packs as u32;
        let args = [KernelArg::U32(total), KernelArg::U32(packs), divisor(packs), divisor(plane), divisor(row)];
        Ok(Pixels { args, blocks: u64::from(total.div_ceil(THREADS)), packed: cut.lanes > 1 })
    }

    pub fn pick(&self, [packed, single]: [&'static str; 2]) -> &'static str {
        if self.packed { packed } else { single }
    }
}

/// Stretches of rows of a reduction: enough blocks, but at least eight rows a thread.
fn stretches(ty: &TensorType) -> u64 {
    let (rows, channels) = (ty.rows(), ty.shape.dim(1));
    let wide = lanes(ty);
    let packs = if channels.is_multiple_of(wide) { channels / wide } else { channels };
    let tiles = packs.div_ceil(WIDEST).max(1);
    let height = u64::from(THREADS) / packs.div_ceil(tiles).max(1);
    (REDUCING_BLOCKS / tiles).min(rows.div_ceil(height * 8)).max(1)
}

/// Workspace for `sums` partial sums in double of every channel and stretch.
pub(super) fn partial_bytes(ty: &TensorType, sums: u64) -> Bytes {
    ty.shape.dim(1) * stretches(ty) * sums * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::{DType, Layout, MemoryOrder};

    fn half(dims: [u64; 4]) -> TensorType {
        let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 0 };
        TensorType { layout, ..TensorType::new(dims, DType::BF16) }
    }

    #[test]
    fn reductions_fill_the_machine_on_small_and_large_maps() {
        let blocks = |dims| Columns::reducing(&[Operand::contiguous(&half(dims), 0)]).blocks();
        assert_eq!(blocks([256, 64, 112, 112]), 528);
        assert_eq!(blocks([256, 2048, 7, 7]), 528);
        assert_eq!(blocks([256, 512, 7, 7]), 392);
        assert_eq!(blocks([0, 64, 7, 7]), 1);
    }

    #[test]
    fn every_row_and_pack_has_its_thread() {
        for dims in [[2, 8, 3, 3], [3, 160, 5, 7], [256, 1024, 14, 14], [2, 13, 9, 9], [1, 2056, 1, 1]] {
            let ty = half(dims);
            let operand = [Operand::contiguous(&ty, 0)];
            for cut in [Columns::reducing(&operand), Columns::applying(&operand)] {
                assert!(cut.stretches * cut.each >= cut.rows && cut.width * cut.tiles >= cut.packs, "{cut:?}");
                assert!(cut.width <= WIDEST && cut.packs * cut.lanes == dims[1], "{cut:?}");
            }
        }
    }

    #[test]
    fn stretches_do_not_depend_on_addresses() {
        let ty = half([64, 64, 16, 16]);
        let at = |address| Columns::reducing(&[Operand::contiguous(&ty, address)]);
        assert_eq!((at(0).lanes, at(2).lanes), (8, 1));
        assert_eq!(at(0).stretches, at(2).stretches);
    }
}
