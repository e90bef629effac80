//! What buffers hold, by value.
//!
//! A value's row (the bytes of one sample, or of one pixel where channels are innermost) is a string of segments of *atoms*: values that some kernel computes or that
//! the iteration starts with. Concat, split, flatten and unflatten compute nothing, so their outputs are strings of their
//! inputs' atoms, and no rule here has to know whether they were copied or merely lie in the right place:
//!
//! ```text
//!   z = concat(a, b)      z: │ a[0..] │ b[0..] │       da, db = split(dz)      db: │ dz[|a|..] │
//! ```

use crate::grid::Grid;
use crate::intervals::{Cut, IntervalMap, one_each};
use std::ops::Range;
use vdnn_graph::{Graph, Node, Op, ValueId};
use vdnn_schedule::Schedule;
use vdnn_tensor::{Layout, TensorType};

/// Columns of an atom's row, from `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub atom: ValueId,
    pub at: u64,
}

impl Cut for Segment {
    fn tail(&self, by: u64) -> Self {
        Segment { atom: self.atom, at: self.at + by }
    }
}

/// Every value as segments with their lengths.
pub(crate) struct Atoms {
    /// The grid of a buffer that just holds the value, by value.
    rows: Vec<Grid>,
    /// Where each value's segments are. Most values are one segment, their own, so none has a vector of its own.
    strings: Vec<Range<u32>>,
    segments: Vec<(Segment, u64)>,
}

/// Samples and bytes of one sample, pixels where channels are innermost: the grid of a buffer that just holds a value of
/// this type.
pub(crate) fn rows_of(ty: &TensorType) -> Grid {
    let rows = ty.rows().max(1);
    Grid { rows, stride: ty.bytes() / rows }
}

impl Atoms {
    /// Resolves all values of a graph. Nodes stand in topological order.
    pub(crate) fn of(graph: &Graph) -> Self {
        let rows: Vec<Grid> = graph.values().iter().map(|value| rows_of(&value.ty)).collect();
        let own = graph.value_ids().zip(&rows).map(|(atom, rows)| (Segment { atom, at: 0 }, rows.stride)).collect();
        let strings = (0..rows.len() as u32).map(|value| value..value + 1).collect();
        let mut atoms = Atoms { rows, strings, segments: own };
        for node in graph.nodes().iter().filter(|node| moves_only(graph, node)) {
            let inputs: Vec<_> = node.inputs.iter().flat_map(|&id| atoms.string(id).to_vec()).collect();
            let mut at = 0;
            for &output in &node.outputs {
                let (row, first) = (atoms.rows(output).stride, atoms.segments.len() as u32);
                atoms.segments.extend(slice(&inputs, at..at + row));
                atoms.strings[output.index()] = first..atoms.segments.len() as u32;
                at += row;
            }
        }
        atoms
    }

    /// Samples (or pixels) and bytes of one, as [`rows_of`] has it.
    pub(crate) fn rows(&self, value: ValueId) -> Grid {
        self.rows[value.index()]
    }

    /// A value's row.
    pub(crate) fn string(&self, value: ValueId) -> &[(Segment, u64)] {
        let Range { start, end } = self.strings[value.index()];
        &self.segments[start as usize..end as usize]
    }
}

/// True for ops whose outputs are their inputs' bytes, row by row.
fn moves_only(graph: &Graph, node: &Node) -> bool {
    if !matches!(node.op, Op::Concat(_) | Op::Split(_) | Op::Flatten | Op::Unflatten(_)) {
        return false;
    }
    let layout = |id: &ValueId| graph.value(*id).ty.layout;
    let (order, channel_padding) = (layout(&node.inputs[0]).order, 0);
    node.inputs.iter().chain(&node.outputs).all(|id| layout(id) == Layout { order, channel_padding })
}

/// Part of a string, neighbours merged where they continue each other.
fn slice(string: &[(Segment, u64)], part: Range<u64>) -> Vec<(Segment, u64)> {
    let mut cut: Vec<(Segment, u64)> = Vec::new();
    let mut start = 0;
    for &(segment, len) in string {
        let (from, to) = (start.max(part.start), (start + len).min(part.end));
        if from < to {
            let piece = segment.tail(from - start);
            match cut.last_mut() {
                Some((last, n)) if last.tail(*n) == piece => *n += to - from,
                _ => cut.push((piece, to - from)),
            }
        }
        start += len;
    }
    cut
}

/// What every buffer holds at one moment, in columns of its grid.
pub(crate) struct Contents {
    pub grids: Vec<Grid>,
    held: Vec<IntervalMap<Segment>>,
}

impl Contents {
    /// Nothing held anywhere.
    pub(crate) fn new(schedule: &Schedule, atoms: &Atoms) -> Self {
        let grid = |buffer: &vdnn_schedule::Buffer| match buffer.root {
            Some(root) => atoms.rows(root),
            None => Grid { rows: 1, stride: buffer.bytes },
        };
        Contents { grids: schedule.buffers.iter().map(grid).collect(), held: one_each(schedule) }
    }

    /// Puts a string into columns of a buffer.
    pub(crate) fn put(&mut self, buffer: usize, columns: Range<u64>, string: &[(Segment, u64)]) {
        let mut at = columns.start;
        for &(segment, len) in string {
            self.held[buffer].set(at..at + len, segment);
            at += len;
        }
    }

    /// Forgets what columns of a buffer hold and holds what other columns do.
    pub(crate) fn copy(&mut self, from: (usize, Range<u64>), to: (usize, Range<u64>)) {
        let nothing = Segment { atom: ValueId(u32::MAX), at: 0 };
        let pieces: Vec<_> = self.held[from.0].pieces(from.1.clone()).collect();
        for (piece, fact) in pieces {
            let start = to.1.start + (piece.start - from.1.start);
            self.held[to.0].set(start..start + (piece.end - piece.start), fact.unwrap_or(nothing));
        }
    }

    /// The first place where columns of a buffer do not hold a string: what is there instead.
    pub(crate) fn mismatch(
        &self,
        buffer: usize,
        columns: Range<u64>,
        string: &[(Segment, u64)],
    ) -> Option<Option<Segment>> {
        let mut at = columns.start;
        for &(segment, len) in string {
            for (piece, fact) in self.held[buffer].pieces(at..at + len) {
                if fact != Some(segment.tail(piece.start - at)) {
                    return Some(fact.filter(|found| found.atom.0 != u32::MAX));
                }
            }
            at += len;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(atom: u32, at: u64) -> Segment {
        Segment { atom: ValueId(atom), at }
    }

    #[test]
    fn a_split_of_a_concat_is_its_input_again() {
        let z = [(segment(0, 0), 8), (segment(1, 0), 4)];
        assert_eq!(slice(&z, 8..12), vec![(segment(1, 0), 4)]);
        assert_eq!(slice(&z, 4..10), vec![(segment(0, 4), 4), (segment(1, 0), 2)]);
        let halves = [(segment(3, 0), 5), (segment(3, 5), 5)];
        assert_eq!(slice(&halves, 0..10), vec![(segment(3, 0), 10)]);
    }
}
