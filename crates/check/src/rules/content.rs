//! What buffers hold, by value: strings of [`atoms`](super::atoms).
//!
//! ```text
//!   buffer of x       │ x ──────────── │                 an atom as a whole, as most: its number is all that is remembered
//!   buffer of z       │ a[0..] │ b[0..] │                anything else: intervals of columns
//! ```

use super::atoms::{Atoms, Run, Segment, Text, rows};
use crate::flat::Flat;
use crate::grid::{Grid, Place};
use crate::intervals::{Cut, IntervalMap};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use vdnn_graph::{Graph, ValueId};
use vdnn_schedule::{Action, BufferId, Region, Schedule};

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// A whole atom, in the first columns of a grid of one band, and nothing beside it.
    Atom(ValueId),
    /// Anything else: an index into [`Contents::parts`].
    Parts(u32),
}

/// What every buffer holds at one moment, in columns of the bands of its grid.
pub(crate) struct Contents {
    grids: Vec<Grid>,
    /// Whether a buffer is as large as its value and only touched as a whole, by buffer.
    whole: Vec<bool>,
    held: Vec<Held>,
    parts: Vec<IntervalMap<Segment>>,
}

impl Contents {
    /// Nothing held anywhere. Buffers of one storage have one grid, with a cut wherever a region or a run of rows of a value in it
    /// begins or ends.
    pub(crate) fn new(schedule: &Schedule, flat: &Flat<'_>, graph: &Graph, atoms: &Atoms) -> Self {
        let cut = cut_grids(schedule, flat, graph, atoms);
        let grid = |buffer: &vdnn_schedule::Buffer| match buffer.root {
            Some(root) => cut.get(&root).unwrap_or(atoms.grid(root)).clone(),
            None => Grid::new(1, buffer.bytes),
        };
        let grids: Vec<Grid> = schedule.buffers.iter().map(grid).collect();
        let held = vec![Held::Nothing; grids.len()];
        let fits =
            |(index, grid): (usize, &Grid)| flat.part(index).is_none() && grid.bytes() == schedule.buffers[index].bytes;
        let whole = grids.iter().enumerate().map(fits).collect();
        Contents { grids, whole, held, parts: Vec::new() }
    }

    /// All rows of a buffer.
    pub(crate) fn all(&self, buffer: BufferId) -> Place {
        self.grids[buffer.index()].whole()
    }

    /// The rows of a buffer that a region in it covers, as [`Grid::place`] has it.
    pub(crate) fn place(&self, region: &Region, buffer: BufferId) -> Option<Place> {
        let grid = &self.grids[buffer.index()];
        // As most; then there is no need to look at the region.
        if self.whole[buffer.index()] { Some(grid.whole()) } else { grid.place(region) }
    }

    /// Puts a value into its place in a buffer.
    pub(crate) fn put(&mut self, atoms: &Atoms, buffer: usize, place: &Place, value: ValueId) {
        if atoms.is_atom(value) && self.takes(atoms, buffer, place, value) {
            self.held[buffer] = Held::Atom(value);
            return;
        }
        let runs = &atoms.string(value);
        if let Some(text) = self.text(buffer, runs) {
            return self.write(atoms, buffer, place.columns.start, text);
        }
        for (addresses, text) in self.texts(buffer, place, runs) {
            self.write(atoms, buffer, addresses.start, &text);
        }
    }

    /// Whether a buffer holds a whole atom and nothing beside it once that is put into a place.
    fn takes(&self, atoms: &Atoms, buffer: usize, place: &Place, atom: ValueId) -> bool {
        let bytes = atoms.grid(atom).stride;
        let begins = bytes > 0 && place.columns.start == 0 && self.grids[buffer].is_one_band();
        begins
            && match self.held[buffer] {
                Held::Nothing => true,
                Held::Atom(former) => atoms.grid(former).stride <= bytes,
                Held::Parts(_) => false,
            }
    }

    fn write(&mut self, atoms: &Atoms, buffer: usize, mut at: u64, text: &[(Segment, u64)]) {
        let parts = self.parts(atoms, buffer);
        for &(segment, len) in text {
            parts.set(at..at + len, segment);
            at += len;
        }
    }

