//! What a policy is given: the program, its gaps, what kernels and copies cost, and the budgets.

use crate::takeover::{most_bytes, undivided};
use crate::{Gap, HomeLayout, Liveness, MemoryPlan, Placement, VariantId};
use std::collections::BTreeMap;
use vdnn_graph::{LayerId, NodeId, Phase, Program, Role, Step, ValueId};
use vdnn_schedule::{Choice, KernelTable};
use vdnn_sim::Links;
use vdnn_tensor::Bytes;

/// When offloaded bytes are brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// The paper's rule: at the backward of layer c, the nearest earlier layer that was offloaded, stopping at a
    /// convolution that was not.
    Paper,
    /// When the backward of the layer n layers before the need begins.
    Lookahead(u32),
    /// As late as the copy, after the copies before it, can still be done in time by the cost model.
    Cost,
}

/// How streams wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The paper's rule: at the end of each layer that started a copy, all streams join.
    PerLayer,
    /// Each copy waits for its data, and only who needs the copy's result waits for it.
    Events,
}

/// Where parameters and states have their homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// On the device, always.
    Device,
    /// On the device, but a policy that can may have some stream from host memory (`hybrid`).
    #[default]
    Auto,
    /// In host memory, all that are at least as large as the least offload.
    Host,
}

/// Choices of method that hold for every policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// When bytes come back.
    pub prefetch: Prefetch,
    /// How streams wait.
    pub sync: Sync,
    /// How addresses are found.
    pub placement: Placement,
    /// Storages smaller than this stay.
    pub min_offload: Bytes,
    /// Workspace up to which an algorithm counts as memory-optimal (m).
    pub memory_optimal_workspace: Bytes,
    /// Where parameters and states live between iterations.
    pub state: State,
    /// Every buffer's offset is a multiple of this.
    pub alignment: Bytes,
}

impl Default for Options {
    /// Cost-based prefetch, event-based waits, planned addresses, 1 MiB least offload, (m) within 16 MiB, 256-byte
    /// alignment.
    fn default() -> Self {
        Options {
            prefetch: Prefetch::Cost,
            sync: Sync::Events,
            placement: Placement::Planned,
            min_offload: 1 << 20,
            memory_optimal_workspace: 16 << 20,
            state: State::Auto,
            alignment: 256,
        }
    }
}

/// Upper limits in bytes. `None` is no limit, but no disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Extent of the device arena.
    pub device: Option<Bytes>,
    /// Extent of the pinned host arena.
    pub host: Option<Bytes>,
    /// Extent of the file in which what the host budget does not hold may rest. `None` is no such file.
    pub disk: Option<Bytes>,
}

/// The same iteration with gradient rules that read masks and indices (`vdnn_autograd::encode`): nodes and values have the
/// ids they have in the plain program, and losses and weights the same bits.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    /// What runs.
    pub program: &'a Program,
    /// What each of its kernels may run as, fastest first.
    pub kernels: &'a KernelTable,
}

/// One planning problem.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// What runs.
    pub program: &'a Program,
    /// What each kernel may run as, fastest first.
    pub kernels: &'a KernelTable,
    /// What copies cost.
    pub links: Links,
    /// Where persistent values live. What has its home in host memory here streams under every policy.
    pub homes: &'a HomeLayout,
    /// The limits.
    pub budgets: Budgets,
    /// Choices of method.
    pub options: Options,
    /// What a policy may plan instead, as a whole; see [`Problem::of`].
    pub encoded: Option<Encoded<'a>>,
}

