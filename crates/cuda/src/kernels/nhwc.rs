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

/// Bytes of a map up to which one multiprocessor's work counts more than memory's.
const SMALL: Bytes = 16 << 20;
/// What the end of a sum of several stretches costs in bytes that a multiprocessor could read: a count among blocks, and the way to
/// the stretches' sums, about a microsecond.
const SECOND: u64 = 64 << 10;
/// Bytes side by side in a tile of a small map at least, with one stretch and with several: a sector of the cache, and two.
const SHORTEST_LINES: [u64; 2] = [32, 64];

/// Threads of a block that sums: of one map, or two, with 64 registers each; of two or more, with 80; with 168 where a thread keeps something
/// from row to row. All fill a multiprocessor.
pub(super) const TALL: u32 = 1024;
pub(super) const TALL_PAIR: u32 = 768;
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
        Columns::uncut(operands).dealt(Sums::of(operands[0].ty), threads)
    }

    /// The same in so many tiles, or as many as accesses take.
    fn dealt(self, sums: Sums, threads: u32) -> Self {
        let tiles = sums.tiles.max(self.packs.div_ceil(WIDEST)).min(self.packs).max(1);
        let width = self.packs.div_ceil(tiles).max(1);
        let each = u64::from(threads) / width * TURN;
        Columns { width, tiles, each, stretches: sums.stretches, threads, ..self }
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
        let cut = Columns::uncut(operands).dealt(Sums::of_many_rows(operands[0].ty), threads);
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
    pub fn args(&self, op: &'static str) -> Result<[KernelArg; 9], KernelError> {
        let narrow = |what, value| at_most(op, what, value, (1 << 31) - 1);
        let (packs, each) = (narrow("the number of packs of a row", self.packs)?, narrow("a stretch", self.each)?);
        let turns = narrow("the number of turns", self.rows.div_ceil(self.each.max(1)))?;
        let stretches = narrow("the number of stretches", self.stretches)?;
        let (width, tiles) = (self.width as u32, self.tiles as u32);
        let [a, b, c, d, e] = [packs, width, tiles, each, turns].map(KernelArg::U32);
        let [by_width, by_tiles, by_stretches] = [width, tiles, stretches].map(divisor);
        Ok([KernelArg::U64(self.rows), a, b, c, d, e, by_width, by_tiles, by_stretches])
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

/// Tiles and stretches of a reduction, as shapes alone have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sums {
    tiles: u64,
    stretches: u64,
}

impl Sums {
    fn of(ty: &TensorType) -> Self {
        let bytes = ty.rows().saturating_mul(ty.shape.dim(1)).saturating_mul(ty.dtype.size());
        let few = (bytes <= SMALL).then(|| Sums::of_few_rows(ty)).flatten();
        few.unwrap_or_else(|| Sums::of_many_rows(ty))
    }

    /// A block for each multiprocessor. The last block of a tile reads the sums of all its stretches: 16 bytes of each channel,
    /// which narrower tiles keep near 135 KB, a microsecond's worth.
    fn of_many_rows(ty: &TensorType) -> Self {
        let (channels, packs) = (ty.shape.dim(1), packs(ty));
        let narrow = (0..).map(|power| 1 << power).find(|&tiles: &u64| tiles * tiles * 64 >= channels).unwrap_or(1);
        let tiles = narrow.max(packs.div_ceil(WIDEST)).min(packs).max(1);
        Sums { tiles, stretches: stretches(ty, packs.div_ceil(tiles), tiles) }
    }

    /// Of a small map, the cut whose blocks end soonest: each reads its rows of its tile, and the last of several stretches then
    /// their sums. Where channels are many, a block sums all rows of a few, and nothing is left to the last. `None` where there
    /// are more tiles than multiprocessors however wide they are.
    fn of_few_rows(ty: &TensorType) -> Option<Self> {
        let (packs, pack) = (packs(ty), ty.shape.dim(1) * ty.dtype.size() / packs(ty).max(1));
        let cuts = (1..=packs.min(WIDEST)).flat_map(|width| {
            let tiles = packs.div_ceil(width);
            let whole = Sums { tiles, stretches: 1 };
            let many = Sums { tiles, stretches: stretches(ty, width, tiles) };
            let line = |least: u64| width * pack >= least || width == packs;
            let cuts = [line(SHORTEST_LINES[0]).then_some(whole), line(SHORTEST_LINES[1]).then_some(many)];
            cuts.into_iter().flatten().map(move |cut| (cut.bytes(ty, width, pack), cut))
        });
        let filling = cuts.filter(|(_, cut)| cut.tiles <= MULTIPROCESSORS);
        filling.min_by_key(|(bytes, _)| *bytes).map(|(_, cut)| cut)
    }

    /// Bytes that the slowest block of tiles of so many packs of so many bytes reads, one after the other.
    fn bytes(&self, ty: &TensorType, width: u64, pack: u64) -> Bytes {
        let (rows, turn) = (ty.rows(), u64::from(TALL) / width * TURN);
        let lanes = pack / ty.dtype.size();
        let longest = rows.div_ceil(turn).div_ceil(self.stretches) * turn;
        let second = if self.stretches > 1 { SECOND + self.stretches * width * lanes * 16 } else { 0 };
        longest.min(rows) * width * pack + second
    }
}

/// Packs of a row where nothing but its length stands against them.
fn packs(ty: &TensorType) -> u64 {
    let (channels, wide) = (ty.shape.dim(1), lanes(ty));
    if channels.is_multiple_of(wide) { channels / wide } else { channels }
}

/// Stretches of so many tiles of so many packs: a block for each multiprocessor, but at least a turn of rows a thread.
fn stretches(ty: &TensorType, width: u64, tiles: u64) -> u64 {
    let height = u64::from(TALL) / width.max(1);
    (MULTIPROCESSORS / tiles).min(ty.rows().div_ceil(height * TURN)).max(1)
}

/// Workspace for `sums` partial sums in double of every channel and stretch of `Columns::reducing`.
pub(super) fn partial_bytes(ty: &TensorType, sums: u64) -> Bytes {
    ty.shape.dim(1) * Sums::of(ty).stretches * sums * 8
}

/// The same of `Columns::reducing_down`.
pub(super) fn partial_bytes_down(ty: &TensorType, sums: u64) -> Bytes {
    ty.shape.dim(1) * Sums::of_many_rows(ty).stretches * sums * 8
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
        assert_eq!((of([256, 512, 14, 14]).tiles, of([256, 512, 14, 14]).stretches), (4, 33));
    }

    /// ResNet-50 at batch 32: tiles, stretches, turns that the slowest block reads, bytes that the last one of a tile reads again.
    #[test]
    fn small_maps_are_cut_by_what_a_block_reads() {
        let of = |dims| {
            let cut = reducing(&half(dims));
            let turns = cut.rows.div_ceil(cut.each).div_ceil(cut.stretches);
            let again = if cut.stretches > 1 { cut.stretches * cut.width * cut.lanes * 16 } else { 0 };
            (cut.tiles, cut.stretches, turns, again)
        };
        assert_eq!(of([32, 64, 56, 56]), (2, 66, 2, 33_792));
        assert_eq!(of([32, 128, 28, 28]), (4, 25, 1, 12_800));
        assert_eq!(of([32, 256, 28, 28]), (8, 16, 2, 8192));
        assert_eq!(of([32, 256, 14, 14]), (8, 7, 1, 3584));
        assert_eq!(of([32, 1024, 14, 14]), (32, 4, 2, 2048));
        assert_eq!(of([32, 512, 14, 14]), (16, 7, 1, 3584));
        assert_eq!(of([32, 512, 7, 7]), (32, 1, 1, 0));
        assert_eq!(of([32, 2048, 7, 7]), (128, 1, 1, 0));
        // Larger ones as before.
        assert_eq!(of([32, 256, 56, 56]), (2, 66, 6, 135_168));
        assert_eq!(of([32, 512, 28, 28]), (4, 33, 3, 67_584));
        assert_eq!(of([32, 64, 112, 112]), (1, 132, 6, 135_168));
    }

    /// Tiles hold all of a map and something each, stretches are no more than rows, and blocks no more than multiprocessors, unless single elements
    /// need more tiles.
    #[test]
    fn small_maps_of_all_kinds_fill_one_wave() {
        for channels in (1..300).chain([512, 1000, 1088, 2048, 4096, 4224, 4225, 40_000]) {
            for pixels in [0, 1, 2, 7, 30, 56] {
                let ty = half([3, channels, pixels, pixels]);
                for address in [0, 2] {
                    let cut = Columns::reducing(&[Operand::contiguous(&ty, address)], TALL_PAIR);
                    assert!(cut.tiles * cut.width >= cut.packs && cut.width <= WIDEST && cut.stretches >= 1, "{cut:?}");
                    assert!(address == 2 || cut.stretches == 1 || blocks(&cut) <= 132, "{cut:?}");
                    assert!(cut.stretches <= cut.rows.max(1), "{cut:?}");
                    assert!((cut.tiles - 1) * cut.width < cut.packs, "an empty tile: {cut:?}");
                    assert!(partial_bytes(&ty, 2) == channels * cut.stretches * 16, "{cut:?}");
                }
            }
        }
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
