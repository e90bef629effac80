//! Operands in, launches out: the types, and the arithmetic of grids that all ops share.

use super::KernelError;
use vdnn_tensor::{Bytes, MemoryOrder, TensorType};

/// Threads of every block, unless a launch says otherwise. `THREADS` in `common.cuh`.
pub(super) const THREADS: u32 = 256;
/// Positions inside one sample are counted in 31 bits.
pub(super) const SAMPLE_LIMIT: u64 = (1 << 31) - 1;
/// Most blocks of a one-dimensional grid.
const BLOCK_LIMIT: u64 = (1 << 31) - 1;
/// Blocks that fill a large GPU twice over (132 multiprocessors, eight blocks each).
const ENOUGH_BLOCKS: u64 = 2112;

/// Where a value lies: an address and a distance between rows, because it may be a slice of a concat. A row is a sample, or
/// a pixel where channels are innermost ([`TensorType::rows`]).
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Type of the value.
    pub ty: &'a TensorType,
    /// Device address of the first element.
    pub address: u64,
    /// Elements from one row to the next.
    pub row_stride: u64,
}

impl<'a> Operand<'a> {
    /// A value in one piece.
    pub fn contiguous(ty: &'a TensorType, address: u64) -> Self {
        Operand { ty, address, row_stride: row_elements(ty) }
    }

    /// A value as a schedule's region has it: `rows` rows, `row_stride` bytes apart. One row is one piece.
    pub fn from_rows(ty: &'a TensorType, address: u64, rows: u64, row_stride: Bytes) -> Self {
        if rows <= 1 {
            return Operand::contiguous(ty, address);
        }
        Operand { ty, address, row_stride: row_stride / ty.dtype.size() }
    }

    /// True when rows follow each other without a gap.
    pub fn is_contiguous(&self) -> bool {
        self.rows() <= 1 || self.row_stride == self.row()
    }

    /// Samples, or pixels where channels are innermost.
    pub fn rows(&self) -> u64 {
        self.ty.rows()
    }

    /// Stored elements of one row.
    pub fn row(&self) -> u64 {
        row_elements(self.ty)
    }

    /// Bytes from the first element to past the last, gaps between rows included.
    pub fn span(&self) -> Bytes {
        match self.rows().checked_sub(1) {
            Some(gaps) => (gaps * self.row_stride + self.row()) * self.ty.dtype.size(),
            None => 0,
        }
    }

    pub(crate) fn samples(&self) -> u64 {
        self.ty.shape.samples()
    }

    /// Elements of one sample.
    pub(super) fn sample(&self) -> u64 {
        self.ty.shape.elements_per_sample()
    }

    pub(super) fn elements(&self) -> u64 {
        self.ty.shape.elements()
    }

    /// (C, elements of a channel in one sample) of `[N, C, …]`.
    pub(super) fn channels(&self) -> (u64, u64) {
        let c = self.ty.shape.dim(1);
        (c, self.sample().checked_div(c).unwrap_or(0))
    }
}

/// Stored elements of one row.
fn row_elements(ty: &TensorType) -> u64 {
    let padding = u64::from(ty.layout.channel_padding);
    match (ty.layout.order, ty.shape.nchw()) {
        (MemoryOrder::Nhwc, Some([_, c, ..])) => c + padding,
        (MemoryOrder::Nchw, Some([_, c, h, w])) => (c + padding) * h * w,
        _ => ty.shape.elements_per_sample(),
    }
}

/// A value that a kernel takes as an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelArg {
    /// A device address or any 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// A further word of the table that the argument before begins: a structure passed by value.
    Word(u64),
}

impl KernelArg {
    /// The argument's bytes at the low end of eight, as the driver reads them on a little-endian host.
    pub fn slot(self) -> u64 {
        match self {
            KernelArg::U64(v) | KernelArg::Word(v) => v,
            KernelArg::I64(v) => v as u64,
            KernelArg::U32(v) => u64::from(v),
            KernelArg::I32(v) => u64::from(v as u32),
            KernelArg::F32(v) => u64::from(v.to_bits()),
            KernelArg::F64(v) => v.to_bits(),
        }
    }
}

/// One kernel with everything settled.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelLaunch {
    /// Source file, as in [`super::ALL`].
    pub file: &'static str,
    /// Function in it.
    pub function: &'static str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, never more than 48 KiB.
    pub shared_bytes: u32,
    /// Arguments in order, 4 KiB of them at most.
    pub args: Vec<KernelArg>,
}

