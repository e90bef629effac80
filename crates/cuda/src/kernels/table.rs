//! Members of one launch as an argument: their addresses and sizes by value, and which blocks are whose.

use super::Operand;
use super::plan::{KernelArg, divisor, lanes};

/// Members of one launch. `MEMBERS` in `common.cuh`.
const MEMBERS: usize = 32;
/// Elements of a member that a block takes. `STRETCH` in `common.cuh`.
const STRETCH: u64 = 2048;
/// Pixels of a filter at most that is turned in tiles. `MOST_PIXELS` in `common.cuh`.
const MOST_PIXELS: u64 = 256;

/// Blocks of a member whose blocks take a stretch each.
pub(super) fn stretches(len: u64) -> u64 {
    len.div_ceil(STRETCH)
}

/// The members of one launch as the kernel takes them: a structure of `W` words and the member's first block each, passed by
/// value.
pub(super) struct Table<const W: usize> {
    members: Vec<([u64; W], u64)>,
    /// Blocks of all members.
    pub blocks: u64,
}

impl<const W: usize> Table<W> {
    /// Tables of members (words, blocks), as many as it takes. Members without blocks are left out.
    pub fn cut(members: impl Iterator<Item = ([u64; W], u64)>) -> Vec<Self> {
        let members: Vec<_> = members.filter(|&(_, blocks)| blocks > 0).collect();
        let table = |members: &[([u64; W], u64)]| {
            let mut blocks = 0;
            let with_first = |&(words, taken): &([u64; W], u64)| {
                let first = blocks;
                blocks += taken;
                (words, first)
            };
            Table { members: members.iter().map(with_first).collect(), blocks }
        };
        members.chunks(MEMBERS).map(table).collect()
    }

    /// The table, filled up with nothing, and its number of members as arguments.
    pub fn args(&self) -> Vec<KernelArg> {
        let given = self.members.iter().flat_map(|(words, first)| words.iter().chain([first])).copied();
        let words = given.chain(std::iter::repeat(0)).take(MEMBERS * (W + 1));
        let mut args: Vec<KernelArg> = words.map(KernelArg::Word).collect();
        args[0] = KernelArg::U64(args[0].slot());
        args.push(KernelArg::U32(self.members.len() as u32));
        args
    }
}

/// How weights W [O, channels, hw] lie beside the same as [O, hw, channels], `Turning` in `common.cuh`. The default: both sides alike.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turning {
    /// The structure.
    pub words: [u64; 5],
    /// Elements of W that a block takes; 0 where that is a stretch.
    each: u64,
}

impl Turning {
    /// In tiles, which are moved on the other side in packs of channels where it has such; filters larger than a tile without.
    pub fn of(channels: u64, hw: u64, other: &Operand<'_>) -> Self {
        let wide = lanes(other.ty);
        let packs = other.address.is_multiple_of(16) && channels.is_multiple_of(wide);
        Turning::in_packs(channels, hw, if packs { wide } else { 1 })
    }

    fn in_packs(channels: u64, hw: u64, lanes: u64) -> Self {
        let across = if hw > MOST_PIXELS { 0 } else { STRETCH / hw.max(1) / 8 * 8 };
        let packs = across / lanes;
        let divisors = [hw, channels, packs].map(|d| divisor(d as u32).slot());
        let words = [hw | channels << 32, across | packs << 32, divisors[0], divisors[1], divisors[2]];
        Turning { words, each: across * hw }
    }

    /// The same without tiles.
    pub fn untiled(self) -> Self {
        let [sizes, _, hw, channels, packs] = self.words;
        Turning { words: [sizes, 0, hw, channels, packs], each: 0 }
    }

    /// Blocks of so many elements.
    pub fn blocks(&self, len: u64) -> u64 {
        if self.each == 0 { stretches(len) } else { len.div_ceil(self.each) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_what_has_elements_and_count_blocks() {
        let members = (0..70u64).map(|n| ([n, n * n], if n % 2 == 0 { 0 } else { stretches(STRETCH * n + 1) }));
        let tables = Table::cut(members);
        assert_eq!(tables.iter().map(|table| table.members.len()).collect::<Vec<_>>(), [32, 3]);
        assert_eq!(tables[1].members, [([65, 65 * 65], 0), ([67, 67 * 67], 66), ([69, 69 * 69], 66 + 68)]);
        assert_eq!(tables[1].blocks, 66 + 68 + 70);
        let args = tables[1].args();
        assert_eq!((args.len(), args[0], args[1]), (97, KernelArg::U64(65), KernelArg::Word(65 * 65)));
        assert_eq!((args[5], args[9], args[96]), (KernelArg::Word(66), KernelArg::Word(0), KernelArg::U32(3)));
    }

    /// 3×3, 1×1 beside padding, 7×7, 11×11 and the largest: packs of a tile have a thread each, and it has its place in shared memory.
    #[test]
    fn tiles_of_filters_fit_a_block() {
        let of = Turning::in_packs;
        assert_eq!((of(512, 9, 8).each, of(512, 9, 8).words[1]), (224 * 9, 224 | 28 << 32));
        assert_eq!(of(512, 9, 8).blocks(512 * 512 * 9), 1171);
        for hw in 1..=MOST_PIXELS {
            for lanes in [1, 4, 8] {
                let turning = of(16, hw, lanes);
                let (across, packs) = (turning.words[1] & 0xffff_ffff, turning.words[1] >> 32);
                assert!(across >= 8 && across * hw <= STRETCH && packs * lanes == across, "{hw} {turning:?}");
                assert!(hw * (across + 8) <= STRETCH + 8 * MOST_PIXELS, "{hw} {turning:?}");
            }
        }
        for turning in [of(16, MOST_PIXELS + 1, 8), of(16, 9, 8).untiled(), Turning::default()] {
            assert_eq!((turning.words[1], turning.blocks(2049)), (0, 2));
        }
    }
}
