//! Making values again: an execution order in which forgotten storages are written anew just before backward needs them.
//!
//! ```text
//!  forward        conv1  relu1  conv2  relu2  loss            Y1 forgotten after conv2 has read it
//!  backward                                        dconv2     needs Y1
//!  this order                     … loss  conv1' relu1'  dconv2 …
//! ```
//!
//! A forgotten storage leaves after its last use in forward. When a later step reads one of its values, the node that made
//! the value runs again, after those that make what it reads, as far back as something is still there. What was made again
//! stays until its own last use, unless it is to be forgotten after every use. Storages that die in forward by themselves
//! are made again in the same way. Nodes with an effect never run twice. Not done here: deciding what to forget.

use crate::Residency;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vdnn_graph::{Node, NodeId, Op, Phase, Program, Use, ValueId};
use vdnn_tensor::Bytes;

/// An order with later runs, and the gaps in which bytes are forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recomputation {
    /// Every run of every node.
    pub order: Vec<Use>,
    /// [`Residency::Drop`] for each gap that ends with a rewriting, keyed as in [`crate::MemoryPlan::gaps`].
    pub drops: BTreeMap<(ValueId, Use), Residency>,
}

/// How long a forgotten storage stays once it was made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// To its last use.
    Once,
    /// To the end of the step that needed it, be it only to make something else; the next use makes it again.
    AfterEachUse,
}

/// A storage that cannot be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRepeatable {
    /// Its root.
    pub root: ValueId,
}

/// The order in which the storages `forgotten` (by root) are made again when they are needed. Uses in consecutive steps share
/// one making.
///
/// # Errors
/// [`NotRepeatable`] when making one again would repeat an effect, needs a value that was overwritten for good, or would
/// overwrite one that is still there.
pub fn recompute(program: &Program, forgotten: &BTreeMap<ValueId, Forget>) -> Result<Recomputation, NotRepeatable> {
    recompute_within(program, forgotten, usize::MAX)
}

/// The same, but refused as soon as the order has more than `most` runs: long chains that are made again after each use
/// grow with the square of their length.
pub(crate) fn recompute_within(
    program: &Program,
    forgotten: &BTreeMap<ValueId, Forget>,
    most: usize,
) -> Result<Recomputation, NotRepeatable> {
    let mut walk = Walk { most, ..Walk::new(program, forgotten) };
    for (step, &node) in program.order.iter().enumerate() {
        walk.step = step;
        for &value in &program.graph.node(node).inputs {
            walk.ensure(value)?;
        }
        walk.run(node);
        walk.forget(step, node);
    }
    Ok(Recomputation { order: walk.order, drops: walk.drops })
}

/// Those of `roots` that can be made again when all of them are forgotten. What cannot be is found by walking on as if it
/// had been kept, until a walk meets nothing more.
pub(crate) fn repeatable(program: &Program, roots: impl Iterator<Item = ValueId>) -> BTreeSet<ValueId> {
    let mut forgotten: BTreeMap<ValueId, Forget> = roots.map(|root| (root, Forget::Once)).collect();
    loop {
        let refused = refused(program, &forgotten);
        if refused.is_empty() {
            return forgotten.into_keys().collect();
        }
        forgotten.retain(|root, _| !refused.contains(root));
    }
}

/// The forgotten storages for want of which a walk cannot go on.
fn refused(program: &Program, forgotten: &BTreeMap<ValueId, Forget>) -> BTreeSet<ValueId> {
    let mut walk = Walk::new(program, forgotten);
    let mut refused = BTreeSet::new();
    for (step, &node) in program.order.iter().enumerate() {
        walk.step = step;
        for &value in &program.graph.node(node).inputs {
            while let Err(NotRepeatable { root }) = walk.ensure(value) {
                // What is no choice of ours was overwritten: then it is the value made of it that must stay.
                let wanted = program.aliases.root(value);
                let stays = if forgotten.contains_key(&root) && !refused.contains(&root) { root } else { wanted };
                let first = forgotten.contains_key(&stays) && refused.insert(stays);
                walk.keep(if first { stays } else { wanted });
                walk.present[value.index()] |= !first || stays == wanted;
            }
        }
        walk.run(node);
        walk.forget(step, node);
    }
    refused
}