impl KernelLaunch {
    /// A one-dimensional launch of [`THREADS`] threads a block.
    pub(super) fn new(
        op: &'static str,
        file: &'static str,
        function: &'static str,
        blocks: u64,
        args: Vec<KernelArg>,
    ) -> Result<Self, KernelError> {
        let grid = [at_most(op, "the number of blocks", blocks, BLOCK_LIMIT)?, 1, 1];
        Ok(KernelLaunch { file, function, grid, block: [THREADS, 1, 1], shared_bytes: 0, args })
    }
}

/// The launches of one node, in order on one stream. Empty when there is nothing to do: no elements, or bytes that already
/// lie where they belong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchPlan {
    /// The launches.
    pub launches: Vec<KernelLaunch>,
}

impl From<Vec<KernelLaunch>> for LaunchPlan {
    fn from(launches: Vec<KernelLaunch>) -> Self {
        LaunchPlan { launches }
    }
}

/// `value` in 32 bits, or an error that names it.
pub(super) fn at_most(op: &'static str, what: &'static str, value: u64, limit: u64) -> Result<u32, KernelError> {
    match u32::try_from(value) {
        Ok(narrow) if value <= limit => Ok(narrow),
        _ => Err(KernelError::TooLarge { op, what, found: value, limit }),
    }
}

/// Elements of a sample in 31 bits, or an error.
pub(super) fn sample_len(op: &'static str, operand: &Operand<'_>) -> Result<u32, KernelError> {
    at_most(op, "one sample's elements", operand.sample(), SAMPLE_LIMIT)
}

/// Elements of 16 bytes.
pub(super) fn lanes(ty: &TensorType) -> u64 {
    16 / ty.dtype.size()
}

/// Whether each of so many rows starts on 16 bytes.
pub(super) fn in_packs(operand: &Operand<'_>, rows: u64) -> bool {
    operand.address.is_multiple_of(16) && (rows <= 1 || operand.row_stride.is_multiple_of(lanes(operand.ty)))
}

/// How a kernel over samples walks its operands: rows of `len` elements, cut into tiles that are a block each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    pub rows: u64,
    pub len: u64,
    /// Elements moved by one access: 4 when every row of every operand starts on 16 bytes, else 1.
    pub lanes: u32,
    pub tiles: u64,
}

impl Rows {
    /// A row a sample, for kernels that count channels inside a sample.
    pub(super) fn by_sample(operands: &[Operand<'_>]) -> Self {
        Rows::cut(operands[0].samples(), operands[0].sample(), operands)
    }

    fn cut(rows: u64, len: u64, operands: &[Operand<'_>]) -> Self {
        let aligned = |o: &Operand<'_>| o.address.is_multiple_of(16) && (rows <= 1 || o.row_stride.is_multiple_of(4));
        let lanes = if operands.iter().all(aligned) { 4 } else { 1 };
        Rows { rows, len, lanes, tiles: len.div_ceil(tile(lanes)) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.len == 0
    }

    pub(super) fn blocks(&self) -> u64 {
        self.rows.saturating_mul(self.tiles)
    }

    /// The function for these accesses.
    pub(super) fn pick(&self, packed: &'static str, single: &'static str) -> &'static str {
        if self.lanes == 4 { packed } else { single }
    }

    /// Tiles of one row as an argument.
    pub(super) fn tiles_arg(&self, op: &'static str) -> Result<KernelArg, KernelError> {
        at_most(op, "the number of tiles of a row", self.tiles, BLOCK_LIMIT).map(KernelArg::U32)
    }
}

/// Elements of a tile: threads × lanes × packs in flight (`Unroll` in `common.cuh`).
pub(super) fn tile(lanes: u32) -> u64 {
    u64::from(THREADS * lanes * if lanes == 1 { 8 } else { 4 })
}

/// A reduction over `[N, C, hw]` to `[C]`: each channel cut into `splits` stretches, a block each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub channels: u32,
    /// Packs of one channel in one sample.
    pub packs: u32,
    /// Packs of one channel in the batch.
    pub total: u64,
    pub splits: u32,
    pub lanes: u32,
}

impl Reduction {
    pub(super) fn new(op: &'static str, operands: &[Operand<'_>]) -> Result<Self, KernelError> {
        let first = &operands[0];
        let (channels, hw) = first.channels();
        sample_len(op, first)?;
        let rows = Rows::by_sample(operands);
        let lanes = if hw.is_multiple_of(4) { rows.lanes } else { 1 };
        let packs = (hw / u64::from(lanes)).max(1);
        let total = first.samples() * hw / u64::from(lanes);
        let splits = splits(channels, first.samples() * hw);
        Ok(Reduction { channels: channels as u32, packs: packs as u32, total, splits, lanes })
    }

