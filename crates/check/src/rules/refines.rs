//! The schedule computes its program: followed in issue order, every launch reads the values its node names, every effect
//! happens once and on the right version, and homes end with the values they must.
//!
//! Ops are pure, so it does not matter which run made a value, and a recomputed value is the value. A home that is
//! updated twice, or read after its update, shows as a read of the wrong version.

use super::content::{Atoms, Contents};
use super::operands::{Place, clash};
use crate::{Rule, Violation, describe};
use vdnn_graph::{Graph, Node, NodeId, Program, Role, ValueId};
use vdnn_schedule::{Action, AlgoId, Region, Schedule};

pub(crate) fn check(schedule: &Schedule, program: &Program) -> Vec<Violation> {
    let mut found = same_program(schedule, &program.graph);
    if !found.is_empty() {
        return found;
    }
    let mut walk = Walk::new(schedule, &program.graph);
    walk.start();
    for (index, command) in schedule.commands.iter().enumerate() {
        walk.step(index, &command.action);
    }
    walk.finish();
    found.append(&mut walk.found);
    found
}

fn whole(message: String) -> Violation {
    Violation::whole(Rule::Refines, message)
}

/// The schedule's tables are the program's, its buffers have room for their roots, its homes are the program's.
fn same_program(schedule: &Schedule, graph: &Graph) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(differ("node", &schedule.nodes, graph.nodes().iter().map(|node| node.name.as_str())));
    found.extend(differ("value", &schedule.values, graph.values().iter().map(|value| value.name.as_str())));
    if !found.is_empty() {
        return found;
    }
    for buffer in &schedule.buffers {
        let Some(root) = buffer.root else { continue };
        let bytes = graph.value(root).ty.bytes();
        if buffer.bytes < bytes {
            let (name, root) = (&buffer.name, describe::value(schedule, root));
            found.push(whole(format!("expected %{name} to hold the {bytes} bytes of {root}, found {}", buffer.bytes)));
        }
    }
    found.extend(homes(schedule, graph));
    found
}

/// The first name of the schedule that is not the program's.
fn differ<'g>(what: &str, ours: &[String], theirs: impl Iterator<Item = &'g str> + Clone) -> Option<Violation> {
    let longest = ours.len().max(theirs.clone().count());
    let names = ours.iter().map(|name| Some(name.as_str())).chain(std::iter::repeat(None));
    let expected = theirs.map(Some).chain(std::iter::repeat(None));
    let (at, (name, expected)) =
        names.zip(expected).take(longest).enumerate().find(|(_, (name, expected))| name != expected)?;
    Some(whole(format!("expected {what} {at} to be {expected:?} as in the program, found {name:?}")))
}