struct Walk<'a> {
    program: &'a Program,
    /// Runs that the order may have.
    most: usize,
    /// By value: who makes it.
    producer: Vec<Option<NodeId>>,
    /// By root: the values of the storage.
    values: Vec<Vec<ValueId>>,
    /// By root: the steps after which its values are gone.
    gone_after: Vec<Vec<usize>>,
    /// By root: the steps of the plain order that use it.
    uses: Vec<Vec<usize>>,
    /// By root: whether it is forgotten after each use.
    each: Vec<bool>,
    /// By value: the last step of the plain order that uses it.
    last_use: Vec<usize>,
    /// The step of the plain order that is next.
    step: usize,
    /// Storages made again for the present step.
    remade: Vec<ValueId>,
    /// By value: whether its bytes are there.
    present: Vec<bool>,
    /// By root: the values that were there when it left.
    gone: Vec<Vec<ValueId>>,
    /// By root: whether the next write begins a new life.
    left: Vec<bool>,
    runs: Vec<u16>,
    order: Vec<Use>,
    drops: BTreeMap<(ValueId, Use), Residency>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, forgotten: &BTreeMap<ValueId, Forget>) -> Self {
        let (graph, aliases) = (&program.graph, &program.aliases);
        let n = graph.values().len();
        let (mut producer, mut values) = (vec![None; n], vec![Vec::new(); n]);
        for id in graph.node_ids() {
            graph.node(id).outputs.iter().for_each(|value| producer[value.index()] = Some(id));
        }
        graph.value_ids().for_each(|value| values[aliases.root(value).index()].push(value));
        let uses = uses(program);
        let mut each = vec![false; n];
        let roots = forgotten.iter().filter(|(_, forget)| **forget == Forget::AfterEachUse);
        roots.for_each(|(root, _)| each[root.index()] = true);
        Walk {
            program,
            most: usize::MAX,
            present: producer.iter().map(Option::is_none).collect(),
            producer,
            values,
            gone_after: departures(program, forgotten, &uses),
            uses,
            last_use: last_uses(program),
            step: 0,
            each,
            remade: Vec::new(),
            gone: vec![Vec::new(); n],
            left: vec![false; n],
            runs: vec![0; graph.nodes().len()],
            order: Vec::with_capacity(program.order.len()),
            drops: BTreeMap::new(),
        }
    }

    /// Makes a value again unless it is there, what it is made from first.
    fn ensure(&mut self, value: ValueId) -> Result<(), NotRepeatable> {
        let mut wanted = vec![value];
        let mut turns = 0;
        while let Some(&value) = wanted.last() {
            if self.present[value.index()] {
                wanted.pop();
                continue;
            }
            let node = self.producer[value.index()].ok_or_else(|| self.refuse(value))?;
            let missing = self.program.graph.node(node).inputs.iter().find(|input| !self.present[input.index()]);
            // A chain visits every value once; more turns mean that making one input destroys another.
            turns += 1;
            if turns > 2 * self.present.len() {
                return Err(self.refuse(value));
            }
            match missing {
                Some(&input) => wanted.push(input),
                None => self.repeat(node)?,
            }
        }
        Ok(())
    }

    fn refuse(&self, value: ValueId) -> NotRepeatable {
        NotRepeatable { root: self.program.aliases.root(value) }
    }

    /// Runs a node again if that repeats no effect and overwrites nothing that is there and has a use to come but what it
    /// reads, by whatever name.
    fn repeat(&mut self, id: NodeId) -> Result<(), NotRepeatable> {
        let node = self.program.graph.node(id);
        for &output in &node.outputs {
            let root = self.program.aliases.root(output);
            let own = node.inputs.iter().filter(|&&input| self.program.aliases.root(input) == root);
            let own: Vec<Range<Bytes>> = own.map(|&input| self.span(input)).collect();
            let read = |span: Range<Bytes>| own.iter().any(|own| own.start <= span.start && span.end <= own.end);
            // What is there is made as it was: what lies with it holds the same bytes.
            let there = self.present[output.index()];
            let needed = |other: &ValueId| self.last_use[other.index()] >= self.step;
            let mut taken = self.overwritten(node, output).filter(needed);
            let taken = !there && taken.any(|other| !read(self.span(other)));
            if taken || node.op.has_effect() || self.order.len() >= self.most {
                return Err(self.refuse(output));
            }
        }
        self.remade.extend(node.outputs.iter().map(|&output| self.program.aliases.root(output)));
        self.run(id);
        Ok(())
    }

    /// One run: outputs are there, what they were written over is not.
    fn run(&mut self, id: NodeId) {
        let node = self.program.graph.node(id);
        let u = Use { node: id, run: self.runs[id.index()] };
        self.runs[id.index()] += 1;
        self.order.push(u);
        for &output in &node.outputs {
            let root = self.program.aliases.root(output);
            // A mask that another output's making brings along need not have waited for it.
            let there = std::mem::replace(&mut self.present[output.index()], true);
            let brought = there && self.values[root.index()] == [output];
            if !there {
                let gone: Vec<ValueId> = self.overwritten(node, output).filter(|&other| other != output).collect();
                gone.into_iter().for_each(|other| self.present[other.index()] = false);
            }
            if std::mem::replace(&mut self.left[root.index()], false) || brought {
                self.gone[root.index()].clear();
                self.drops.insert((root, u), Residency::Drop);
            }
        }
    }

    /// Lets go of the storages that leave after this step.
    fn forget(&mut self, step: usize, node: NodeId) {
        let node = self.program.graph.node(node);
        for &value in node.inputs.iter().chain(&node.outputs) {
            let root = self.program.aliases.root(value).index();
            if self.gone_after[root].contains(&step) {
                self.leave(root);
            }
        }
        // What was made only to make something else of it waits for its own use elsewhere.
        for root in std::mem::take(&mut self.remade) {
            let uses = &self.uses[root.index()];
            let next = uses.get(uses.partition_point(|&used| used < step));
            if self.each[root.index()] && next.is_none_or(|&next| next > step + 1) {
                self.leave(root.index());
            }
        }
    }

    fn leave(&mut self, root: usize) {
        self.left[root] = true;
        for &value in &self.values[root] {
            if std::mem::replace(&mut self.present[value.index()], false) {
                self.gone[root].push(value);
            }
        }
    }

    /// Goes on as if a storage had not left.
    fn keep(&mut self, root: ValueId) {
        self.left[root.index()] = false;
        let back = std::mem::take(&mut self.gone[root.index()]);
        back.into_iter().for_each(|value| self.present[value.index()] = true);
    }

    /// Values that are there and that writing `output` destroys.
    fn overwritten(&self, node: &Node, output: ValueId) -> impl Iterator<Item = ValueId> {
        let neighbours = self.values[self.program.aliases.root(output).index()].iter().copied();
        neighbours.filter(move |&other| self.present[other.index()] && self.destroys(node, output, other))
    }

    /// Whether writing `output` leaves `other` with other bytes. What lies in place already, a part of a concatenation or a
    /// split or a view, is not written.
    fn destroys(&self, node: &Node, output: ValueId, other: ValueId) -> bool {
        let (whole, touched) = (self.program.aliases.location(output), self.span(other));
        let meets = |span: &Range<Bytes>| span.start < touched.end && touched.start < span.end;
        match node.op {
            Op::Concat(_) => {
                let mut start = whole.offset;
                node.inputs.iter().any(|&part| {
                    let from = start;
                    start += self.row_bytes(part);
                    let place = self.program.aliases.location(part);
                    (place.root, place.offset) != (whole.root, from) && meets(&(from..start))
                })
            }
            Op::Split(_) => {
                let source = self.program.aliases.location(node.inputs[0]);
                let before = node.outputs.iter().take_while(|&&part| part != output);
                let from = source.offset + before.map(|&part| self.row_bytes(part)).sum::<Bytes>();
                (source.root, from) != (whole.root, whole.offset) && meets(&self.span(output))
            }
            _ if node.op.is_view() => {
                let source = self.program.aliases.location(node.inputs[0]);
                (source.root, source.offset) != (whole.root, whole.offset) && meets(&self.span(output))
            }
            _ => meets(&self.span(output)),
        }
    }

    /// The bytes of a value in each row of its storage: a sample's, or a pixel's where channels are innermost.
    fn span(&self, value: ValueId) -> Range<Bytes> {
        let start = self.program.aliases.location(value).offset;
        start..start + self.row_bytes(value)
    }

    fn row_bytes(&self, value: ValueId) -> Bytes {
        let ty = &self.program.graph.value(value).ty;
        ty.bytes() / ty.rows().max(1)
    }
}

