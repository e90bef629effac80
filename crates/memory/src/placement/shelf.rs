//! Placed items in order of address, and the lowest address at which an item fits among them.
//!
//! ```text
//!  chunk 0                    chunk 1                          64 items each at most, split in halves when full
//!  at  │ 0 │ 64 │ 640 │ …     at  │ 4096 │ …                   compared with an item's time all at once; a chunk that
//!  start, end, past …         start, end, past …              meets it nowhere costs one comparison
//! ```

use super::Item;
use vdnn_tensor::Bytes;

/// When an item is there, in small numbers: items meet if and only if `start <= other.end` both ways, as their steps do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Time {
    start: i16,
    end: i16,
}

/// The items that numbers of 16 bits are enough for.
pub(super) const MOST: usize = i16::MAX as usize;

impl Time {
    /// Those of at most [`MOST`] items: only the order of starts matters, so they are numbered.
    fn of(items: &[Item]) -> Vec<Time> {
        let mut starts: Vec<u32> = items.iter().map(|item| item.start).collect();
        starts.sort_unstable();
        starts.dedup();
        let begun = |step: u32| starts.partition_point(|&start| start <= step) as i16 - 1;
        items.iter().map(|item| Time { start: begun(item.start), end: begun(item.end) }).collect()
    }
}

/// Items of a chunk.
const CHUNK: usize = 64;

/// Items of neighbouring addresses, the unused ones of a time that meets nothing.
#[derive(Clone)]
struct Chunk {
    len: usize,
    /// Earliest start and latest end.
    first: i16,
    last: i16,
    start: [i16; CHUNK],
    end: [i16; CHUNK],
    at: [Bytes; CHUNK],
    past: [Bytes; CHUNK],
}

impl Chunk {
    const EMPTY: Chunk = Chunk {
        len: 0,
        first: i16::MAX,
        last: -1,
        start: [i16::MAX; CHUNK],
        end: [-1; CHUNK],
        at: [0; CHUNK],
        past: [0; CHUNK],
    };

    fn insert(&mut self, slot: usize, Time { start, end }: Time, (at, past): (Bytes, Bytes)) {
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
            upper.insert(upper.len, self.time(from), (self.at[from], self.past[from]));
        }
        let lower = std::mem::replace(self, Chunk::EMPTY);
        for from in 0..CHUNK / 2 {
            self.insert(from, lower.time(from), (lower.at[from], lower.past[from]));
        }
        upper
    }

    fn time(&self, slot: usize) -> Time {
        Time { start: self.start[slot], end: self.end[slot] }
    }

    /// By item: whether its time meets another's. Eight answers a word, the first in its lowest byte, without a branch.
    fn meets(&self, time: Time) -> [u64; CHUNK / 8] {
        let mut meets = [0u8; CHUNK];
        for ((meets, start), end) in meets.iter_mut().zip(&self.start).zip(&self.end) {
            *meets = u8::from((*start <= time.end) & (*end >= time.start));
        }
        let mut words = [0; CHUNK / 8];
        for (word, bytes) in words.iter_mut().zip(meets.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }
}

/// What is placed so far.
pub(super) struct Shelf {
    /// By item: when it is there.
    times: Vec<Time>,
    floor: Bytes,
    alignment: Bytes,
    chunks: Vec<Chunk>,
}

impl Shelf {
    /// Nothing yet of at most [`MOST`] items; all will lie at multiples of `alignment` from `base` on.
    pub fn new(items: &[Item], base: Bytes, alignment: Bytes) -> Self {
        Shelf { times: Time::of(items), floor: base.next_multiple_of(alignment), alignment, chunks: vec![Chunk::EMPTY] }
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

    /// The lowest address at which item number `i`, of so many bytes, meets nothing.
    pub fn lowest(&self, i: usize, bytes: Bytes) -> Bytes {
        let (mut at, time) = (self.floor, self.times[i]);
        for chunk in &self.chunks {
            if chunk.first > time.end || chunk.last < time.start {
                continue;
            }
            for (eight, mut word) in chunk.meets(time).into_iter().enumerate() {
                while word != 0 {
                    let other = eight * 8 + word.trailing_zeros() as usize / 8;
                    word &= word - 1;
                    if at + bytes <= chunk.at[other] {
                        return at;
                    }
                    at = at.max(chunk.past[other]);
                }
            }
        }
        at
    }

    /// Puts item number `i`, of so many bytes, at an address, after those that are there already.
    pub fn put(&mut self, i: usize, bytes: Bytes, at: Bytes) {
        let past = (at + bytes).next_multiple_of(self.alignment);
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
        chunk.insert(slot, self.times[i], (at, past));
    }
}