fn homes(schedule: &Schedule, graph: &Graph) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    for home in &schedule.homes {
        last[home.initial.index()] = Some(home.last);
    }
    let persistents = graph.persistents().iter().map(|persistent| (persistent.initial, persistent.last));
    for (initial, end) in persistents.chain(graph.metrics().iter().map(|&id| (id, id))) {
        let name = describe::value(schedule, initial);
        match last[initial.index()] {
            Some(found_last) if found_last == end => {}
            Some(other) => found.push(whole(format!(
                "expected the home of {name} to end with {}, found {}",
                describe::value(schedule, end),
                describe::value(schedule, other)
            ))),
            None => found.push(whole(format!("expected a home for {name}, found none"))),
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
    graph: &'a Graph,
    atoms: Atoms,
    contents: Contents,
    /// Runs so far, and the algorithm of the first, by node.
    runs: Vec<(u32, Option<AlgoId>)>,
    /// Places of the inputs and outputs of the launch that is looked at.
    places: [Vec<Place>; 2],
    found: Vec<Violation>,
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule, graph: &'a Graph) -> Self {
        let atoms = Atoms::of(graph);
        let contents = Contents::new(schedule, graph, &atoms);
        let runs = vec![(0, None); graph.nodes().len()];
        Walk { schedule, graph, atoms, contents, runs, places: Default::default(), found: Vec::new() }
    }

    fn report(&mut self, command: usize, message: String) {
        self.found.push(Violation::at(Rule::Refines, command, message));
    }

    /// Homes of inputs and persistents hold their values.
    fn start(&mut self) {
        for home in &self.schedule.homes {
            if self.graph.value(home.initial).producer.is_none() {
                let buffer = home.buffer.index();
                let whole = self.contents.grids[buffer].whole();
                self.contents.put(buffer, &whole, self.atoms.string(home.initial));
            }
        }
    }

    fn step(&mut self, index: usize, action: &Action) {
        match action {
            Action::Launch { node, run, algo, reads, writes, .. } => {
                self.count(index, *node, *run, *algo);
                self.launch(index, *node, reads, writes);
            }
            Action::Transfer { src, dst, .. } => self.transfer(index, src, dst),
            _ => {}
        }
    }

    /// Runs count from 0, only pure nodes run again, all runs use one algorithm.
    fn count(&mut self, index: usize, id: NodeId, run: u16, algo: AlgoId) {
        let (runs, first) = &mut self.runs[id.index()];
        let expected = *runs;
        let algorithm = *first.get_or_insert(algo);
        *runs += 1;
        let name = || describe::node(self.schedule, id);
        if expected > 0 && self.graph.node(id).op.has_effect() {
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

    fn launch(&mut self, index: usize, id: NodeId, reads: &[Region], writes: &[Region]) {
        let node = self.graph.node(id);
        if (reads.len(), writes.len()) != (node.inputs.len(), node.outputs.len()) {
            let message = format!(
                "expected {} to read {} and write {} regions, found {} and {}",
                node.name,
                node.inputs.len(),
                node.outputs.len(),
                reads.len(),
                writes.len()
            );
            return self.report(index, message);
        }
        let [mut inputs, mut outputs] = std::mem::take(&mut self.places);
        let known = [
            self.places(index, node, &node.inputs, reads, &mut inputs),
            self.places(index, node, &node.outputs, writes, &mut outputs),
        ];
        if known == [true, true] {
            self.run(index, node, [reads, writes], [&inputs, &outputs]);
        }
        self.places = [inputs, outputs];
    }

    /// The inputs lie in their places, nothing is overwritten that may not be, and then the outputs lie in theirs.
    fn run(&mut self, index: usize, node: &Node, [reads, writes]: [&[Region]; 2], [inputs, outputs]: [&[Place]; 2]) {
        for (&value, place) in node.inputs.iter().zip(inputs) {
            self.expect(index, node, value, place);
        }
        if let Some((i, o)) = clash(self.graph, node, inputs, outputs) {
            let [input, output] = [node.inputs[i], node.outputs[o]].map(|id| describe::value(self.schedule, id));
            let [from, to] = [&reads[i], &writes[o]].map(|region| describe::region(self.schedule, region));
            let name = &node.name;
            self.report(index, format!("{name} may not read {input} at {from} and write {output} at {to}"));
        }
        for (&value, (buffer, place)) in node.outputs.iter().zip(outputs) {
            self.contents.put(buffer.index(), place, self.atoms.string(value));
        }
    }

    /// Finds the places of a launch's operands; false when a region has not the shape of its value on the rows of its buffer.
    fn places(
        &mut self,
        index: usize,
        node: &Node,
        values: &[ValueId],
        regions: &[Region],
        places: &mut Vec<Place>,
    ) -> bool {
        places.clear();
        for (&value, region) in values.iter().zip(regions) {
            let (grid, rows) = (&self.contents.grids[region.buffer.index()], self.atoms.grid(value));
            let place = grid.place(region).filter(|place| place.width() == rows.stride);
            let place = place.filter(|place| place.n_rows() == rows.rows || rows.stride == 0);
            let Some(place) = place else {
                let (name, value) = (&node.name, describe::value(self.schedule, value));
                let at = describe::region(self.schedule, region);
                let message =
                    format!("{name} needs {value} as {} rows of {} bytes, found {at}", rows.rows, rows.stride);
                self.report(index, message);
                return false;
            };
            places.push((region.buffer, place));
        }
        true
    }

    /// Reports when a place does not hold a value that a node reads.
    fn expect(&mut self, index: usize, node: &Node, value: ValueId, (buffer, place): &Place) {
        let string = self.atoms.string(value);
        let Some(there) = self.contents.mismatch(buffer.index(), place, string) else { return };
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

    fn transfer(&mut self, index: usize, src: &Region, dst: &Region) {
        let [from, to] = [src, dst].map(|region| self.contents.grids[region.buffer.index()].place(region));
        let copied = match (from, to) {
            (Some(from), Some(to)) if from.width() == to.width() => {
                self.contents.copy((src.buffer.index(), &from), (dst.buffer.index(), &to))
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
            let place = self.contents.grids[home.buffer.index()].whole();
            let string = self.atoms.string(home.last);
            if let Some(there) = self.contents.mismatch(home.buffer.index(), &place, string) {
                let there = there.map(|segment| segment.atom);
                let message = self.holds_instead("the iteration to end with", home.last, home.buffer, there);
                self.found.push(whole(message));
            }
        }
        for (node, (runs, _)) in self.graph.nodes().iter().zip(&self.runs) {
            let metric = node.outputs.iter().any(|&id| self.graph.value(id).role == Role::Metric);
            if *runs == 0 && (metric || node.op.has_effect()) {
                self.found.push(whole(format!("expected {} to run, found no launch of it", node.name)));
            }
        }
    }
}
