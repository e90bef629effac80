//! How kernels over maps with channels innermost are cut. `nhwc.cuh` has the picture.

use super::plan::{KernelArg, KernelLaunch, THREADS, at_most, divisor, in_packs, lanes};
use super::{KernelError, Operand};
use vdnn_tensor::{Bytes, MemoryOrder, TensorType};

/// Rows of a walk at least, for it reads at its begin what the one above has read.
const SHORTEST: u64 = 4;
/// Packs side by side in a tile at most: with packs of eight as many channels as a block has threads, with packs of four f32 half
/// as many.
const WIDEST: u64 = 32;
/// Multiprocessors to be filled. Any card gets the same cut, so that the order of a sum depends on shapes and alignment alone.
const MULTIPROCESSORS: u64 = 132;
/// Blocks of a multiprocessor, where a thread keeps much in registers: those of `WIDE_KERNEL` in `common.cuh`.
const RESIDENT: u64 = 2;
/// Rows a thread reads before it uses the first: `TURN` in `nhwc.cuh`.
const TURN: u64 = 4;

/// Threads of a block that sums: of one map, with 64 registers each; of two, with 80; of two with numbers of each channel, with 96;
/// of more, with 128. All fill a multiprocessor.
pub(super) const TALL: u32 = 1024;
pub(super) const TALL_PAIR: u32 = 768;
pub(super) const TALL_LINED: u32 = 640;
pub(super) const TALL_WIDE: u32 = 512;
pub(super) const TALL_HELD: u32 = 384;

/// Whether kernels with channels innermost take such maps: half precision, which has no others, and f32 in NHWC order.
pub(super) fn is_innermost(ty: &TensorType) -> bool {
    ty.dtype.is_half() || ty.layout.order == MemoryOrder::Nhwc
}

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
    /// Rows of a stretch, or of a turn of the sums' blocks, which are dealt to stretches.
    each: u64,
    pub stretches: u64,
    /// Threads of a block.
    threads: u32,
}

