//! The schedule computes its program: followed in issue order, every launch reads the values its node names, every effect
//! happens once and on the right version, and homes end with the values they must.
//!
//! Ops are pure, so it does not matter which run made a value, and a recomputed value is the value. A home that is
//! updated twice, or read after its update, shows as a read of the wrong version.

use super::atoms::Atoms;
use super::content::Contents;
use super::operands::{Place, clash};
use super::tables::{Entry, Nodes, Tables};
use crate::flat::{Flat, Kind, Launch};
use crate::{Rule, Violation, describe};
use std::ops::Range;
use vdnn_graph::{Graph, Node, Program, Role, ValueId};
use vdnn_schedule::{AlgoId, Schedule};

pub(crate) fn check(schedule: &Schedule, flat: &Flat<'_>, program: &Program) -> Vec<Violation> {
    let graph = &program.graph;
    let Tables { nodes, grids, names } = Tables::of(schedule, graph);
    if !names.is_empty() {
        return names;
    }
    let atoms = Atoms::of(graph, grids);
    let mut found = same_program(schedule, graph, &atoms);
    if !found.is_empty() {
        return found;
    }
    let mut walk = Walk::new(schedule, flat, (graph, &nodes), atoms);
    walk.start();
    for (index, line) in flat.lines.iter().enumerate() {
        walk.step(index, line.kind);
    }
    walk.finish();
    found.append(&mut walk.found);
    found
}

fn whole(message: String) -> Violation {
    Violation::whole(Rule::Refines, message)
}

/// The schedule's buffers have room for their roots, its homes are the program's.
fn same_program(schedule: &Schedule, graph: &Graph, atoms: &Atoms) -> Vec<Violation> {
    let mut found = Vec::new();
    for buffer in &schedule.buffers {
        let Some(root) = buffer.root else { continue };
        let bytes = atoms.grid(root).bytes();
        if buffer.bytes < bytes {
            let (name, root) = (&buffer.name, describe::value(schedule, root));
            found.push(whole(format!("expected %{name} to hold the {bytes} bytes of {root}, found {}", buffer.bytes)));
        }
    }
    found.extend(homes(schedule, graph));
    found
}

fn homes(schedule: &Schedule, graph: &Graph) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    for home in &schedule.homes {
        last[home.initial.index()] = Some(home.last);
    }
    let persistents = graph.persistents().iter().map(|persistent| (persistent.initial, persistent.last));
    for (initial, end) in persistents.chain(graph.metrics().iter().map(|&id| (id, id))) {
        let name = || describe::value(schedule, initial);
        match last[initial.index()] {
            Some(found_last) if found_last == end => {}
            Some(other) => found.push(whole(format!(
                "expected the home of {} to end with {}, found {}",
                name(),
                describe::value(schedule, end),
                describe::value(schedule, other)
            ))),
            None => found.push(whole(format!("expected a home for {}, found none", name()))),
        }
    }
    for home in &schedule.homes {
        let role = graph.value(home.initial).role;
        let changes = role == Role::Input && home.initial != home.last;
        if changes || !matches!(role, Role::Input | Role::Parameter | Role::State | Role::Metric) {
            let name = describe::value(schedule, home.initial);
            found.push(whole(format!("expected no such home for {name}, which is a {role:?}")));
        }
    }
    found
}

