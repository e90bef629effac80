//! Values as strings of atoms.
//!
//! A value's row (the bytes of one sample, or of one pixel where channels are innermost) is a string of segments of *atoms*: values that some kernel computes or that
//! the iteration starts with. Concat, split, flatten and unflatten compute nothing, so their outputs are strings of their
//! inputs' atoms, and no rule here has to know whether they were copied or merely lie in the right place:
//!
//! ```text
//!   z = concat(a, b)      z: │ a[0..] │ b[0..] │       da, db = split(dz)      db: │ dz[|a|..] │
//! ```
//!
//! Along the batch a value is several such strings, each for a run of rows: a concatenation's are those of its parts, one run
//! below the other.

use crate::grid::Grid;
use crate::intervals::Cut;
use std::borrow::Cow;
use std::ops::Range;
use vdnn_graph::op::{Axis, Concat, Split};
use vdnn_graph::{Graph, Node, Op, ValueId};
use vdnn_tensor::{Layout, TensorType};

/// Columns of an atom's row, from `at`. In a run of rows the first one is row `row`, and the others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub atom: ValueId,
    pub row: u64,
    pub at: u64,
}

impl Cut for Segment {
    fn tail(&self, by: u64) -> Self {
        Segment { at: self.at + by, ..*self }
    }
}

impl Segment {
    /// Where an atom begins.
    pub(crate) fn first(atom: ValueId) -> Self {
        Segment { atom, row: 0, at: 0 }
    }

    /// The same, `by` rows further down.
    fn down(self, by: u64) -> Self {
        Segment { row: self.row + by, ..self }
    }
}

/// A row as segments with their lengths.
pub(crate) type Text = Vec<(Segment, u64)>;

/// A run of rows that read alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub rows: u64,
    pub text: Text,
}

/// Every value as runs of rows. Most are atoms, of which nothing need be said: a deep network has tens of thousands.
pub(crate) struct Atoms {
    /// The grid of a buffer that just holds the value, by value.
    grids: Vec<Grid>,
    /// By value [`ATOM`], or where in `strings` it stands.
    moved: Vec<u32>,
    strings: Vec<Vec<Run>>,
}

/// Stands for a value that is its own atom.
const ATOM: u32 = u32::MAX;

/// Samples and bytes of one sample, pixels where channels are innermost: the grid of a buffer that just holds a value of
/// this type.
pub(crate) fn rows_of(ty: &TensorType) -> Grid {
    let rows = ty.rows().max(1);
    Grid::new(rows, ty.bytes() / rows)
}

impl Atoms {
    /// Resolves all values of a graph, given the grid of each, as [`rows_of`] has it. Nodes stand in topological order.
    pub(crate) fn of(graph: &Graph, grids: Vec<Grid>) -> Self {
        let moved = vec![ATOM; grids.len()];
        let mut atoms = Atoms { grids, moved, strings: Vec::new() };
        for node in graph.nodes().iter().filter(|node| moves_only(graph, node)) {
            let axis = axis(&node.op);
            let inputs: Vec<Cow<'_, [Run]>> = node.inputs.iter().map(|&id| atoms.string(id)).collect();
            let whole = joined(inputs.iter().map(AsRef::as_ref), axis);
            let mut at = 0;
            for &output in &node.outputs {
                let grid = atoms.grid(output);
                let (part, end) = match axis {
                    Axis::Channels => (columns(&whole, at..at + grid.stride), at + grid.stride),
                    Axis::Batch => (rows(&whole, at..at + grid.rows), at + grid.rows),
                };
                atoms.moved[output.index()] = atoms.strings.len() as u32;
                atoms.strings.push(part);
                at = end;
            }
        }
        atoms
    }

    /// Samples (or pixels) of a value and bytes of one, as [`rows_of`] has it.
    pub(crate) fn grid(&self, value: ValueId) -> &Grid {
        &self.grids[value.index()]
    }

    /// Whether some kernel computes the value, or the iteration starts with it.
    pub(crate) fn is_atom(&self, value: ValueId) -> bool {
        self.moved[value.index()] == ATOM
    }

