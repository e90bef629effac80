//! A small compiler of the tests' own: liveness, first fit, offload of what convolutions read, one recomputation.
//!
//! It shares nothing with the project's compiler, so that the two agree with the checks for different reasons.

use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::{NodeId, Op, Program, Role, Step, ValueId};
use vdnn_schedule::{
    Action, AlgoId, Arena, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Home,
    Region, Schedule, Space, StreamId, StreamRole,
};

const ALIGNMENT: u64 = 16;
const COMPUTE: StreamId = StreamId(0);
const OFFLOAD: StreamId = StreamId(1);
const PREFETCH: StreamId = StreamId(2);

/// What happens to a storage between its last forward and its first backward use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    Keep,
    Offload,
    Recompute,
}

struct Emitter<'a> {
    program: &'a Program,
    schedule: Schedule,
    /// The device buffer each storage lies in now, by root.
    now: Vec<Option<BufferId>>,
    /// Copies on the host, by root.
    copies: BTreeMap<ValueId, BufferId>,
    /// Steps that touch each storage.
    uses: Vec<Vec<usize>>,
    gaps: BTreeMap<ValueId, Gap>,
    /// Offloads whose buffer is still held: root, event.
    leaving: Vec<(ValueId, EventId)>,
    /// Prefetches under way: event, and the copy to free when it is done.
    arriving: BTreeMap<ValueId, (EventId, Option<BufferId>)>,
    /// States whose home is on the host: there before the first use and after the last.
    hosted: BTreeMap<ValueId, BufferId>,
    taken: BTreeMap<Space, BTreeMap<u64, u64>>,
    step: usize,
}

/// A schedule of the program. Every second storage that is idle for long is offloaded; `recompute` names a convolution
/// whose output (with the ReLU over it) is made again instead.
pub fn emit(program: &Program, recompute: Option<&str>) -> Schedule {
    let mut emitter = Emitter::new(program);
    emitter.homes();
    emitter.choose(recompute);
    for step in 0..program.order.len() {
        emitter.step = step;
        emitter.emit_step();
    }
    emitter.join();
    emitter.schedule.policy = "by hand".to_string();
    emitter.schedule
}

