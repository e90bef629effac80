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

mod destroyed;
mod span;

use self::span::Span;
use crate::Residency;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::{NodeId, Phase, Program, Use, ValueId};
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
    /// To a step that needed it, be it only to make something else, after which its next use is more than so many steps of
    /// the program away.
    WhenIdle(u32),
    /// The same, but made again before step `from` of the program already for the use that comes next then.
    Ahead {
        /// A step before the first use that needs it again, at most `idle` steps.
        from: u32,
        /// Steps without a use after which it is forgotten.
        idle: u32,
    },
}

/// Which of several missing inputs is made again first; it then waits while the others are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum First {
    /// What was made first in forward.
    #[default]
    Early,
    /// What is made of most bytes, so that nothing waits beside those: of a block with a downsampled branch that branch.
    Large,
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
    recompute_within(&Makers::of(program), forgotten, First::Early, usize::MAX)
}

/// The same, but refused as soon as the order has more than `most` runs: long chains that are made again after each use
/// grow with the square of their length.
pub(crate) fn recompute_within(
    makers: &Makers<'_>,
    forgotten: &BTreeMap<ValueId, Forget>,
    first: First,
    most: usize,
) -> Result<Recomputation, NotRepeatable> {
    let program = makers.program;
    let mut walk = Walk { first, most, ..Walk::new(makers, forgotten) };
    for (step, &node) in program.order.iter().enumerate() {
        walk.step = step;
        walk.ensure_ahead()?;
        for &value in &program.graph.node(node).inputs {
            walk.ensure(value)?;
        }
        walk.run(node);
        walk.forget(step, node);
    }
    let drops = walk.drops.into_iter().map(|key| (key, Residency::Drop)).collect();
    Ok(Recomputation { order: walk.order, drops })
}

/// Those of `roots` that can be made again when all of them are forgotten. What cannot be is found by walking on as if it
/// had been kept, until a walk meets nothing more.
pub(crate) fn repeatable(makers: &Makers<'_>, roots: impl Iterator<Item = ValueId>) -> BTreeSet<ValueId> {
    let mut forgotten: BTreeMap<ValueId, Forget> = roots.map(|root| (root, Forget::Once)).collect();
    loop {
        let refused = refused(makers, &forgotten);
        if refused.is_empty() {
            return forgotten.into_keys().collect();
        }
        forgotten.retain(|root, _| !refused.contains(root));
    }
}

/// The forgotten storages for want of which a walk cannot go on.
fn refused(makers: &Makers<'_>, forgotten: &BTreeMap<ValueId, Forget>) -> BTreeSet<ValueId> {
    let program = makers.program;
    let mut walk = Walk::new(makers, forgotten);
    walk.gone = vec![Vec::new(); program.graph.values().len()];
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

/// Who makes each value of a program and who uses it when: what all walks over it share.
pub(crate) struct Makers<'a> {
    program: &'a Program,
    /// By value: who makes it, and in which step of the plain order.
    producer: Vec<Option<NodeId>>,
    made_at: Vec<u32>,
    /// By value: bytes of the storages that its producer reads.
    made_of: Vec<Bytes>,
    /// By root: the values of the storage.
    values: Vec<Vec<ValueId>>,
    /// By root: the steps of the plain order that use it.
    uses: Vec<Vec<u32>>,
    /// By root: its last use in forward, and whether there is none after it. [`NEVER`] for what is at home.
    forward_end: Vec<(u32, bool)>,
    /// By value: the last step of the plain order that uses it.
    last_use: Vec<u32>,
    /// By value: what it covers of its storage.
    spans: Vec<Span>,
    /// By value: the others that writing it destroys.
    destroyed: Vec<Vec<ValueId>>,
}

/// No step.
const NEVER: u32 = u32::MAX;

impl<'a> Makers<'a> {
    /// Looks through a program once.
    pub fn of(program: &'a Program) -> Self {
        let (graph, aliases) = (&program.graph, &program.aliases);
        let n = graph.values().len();
        let (mut producer, mut values) = (vec![None; n], vec![Vec::new(); n]);
        for id in graph.node_ids() {
            graph.node(id).outputs.iter().for_each(|value| producer[value.index()] = Some(id));
        }
        let (mut made_at, mut made_of) = (vec![0; n], vec![0; n]);
        for (step, &id) in program.order.iter().enumerate() {
            let node = graph.node(id);
            let read = node.inputs.iter().map(|&input| aliases.storage_bytes(aliases.root(input))).sum();
            for value in &node.outputs {
                (made_at[value.index()], made_of[value.index()]) = (step as u32, read);
            }
        }
        graph.value_ids().for_each(|value| values[aliases.root(value).index()].push(value));
        let uses = uses(program);
        let forward_end = graph.value_ids().map(|root| forward_end(program, root, &uses[root.index()])).collect();
        let span = |value: ValueId| {
            let place = aliases.location(value);
            Span::at(place.offset, &graph.value(value).ty, &graph.value(place.root).ty)
        };
        let (last_use, spans) = (last_uses(program), graph.value_ids().map(span).collect());
        let destroyed = Vec::new();
        let mut makers =
            Makers { program, producer, made_at, made_of, values, uses, forward_end, last_use, spans, destroyed };
        makers.destroyed = graph.value_ids().map(|output| makers.destroyed_by(output)).collect();
        makers
    }

