//! When each storage is used: accesses per step, and the gaps between them.
//!
//! Input: a program and an execution order (with recomputed runs). Output: for every storage that does not stay at home, its
//! accesses in time order; a gap is a pair of consecutive accesses. What streams has one more gap, which wraps around the
//! iteration: from its last use to the first of the next. Not done here: deciding anything about a gap.

use crate::homes::is_home;
use crate::takeover::{Takeover, takeovers, undivided};
use crate::{HomeLayout, Problem};
use vdnn_graph::{Program, Step, Use, ValueId};

/// One step's use of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When.
    pub step: Step,
    /// Whether the step reads any of it.
    pub reads: bool,
    /// Whether the step writes any of it.
    pub writes: bool,
}

/// The stretch between two consecutive uses of a storage: the paper's reuse distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The storage.
    pub root: ValueId,
    /// The use that begins the gap.
    pub from: Access,
    /// The use that ends it.
    pub to: Access,
    /// The last step of the iteration up to `from` that wrote the storage. A copy made since then still holds its bytes.
    pub written: Option<Step>,
}

impl Gap {
    /// True for the gap from the last use of an iteration to the first of the next.
    pub fn wraps(&self) -> bool {
        self.to.step <= self.from.step
    }
}

/// Accesses of every storage of a program under one order.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// Of all storages, one after the other.
    accesses: Vec<Access>,
    /// By root: where its accesses begin, and how many there are.
    spans: Vec<(u32, u32)>,
    roots: Vec<ValueId>,
    /// Roots of what streams.
    streamed: Vec<ValueId>,
    /// Where one storage may take over the bytes of another one, if that ends there.
    takeovers: Vec<(Step, Takeover)>,
}

/// The storages that each node uses, what stays at home left out: the same under all orders of a program.
#[derive(Clone, Debug)]
pub(crate) struct Operands {
    /// By node: where its operands begin, with the end of the last at the end.
    starts: Vec<u32>,
    /// Of all nodes, each storage once.
    operands: Vec<Operand>,
    /// By node: its storages that may take over others, by where they begin, with the end of the last at the end.
    first_pairs: Vec<u32>,
    pairs: Vec<Takeover>,
    /// By value: whether it is a persistent one.
    home: Vec<bool>,
}

/// A storage that a node uses.
#[derive(Clone, Copy, Debug)]
struct Operand {
    root: ValueId,
    reads: bool,
    writes: bool,
}

impl Operands {
    /// Those of a program, with what streams under these homes.
    pub fn of(program: &Program, homes: &HomeLayout) -> Self {
        let graph = &program.graph;
        let home: Vec<bool> = graph.values().iter().map(|value| is_home(value.role)).collect();
        let mut stays = home.clone();
        for persistent in graph.persistents() {
            stays[persistent.initial.index()] = !homes.streams(&graph.value(persistent.initial).name);
        }
        let (mut starts, mut operands) = (vec![0], Vec::<Operand>::new());
        let (mut first_pairs, mut pairs, undivided) = (vec![0], Vec::new(), undivided(program));
        for node in graph.nodes() {
            let first = operands.len();
            let reads = node.inputs.iter().map(|&id| (id, true));
            for (value, read) in reads.chain(node.outputs.iter().map(|&id| (id, false))) {
                let root = program.aliases.root(value);
                if let Some(known) = operands[first..].iter_mut().find(|operand| operand.root == root) {
                    known.reads |= read;
                    known.writes |= !read;
                } else if !stays[root.index()] {
                    operands.push(Operand { root, reads: read, writes: !read });
                }
            }
            starts.push(operands.len() as u32);
            pairs.extend(takeovers(program, node, &undivided));
            first_pairs.push(pairs.len() as u32);
        }
        Operands { starts, operands, first_pairs, pairs, home }
    }

