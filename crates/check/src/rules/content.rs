//! What buffers hold, by value.
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

use crate::grid::{Grid, Place};
use crate::intervals::{Cut, IntervalMap, one_each};
use std::ops::Range;
use vdnn_graph::op::{Axis, Concat, Split};
use vdnn_graph::{Graph, Node, Op, ValueId};
use vdnn_schedule::{Action, Region, Schedule};
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
    /// The same, `by` rows further down.
    fn down(self, by: u64) -> Self {
        Segment { row: self.row + by, ..self }
    }
}

/// A row as segments with their lengths.
type Text = Vec<(Segment, u64)>;

/// A run of rows that read alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    rows: u64,
    text: Text,
}

/// Every value as runs of rows.
pub(crate) struct Atoms {
    /// The grid of a buffer that just holds the value, by value.
    grids: Vec<Grid>,
    strings: Vec<Vec<Run>>,
}

/// Samples and bytes of one sample, pixels where channels are innermost: the grid of a buffer that just holds a value of
/// this type.
pub(crate) fn rows_of(ty: &TensorType) -> Grid {
    let rows = ty.rows().max(1);
    Grid::new(rows, ty.bytes() / rows)
}

impl Atoms {
    /// Resolves all values of a graph. Nodes stand in topological order.
    pub(crate) fn of(graph: &Graph) -> Self {
        let grids: Vec<Grid> = graph.values().iter().map(|value| rows_of(&value.ty)).collect();
        let whole = |(atom, grid): (ValueId, &Grid)| {
            vec![Run { rows: grid.rows, text: vec![(Segment { atom, row: 0, at: 0 }, grid.stride)] }]
        };
        let strings = graph.value_ids().zip(&grids).map(whole).collect();
        let mut atoms = Atoms { grids, strings };
        for node in graph.nodes().iter().filter(|node| moves_only(graph, node)) {
            let axis = axis(&node.op);
            let whole = joined(node.inputs.iter().map(|&id| atoms.string(id)), axis);
            let mut at = 0;
            for &output in &node.outputs {
                let grid = atoms.grid(output);
                let (part, end) = match axis {
                    Axis::Channels => (columns(&whole, at..at + grid.stride), at + grid.stride),
                    Axis::Batch => (rows(&whole, at..at + grid.rows), at + grid.rows),
                };
                (atoms.strings[output.index()], at) = (part, end);
            }
        }
        atoms
    }

    /// Samples (or pixels) of a value and bytes of one, as [`rows_of`] has it.
    pub(crate) fn grid(&self, value: ValueId) -> &Grid {
        &self.grids[value.index()]
    }

