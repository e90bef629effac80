//! Writes schedules by hand: commands in issue order, regions found from the program's aliases.

use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_graph::{NodeId, Program, Role, Step, ValueId};
use vdnn_runtime::cpu;
use vdnn_schedule::{
    Action, AlgoId, Arena, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Home,
    Region, Schedule, Space, StreamId, StreamRole,
};
use vdnn_tensor::Bytes;

pub const COMPUTE: StreamId = StreamId(0);
pub const OFFLOAD: StreamId = StreamId(1);
pub const PREFETCH: StreamId = StreamId(2);

pub struct Writer {
    pub program: Arc<Program>,
    pub schedule: Schedule,
    /// The buffer each storage lies in at this point of the schedule.
    place: BTreeMap<ValueId, BufferId>,
    step: u32,
}

pub fn align(bytes: Bytes) -> Bytes {
    bytes.next_multiple_of(64)
}

impl Writer {
    /// A schedule with the homes of all inputs, persistents and metrics from address 0, and no commands.
    pub fn new(program: &Arc<Program>) -> Self {
        let graph = &program.graph;
        let schedule = Schedule {
            format: FORMAT,
            name: graph.name.clone(),
            policy: "by hand".to_string(),
            nodes: graph.nodes().iter().map(|node| node.name.clone()).collect(),
            values: graph.values().iter().map(|value| value.name.clone()).collect(),
            algorithms: Vec::new(),
            arenas: Vec::new(),
            buffers: Vec::new(),
            homes: Vec::new(),
            events: Vec::new(),
            streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch],
            commands: Vec::new(),
        };
        let mut writer = Writer { program: Arc::clone(program), schedule, place: BTreeMap::new(), step: 0 };
        writer.add_homes();
        writer
    }

    fn add_homes(&mut self) {
        let program = Arc::clone(&self.program);
        let graph = &program.graph;
        let inputs = graph.value_ids().filter(|&id| graph.value(id).role == Role::Input);
        let lasting = inputs.chain(graph.metrics().iter().copied()).map(|id| (id, id));
        let persistents = graph.persistents().iter().map(|persistent| (persistent.initial, persistent.last));
        for (initial, last) in persistents.chain(lasting) {
            let bytes = graph.value(initial).ty.bytes();
            let buffer = self.buffer(&graph.value(initial).name, Space::Device, self.end(Space::Device), bytes);
            self.schedule.buffers[buffer.index()].kind = BufferKind::Home;
            self.place.insert(initial, buffer);
            self.schedule.homes.push(Home { initial, last, buffer });
        }
    }

    /// One past the last byte of a space, aligned.
    pub fn end(&self, space: Space) -> Bytes {
        let buffers = self.schedule.buffers.iter().filter(|buffer| buffer.space == space);
        align(buffers.map(|buffer| buffer.offset + buffer.bytes).max().unwrap_or(0))
    }

    pub fn buffer(&mut self, name: &str, space: Space, offset: Bytes, bytes: Bytes) -> BufferId {
        let kind = if space == Space::Device { BufferKind::Storage } else { BufferKind::Copy };
        self.schedule.buffers.push(Buffer { name: name.to_string(), space, offset, bytes, kind, root: None });
        BufferId(self.schedule.buffers.len() as u32 - 1)
    }

    pub fn value(&self, name: &str) -> ValueId {
        self.program.graph.find_value(name).unwrap_or_else(|| panic!("no value {name}"))
    }

    /// Gives a storage bytes at an address and allocates them on the compute stream.
    pub fn alloc(&mut self, value: &str, offset: Bytes) -> BufferId {
        self.alloc_on(COMPUTE, value, offset)
    }

    pub fn alloc_on(&mut self, stream: StreamId, value: &str, offset: Bytes) -> BufferId {
        let root = self.program.aliases.root(self.value(value));
        let bytes = self.program.aliases.storage_bytes(root);
        let name = self.program.graph.value(root).name.clone();
        let buffer = self.buffer(&name, Space::Device, offset, bytes);
        self.place.insert(root, buffer);
        self.push(stream, Action::Alloc(buffer));
        buffer
    }

    pub fn free(&mut self, value: &str) {
        let buffer = self.place[&self.program.aliases.root(self.value(value))];
        self.push(COMPUTE, Action::Free(buffer));
    }

    /// Launches a node by its fastest algorithm, its workspace at the end of the arena.
    pub fn launch(&mut self, name: &str) {
        let program = Arc::clone(&self.program);
        let at = program.graph.nodes().iter().position(|node| node.name == name);
        let node = NodeId(at.unwrap_or_else(|| panic!("no node {name}")) as u32);
        let choice = cpu::choices(&program.graph, program.graph.node(node)).unwrap().remove(0);
        let regions = |ids: &[ValueId]| ids.iter().map(|&id| self.region(id)).collect::<Vec<_>>();
        let (reads, writes) = (regions(&program.graph.node(node).inputs), regions(&program.graph.node(node).outputs));
        let workspace = (choice.workspace > 0).then(|| {
            let offset = self.end(Space::Device);
            let buffer = self.buffer(&format!("{name}.workspace"), Space::Device, offset, choice.workspace);
            self.schedule.buffers[buffer.index()].kind = BufferKind::Workspace;
            Region::contiguous(buffer, 0, choice.workspace)
        });
        let algo = self.algorithm(&choice.algorithm);
        self.push(COMPUTE, Action::Launch { node, run: 0, algo, reads, writes, workspace });
        self.step += 1;
    }

    fn algorithm(&mut self, name: &str) -> AlgoId {
        let known = self.schedule.algorithms.iter().position(|algorithm| algorithm == name);
        AlgoId(known.unwrap_or_else(|| {
            self.schedule.algorithms.push(name.to_string());
            self.schedule.algorithms.len() - 1
        }) as u32)
    }

    pub fn region(&self, value: ValueId) -> Region {
        let location = self.program.aliases.location(value);
        let buffer = *self.place.get(&location.root).unwrap_or_else(|| panic!("{value:?} has no bytes"));
        Region {
            buffer,
            offset: location.offset,
            rows: location.rows,
            row_bytes: location.row_bytes,
            row_stride: location.row_stride,
        }
    }

    /// Copies a storage to the host.
    pub fn offload(&mut self, value: &str, host_offset: Bytes) -> BufferId {
        let src = self.region(self.value(value));
        let host = self.buffer(&format!("{value}@host"), Space::Host, host_offset, src.bytes());
        let dst = Region::contiguous(host, 0, src.bytes());
        self.push(OFFLOAD, Action::Transfer { direction: Direction::Offload, src, dst });
        host
    }

    /// Copies a host buffer back to where the storage lies now.
    pub fn prefetch(&mut self, host: BufferId, value: &str) {
        let dst = self.region(self.value(value));
        let src = Region::contiguous(host, 0, dst.bytes());
        self.push(PREFETCH, Action::Transfer { direction: Direction::Prefetch, src, dst });
    }

    /// Records an event on one stream and lets another wait for it at once.
    pub fn order(&mut self, from: StreamId, to: StreamId, name: &str) {
        let event = self.record(from, name);
        self.push(to, Action::Wait(event));
    }

    pub fn record(&mut self, stream: StreamId, name: &str) -> EventId {
        self.schedule.events.push(Event { name: name.to_string() });
        let event = EventId(self.schedule.events.len() as u32 - 1);
        self.push(stream, Action::Record(event));
        event
    }

    pub fn push(&mut self, stream: StreamId, action: Action) {
        self.schedule.commands.push(Command { stream, action, because: Cause::Step(Step(self.step)) });
    }

    /// The schedule, its arenas as large as its buffers need.
    pub fn done(mut self) -> (Arc<Program>, Schedule) {
        let extent = |space: Space| {
            let buffers = self.schedule.buffers.iter().filter(|buffer| buffer.space == space);
            buffers.map(|buffer| buffer.offset + buffer.bytes).max().unwrap_or(0)
        };
        let spaces = [Space::Device, Space::Host];
        let arenas = spaces.map(|space| Arena { space, bytes: extent(space), budget: None, alignment: 64 });
        self.schedule.arenas = arenas.to_vec();
        (self.program, self.schedule)
    }
}
