//! Small schedules and tables, written as a list of commands.

use vdnn_graph::{NodeId, Step};
use vdnn_schedule::{
    Action, AlgoId, Buffer, BufferId, BufferKind, Cause, Choice, Command, Direction, Event, EventId, FORMAT,
    KernelTable, Region, Schedule, Space, StreamId, StreamRole,
};
use vdnn_sim::Links;

pub const COMPUTE: u32 = 0;
pub const OFFLOAD: u32 = 1;
pub const PREFETCH: u32 = 2;
pub const DISK: u32 = 3;

/// 100 bytes a second alone, 50 each way at once, no latency.
pub const LINKS: Links = Links::new(100.0, 100.0, 50.0);

/// A schedule over four streams, nodes `n0`, `n1`, … and events `e0`, `e1`, ….
pub struct Builder {
    schedule: Schedule,
    table: KernelTable,
}

impl Builder {
    pub fn new() -> Self {
        let schedule = Schedule {
            format: FORMAT,
            name: "test".to_string(),
            policy: "by hand".to_string(),
            nodes: Vec::new(),
            values: Vec::new(),
            algorithms: vec!["default".to_string()],
            arenas: Vec::new(),
            buffers: Vec::new(),
            homes: Vec::new(),
            events: Vec::new(),
            streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch, StreamRole::Disk],
            commands: Vec::new(),
        };
        Builder { schedule, table: KernelTable::default() }
    }

    /// Adds a node that runs for `seconds` on the compute stream.
    pub fn launch(self, seconds: f64) -> Self {
        self.launch_on(COMPUTE, seconds)
    }

    pub fn launch_on(mut self, stream: u32, seconds: f64) -> Self {
        let node = NodeId(self.schedule.nodes.len() as u32);
        self.schedule.nodes.push(format!("n{}", node.0));
        let algorithm = "default".to_string();
        self.table.choices.push(vec![Choice { algorithm, workspace: 0, seconds, deterministic: true }]);
        let (reads, writes) = (Vec::new(), Vec::new());
        self.push(stream, Action::Launch { node, run: 0, algo: AlgoId(0), reads, writes, workspace: None })
    }

    /// A copy of `bytes` to the host.
    pub fn offload(self, bytes: u64) -> Self {
        self.transfer_on(OFFLOAD, Direction::Offload, Space::Device, Space::Host, bytes)
    }

    /// A copy of `bytes` to the device.
    pub fn prefetch(self, bytes: u64) -> Self {
        self.transfer_on(PREFETCH, Direction::Prefetch, Space::Host, Space::Device, bytes)
    }

    pub fn transfer_on(mut self, stream: u32, direction: Direction, from: Space, to: Space, bytes: u64) -> Self {
        let src = self.buffer(from, bytes);
        let dst = self.buffer(to, bytes);
        self.push(stream, Action::Transfer { direction, src, dst })
    }

    pub fn record(self, stream: u32, event: u32) -> Self {
        self.event(event).push(stream, Action::Record(EventId(event)))
    }

    pub fn wait(self, stream: u32, event: u32) -> Self {
        self.event(event).push(stream, Action::Wait(EventId(event)))
    }

    pub fn push(mut self, stream: u32, action: Action) -> Self {
        self.schedule.commands.push(Command { stream: StreamId(stream), action, because: Cause::Step(Step(0)) });
        self
    }

    pub fn build(self) -> (Schedule, KernelTable) {
        (self.schedule, self.table)
    }

    fn event(mut self, event: u32) -> Self {
        while self.schedule.events.len() <= event as usize {
            self.schedule.events.push(Event { name: format!("e{}", self.schedule.events.len()) });
        }
        self
    }

    fn buffer(&mut self, space: Space, bytes: u64) -> Region {
        let id = BufferId(self.schedule.buffers.len() as u32);
        let (name, kind) = (format!("b{}", id.0), BufferKind::Storage);
        self.schedule.buffers.push(Buffer { name, space, offset: 0, bytes, kind, root: None });
        Region::contiguous(id, 0, bytes)
    }
}