/// By root: the steps after which a storage's values are gone though they are read later, or for good while others may be
/// made again from them.
fn departures(program: &Program, forgotten: &BTreeMap<ValueId, Forget>, uses: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let graph = &program.graph;
    let forward = |step: usize| graph.node(program.order[step]).phase == Phase::Forward;
    let of_root = |root: ValueId| {
        let uses = &uses[root.index()];
        if crate::homes::is_home(graph.value(root).role) {
            return Vec::new();
        }
        let ends: Vec<usize> = uses.iter().copied().rfind(|&step| forward(step)).into_iter().collect();
        match forgotten.get(&root) {
            Some(Forget::Once) => ends,
            Some(Forget::AfterEachUse) => {
                let idle = |pair: &[usize]| !forward(pair[0]) && pair[1] > pair[0] + 1;
                ends.into_iter().chain(uses.windows(2).filter(|pair| idle(pair)).map(|pair| pair[0])).collect()
            }
            None if uses.last() == ends.last() => ends,
            None => Vec::new(),
        }
    };
    graph.value_ids().map(of_root).collect()
}

/// By value: the last step of the plain order that reads or writes it.
fn last_uses(program: &Program) -> Vec<usize> {
    let mut last = vec![0; program.graph.values().len()];
    for (step, &id) in program.order.iter().enumerate() {
        let node = program.graph.node(id);
        node.inputs.iter().chain(&node.outputs).for_each(|value| last[value.index()] = step);
    }
    last
}

/// By root: the steps of the plain order that use a storage.
fn uses(program: &Program) -> Vec<Vec<usize>> {
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); program.graph.values().len()];
    for (step, &id) in program.order.iter().enumerate() {
        let node = program.graph.node(id);
        for &value in node.inputs.iter().chain(&node.outputs) {
            let uses = &mut uses[program.aliases.root(value).index()];
            if uses.last() != Some(&step) {
                uses.push(step);
            }
        }
    }
    uses
}