    /// What a buffer holds, as intervals.
    fn intervals(&self, atoms: &Atoms, buffer: usize) -> Cow<'_, IntervalMap<Segment>> {
        let mut map = IntervalMap::default();
        match self.held[buffer] {
            Held::Parts(index) => return Cow::Borrowed(&self.parts[index as usize]),
            Held::Atom(atom) => map.set(0..atoms.grid(atom).stride, Segment::first(atom)),
            Held::Nothing => {}
        }
        Cow::Owned(map)
    }

    /// The same, to be changed.
    fn parts(&mut self, atoms: &Atoms, buffer: usize) -> &mut IntervalMap<Segment> {
        let index = match self.held[buffer] {
            Held::Parts(index) => index as usize,
            _ => {
                let map = self.intervals(atoms, buffer).into_owned();
                self.held[buffer] = Held::Parts(self.parts.len() as u32);
                self.parts.push(map);
                self.parts.len() - 1
            }
        };
        &mut self.parts[index]
    }

    /// Forgets what a place in a buffer holds and holds what another one does, band by band. False where the bands are not of the
    /// same rows, or a place has only some of a band's.
    pub(crate) fn copy(&mut self, atoms: &Atoms, from: (usize, &Place), to: (usize, &Place)) -> bool {
        if let Some(atom) = self.moves_atom(atoms, from, to) {
            self.held[to.0] = Held::Atom(atom);
            return true;
        }
        let bands = |(buffer, place): (usize, &Place)| self.grids[buffer].bands(place).collect::<Vec<_>>();
        let (sources, targets) = (bands(from), bands(to));
        let rows = |(rows, _): &(Range<u64>, Range<u64>)| rows.end - rows.start;
        let whole = self.grids[from.0].has_cuts_at(from.1) && self.grids[to.0].has_cuts_at(to.1);
        if !whole || !sources.iter().map(rows).eq(targets.iter().map(rows)) {
            return false;
        }
        let nothing = Segment::first(ValueId(u32::MAX));
        for ((_, source), (_, target)) in sources.into_iter().zip(targets) {
            let pieces: Vec<_> = self.intervals(atoms, from.0).pieces(source.clone()).collect();
            let parts = self.parts(atoms, to.0);
            for (piece, fact) in pieces {
                let start = target.start + (piece.start - source.start);
                parts.set(start..start + (piece.end - piece.start), fact.unwrap_or(nothing));
            }
        }
        true
    }

    /// The atom that a copy moves, where it moves all of one between buffers of as many rows and the target then holds nothing else.
    fn moves_atom(&self, atoms: &Atoms, from: (usize, &Place), to: (usize, &Place)) -> Option<ValueId> {
        let Held::Atom(atom) = self.held[from.0] else { return None };
        let all = |(buffer, place): (usize, &Place)| {
            place.rows == (0..self.grids[buffer].rows) && place.columns == (0..atoms.grid(atom).stride)
        };
        let alike = self.grids[from.0].rows == self.grids[to.0].rows;
        (alike && all(from) && all(to) && self.takes(atoms, to.0, to.1, atom)).then_some(atom)
    }

    /// The first place where a buffer does not hold a value: what is there instead.
    pub(crate) fn mismatch(
        &self,
        atoms: &Atoms,
        buffer: usize,
        place: &Place,
        value: ValueId,
    ) -> Option<Option<Segment>> {
        if self.held[buffer] == Held::Atom(value) && place.columns.start == 0 {
            return None;
        }
        let (runs, held) = (&atoms.string(value), &self.intervals(atoms, buffer));
        if let Some(text) = self.text(buffer, runs) {
            return differs(held, place.columns.start, text);
        }
        let mut texts = self.texts(buffer, place, runs).into_iter();
        texts.find_map(|(addresses, text)| differs(held, addresses.start, &text))
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

/// The first piece from an address on that does not read as a text says: what is there instead.
fn differs(held: &IntervalMap<Segment>, mut at: u64, text: &[(Segment, u64)]) -> Option<Option<Segment>> {
    for &(segment, len) in text {
        for (piece, fact) in held.pieces(at..at + len) {
            if fact != Some(segment.tail(piece.start - at)) {
                return Some(fact.filter(|found| found.atom.0 != u32::MAX));
            }
        }
        at += len;
    }
    None
}

/// The grids that have cuts, by root.
fn cut_grids(schedule: &Schedule, flat: &Flat<'_>, graph: &Graph, atoms: &Atoms) -> BTreeMap<ValueId, Grid> {
    let mut cut = Cuts { schedule, atoms, grids: BTreeMap::new() };
    let launched =
        flat.places().filter(|(touch, _)| flat.part(touch.buffer()).is_some() && flat.is_launch(touch.index()));
    launched.for_each(|(_, region)| cut.at(region, &[]));
    if !atoms.have_runs() {
        return cut.grids;
    }
    for command in &schedule.commands {
        let Action::Launch { node, reads, writes, .. } = &command.action else { continue };
        let node = graph.node(*node);
        let operands = node.inputs.iter().zip(reads).chain(node.outputs.iter().zip(writes));
        operands.for_each(|(&value, region)| cut.at(region, &atoms.string(value)));
    }
    for home in &schedule.homes {
        let whole = Region::contiguous(home.buffer, 0, graph.value(home.initial).ty.bytes());
        [home.initial, home.last].iter().for_each(|&value| cut.at(&whole, &atoms.string(value)));
    }
    cut.grids
}

/// Grids of storages as they are being cut.
struct Cuts<'a> {
    schedule: &'a Schedule,
    atoms: &'a Atoms,
    /// Those with cuts, by root.
    grids: BTreeMap<ValueId, Grid>,
}