/// The state of the walk through the commands.
struct Walk<'a> {
    schedule: &'a Schedule,
    flat: &'a Flat<'a>,
    graph: &'a Graph,
    nodes: &'a Nodes,
    atoms: Atoms,
    contents: Contents,
    /// Runs so far, and the algorithm of the first, by node.
    runs: Vec<(u32, Option<AlgoId>)>,
    /// Places of the inputs and outputs of the launch that is looked at.
    places: [Vec<Place>; 2],
    found: Vec<Violation>,
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule, flat: &'a Flat<'a>, (graph, nodes): (&'a Graph, &'a Nodes), atoms: Atoms) -> Self {
        let contents = Contents::new(schedule, flat, graph, &atoms);
        let runs = vec![(0, None); graph.nodes().len()];
        Walk { schedule, flat, graph, nodes, atoms, contents, runs, places: Default::default(), found: Vec::new() }
    }

    fn report(&mut self, command: usize, message: String) {
        self.found.push(Violation::at(Rule::Refines, command, message));
    }

    /// Homes of inputs and persistents hold their values.
    fn start(&mut self) {
        for home in &self.schedule.homes {
            if self.graph.value(home.initial).producer.is_none() {
                let buffer = home.buffer.index();
                let whole = self.contents.all(home.buffer);
                self.contents.put(&self.atoms, buffer, &whole, home.initial);
            }
        }
    }

    fn step(&mut self, index: usize, kind: Kind) {
        match kind {
            Kind::Launch(launch) => {
                let launch = &self.flat.launches[launch as usize];
                self.count(index, launch);
                self.launch(index, launch);
            }
            Kind::Transfer(touch) => self.transfer(index, touch as usize),
            _ => {}
        }
    }

    /// Runs count from 0, only pure nodes run again, all runs use one algorithm.
    fn count(&mut self, index: usize, &Launch { node: id, run, algo, .. }: &Launch) {
        let (runs, first) = &mut self.runs[id.index()];
        let expected = *runs;
        let algorithm = *first.get_or_insert(algo);
        *runs += 1;
        let name = || describe::node(self.schedule, id);
        if expected > 0 && self.nodes.entry(id).has_effect() {
            self.report(index, format!("{} has an effect and must run once, found another run", name()));
        } else if u32::from(run) != expected {
            self.report(index, format!("expected run {expected} of {}, found run {run}", name()));
        }
        if algorithm != algo {
            let name = describe::node(self.schedule, id);
            let [a, b] = [algorithm, algo].map(|id| &self.schedule.algorithms[id.index()]);
            self.report(index, format!("expected all runs of {name} with algorithm {a}, found {b}"));
        }
    }

    fn launch(&mut self, index: usize, launch: &Launch) {
        let (node, entry) = (self.graph.node(launch.node), self.nodes.entry(launch.node));
        let [inputs, outputs] = self.nodes.operands(entry);
        let [reads, writes] = launch.operands();
        if (reads.len(), writes.len()) != (inputs.len(), outputs.len()) {
            let message = format!(
                "expected {} to read {} and write {} regions, found {} and {}",
                node.name,
                inputs.len(),
                outputs.len(),
                reads.len(),
                writes.len()
            );
            return self.report(index, message);
        }
        let mut places = std::mem::take(&mut self.places);
        let known = [
            self.places(index, node, inputs, reads, &mut places[0]),
            self.places(index, node, outputs, writes, &mut places[1]),
        ];
        if known == [true, true] {
            self.run(index, launch, node, entry, &places);
        }
        self.places = places;
    }

    /// The inputs lie in their places, nothing is overwritten that may not be, and then the outputs lie in theirs.
    fn run(&mut self, index: usize, launch: &Launch, node: &Node, entry: &Entry, [reads, writes]: &[Vec<Place>; 2]) {
        let [inputs, outputs] = self.nodes.operands(entry);
        for (&value, place) in inputs.iter().zip(reads) {
            self.expect(index, node, value, place);
        }
        if let Some((i, o)) = clash(self.graph, node, entry, reads, writes) {
            let [input, output] = [inputs[i], outputs[o]].map(|id| describe::value(self.schedule, id));
            let [reads, writes] = launch.operands();
            let [from, to] = [reads.start + i, writes.start + o]
                .map(|touch| describe::region(self.schedule, self.flat.regions[touch]));
            let name = &node.name;
            self.report(index, format!("{name} may not read {input} at {from} and write {output} at {to}"));
        }
        for (&value, (buffer, place)) in outputs.iter().zip(writes) {
            self.contents.put(&self.atoms, buffer.index(), place, value);
        }
    }

    /// Finds the places of a launch's operands; false when a region has not the shape of its value on the rows of its buffer.
    fn places(
        &mut self,
        index: usize,
        node: &Node,
        values: &[ValueId],
        touches: Range<usize>,
        places: &mut Vec<Place>,
    ) -> bool {
        places.clear();
        for (&value, touch) in values.iter().zip(touches) {
            let (buffer, region) = (self.flat.touches[touch].buffer, self.flat.regions[touch]);
            let rows = self.atoms.grid(value);
            let place = self.contents.place(region, buffer).filter(|place| place.width() == rows.stride);
            let place = place.filter(|place| place.n_rows() == rows.rows || rows.stride == 0);
            let Some(place) = place else {
                let (name, value) = (&node.name, describe::value(self.schedule, value));
                let at = describe::region(self.schedule, region);
                let message =
                    format!("{name} needs {value} as {} rows of {} bytes, found {at}", rows.rows, rows.stride);
                self.report(index, message);
                return false;
            };
            places.push((buffer, place));
        }
        true
    }

    /// Reports when a place does not hold a value that a node reads.
    fn expect(&mut self, index: usize, node: &Node, value: ValueId, (buffer, place): &Place) {
        let Some(there) = self.contents.mismatch(&self.atoms, buffer.index(), place, value) else { return };
        let what = format!("{} to read", node.name);
        let message = self.holds_instead(&what, value, *buffer, there.map(|segment| segment.atom));
        self.report(index, message);
    }

    fn holds_instead(
        &self,
        what: &str,
        value: ValueId,
        buffer: vdnn_schedule::BufferId,
        there: Option<ValueId>,
    ) -> String {
        let place = describe::buffer(self.schedule, buffer);
        let value = describe::value(self.schedule, value);
        let there = there.map_or_else(|| "nothing".to_string(), |atom| describe::value(self.schedule, atom));
        format!("expected {what} {value} in {place}, which holds {there} there")
    }

    fn transfer(&mut self, index: usize, touch: usize) {
        let [src, dst] = [touch, touch + 1].map(|touch| self.flat.regions[touch]);
        let buffers = [touch, touch + 1].map(|touch| self.flat.touches[touch].buffer);
        let [from, to] =
            [(src, buffers[0]), (dst, buffers[1])].map(|(region, buffer)| self.contents.place(region, buffer));
        let copied = match (from, to) {
            (Some(from), Some(to)) if from.width() == to.width() => {
                self.contents.copy(&self.atoms, (buffers[0].index(), &from), (buffers[1].index(), &to))
            }
            _ => false,
        };
        if !copied {
            let [src, dst] = [src, dst].map(|region| describe::region(self.schedule, region));
            self.report(index, format!("expected {src} and {dst} to be whole rows of one size"));
        }
    }

    /// Homes hold what the next iteration starts with, effects and metrics have happened.
    fn finish(&mut self) {
        for home in &self.schedule.homes {
            let place = self.contents.all(home.buffer);
            if let Some(there) = self.contents.mismatch(&self.atoms, home.buffer.index(), &place, home.last) {
                let there = there.map(|segment| segment.atom);
                let message = self.holds_instead("the iteration to end with", home.last, home.buffer, there);
                self.found.push(whole(message));
            }
        }
        let nodes = self.graph.nodes().iter().zip(&self.runs);
        for (node, _) in nodes.filter(|(_, (runs, _))| *runs == 0) {
            let metric = node.outputs.iter().any(|&id| self.graph.value(id).role == Role::Metric);
            if metric || node.op.has_effect() {
                self.found.push(whole(format!("expected {} to run, found no launch of it", node.name)));
            }
        }
    }
}
