//! The types of a schedule.

use serde::{Deserialize, Serialize};
use vdnn_graph::{NodeId, Step, ValueId};
use vdnn_tensor::Bytes;

/// The format number written into files; readers refuse any other.
pub const FORMAT: u32 = 1;

macro_rules! id {
    ($(#[$doc:meta] $name:ident),*) => {$(
        #[$doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as a vector index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
id!(
    /// Index into [`Schedule::buffers`].
    BufferId,
    /// Index into [`Schedule::events`].
    EventId,
    /// Index into [`Schedule::streams`].
    StreamId,
    /// Index into [`Schedule::algorithms`].
    AlgoId
);

/// A kind of memory. Each has one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// The memory kernels work in, which the budget limits.
    Device,
    /// Pinned host memory.
    Host,
    /// A file.
    Disk,
}

/// One block of memory that all buffers of a space lie in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arena {
    /// Which memory.
    pub space: Space,
    /// Extent: one past the highest byte any buffer uses. This is the planned peak.
    pub bytes: Bytes,
    /// Upper limit on the extent, if there is one.
    pub budget: Option<Bytes>,
    /// Every buffer's offset is a multiple of this.
    pub alignment: Bytes,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferKind {
    /// Bytes that outlive the iteration, at the same address in every schedule of a run. Never allocated or freed.
    Home,
    /// A storage (see `vdnn_graph::Aliases`) for one stretch of its life on the device.
    Storage,
    /// Bytes a kernel borrows for one step.
    Workspace,
    /// A storage's copy in a lower tier.
    Copy,
}

/// Bytes at a planned address that hold something for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// Stable name: the root value's, with a tick for each later stretch, and joined by `+` those of storages that take its bytes over;
    /// `node.workspace`; `value.host`.
    pub name: String,
    /// Which arena.
    pub space: Space,
    /// Planned address in the arena.
    pub offset: Bytes,
    /// Size.
    pub bytes: Bytes,
    /// What it is for.
    pub kind: BufferKind,
    /// The root value of the storage held, if it holds one; of several in turn the first.
    pub root: Option<ValueId>,
}

/// Part of a buffer: `rows` rows of `row_bytes`, `row_stride` apart, from `offset`. Contiguous when `rows` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte, from the start of the buffer.
    pub offset: Bytes,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: Bytes,
    /// Distance between the starts of rows.
    pub row_stride: Bytes,
}

impl Region {
    /// One contiguous stretch.
    pub fn contiguous(buffer: BufferId, offset: Bytes, bytes: Bytes) -> Self {
        Region { buffer, offset, rows: 1, row_bytes: bytes, row_stride: bytes }
    }

    /// Bytes inside the region.
    pub fn bytes(&self) -> Bytes {
        self.rows * self.row_bytes
    }

    /// One past the last byte, from the start of the buffer; `offset` for an empty region.
    pub fn end(&self) -> Bytes {
        match self.rows {
            0 => self.offset,
            rows => self.offset + (rows - 1) * self.row_stride + self.row_bytes,
        }
    }
}

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Device to host.
    Offload,
    /// Host to device.
    Prefetch,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The buffer's bytes are its own from here on.
    Alloc(BufferId),
    /// The buffer's bytes may be given to another.
    Free(BufferId),
    /// Runs a kernel.
    Launch {
        /// The node.
        node: NodeId,
        /// 0 for the original run, 1.. for recomputation.
        run: u16,
        /// The algorithm, of [`Schedule::algorithms`].
        algo: AlgoId,
        /// Regions of the node's inputs, in order.
        reads: Vec<Region>,
        /// Regions of the node's outputs, in order.
        writes: Vec<Region>,
        /// Scratch memory for this step.
        workspace: Option<Region>,
    },
    /// Copies between tiers.
    Transfer {
        /// Which way.
        direction: Direction,
        /// From.
        src: Region,
        /// To.
        dst: Region,
    },
    /// Marks the point this stream has reached.
    Record(EventId),
    /// Holds this stream until the event's point is reached.
    Wait(EventId),
}