impl Cuts<'_> {
    /// Has bands begin and end where a region does, and runs of rows in it. Most regions are all of their storage, in one run.
    fn at(&mut self, region: &Region, runs: &[Run]) {
        let Some(root) = self.schedule.buffer(region.buffer).root else { return };
        let grid = self.atoms.grid(root);
        let Some(Place { rows, .. }) = grid.place(region) else { return };
        if rows == (0..grid.rows) && runs.len() < 2 {
            return;
        }
        let grid = self.grids.entry(root).or_insert_with(|| grid.clone());
        grid.cut(rows.start);
        grid.cut(rows.end);
        runs.iter().fold(rows.start, |row, run| {
            grid.cut(row + run.rows);
            row + run.rows
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::atoms::rows_of;
    use super::*;
    use vdnn_tensor::{DType, TensorType};

    const ROWS: u64 = 3;
    const STRIDE: u64 = 32;

    /// Atoms of three rows, of 8 bytes or more each.
    fn atoms() -> (Vec<ValueId>, Atoms) {
        let mut graph = Graph::new("atoms");
        let mut value = |(index, columns): (usize, u64)| {
            graph.input(&format!("x{index}"), TensorType::new([ROWS, columns], DType::F32)).unwrap()
        };
        let values = [2, 2, 4, 4, 8].into_iter().enumerate().map(&mut value).collect();
        (values, Atoms::of(&graph, graph.values().iter().map(|value| rows_of(&value.ty)).collect()))
    }

    /// What each byte of a buffer's row is: of which atom, and which of its bytes.
    type Bytes = Vec<Option<(ValueId, u64)>>;

    #[test]
    fn buffers_hold_what_bytes_would() {
        let (values, atoms) = atoms();
        let grids = vec![Grid::new(ROWS, STRIDE); 3];
        let mut contents = Contents { whole: vec![false; 3], held: vec![Held::Nothing; 3], parts: Vec::new(), grids };
        let mut bytes: Vec<Bytes> = vec![vec![None; STRIDE as usize]; 3];
        let place = |at: u64, width: u64| Place { rows: 0..ROWS, columns: at..at + width };
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for round in 0..20_000 {
            if round % 50 == 0 {
                contents.held.fill(Held::Nothing);
                bytes.iter_mut().for_each(|row| row.fill(None));
            }
            let (value, buffer, other) = (values[random(5)], random(3), random(3));
            let width = atoms.grid(value).stride;
            // Mostly in the first columns, where atoms are held as a whole.
            let mut at = || if random(4) > 0 { 0 } else { random(((STRIDE - width) / 4 + 1) as usize) as u64 * 4 };
            let (from, to) = (at(), at());
            let columns = to as usize..(to + width) as usize;
            if round % 2 == 0 {
                contents.put(&atoms, buffer, &place(to, width), value);
                columns.enumerate().for_each(|(i, column)| bytes[buffer][column] = Some((value, i as u64)));
            } else if other != buffer {
                assert!(contents.copy(&atoms, (other, &place(from, width)), (buffer, &place(to, width))));
                let copied = bytes[other][from as usize..(from + width) as usize].to_vec();
                bytes[buffer][columns].clone_from_slice(&copied);
            }
            for &value in &values {
                let width = atoms.grid(value).stride;
                let held = |at: u64| (0..width).all(|i| bytes[buffer][(at + i) as usize] == Some((value, i)));
                for at in [0, from.min(STRIDE - width)] {
                    let found = contents.mismatch(&atoms, buffer, &place(at, width), value);
                    assert_eq!(found.is_none(), held(at), "round {round}: {value:?} at {at} of {:?}", bytes[buffer]);
                }
            }
        }
    }

    #[test]
    fn a_copy_of_other_rows_is_none() {
        let (values, atoms) = atoms();
        let grids = vec![Grid::new(ROWS, STRIDE), Grid::new(ROWS + 1, STRIDE)];
        let mut contents = Contents { whole: vec![false; 2], held: vec![Held::Nothing; 2], parts: Vec::new(), grids };
        let place = Place { rows: 0..ROWS, columns: 0..8 };
        contents.put(&atoms, 0, &place, values[0]);
        assert!(!contents.copy(&atoms, (0, &place), (1, &place)), "three of four rows");
        assert!(!contents.copy(&atoms, (0, &Place { rows: 0..2, columns: 0..8 }), (0, &place)));
    }
}