    /// A value's rows.
    pub(crate) fn string(&self, value: ValueId) -> Cow<'_, [Run]> {
        let moved = self.moved[value.index()];
        if moved != ATOM {
            return Cow::Borrowed(&self.strings[moved as usize]);
        }
        let &Grid { rows, stride, .. } = self.grid(value);
        Cow::Owned(vec![Run { rows, text: vec![(Segment::first(value), stride)] }])
    }

    /// Whether the rows of any value read differently.
    pub(crate) fn have_runs(&self) -> bool {
        self.strings.iter().any(|runs| runs.len() > 1)
    }
}

fn axis(op: &Op) -> Axis {
    match *op {
        Op::Concat(Concat { axis }) | Op::Split(Split { axis, .. }) => axis,
        _ => Axis::Channels,
    }
}

/// Values side by side, or one below the other.
fn joined<'a>(parts: impl Iterator<Item = &'a [Run]>, axis: Axis) -> Vec<Run> {
    let mut whole: Vec<Run> = Vec::new();
    for (index, part) in parts.enumerate() {
        match axis {
            Axis::Channels if index > 0 => whole = beside(&whole, part),
            _ => whole.extend_from_slice(part),
        }
    }
    whole
}

/// Two values of the same rows side by side.
fn beside(left: &[Run], right: &[Run]) -> Vec<Run> {
    let ends = |runs: &[Run]| {
        runs.iter()
            .scan(0, |end, run| {
                *end += run.rows;
                Some(*end)
            })
            .collect::<Vec<u64>>()
    };
    let mut cuts = [ends(left), ends(right)].concat();
    cuts.sort_unstable();
    cuts.dedup();
    let mut start = 0;
    let mut run = |end: u64| {
        let range = std::mem::replace(&mut start, end)..end;
        let sides = [left, right].map(|side| rows(side, range.clone()));
        let text = sides.into_iter().flatten().flat_map(|run| run.text).collect();
        Run { rows: range.end - range.start, text }
    };
    cuts.into_iter().map(&mut run).collect()
}

/// Some of the rows.
pub(crate) fn rows(runs: &[Run], range: Range<u64>) -> Vec<Run> {
    let mut cut = Vec::new();
    let mut start = 0;
    for run in runs {
        let (from, to) = (start.max(range.start), (start + run.rows).min(range.end));
        if from < to {
            let text = run.text.iter().map(|&(segment, len)| (segment.down(from - start), len)).collect();
            cut.push(Run { rows: to - from, text });
        }
        start += run.rows;
    }
    cut
}

/// Some of the columns.
fn columns(runs: &[Run], range: Range<u64>) -> Vec<Run> {
    runs.iter().map(|run| Run { rows: run.rows, text: slice(&run.text, range.clone()) }).collect()
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
fn slice(string: &[(Segment, u64)], part: Range<u64>) -> Text {
    let mut cut: Text = Vec::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(atom: u32, at: u64) -> Segment {
        Segment { atom: ValueId(atom), row: 0, at }
    }

    fn run(rows: u64, atom: u32, row: u64) -> Run {
        Run { rows, text: vec![(segment(atom, 0).down(row), 8)] }
    }

    #[test]
    fn a_split_of_a_concat_is_its_input_again() {
        let z = [(segment(0, 0), 8), (segment(1, 0), 4)];
        assert_eq!(slice(&z, 8..12), vec![(segment(1, 0), 4)]);
        assert_eq!(slice(&z, 4..10), vec![(segment(0, 4), 4), (segment(1, 0), 2)]);
        let halves = [(segment(3, 0), 5), (segment(3, 5), 5)];
        assert_eq!(slice(&halves, 0..10), vec![(segment(3, 0), 10)]);
    }

    #[test]
    fn along_the_batch_rows_are_those_of_the_parts() {
        let (a, b) = ([run(2, 0, 0)], [run(3, 1, 0)]);
        let z = joined([&a[..], &b[..]].into_iter(), Axis::Batch);
        assert_eq!(rows(&z, 2..5), b);
        assert_eq!(rows(&z, 1..4), [run(1, 0, 1), run(2, 1, 0)]);
        let wide = joined([&z[..], &[run(5, 2, 0)][..]].into_iter(), Axis::Channels);
        assert_eq!(columns(&wide, 0..8), z);
        assert_eq!(columns(&wide, 8..16), [run(2, 2, 0), run(3, 2, 2)]);
    }
}