    /// Where storages may take over others under an order. In that of the program what may share bytes does so in every order.
    fn takeovers(&self, order: &[Use]) -> Vec<(Step, Takeover)> {
        if order.len() < self.starts.len() {
            return Vec::new();
        }
        let of = |u: &Use| {
            let node = u.node.index();
            &self.pairs[self.first_pairs[node] as usize..self.first_pairs[node + 1] as usize]
        };
        (0..).map(Step).zip(order).flat_map(|(step, u)| of(u).iter().map(move |&pair| (step, pair))).collect()
    }

    fn of_node(&self, u: &Use) -> &[Operand] {
        let node = u.node.index();
        &self.operands[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

impl Liveness {
    /// Finds the accesses of `program`'s storages under `order` when everything persistent stays at home.
    pub fn analyse(program: &Program, order: &[Use]) -> Self {
        Self::with_homes(program, order, &HomeLayout::default())
    }

    /// Finds the accesses of a problem's storages under `order`.
    pub fn of(problem: &Problem<'_>, order: &[Use]) -> Self {
        Self::with_homes(problem.program, order, problem.homes)
    }

    fn with_homes(program: &Program, order: &[Use], homes: &HomeLayout) -> Self {
        Self::under(&Operands::of(program, homes), order)
    }

    /// Finds the accesses under `order` of storages whose users are known.
    pub(crate) fn under(operands: &Operands, order: &[Use]) -> Self {
        // Each operand one access: room for that is found by counting first.
        let mut spans = vec![(0u32, 0u32); operands.home.len()];
        let mut count = 0u32;
        order.iter().flat_map(|u| operands.of_node(u)).for_each(|operand| spans[operand.root.index()].1 += 1);
        for span in &mut spans {
            (span.0, count, span.1) = (count, count + span.1, 0);
        }
        let nothing = Access { step: Step(0), reads: false, writes: false };
        let mut accesses = vec![nothing; count as usize];
        for (index, u) in order.iter().enumerate() {
            for &Operand { root, reads, writes } in operands.of_node(u) {
                let (start, len) = &mut spans[root.index()];
                accesses[(*start + *len) as usize] = Access { step: Step(index as u32), reads, writes };
                *len += 1;
            }
        }
        let roots: Vec<ValueId> =
            (0..).map(ValueId).zip(&spans).filter(|(_, span)| span.1 > 0).map(|(id, _)| id).collect();
        let streamed = roots.iter().copied().filter(|&root| operands.home[root.index()]).collect();
        let takeovers = operands.takeovers(order);
        Liveness { accesses, spans, roots, streamed, takeovers }
    }

    /// Roots of all storages used, in id order.
    pub fn roots(&self) -> &[ValueId] {
        &self.roots
    }

    /// A storage's accesses in time order.
    pub fn accesses(&self, root: ValueId) -> &[Access] {
        let (start, len) = self.spans[root.index()];
        &self.accesses[start as usize..(start + len) as usize]
    }

    /// Where one storage may take over the bytes of another one, if that ends there, in time order.
    pub(crate) fn takeovers(&self) -> &[(Step, Takeover)] {
        &self.takeovers
    }

    /// Roots of the storages whose homes are in host memory, in id order.
    pub fn streamed(&self) -> &[ValueId] {
        &self.streamed
    }

    /// The gap of a storage that streams which wraps around the iteration.
    pub fn wrap(&self, root: ValueId) -> Option<Gap> {
        self.streamed.binary_search(&root).ok()?;
        let accesses = self.accesses(root);
        let (to, from) = (*accesses.first()?, *accesses.last()?);
        let written = accesses.iter().rfind(|access| access.writes).map(|access| access.step);
        Some(Gap { root, from, to, written })
    }

    /// A storage's gaps within the iteration, in time order.
    pub fn gaps(&self, root: ValueId) -> impl Iterator<Item = Gap> + '_ {
        self.accesses(root).windows(2).scan(None, move |written, pair| {
            *written = pair[0].writes.then_some(pair[0].step).or(*written);
            Some(Gap { root, from: pair[0], to: pair[1], written: *written })
        })
    }
}
