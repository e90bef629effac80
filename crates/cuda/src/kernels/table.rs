//! Members of one launch as an argument: their addresses and sizes by value, and which blocks are whose.

use super::plan::KernelArg;

/// Members of one launch. `MEMBERS` in `common.cuh`.
const MEMBERS: usize = 32;
/// Elements of a member that a block takes. `STRETCH` in `common.cuh`.
const STRETCH: u64 = 2048;

/// The members of one launch as the kernel takes them: a structure of `W` words and the member's first block each, passed by
/// value.
pub(super) struct Table<const W: usize> {
    members: Vec<([u64; W], u64)>,
    /// Blocks of all members.
    pub blocks: u64,
}

impl<const W: usize> Table<W> {
    /// Tables of members (words, elements), as many as it takes. Members without elements are left out.
    pub fn cut(members: impl Iterator<Item = ([u64; W], u64)>) -> Vec<Self> {
        let members: Vec<_> = members.filter(|&(_, len)| len > 0).collect();
        let table = |members: &[([u64; W], u64)]| {
            let mut blocks = 0;
            let with_first = |&(words, len): &([u64; W], u64)| {
                let first = blocks;
                blocks += len.div_ceil(STRETCH);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_what_has_elements_and_count_blocks() {
        let members = (0..70u64).map(|n| ([n, n * n], if n % 2 == 0 { 0 } else { STRETCH * n + 1 }));
        let tables = Table::cut(members);
        assert_eq!(tables.iter().map(|table| table.members.len()).collect::<Vec<_>>(), [32, 3]);
        assert_eq!(tables[1].members, [([65, 65 * 65], 0), ([67, 67 * 67], 66), ([69, 69 * 69], 66 + 68)]);
        assert_eq!(tables[1].blocks, 66 + 68 + 70);
        let args = tables[1].args();
        assert_eq!((args.len(), args[0], args[1]), (97, KernelArg::U64(65), KernelArg::Word(65 * 65)));
        assert_eq!((args[5], args[9], args[96]), (KernelArg::Word(66), KernelArg::Word(0), KernelArg::U32(3)));
    }
}