impl Columns {
    /// For sums over rows, a block a multiprocessor: as many stretches as shapes call for, whatever the alignment.
    pub fn reducing(operands: &[Operand<'_>], threads: u32) -> Self {
        let cut = Columns::uncut(operands);
        let (tiles, stretches) = (reducing_tiles(cut.packs, cut.channels), stretches(operands[0].ty));
        let width = cut.packs.div_ceil(tiles).max(1);
        Columns { width, tiles, each: u64::from(threads) / width * TURN, stretches, threads, ..cut }
    }

    /// For what happens to each element by itself: a turn of rows a thread. Blocks that come and go read rows near each other and
    /// keep memory busier than blocks that stay, each in a stretch of its own.
    pub fn applying(operands: &[Operand<'_>]) -> Self {
        let cut = Columns::uncut(operands);
        let each = u64::from(THREADS) / cut.width * TURN;
        Columns { each, stretches: cut.rows.div_ceil(each), ..cut }
    }

    /// The same in tiles of whole bytes of a mask, which two packs of four fill; `None` where a row of pixels ends within one.
    pub fn applying_with_mask(operands: &[Operand<'_>]) -> Option<Self> {
        let cut = Columns::uncut(operands);
        let width = cut.width.next_multiple_of(8 / cut.lanes);
        let each = u64::from(THREADS) / width * TURN;
        let whole = cut.lanes > 1 && cut.channels.is_multiple_of(8);
        whole.then(|| Columns { width, each, stretches: cut.rows.div_ceil(each), ..cut })
    }

    /// What `applying` and `reducing` are where a thread walks down columns of the first operand's images, one a turn; and the rows
    /// that each column has at most.
    pub fn applying_down(operands: &[Operand<'_>]) -> (Self, u64) {
        let cut = Columns::applying(operands);
        let (rows, each, down) = cut.walks(operands[0].ty, RESIDENT * MULTIPROCESSORS);
        (Columns { rows, each, stretches: rows.div_ceil(each), ..cut }, down)
    }

    pub fn reducing_down(operands: &[Operand<'_>], threads: u32) -> (Self, u64) {
        let cut = Columns::reducing(operands, threads);
        let (rows, each, down) = cut.walks(operands[0].ty, cut.tiles * cut.stretches);
        (Columns { rows, each, ..cut }, down)
    }

    /// Walks, those of a block at a time, and rows of each walk: as many as let `blocks` end soonest that take one after the other,
    /// where a walk's begin costs a row.
    fn walks(&self, map: &TensorType, blocks: u64) -> (u64, u64, u64) {
        let [images, _, height, width] = map.shape.nchw().unwrap_or_default();
        let each = u64::from(self.threads) / self.width;
        let walks = |down: u64| images * height.div_ceil(down) * width;
        let at_once = each * (blocks / self.tiles).max(1);
        let down = (height.clamp(1, SHORTEST)..=height)
            .rev()
            .min_by_key(|&down| walks(down).div_ceil(at_once) * (down + 1))
            .unwrap_or(1);
        (walks(down), each, down)
    }

    fn uncut(operands: &[Operand<'_>]) -> Self {
        let (rows, channels) = (operands[0].rows(), operands[0].ty.shape.dim(1));
        let wide = lanes(operands[0].ty);
        let aligned = channels.is_multiple_of(wide) && operands.iter().all(|operand| in_packs(operand, rows));
        let lanes = if aligned { wide } else { 1 };
        let packs = channels / lanes;
        let tiles = packs.div_ceil(WIDEST).max(1);
        let width = packs.div_ceil(tiles).max(1);
        Columns { rows, channels, lanes, packs, width, tiles, each: 0, stretches: 0, threads: THREADS }
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

    /// A block for each stretch of each tile.
    pub fn launch(
        &self,
        op: &'static str,
        file: &'static str,
        function: &'static str,
        args: Vec<KernelArg>,
    ) -> Result<KernelLaunch, KernelError> {
        let launch = KernelLaunch::new(op, file, function, self.tiles * self.stretches, args)?;
        Ok(KernelLaunch { block: [self.threads, 1, 1], ..launch })
    }
}

/// A thread for each pack of channels of each pixel of `written`. `PIXELS` in `nhwc.cuh`.
pub(super) struct Pixels {
    pub args: [KernelArg; 5],
    pub blocks: u64,
    pub packed: bool,
}

impl Pixels {
    /// The walk over `written`, in packs where all of `maps` allow it and they are wanted.
    pub fn of(op: &'static str, written: &Operand<'_>, maps: &[Operand<'_>], packs: bool) -> Result<Self, KernelError> {
        let size = [written.ty.shape.dim(2), written.ty.shape.dim(3)];
        Pixels::over(op, written.samples(), size, maps, packs)
    }

    /// The walk over so many images of rows and columns of pixels, with the channels of `maps`.
    pub fn over(
        op: &'static str,
        images: u64,
        [rows, columns]: [u64; 2],
        maps: &[Operand<'_>],
        packs: bool,
    ) -> Result<Self, KernelError> {
        let mut cut = Columns::uncut(maps);
        if !packs {
            (cut.lanes, cut.packs) = (1, cut.channels);
        }
        let total = cut.packs.saturating_mul(images).saturating_mul(rows * columns);
        let total = at_most(op, "the number of packs", total, (1 << 31) - 1)?;
        let packs = cut.packs as u32;
        let divisors = [packs, (rows * columns) as u32, columns as u32].map(divisor);
        let args = [KernelArg::U32(total), KernelArg::U32(packs), divisors[0], divisors[1], divisors[2]];
        Ok(Pixels { args, blocks: u64::from(total.div_ceil(THREADS)), packed: cut.lanes > 1 })
    }

    pub fn pick(&self, [packed, single]: [&'static str; 2]) -> &'static str {
        if self.packed { packed } else { single }
    }
}

/// Tiles of a reduction. The last block of a tile reads the sums of all its stretches: 16 bytes of each channel, which narrower
/// tiles keep near 135 KB, a microsecond's worth.
fn reducing_tiles(packs: u64, channels: u64) -> u64 {
    let narrow = (0..).map(|power| 1 << power).find(|&tiles: &u64| tiles * tiles * 64 >= channels).unwrap_or(1);
    narrow.max(packs.div_ceil(WIDEST)).min(packs).max(1)
}

/// Stretches of rows of a reduction: a block for each multiprocessor, but at least a turn of rows a thread.
fn stretches(ty: &TensorType) -> u64 {
    let (rows, channels) = (ty.rows(), ty.shape.dim(1));
    let wide = lanes(ty);
    let packs = if channels.is_multiple_of(wide) { channels / wide } else { channels };
    let tiles = reducing_tiles(packs, channels);
    let height = u64::from(TALL) / packs.div_ceil(tiles).max(1);
    (MULTIPROCESSORS / tiles).min(rows.div_ceil(height * TURN)).max(1)
}

/// Workspace for `sums` partial sums in double of every channel and stretch.
pub(super) fn partial_bytes(ty: &TensorType, sums: u64) -> Bytes {
    ty.shape.dim(1) * stretches(ty) * sums * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::{DType, Layout};

    fn half(dims: [u64; 4]) -> TensorType {
        let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 0 };
        TensorType { layout, ..TensorType::new(dims, DType::BF16) }
    }

    fn reducing(ty: &TensorType) -> Columns {
        Columns::reducing(&[Operand::contiguous(ty, 0)], TALL)
    }

    fn blocks(cut: &Columns) -> u64 {
        cut.tiles * cut.stretches
    }

    #[test]
    fn reductions_are_one_wave_of_a_block_a_multiprocessor() {
        let of = |dims| reducing(&half(dims));
        assert_eq!(blocks(&of([256, 64, 112, 112])), 132);
        assert_eq!((of([256, 256, 14, 14]).tiles, of([256, 256, 14, 14]).stretches), (2, 66));
        assert_eq!((of([256, 2048, 7, 7]).tiles, of([256, 2048, 7, 7]).stretches), (8, 16));
        assert_eq!((of([256, 512, 7, 7]).tiles, of([256, 512, 7, 7]).stretches), (4, 33));
        assert_eq!(blocks(&of([2, 512, 7, 7])), 4);
        assert_eq!(blocks(&of([0, 64, 7, 7])), 1);
    }

    /// `MOST_TILES` in `nhwc.cuh`: what is counted there has a place.
    #[test]
    fn tiles_of_several_stretches_are_few() {
        for channels in [8u64, 13, 640, 4096, 16_888, 16_889, 33_784, 262_144, 1 << 20] {
            let ty = half([4096, channels, 8, 8]);
            for address in [0, 2] {
                let cut = Columns::reducing(&[Operand::contiguous(&ty, address)], TALL);
                assert!(cut.stretches == 1 || cut.tiles <= 1024, "{cut:?}");
            }
        }
    }

    /// What the last block of a tile reads.
    #[test]
    fn the_last_block_has_little_to_add_up() {
        for channels in [8u64, 64, 96, 128, 256, 512, 1024, 2048, 4096] {
            let cut = reducing(&half([256, channels, 14, 14]));
            assert!(cut.stretches * cut.width * 8 * 16 <= 136 << 10, "{cut:?}");
        }
    }

    #[test]
    fn every_row_and_pack_has_its_thread() {
        for dims in [[2, 8, 3, 3], [3, 160, 5, 7], [256, 1024, 14, 14], [2, 13, 9, 9], [1, 2056, 1, 1]] {
            let ty = half(dims);
            let operand = [Operand::contiguous(&ty, 0)];
            let cut = Columns::applying(&operand);
            assert!(cut.stretches * cut.each >= cut.rows, "{cut:?}");
            for cut in [reducing(&ty), cut] {
                assert!(cut.width * cut.tiles >= cut.packs && u64::from(cut.threads) >= cut.width, "{cut:?}");
                assert!(cut.width <= WIDEST && cut.packs * cut.lanes == dims[1], "{cut:?}");
            }
        }
    }

    /// Of ResNet's stem: columns of windows, and of cells.
    #[test]
    fn walks_end_together() {
        let of = |ty: &TensorType| {
            let operand = [Operand::contiguous(ty, 0)];
            let cuts = [Columns::applying_down(&operand), Columns::reducing_down(&operand, TALL_HELD)];
            cuts.map(|(cut, down)| (cut.rows, blocks(&cut), down))
        };
        assert_eq!(of(&half([256, 64, 56, 56])), [(256 * 4 * 56, 1792, 14), (256 * 3 * 56, 132, 19)]);
        assert_eq!(of(&half([256, 64, 57, 57])), [(256 * 4 * 57, 1824, 15), (256 * 3 * 57, 132, 19)]);
        // Where there are few, some shorter.
        assert_eq!(of(&half([8, 64, 57, 57])), [(8 * 15 * 57, 214, 4), (8 * 5 * 57, 51, 12)]);
        assert_eq!(of(&half([2, 16, 3, 3])).map(|(_, _, down)| down), [3, 3]);
        assert_eq!(of(&half([2, 16, 0, 3])), [(0, 0, 1), (0, 1, 1)]);
    }

    #[test]
    fn stretches_do_not_depend_on_addresses() {
        let ty = half([64, 64, 16, 16]);
        let at = |address| Columns::reducing(&[Operand::contiguous(&ty, address)], TALL);
        assert_eq!((at(0).lanes, at(2).lanes), (8, 1));
        assert_eq!(at(0).stretches, at(2).stretches);
    }
}