impl<'a> Emitter<'a> {
    fn new(program: &'a Program) -> Self {
        let graph = &program.graph;
        let mut uses = vec![Vec::new(); graph.values().len()];
        for (step, &node) in program.order.iter().enumerate() {
            let node = graph.node(node);
            let roots: BTreeSet<ValueId> =
                node.inputs.iter().chain(&node.outputs).map(|&id| program.aliases.root(id)).collect();
            roots.into_iter().for_each(|root| uses[root.index()].push(step));
        }
        let arena = |space| Arena { space, bytes: 0, budget: None, alignment: ALIGNMENT };
        let schedule = Schedule {
            format: FORMAT,
            name: graph.name.clone(),
            policy: String::new(),
            nodes: graph.nodes().iter().map(|node| node.name.clone()).collect(),
            values: graph.values().iter().map(|value| value.name.clone()).collect(),
            algorithms: vec!["direct".to_string(), "gemm".to_string()],
            arenas: vec![arena(Space::Device), arena(Space::Host)],
            buffers: Vec::new(),
            homes: Vec::new(),
            events: Vec::new(),
            streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch],
            commands: Vec::new(),
        };
        let now = vec![None; graph.values().len()];
        Emitter {
            program,
            schedule,
            now,
            copies: BTreeMap::new(),
            uses,
            gaps: BTreeMap::new(),
            leaving: Vec::new(),
            arriving: BTreeMap::new(),
            hosted: BTreeMap::new(),
            taken: BTreeMap::new(),
            step: 0,
        }
    }

    fn bytes(&self, root: ValueId) -> u64 {
        self.program.aliases.storage_bytes(root)
    }

    fn place(&mut self, name: String, space: Space, bytes: u64, kind: BufferKind, root: Option<ValueId>) -> BufferId {
        let taken = self.taken.entry(space).or_default();
        let mut offset = 0;
        for (&start, &end) in taken.iter() {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end.next_multiple_of(ALIGNMENT));
        }
        taken.insert(offset, offset + bytes.max(1));
        let arena = self.schedule.arenas.iter_mut().find(|arena| arena.space == space).unwrap();
        arena.bytes = arena.bytes.max(offset + bytes);
        self.schedule.buffers.push(Buffer { name, space, offset, bytes, kind, root });
        BufferId(self.schedule.buffers.len() as u32 - 1)
    }

    fn command(&mut self, stream: StreamId, action: Action) {
        let because = Cause::Step(Step(self.step as u32));
        self.schedule.commands.push(Command { stream, action, because });
    }

    fn event(&mut self, stream: StreamId, name: String) -> EventId {
        self.schedule.events.push(Event { name });
        let event = EventId(self.schedule.events.len() as u32 - 1);
        self.command(stream, Action::Record(event));
        event
    }

    fn homes(&mut self) {
        let graph = &self.program.graph;
        let mut homes: Vec<(ValueId, ValueId)> = graph.persistents().iter().map(|p| (p.initial, p.last)).collect();
        homes.extend(graph.metrics().iter().map(|&id| (id, id)));
        homes.extend(graph.value_ids().filter(|&id| graph.value(id).role == Role::Input).map(|id| (id, id)));
        for (initial, last) in homes {
            let name = graph.value(initial).name.clone();
            let hosted = name.ends_with("step.momentum") && initial.0 % 3 == 0;
            let space = if hosted { Space::Host } else { Space::Device };
            let buffer = self.place(name, space, self.bytes(initial), BufferKind::Home, Some(initial));
            if hosted {
                self.hosted.insert(initial, buffer);
            } else {
                self.now[initial.index()] = Some(buffer);
            }
            self.schedule.homes.push(Home { initial, last, buffer });
        }
    }

    /// The last use before and the first use after the longest idle stretch of a storage.
    fn idle(&self, root: ValueId) -> (usize, usize) {
        let pairs = self.uses[root.index()].windows(2).map(|pair| (pair[0], pair[1]));
        pairs.max_by_key(|(a, b)| b - a).unwrap_or((0, 0))
    }

    fn choose(&mut self, recompute: Option<&str>) {
        let graph = &self.program.graph;
        let convolved: Vec<ValueId> = (graph.nodes().iter())
            .filter(|node| matches!(node.op, Op::Conv2d(_)))
            .map(|node| self.program.aliases.root(node.inputs[0]))
            .collect();
        let drop = recompute.and_then(|name| graph.find_value(name)).map(|id| self.program.aliases.root(id));
        let mut offload = false;
        for root in convolved {
            let (from, to) = self.idle(root);
            if self.now[root.index()].is_some() || to - from < 12 {
                continue;
            }
            offload = !offload;
            self.gaps.insert(root, if offload { Gap::Offload } else { Gap::Keep });
        }
        if let Some(root) = drop {
            self.gaps.insert(root, Gap::Recompute);
        }
    }

    fn gap(&self, root: ValueId) -> Gap {
        self.gaps.get(&root).copied().unwrap_or(Gap::Keep)
    }

    fn region(&self, value: ValueId) -> Region {
        let location = self.program.aliases.location(value);
        let buffer = self.now[location.root.index()].unwrap();
        let (rows, row_bytes, row_stride) = (location.rows, location.row_bytes, location.row_stride);
        Region { buffer, offset: location.offset, rows, row_bytes, row_stride }
    }

    fn root_name(&self, root: ValueId) -> String {
        self.program.graph.value(root).name.clone()
    }

    fn emit_step(&mut self) {
        self.release_left();
        self.fetch();
        let node = self.program.order[self.step];
        self.bring_back(node);
        self.launch(node, 0);
        self.retire(node);
    }

    /// Frees storages whose offload was started a step ago.
    fn release_left(&mut self) {
        for (root, event) in std::mem::take(&mut self.leaving) {
            self.command(COMPUTE, Action::Wait(event));
            self.free(root);
        }
    }

    fn free(&mut self, root: ValueId) {
        let buffer = self.now[root.index()].take().unwrap();
        self.free_buffer(COMPUTE, buffer);
    }

    fn free_buffer(&mut self, stream: StreamId, buffer: BufferId) {
        self.command(stream, Action::Free(buffer));
        let Buffer { space, offset, .. } = *self.schedule.buffer(buffer);
        self.taken.get_mut(&space).unwrap().remove(&offset);
    }

    fn alloc(&mut self, root: ValueId, ticks: &str) -> BufferId {
        let name = self.root_name(root) + ticks;
        let buffer = self.place(name, Space::Device, self.bytes(root), BufferKind::Storage, Some(root));
        self.command(COMPUTE, Action::Alloc(buffer));
        buffer
    }

    /// Starts the prefetch of storages needed two steps from now.
    fn fetch(&mut self) {
        let soon = self.step + 2;
        let due: Vec<ValueId> = self.copies.keys().copied().filter(|&id| self.idle(id).1 <= soon).collect();
        for root in due {
            let copy = self.copies.remove(&root).unwrap();
            self.prefetch(root, copy, Some(copy));
        }
        let first = |root: ValueId| self.uses[root.index()][0];
        let due: Vec<_> = self.hosted.iter().map(|(&root, &home)| (root, home)).collect();
        let due: Vec<_> = due.into_iter().filter(|&(root, _)| first(root) == soon.max(2)).collect();
        for (root, home) in due {
            self.prefetch(root, home, None);
        }
    }

    fn prefetch(&mut self, root: ValueId, from: BufferId, copy: Option<BufferId>) {
        let buffer = self.alloc(root, "'");
        let name = self.root_name(root);
        let ready = self.event(COMPUTE, format!("allocated %{name}'"));
        self.command(PREFETCH, Action::Wait(ready));
        let bytes = self.bytes(root);
        let (src, dst) = (Region::contiguous(from, 0, bytes), Region::contiguous(buffer, 0, bytes));
        self.command(PREFETCH, Action::Transfer { direction: Direction::Prefetch, src, dst });
        let event = self.event(PREFETCH, format!("prefetched %{name}'"));
        self.arriving.insert(root, (event, copy));
        self.now[root.index()] = Some(buffer);
    }

    /// Waits for what the node reads, or computes it again.
    fn bring_back(&mut self, node: NodeId) {
        let inputs = self.program.graph.node(node).inputs.clone();
        for input in inputs {
            let root = self.program.aliases.root(input);
            if let Some((event, copy)) = self.arriving.remove(&root) {
                self.command(COMPUTE, Action::Wait(event));
                copy.into_iter().for_each(|copy| self.free_buffer(COMPUTE, copy));
            }
            if self.now[root.index()].is_none() && self.gap(root) == Gap::Recompute {
                self.recompute(root);
            }
        }
    }

    fn recompute(&mut self, root: ValueId) {
        let from = self.idle(root).0;
        let makers: Vec<NodeId> = self.program.order[..=from].to_vec();
        for node in makers {
            let inside = |&id: &ValueId| self.program.aliases.root(id) == root;
            if self.program.graph.node(node).outputs.iter().any(inside) {
                self.launch(node, 1);
            }
        }
    }

    fn launch(&mut self, id: NodeId, run: u16) {
        let node = self.program.graph.node(id);
        for &output in &node.outputs {
            let root = self.program.aliases.root(output);
            if self.now[root.index()].is_none() {
                let buffer = self.alloc(root, if run > 0 { "'" } else { "" });
                self.now[root.index()] = Some(buffer);
            }
        }
        let convolves = node.op.kind().starts_with("conv2d");
        let workspace = convolves.then(|| {
            let name = format!("{}.workspace{}", node.name, "'".repeat(run as usize));
            self.place(name, Space::Device, 48, BufferKind::Workspace, None)
        });
        workspace.into_iter().for_each(|buffer| self.command(COMPUTE, Action::Alloc(buffer)));
        let [reads, writes] = [&node.inputs, &node.outputs].map(|ids| ids.iter().map(|&id| self.region(id)).collect());
        let algo = AlgoId(u32::from(convolves));
        let scratch = workspace.map(|buffer| Region::contiguous(buffer, 0, 48));
        self.command(COMPUTE, Action::Launch { node: id, run, algo, reads, writes, workspace: scratch });
        workspace.into_iter().for_each(|buffer| self.free_buffer(COMPUTE, buffer));
    }

    /// Frees, drops or offloads what is not needed after this step.
    fn retire(&mut self, node: NodeId) {
        let node = self.program.graph.node(node);
        let operands = node.inputs.iter().chain(&node.outputs);
        let roots: BTreeSet<ValueId> = operands.map(|&id| self.program.aliases.root(id)).collect();
        for root in roots {
            let buffer = self.now[root.index()].unwrap();
            if self.schedule.buffer(buffer).kind == BufferKind::Home {
                continue;
            }
            let last = self.uses[root.index()].last() == Some(&self.step);
            let idles = self.idle(root).0 == self.step;
            match self.gap(root) {
                _ if last && self.hosted.contains_key(&root) => self.send(root, buffer, self.hosted[&root]),
                _ if last => self.free(root),
                Gap::Offload if idles => self.offload(root, buffer),
                Gap::Recompute if idles => self.free(root),
                _ => {}
            }
        }
    }

    fn offload(&mut self, root: ValueId, buffer: BufferId) {
        let (name, bytes) = (self.root_name(root), self.bytes(root));
        let copy = self.place(format!("{name}@host"), Space::Host, bytes, BufferKind::Copy, Some(root));
        self.command(COMPUTE, Action::Alloc(copy));
        self.send(root, buffer, copy);
        self.copies.insert(root, copy);
    }

    fn send(&mut self, root: ValueId, from: BufferId, to: BufferId) {
        let (name, bytes) = (self.root_name(root), self.bytes(root));
        let computed = self.event(COMPUTE, format!("computed %{name}"));
        self.command(OFFLOAD, Action::Wait(computed));
        let (src, dst) = (Region::contiguous(from, 0, bytes), Region::contiguous(to, 0, bytes));
        self.command(OFFLOAD, Action::Transfer { direction: Direction::Offload, src, dst });
        let event = self.event(OFFLOAD, format!("offloaded %{name}"));
        self.leaving.push((root, event));
    }

    fn join(&mut self) {
        self.release_left();
        assert!(self.copies.is_empty() && self.arriving.is_empty());
    }
}
