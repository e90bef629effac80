//! When each value is made and read in the program's own order, and what making it again costs at least.

use super::kernels::Kernels;
use crate::Problem;
use crate::homes::is_home;
use std::collections::BTreeSet;
use vdnn_graph::{NodeId, ValueId};

/// Nodes followed when a value is to be made again. Cutting the walk short only lowers the cost.
const FOLLOWED: usize = 32;

/// One value that may leave the device and that something reads, in this iteration or the next.
pub(super) struct Life {
    pub root: ValueId,
    /// Step that makes it; `None` for parameters and states as the iteration finds them, which are in host memory if they
    /// are not on the device.
    pub made: Option<usize>,
    /// Steps that read it, ascending.
    pub reads: Vec<usize>,
    /// Whether the next iteration begins with it.
    pub stays: bool,
    /// When its storage first needs a copy down to be absent: with its first write, for parameters and states with this value.
    pub ready: Option<usize>,
    /// Least time of making it again where none of its storage's bytes are there.
    pub again: f64,
}

/// Time of making again what cannot be: long, but a number.
const NEVER: f64 = 1e12;

/// Lives of all values.
pub(super) struct Lives {
    pub values: Vec<Life>,
}

impl Lives {
    pub fn of(problem: &Problem<'_>, kernels: &Kernels<'_>) -> Self {
        let (program, graph) = (problem.program, &problem.program.graph);
        let root = |id: ValueId| program.aliases.root(id);
        let mut position = vec![0; graph.nodes().len()];
        let mut reads: Vec<Vec<usize>> = vec![Vec::new(); graph.values().len()];
        let mut first_write = vec![usize::MAX; graph.values().len()];
        for (step, &id) in program.order.iter().enumerate() {
            position[id.index()] = step;
            let node = graph.node(id);
            for &input in &node.inputs {
                if reads[input.index()].last() != Some(&step) {
                    reads[input.index()].push(step);
                }
            }
            for &output in &node.outputs {
                let first = &mut first_write[root(output).index()];
                *first = (*first).min(step);
            }
        }
        let again = Again { problem, kernels, position: &position };
        let last: BTreeSet<ValueId> = graph.persistents().iter().map(|persistent| persistent.last).collect();
        let mut values = Vec::new();
        for id in graph.value_ids() {
            let reads = std::mem::take(&mut reads[id.index()]);
            let made = graph.value(id).producer.map(|producer| position[producer.index()]);
            let (root, home) = (root(id), is_home(graph.value(root(id)).role));
            if home && problem.may_leave(root) {
                values.push(Life { root, made, reads, stays: last.contains(&id), ready: made, again: NEVER });
            } else if made.is_some() && !home && !reads.is_empty() {
                let ready = Some(first_write[root.index()]);
                values.push(Life { root, made, reads, stays: false, ready, again: again.seconds(id) });
            }
        }
        Lives { values }
    }
}

struct Again<'a> {
    problem: &'a Problem<'a>,
    kernels: &'a Kernels<'a>,
    position: &'a [usize],
}

impl Again<'_> {
    /// Time of the node that makes `value`, and of those that make what it reads from the same storage.
    fn seconds(&self, value: ValueId) -> f64 {
        let program = self.problem.program;
        let root = program.aliases.root(value);
        let producer = |id: ValueId| program.graph.value(id).producer;
        let mut nodes: Vec<NodeId> = producer(value).into_iter().collect();
        let mut next = 0;
        while next < nodes.len() && nodes.len() < FOLLOWED {
            let inputs = &program.graph.node(nodes[next]).inputs;
            for made in inputs.iter().filter(|&&id| program.aliases.root(id) == root).filter_map(|&id| producer(id)) {
                if !nodes.contains(&made) {
                    nodes.push(made);
                }
            }
            next += 1;
        }
        nodes.iter().map(|&id| self.kernels.seconds[self.position[id.index()]] * self.share(id, root)).sum()
    }

    /// The part of a node's time that one of the storages it writes has to bear, by bytes: the parts of all are one.
    fn share(&self, id: NodeId, root: ValueId) -> f64 {
        let program = self.problem.program;
        let mut roots: Vec<ValueId> =
            program.graph.node(id).outputs.iter().map(|&output| program.aliases.root(output)).collect();
        roots.sort_unstable();
        roots.dedup();
        let bytes = |root: ValueId| program.aliases.storage_bytes(root) as f64;
        let all: f64 = roots.iter().map(|&root| bytes(root)).sum();
        if all > 0.0 { bytes(root) / all } else { 0.0 }
    }
}