/// Why a command is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A kernel of the program, or memory it needs at this step.
    Step(Step),
    /// Not needed until this step.
    IdleUntil(Step),
    /// Needed at this step.
    For(Step),
    /// Not needed after this step.
    After(Step),
    /// The end of a layer joins the streams (the paper's rule).
    EndOfLayer(Step),
    /// The end of the iteration joins the streams.
    EndOfIteration,
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamRole {
    /// Kernels.
    Compute,
    /// Device to host.
    Offload,
    /// Host to device.
    Prefetch,
    /// Host to and from a file.
    Disk,
    /// Reserved for collectives.
    Comm,
}

/// One line of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The stream it runs on.
    pub stream: StreamId,
    /// What it does.
    pub action: Action,
    /// Why it is there.
    pub because: Cause,
}

/// A point in a stream that others can wait for. Recorded once an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What has happened when it fires: `computed %x`, `offloaded %x`, `prefetched %x`, `reached step 7`.
    pub name: String,
}

/// Where a persistent value lives at the iteration boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The value before the iteration (inputs: written by the host).
    pub initial: ValueId,
    /// The value after it; another one when the iteration updates it.
    pub last: ValueId,
    /// The buffer, of kind [`BufferKind::Home`].
    pub buffer: BufferId,
}

/// One compiled iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// File format, [`FORMAT`].
    pub format: u32,
    /// Name of the network.
    pub name: String,
    /// The policy it was planned by, for people.
    pub policy: String,
    /// Node names by [`NodeId`].
    pub nodes: Vec<String>,
    /// Value names by [`ValueId`].
    pub values: Vec<String>,
    /// Algorithm names by [`AlgoId`].
    pub algorithms: Vec<String>,
    /// The arenas, at most one a space.
    pub arenas: Vec<Arena>,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Homes of inputs, parameters, states and metrics.
    pub homes: Vec<Home>,
    /// All events.
    pub events: Vec<Event>,
    /// The streams. The first is the compute stream, from which all others fork and which they join.
    pub streams: Vec<StreamRole>,
    /// All commands, in issue order.
    pub commands: Vec<Command>,
}

impl Schedule {
    /// The arena of a space.
    pub fn arena(&self, space: Space) -> Option<&Arena> {
        self.arenas.iter().find(|arena| arena.space == space)
    }

    /// Extent of a space's arena: the planned peak.
    pub fn peak_bytes(&self, space: Space) -> Bytes {
        self.arena(space).map_or(0, |arena| arena.bytes)
    }

    /// One buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// A region's first byte in its arena.
    pub fn address(&self, region: &Region) -> Bytes {
        self.buffer(region.buffer).offset + region.offset
    }

    /// The home of a value, at the start or the end of the iteration.
    pub fn home_of(&self, value: ValueId) -> Option<&Home> {
        self.homes.iter().find(|home| home.initial == value || home.last == value)
    }

    /// Bytes moved each way between device and host memory in one iteration.
    pub fn transfer_bytes(&self, way: Direction) -> Bytes {
        self.moved_bytes(way, false)
    }

    /// Bytes moved from host memory to disk (offload) and back in one iteration.
    pub fn disk_bytes(&self, way: Direction) -> Bytes {
        self.moved_bytes(way, true)
    }

    fn moved_bytes(&self, way: Direction, disk: bool) -> Bytes {
        let on_disk = |command: &Command| self.streams.get(command.stream.index()) == Some(&StreamRole::Disk);
        let moved = |command: &Command| match &command.action {
            Action::Transfer { direction, src, .. } if *direction == way => src.bytes(),
            _ => 0,
        };
        self.commands.iter().filter(|command| on_disk(command) == disk).map(moved).sum()
    }

    /// The algorithm each node runs, by name.
    pub fn algorithms_by_node(&self) -> std::collections::BTreeMap<&str, &str> {
        let launch = |command: &Command| match command.action {
            Action::Launch { node, algo, .. } => {
                Some((self.nodes[node.index()].as_str(), self.algorithms[algo.index()].as_str()))
            }
            _ => None,
        };
        self.commands.iter().filter_map(launch).collect()
    }
}
