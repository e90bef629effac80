//! Placed items in order of address, and the lowest address at which an item fits among them.
//!
//! ```text
//!  chunk 0                    chunk 1                          64 items each at most, split in halves when full
//!  at  │ 0 │ 64 │ 640 │ …     at  │ 4096 │ …                   compared with an item's time all at once; a chunk that
//!  start, end, past …         start, end, past …              meets it nowhere costs one comparison
//! ```

use super::Item;
use vdnn_tensor::Bytes;

/// Items of a chunk.
const CHUNK: usize = 64;

/// Items of neighbouring addresses, the unused ones of a time that meets nothing.
#[derive(Clone)]
struct Chunk {
    len: usize,
    /// Earliest start and latest end.
    first: u32,
    last: u32,
    start: [u32; CHUNK],
    end: [u32; CHUNK],
    at: [Bytes; CHUNK],
    past: [Bytes; CHUNK],
}

impl Chunk {
    const EMPTY: Chunk = Chunk {
        len: 0,
        first: u32::MAX,
        last: 0,
        start: [u32::MAX; CHUNK],
        end: [0; CHUNK],
        at: [0; CHUNK],
        past: [0; CHUNK],
    };

    fn insert(&mut self, slot: usize, (start, end, at, past): (u32, u32, Bytes, Bytes)) {
        self.start.copy_within(slot..self.len, slot + 1);
        self.end.copy_within(slot..self.len, slot + 1);
        self.at.copy_within(slot..self.len, slot + 1);
        self.past.copy_within(slot..self.len, slot + 1);
        (self.start[slot], self.end[slot], self.at[slot], self.past[slot]) = (start, end, at, past);
        (self.first, self.last) = (self.first.min(start), self.last.max(end));
        self.len += 1;
    }

    /// The upper half as a chunk of its own.
    fn split(&mut self) -> Chunk {
        let mut upper = Chunk::EMPTY;
        for from in CHUNK / 2..self.len {
            upper.insert(upper.len, (self.start[from], self.end[from], self.at[from], self.past[from]));
        }
        let lower = std::mem::replace(self, Chunk::EMPTY);
        for from in 0..CHUNK / 2 {
            self.insert(from, (lower.start[from], lower.end[from], lower.at[from], lower.past[from]));
        }
        upper
    }

    /// By item: whether its time meets another's. Eight answers a word, without a branch.
    fn meets(&self, item: &Item) -> [u64; CHUNK / 8] {
        let mut meets = [0u8; CHUNK];
        for ((meets, start), end) in meets.iter_mut().zip(&self.start).zip(&self.end) {
            *meets = u8::from((*start <= item.end) & (*end >= item.start));
        }
        let mut words = [0; CHUNK / 8];
        for (word, bytes) in words.iter_mut().zip(meets.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        words
    }
}

/// What is placed so far.
pub(super) struct Shelf {
    floor: Bytes,
    alignment: Bytes,
    chunks: Vec<Chunk>,
}

impl Shelf {
    /// Nothing yet; all will lie at multiples of `alignment` from `base` on.
    pub fn new(base: Bytes, alignment: Bytes) -> Self {
        Shelf { floor: base.next_multiple_of(alignment), alignment, chunks: vec![Chunk::EMPTY] }
    }

    /// The first address that any item may have.
    pub fn floor(&self) -> Bytes {
        self.floor
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.chunks.push(Chunk::EMPTY);
    }

    /// The lowest address at which an item meets nothing.
    pub fn lowest(&self, item: &Item) -> Bytes {
        let mut at = self.floor;
        for chunk in &self.chunks {
            if chunk.first > item.end || chunk.last < item.start {
                continue;
            }
            for (eight, mut word) in chunk.meets(item).into_iter().enumerate() {
                while word != 0 {
                    let other = eight * 8 + word.trailing_zeros() as usize / 8;
                    word &= word - 1;
                    if at + item.bytes <= chunk.at[other] {
                        return at;
                    }
                    at = at.max(chunk.past[other]);
                }
            }
        }
        at
    }

    /// Puts an item at an address, after those that are there already.
    pub fn put(&mut self, item: &Item, at: Bytes) {
        let past = (at + item.bytes).next_multiple_of(self.alignment);
        let later = self.chunks.partition_point(|chunk| chunk.len > 0 && chunk.at[0] <= at);
        let mut number = later.saturating_sub(1);
        if self.chunks[number].len == CHUNK {
            let upper = self.chunks[number].split();
            let above = upper.at[0] <= at;
            self.chunks.insert(number + 1, upper);
            number += usize::from(above);
        }
        let chunk = &mut self.chunks[number];
        let slot = chunk.at[..chunk.len].partition_point(|&other| other <= at);
        chunk.insert(slot, (item.start, item.end, at, past));
    }
}