impl<'a> Problem<'a> {
    /// The problem a plan is for: with the encoded program if the plan names variants, else with the plain one. A plan's
    /// steps, storages and algorithms are those of this problem's program.
    pub fn of(&self, plan: &MemoryPlan) -> Problem<'a> {
        match self.with_encodings() {
            Some(encoded) if plan.is_encoded() => encoded,
            _ => self.plain(),
        }
    }

    /// Without the alternative.
    pub fn plain(&self) -> Problem<'a> {
        Problem { encoded: None, ..*self }
    }

    /// The alternative in place of the plain program, if there is one.
    pub fn with_encodings(&self) -> Option<Problem<'a>> {
        let Encoded { program, kernels } = self.encoded?;
        Some(Problem { program, kernels, encoded: None, ..*self })
    }

    /// What a plan for the alternative says of its gradient nodes: all of them are encoded.
    pub fn variants(&self) -> BTreeMap<NodeId, VariantId> {
        let Some(Encoded { program, .. }) = self.encoded else { return BTreeMap::new() };
        let (plain, encoded) = (self.program.graph.nodes(), program.graph.nodes());
        let pairs = program.graph.node_ids().zip(plain.iter().zip(encoded));
        let differ = pairs.filter(|(_, (plain, encoded))| plain.phase != Phase::Forward && plain.op != encoded.op);
        differ.map(|(id, _)| (id, VariantId::ENCODED)).collect()
    }

    /// Index of the fastest algorithm of every node: always the first of the table.
    pub const PERFORMANCE_OPTIMAL: usize = 0;

    /// Index of a node's memory-optimal algorithm: the fastest within the workspace limit, else the one that wants least.
    pub fn memory_optimal(&self, node: NodeId) -> usize {
        let choices = self.kernels.of(node);
        let limit = self.options.memory_optimal_workspace;
        choices.iter().position(|choice| choice.workspace <= limit).unwrap_or_else(|| {
            let least = choices.iter().enumerate().min_by_key(|(index, choice)| (choice.workspace, *index));
            least.map_or(0, |(index, _)| index)
        })
    }

    /// The choice a plan makes for a node.
    pub fn chosen(&self, plan: &MemoryPlan, node: NodeId) -> &Choice {
        let choice = self.kernels.get(node, plan.choice(node));
        choice.unwrap_or_else(|| panic!("{} has no such choice", self.program.graph.node(node).name))
    }

    /// Seconds of every step's kernel.
    pub(crate) fn step_seconds(&self, plan: &MemoryPlan) -> Vec<f64> {
        self.by_step(plan, |choice| choice.seconds)
    }

    /// What `of` says of every step's choice.
    pub(crate) fn by_step<T: Copy>(&self, plan: &MemoryPlan, of: impl Fn(&Choice) -> T) -> Vec<T> {
        let fastest = |node| self.kernels.of(node).first().or_else(|| self.kernels.pieces_of(node).first());
        let mut by_node: Vec<Option<T>> = self.program.graph.node_ids().map(|node| fastest(node).map(&of)).collect();
        for &node in plan.algos.keys() {
            by_node[node.index()] = Some(of(self.chosen(plan, node)));
        }
        let missing = |node| -> ! { panic!("{} has no such choice", self.program.graph.node(node).name) };
        plan.order.iter().map(|u| by_node[u.node.index()].unwrap_or_else(|| missing(u.node))).collect()
    }

    /// Start time of every step in seconds if kernels ran back to back, with the end of the last one at the end.
    pub fn step_starts(&self, plan: &MemoryPlan) -> Vec<f64> {
        let mut now = 0.0;
        let mut starts = Vec::with_capacity(plan.order.len() + 1);
        for seconds in self.step_seconds(plan) {
            starts.push(now);
            now += seconds;
        }
        starts.push(now);
        starts
    }

    /// The accesses of every storage in the plain order.
    pub fn liveness(&self) -> Liveness {
        Liveness::of(self, &MemoryPlan::keep_all(self.program).order)
    }

    /// The phase of a step in the plain order.
    pub fn phase(&self, step: Step) -> Phase {
        self.program.node_at(step).phase
    }

    /// Whether a gap of the plain order leads from forward to what follows it.
    pub(crate) fn crosses(&self, gap: &Gap) -> bool {
        self.phase(gap.from.step) == Phase::Forward && self.phase(gap.to.step) != Phase::Forward
    }

    /// The layer of a step in the plain order.
    pub fn layer(&self, step: Step) -> LayerId {
        self.program.node_at(step).layer
    }

    /// The most any single kernel needs by itself: its operands, its smallest workspace, and the homes that cannot be
    /// elsewhere. No plan without recomputation by pieces can stay below. With an alternative the lesser of both.
    pub fn floor_bound(&self) -> Bytes {
        let encoded = self.with_encodings().map_or(Bytes::MAX, |encoded| encoded.floor_bound());
        let operands = self.operand_bytes();
        let need = |id: NodeId| operands(id) + self.kernels.all(id).map(|choice| choice.workspace).min().unwrap_or(0);
        encoded.min(self.home_bytes() + self.program.graph.node_ids().map(need).max().unwrap_or(0))
    }

    /// What a node's operands hold while its kernel runs, by themselves: each storage once, less the most that its outputs may take
    /// over from its inputs.
    pub(crate) fn operand_bytes(&self) -> impl Fn(NodeId) -> Bytes + '_ {
        let undivided = undivided(self.program);
        move |id| {
            let all: Bytes = self.operands(id).into_iter().map(|root| self.program.aliases.storage_bytes(root)).sum();
            all - most_bytes(self.program, self.program.graph.node(id), &undivided)
        }
    }

    /// Bytes of homes that are on the device under every plan.
    pub(crate) fn home_bytes(&self) -> Bytes {
        if self.options.state == State::Auto { self.homes.fixed_bytes() } else { self.homes.extent() }
    }

    /// Whether a storage is on the device only when a plan has it there: it has no home, or one that is or may be elsewhere.
    pub(crate) fn may_leave(&self, root: ValueId) -> bool {
        let value = self.program.graph.value(root);
        let streams = || self.options.state == State::Auto || self.homes.streams(&value.name);
        !crate::homes::is_home(value.role) || (matches!(value.role, Role::Parameter | Role::State) && streams())
    }

    /// The storages a node's kernel needs on the device, those at home there not counted, each once.
    pub(crate) fn operands(&self, id: NodeId) -> Vec<ValueId> {
        let graph = &self.program.graph;
        let node = graph.node(id);
        let mut roots: Vec<_> =
            node.inputs.iter().chain(&node.outputs).map(|&v| self.program.aliases.root(v)).collect();
        roots.sort_unstable();
        roots.dedup();
        roots.retain(|&root| self.may_leave(root));
        roots
    }
}