    pub(super) fn blocks(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.splits)
    }

    /// One warp a channel.
    pub(super) fn finish_blocks(&self) -> u64 {
        u64::from(self.channels.div_ceil(THREADS / 32))
    }

    pub(super) fn pick(&self, packed: &'static str, single: &'static str) -> &'static str {
        if self.lanes == 4 { packed } else { single }
    }

    /// (channels, packs, total, splits) as arguments.
    pub(super) fn args(&self) -> [KernelArg; 4] {
        use KernelArg::{U32, U64};
        [U32(self.channels), U32(self.packs), U64(self.total), U32(self.splits)]
    }
}

/// Stretches of a channel with `count` elements: enough blocks for the GPU, but at least 4096 elements each. It depends on
/// shapes alone. The order of a sum depends on `lanes` too, so on alignment, which is the same under every policy as long
/// as arenas align buffers to 16 bytes or more.
pub(super) fn splits(channels: u64, count: u64) -> u32 {
    let wanted = ENOUGH_BLOCKS.div_ceil(channels.max(1));
    wanted.min(count / 4096).max(1) as u32
}

/// Workspace for `sums` partial sums in double of every stretch; 0 when a channel is one stretch.
pub(super) fn partial_bytes(ty: &TensorType, sums: u64) -> Bytes {
    let channels = ty.shape.dim(1);
    let count = ty.shape.elements().checked_div(channels).unwrap_or(0);
    match splits(channels, count) {
        1 => 0,
        splits => channels * u64::from(splits) * sums * 8,
    }
}

/// A divisor for `divide` in `common.cuh`: exact for dividends below 2³¹ (Granlund & Montgomery 1994).
pub(super) fn divisor(d: u32) -> KernelArg {
    let d = u64::from(d.max(1));
    let shift = d.next_power_of_two().trailing_zeros();
    let multiplier = ((1u64 << 32) * ((1u64 << shift) - d)) / d + 1;
    KernelArg::U64(multiplier | u64::from(shift) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::DType;

    fn divide(n: u32, magic: KernelArg) -> u32 {
        let KernelArg::U64(magic) = magic else { panic!("expected an integer") };
        let high = (u64::from(n) * (magic & 0xffff_ffff)) >> 32;
        ((high as u32) + n) >> (magic >> 32)
    }

    #[test]
    fn division_by_multiplication_is_exact() {
        for d in (1..3000).chain([12_544, 50_176, (1 << 20) - 1, (1 << 30) + 1, (1 << 31) - 1]) {
            let largest = ((1u32 << 31) - 1) / d;
            for q in [0, 1, 2, 3, 77, largest].map(|q| q.min(largest)) {
                for n in [(q * d).saturating_sub(1), q * d, (q * d).saturating_add(1)] {
                    let n = n.min((1 << 31) - 1);
                    assert_eq!(divide(n, divisor(d)), n / d, "{n} / {d}");
                }
            }
        }
    }

    #[test]
    fn packs_need_alignment_of_every_row() {
        let ty = TensorType::new([2, 3, 5, 5], DType::F32);
        let slice = Operand { ty: &ty, address: 1024, row_stride: 100 };
        let odd = Operand { ty: &ty, address: 1028, row_stride: 100 };
        assert_eq!(Rows::by_sample(&[slice, slice]), Rows { rows: 2, len: 75, lanes: 4, tiles: 1 });
        assert_eq!(Rows::by_sample(&[slice, odd]), Rows { rows: 2, len: 75, lanes: 1, tiles: 1 });
    }

    #[test]
    fn reductions_fill_the_machine_on_small_and_large_maps() {
        assert_eq!(splits(64, 256 * 112 * 112), 33);
        assert_eq!(splits(512, 256 * 7 * 7), 3);
        assert_eq!(splits(2048, 256 * 7 * 7), 2);
        assert_eq!((splits(3, 100), splits(0, 0)), (1, 1));
    }

    #[test]
    fn splits_do_not_depend_on_addresses() {
        let ty = TensorType::new([64, 8, 16, 16], DType::F32);
        let at = |address| Reduction::new("t", &[Operand::contiguous(&ty, address)]).unwrap();
        assert_eq!((at(0).lanes, at(4).lanes), (4, 1));
        assert_eq!(at(0).splits, at(4).splits);
    }

    #[test]
    fn sizes_beyond_the_kernels_are_refused_by_name() {
        let ty = TensorType::new([1, 1 << 16, 1 << 8, 1 << 8], DType::F32);
        let error = sample_len("relu", &Operand::contiguous(&ty, 0)).unwrap_err();
        assert!(error.to_string().contains("one sample's elements is 4294967296"), "{error}");
    }
}