    /// What a value covers of its storage.
    fn span(&self, value: ValueId) -> &Span {
        &self.spans[value.index()]
    }

    /// The next use of a storage from a step of the plain order on.
    fn next_use(&self, root: ValueId, from: usize) -> Option<usize> {
        let uses = &self.uses[root.index()];
        uses.get(uses.partition_point(|&used| (used as usize) < from)).map(|&used| used as usize)
    }
}

struct Walk<'a> {
    makers: &'a Makers<'a>,
    program: &'a Program,
    first: First,
    /// Runs that the order may have.
    most: usize,
    /// By root: the step after its last use in forward, where its values are gone then though they are read later, or for
    /// good while others may be made again from them.
    leaves: Vec<u32>,
    /// By root: after how many steps without a use it is forgotten again, [`NEVER`] if it is not.
    patience: Vec<u32>,
    /// By step: roots of what is made again before it, though it is used later.
    ahead: BTreeMap<usize, Vec<ValueId>>,
    /// The step of the plain order that is next.
    step: usize,
    /// Storages made again for the present step.
    remade: Vec<ValueId>,
    /// By value: whether its bytes are there.
    present: Vec<bool>,
    /// By root: the values that were there when it left, where that is asked for.
    gone: Vec<Vec<ValueId>>,
    /// By root: whether the next write begins a new life.
    left: Vec<bool>,
    runs: Vec<u16>,
    order: Vec<Use>,
    drops: Vec<(ValueId, Use)>,
    /// What [`Walk::make`] makes: kept to be filled again.
    wanted: Vec<ValueId>,
}

impl<'a> Walk<'a> {
    fn new(makers: &'a Makers<'a>, forgotten: &BTreeMap<ValueId, Forget>) -> Self {
        let program = makers.program;
        let n = program.graph.values().len();
        let mut patience = vec![NEVER; n];
        let mut ahead: BTreeMap<usize, Vec<ValueId>> = BTreeMap::new();
        let mut leaves: Vec<u32> =
            makers.forward_end.iter().map(|&(end, dies)| if dies { end } else { NEVER }).collect();
        for (root, &forget) in forgotten {
            let stays = crate::homes::is_home(program.graph.value(*root).role);
            patience[root.index()] = match forget {
                _ if stays => NEVER,
                Forget::Once => NEVER,
                Forget::AfterEachUse => 1,
                Forget::WhenIdle(steps) | Forget::Ahead { idle: steps, .. } => steps.clamp(1, NEVER - 1),
            };
            if let Forget::Ahead { from, .. } = forget {
                ahead.entry(from as usize).or_default().push(*root);
            }
            leaves[root.index()] = makers.forward_end[root.index()].0;
        }
        Walk {
            makers,
            program,
            first: First::Early,
            most: usize::MAX,
            present: makers.producer.iter().map(Option::is_none).collect(),
            leaves,
            step: 0,
            patience,
            ahead,
            remade: Vec::new(),
            gone: Vec::new(),
            left: vec![false; n],
            runs: vec![0; program.graph.nodes().len()],
            order: Vec::with_capacity(2 * program.order.len()),
            drops: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// Makes again what is to be there by now though a later step reads it.
    fn ensure_ahead(&mut self) -> Result<(), NotRepeatable> {
        for root in self.ahead.remove(&self.step).unwrap_or_default() {
            let Some(next) = self.makers.next_use(root, self.step) else { continue };
            let inputs = &self.program.graph.node(self.program.order[next]).inputs;
            for &value in inputs.iter().filter(|&&value| self.program.aliases.root(value) == root) {
                self.ensure(value)?;
            }
        }
        Ok(())
    }

    /// Makes a value again unless it is there, as most are.
    #[inline]
    fn ensure(&mut self, value: ValueId) -> Result<(), NotRepeatable> {
        if self.present[value.index()] { Ok(()) } else { self.make(value) }
    }

    /// Makes a value again, what it is made from first.
    fn make(&mut self, value: ValueId) -> Result<(), NotRepeatable> {
        self.wanted.clear();
        self.wanted.push(value);
        let mut turns = 0;
        while let Some(&value) = self.wanted.last() {
            if self.present[value.index()] {
                self.wanted.pop();
                continue;
            }
            let node = self.makers.producer[value.index()].ok_or_else(|| self.refuse(value))?;
            let missing = self.program.graph.node(node).inputs.iter().filter(|input| !self.present[input.index()]);
            let missing = missing.min_by_key(|input| self.turn(**input));
            // A chain visits every value once; more turns mean that making one input destroys another.
            turns += 1;
            if turns > 2 * self.present.len() {
                return Err(self.refuse(value));
            }
            match missing {
                Some(&input) => self.wanted.push(input),
                None => self.repeat(node)?,
            }
        }
        Ok(())
    }

    /// What is least is made first: in the order of the program, so that little waits for it.
    fn turn(&self, value: ValueId) -> (Reverse<Bytes>, u32) {
        let large = if self.first == First::Large { self.makers.made_of[value.index()] } else { 0 };
        (Reverse(large), self.makers.made_at[value.index()])
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
            let span = |value: ValueId| self.makers.span(value);
            let read = |value: ValueId| own.clone().any(|&input| span(input).holds(span(value)));
            // What is there is made as it was: what lies with it holds the same bytes.
            let there = self.present[output.index()];
            let needed = |other: usize| self.present[other] && self.makers.last_use[other] as usize >= self.step;
            let mut destroyed = self.makers.destroyed[output.index()].iter();
            let taken = !there && destroyed.any(|&other| needed(other.index()) && !read(other));
            if taken || node.op.has_effect() || self.order.len() >= self.most {
                return Err(self.refuse(output));
            }
        }
        let outputs = node.outputs.iter().map(|&output| self.program.aliases.root(output));
        self.remade.extend(outputs.filter(|root| self.patience[root.index()] != NEVER));
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
            let alone = self.makers.values[root.index()] == [output];
            let brought = there && alone;
            if !there && !alone {
                let destroyed = self.makers.destroyed[output.index()].iter();
                destroyed.for_each(|other| self.present[other.index()] = false);
            }
            if std::mem::replace(&mut self.left[root.index()], false) || brought {
                self.gone.get_mut(root.index()).into_iter().for_each(Vec::clear);
                self.drops.push((root, u));
            }
        }
    }