    /// A value's rows.
    pub(crate) fn string(&self, value: ValueId) -> &[Run] {
        &self.strings[value.index()]
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
fn rows(runs: &[Run], range: Range<u64>) -> Vec<Run> {
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

/// What every buffer holds at one moment, in columns of the bands of its grid.
pub(crate) struct Contents {
    pub grids: Vec<Grid>,
    held: Vec<IntervalMap<Segment>>,
}

impl Contents {
    /// Nothing held anywhere. Buffers of one storage have one grid, with a cut wherever a region or a run of rows of a value in it
    /// begins or ends.
    pub(crate) fn new(schedule: &Schedule, graph: &Graph, atoms: &Atoms) -> Self {
        let mut by_root = atoms.grids.clone();
        let cut = |by_root: &mut [Grid], region: &Region, runs: &[Run]| {
            let Some(root) = schedule.buffer(region.buffer).root else { return };
            let grid = &mut by_root[root.index()];
            let Some(place) = grid.place(region) else { return };
            let first = place.rows.start;
            grid.cut(first);
            runs.iter().fold(first, |row, run| {
                grid.cut(row + run.rows);
                row + run.rows
            });
        };
        for command in &schedule.commands {
            let Action::Launch { node, reads, writes, .. } = &command.action else { continue };
            let node = graph.node(*node);
            let operands = node.inputs.iter().zip(reads).chain(node.outputs.iter().zip(writes));
            operands.for_each(|(&value, region)| cut(&mut by_root, region, atoms.string(value)));
        }
        for home in &schedule.homes {
            let whole = Region::contiguous(home.buffer, 0, graph.value(home.initial).ty.bytes());
            [home.initial, home.last].iter().for_each(|&value| cut(&mut by_root, &whole, atoms.string(value)));
        }
        let grid = |buffer: &vdnn_schedule::Buffer| match buffer.root {
            Some(root) => by_root[root.index()].clone(),
            None => Grid::new(1, buffer.bytes),
        };
        Contents { grids: schedule.buffers.iter().map(grid).collect(), held: one_each(schedule) }
    }

    /// Puts a value into its place in a buffer.
    pub(crate) fn put(&mut self, buffer: usize, place: &Place, runs: &[Run]) {
        if let Some(text) = self.text(buffer, runs) {
            return self.write(buffer, place.columns.start, text);
        }
        for (addresses, text) in self.texts(buffer, place, runs) {
            self.write(buffer, addresses.start, &text);
        }
    }

    fn write(&mut self, buffer: usize, mut at: u64, text: &[(Segment, u64)]) {
        for &(segment, len) in text {
            self.held[buffer].set(at..at + len, segment);
            at += len;
        }
    }

    /// Forgets what a place in a buffer holds and holds what another one does, band by band. False where the bands are not of the
    /// same rows, or a place has only some of a band's.
    pub(crate) fn copy(&mut self, from: (usize, &Place), to: (usize, &Place)) -> bool {
        let bands = |(buffer, place): (usize, &Place)| self.grids[buffer].bands(place).collect::<Vec<_>>();
        let (sources, targets) = (bands(from), bands(to));
        let rows = |(rows, _): &(Range<u64>, Range<u64>)| rows.end - rows.start;
        let whole = self.grids[from.0].has_cuts_at(from.1) && self.grids[to.0].has_cuts_at(to.1);
        if !whole || !sources.iter().map(rows).eq(targets.iter().map(rows)) {
            return false;
        }
        let nothing = Segment { atom: ValueId(u32::MAX), row: 0, at: 0 };
        for ((_, source), (_, target)) in sources.into_iter().zip(targets) {
            let pieces: Vec<_> = self.held[from.0].pieces(source.clone()).collect();
            for (piece, fact) in pieces {
                let start = target.start + (piece.start - source.start);
                self.held[to.0].set(start..start + (piece.end - piece.start), fact.unwrap_or(nothing));
            }
        }
        true
    }

    /// The first place where a buffer does not hold a value: what is there instead.
    pub(crate) fn mismatch(&self, buffer: usize, place: &Place, runs: &[Run]) -> Option<Option<Segment>> {
        if let Some(text) = self.text(buffer, runs) {
            return self.differs(buffer, place.columns.start, text);
        }
        let mut texts = self.texts(buffer, place, runs).into_iter();
        texts.find_map(|(addresses, text)| self.differs(buffer, addresses.start, &text))
    }

    fn differs(&self, buffer: usize, mut at: u64, text: &[(Segment, u64)]) -> Option<Option<Segment>> {
        for &(segment, len) in text {
            for (piece, fact) in self.held[buffer].pieces(at..at + len) {
                if fact != Some(segment.tail(piece.start - at)) {
                    return Some(fact.filter(|found| found.atom.0 != u32::MAX));
                }
            }
            at += len;
        }
        None
    }

    /// What a value reads where all its rows are alike and the buffer's grid is one band, as most are.
    fn text<'r>(&self, buffer: usize, runs: &'r [Run]) -> Option<&'r Text> {
        match runs {
            [run] if self.grids[buffer].is_one_band() => Some(&run.text),
            _ => None,
        }
    }

    /// What a value reads in each band of its place.
    fn texts(&self, buffer: usize, place: &Place, runs: &[Run]) -> Vec<(Range<u64>, Text)> {
        let grid = &self.grids[buffer];
        let first = place.rows.start;
        let text = |band: Range<u64>| {
            let run = rows(runs, band.start - first..band.end - first).into_iter().next();
            run.map_or_else(Text::new, |run| run.text)
        };
        grid.bands(place).map(|(band, addresses)| (addresses, text(band))).collect()
    }
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