    /// Lets go of the storages that leave after this step.
    fn forget(&mut self, step: usize, node: NodeId) {
        let node = self.program.graph.node(node);
        let forward = node.phase == Phase::Forward;
        // Idle for longer than it may be.
        let idle = |walk: &Self, root: ValueId| {
            let patience = walk.patience[root.index()];
            let next = || walk.makers.next_use(root, step + 1);
            patience != NEVER && next().is_some_and(|next| next > step + patience as usize)
        };
        for &value in node.inputs.iter().chain(&node.outputs) {
            let root = self.program.aliases.root(value);
            let at = root.index();
            if self.leaves[at] as usize == step || (!forward && idle(self, root)) {
                self.leave(at);
            }
        }
        // What was made only to make something else of it waits for its own use elsewhere.
        let mut remade = std::mem::take(&mut self.remade);
        for root in remade.drain(..) {
            let patience = self.patience[root.index()] as usize;
            if self.makers.next_use(root, step).is_none_or(|next| next > step + patience) {
                self.leave(root.index());
            }
        }
        self.remade = remade;
    }

    fn leave(&mut self, root: usize) {
        self.left[root] = true;
        for &value in &self.makers.values[root] {
            let there = std::mem::replace(&mut self.present[value.index()], false);
            if there && let Some(gone) = self.gone.get_mut(root) {
                gone.push(value);
            }
        }
    }

    /// Goes on as if a storage had not left.
    fn keep(&mut self, root: ValueId) {
        self.left[root.index()] = false;
        let back = std::mem::take(&mut self.gone[root.index()]);
        back.into_iter().for_each(|value| self.present[value.index()] = true);
    }
}

/// The last use in forward of a storage that is used at `uses`, and whether it is the last of all.
fn forward_end(program: &Program, root: ValueId, uses: &[u32]) -> (u32, bool) {
    let forward = |step: u32| program.graph.node(program.order[step as usize]).phase == Phase::Forward;
    let end = uses.iter().copied().rfind(|&step| forward(step));
    match end.filter(|_| !crate::homes::is_home(program.graph.value(root).role)) {
        Some(end) => (end, uses.last() == Some(&end)),
        None => (NEVER, false),
    }
}

/// By value: the last step of the plain order that reads or writes it.
fn last_uses(program: &Program) -> Vec<u32> {
    let mut last = vec![0; program.graph.values().len()];
    for (step, &id) in program.order.iter().enumerate() {
        let node = program.graph.node(id);
        node.inputs.iter().chain(&node.outputs).for_each(|value| last[value.index()] = step as u32);
    }
    last
}

/// By root: the steps of the plain order that use a storage.
fn uses(program: &Program) -> Vec<Vec<u32>> {
    let mut uses: Vec<Vec<u32>> = vec![Vec::new(); program.graph.values().len()];
    for (step, &id) in program.order.iter().enumerate() {
        let node = program.graph.node(id);
        for &value in node.inputs.iter().chain(&node.outputs) {
            let uses = &mut uses[program.aliases.root(value).index()];
            if uses.last() != Some(&(step as u32)) {
                uses.push(step as u32);
            }
        }
    }
    uses
}
