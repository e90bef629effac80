//! A small schedule and random ones.

use proptest::collection::vec;
use proptest::prelude::*;
use vdnn_graph::{NodeId, Step, ValueId};
use vdnn_schedule::{
    Action, AlgoId, Arena, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Home,
    Region, Schedule, Space, StreamId, StreamRole,
};

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn buffer(name: &str, space: Space, offset: u64, bytes: u64, kind: BufferKind, root: Option<u32>) -> Buffer {
    Buffer { name: name.to_string(), space, offset, bytes, kind, root: root.map(ValueId) }
}

fn command(stream: u32, action: Action, because: Cause) -> Command {
    Command { stream: StreamId(stream), action, because }
}

fn launch(run: u16, write: Region, workspace: Option<Region>) -> Action {
    let reads = vec![Region::contiguous(BufferId(0), 0, 256), Region::contiguous(BufferId(1), 0, 64)];
    Action::Launch { node: NodeId(0), run, algo: AlgoId(1), reads, writes: vec![write], workspace }
}

/// A few commands of every kind; not a safe schedule.
pub fn lenet() -> Schedule {
    let map = Region::contiguous(BufferId(2), 0, 512);
    let slice = Region { buffer: BufferId(2), offset: 64, rows: 2, row_bytes: 128, row_stride: 256 };
    let copy = Region::contiguous(BufferId(4), 0, 512);
    let scratch = Region::contiguous(BufferId(3), 0, 512);
    let idle = Cause::IdleUntil(Step(57));
    Schedule {
        format: FORMAT,
        name: "lenet".to_string(),
        policy: "conv-p".to_string(),
        nodes: strings(&["conv1", "conv1.dw"]),
        values: strings(&["image", "conv1.w", "conv1", "conv1.dw", "conv1.w'"]),
        algorithms: strings(&["direct", "gemm"]),
        arenas: vec![
            Arena { space: Space::Device, bytes: 2048, budget: Some(4096), alignment: 256 },
            Arena { space: Space::Host, bytes: 512, budget: None, alignment: 64 },
        ],
        buffers: vec![
            buffer("image", Space::Device, 0, 256, BufferKind::Home, Some(0)),
            buffer("conv1.w", Space::Device, 256, 64, BufferKind::Home, Some(1)),
            buffer("conv1", Space::Device, 1024, 512, BufferKind::Storage, Some(2)),
            buffer("conv1.workspace", Space::Device, 1536, 512, BufferKind::Workspace, None),
            buffer("conv1@host", Space::Host, 0, 512, BufferKind::Copy, Some(2)),
        ],
        homes: vec![
            Home { initial: ValueId(0), last: ValueId(0), buffer: BufferId(0) },
            Home { initial: ValueId(1), last: ValueId(4), buffer: BufferId(1) },
        ],
        events: vec![Event { name: "computed %conv1".to_string() }],
        streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch],
        commands: vec![
            command(0, Action::Alloc(BufferId(2)), Cause::Step(Step(0))),
            command(0, launch(0, map, Some(scratch)), Cause::Step(Step(0))),
            command(0, Action::Record(EventId(0)), idle),
            command(1, Action::Wait(EventId(0)), idle),
            command(1, Action::Transfer { direction: Direction::Offload, src: map, dst: copy }, idle),
            command(0, launch(1, slice, None), Cause::For(Step(57))),
            command(0, Action::Free(BufferId(2)), Cause::EndOfLayer(Step(3))),
            command(0, Action::Wait(EventId(0)), Cause::EndOfIteration),
        ],
    }
}

/// Names as networks have them, and names nobody should use.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{1,2}", "[a-z.'@%:]{1,8}", "\\PC{0,6}", "[\\x00-\\x20;|\"#%,]{0,4}", Just("end".to_string())]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..5u64, any::<u64>(), Just(u64::MAX)]
}

fn region() -> impl Strategy<Value = Region> {
    let any = (0..6u32, number(), number(), number(), number());
    let full = (0..6u32, 0..4u64).prop_map(|(id, bytes)| Region::contiguous(BufferId(id), 0, bytes));
    let any = any.prop_map(|(id, offset, rows, row_bytes, row_stride)| Region {
        buffer: BufferId(id),
        offset,
        rows,
        row_bytes,
        row_stride,
    });
    prop_oneof![any, full]
}

fn action() -> impl Strategy<Value = Action> {
    let direction = prop_oneof![Just(Direction::Offload), Just(Direction::Prefetch)];
    let operands = (vec(region(), 0..4), vec(region(), 0..3), proptest::option::of(region()));
    let launch = (0..5u32, any::<u16>(), 0..4u32, operands);
    prop_oneof![
        (0..6u32).prop_map(|id| Action::Alloc(BufferId(id))),
        (0..6u32).prop_map(|id| Action::Free(BufferId(id))),
        (0..5u32).prop_map(|id| Action::Record(EventId(id))),
        (0..5u32).prop_map(|id| Action::Wait(EventId(id))),
        (direction, region(), region()).prop_map(|(direction, src, dst)| Action::Transfer { direction, src, dst }),
        launch.prop_map(|(node, run, algo, (reads, writes, workspace))| Action::Launch {
            node: NodeId(node),
            run,
            algo: AlgoId(algo),
            reads,
            writes,
            workspace,
        }),
    ]
}

fn cause() -> impl Strategy<Value = Cause> {
    (0..6u8, any::<u32>()).prop_map(|(kind, step)| match kind {
        0 => Cause::Step(Step(step)),
        1 => Cause::IdleUntil(Step(step)),
        2 => Cause::For(Step(step)),
        3 => Cause::After(Step(step)),
        4 => Cause::EndOfLayer(Step(step)),
        _ => Cause::EndOfIteration,
    })
}

fn role() -> impl Strategy<Value = StreamRole> {
    let all = [StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch, StreamRole::Disk, StreamRole::Comm];
    proptest::sample::select(all.to_vec())
}

fn memory() -> impl Strategy<Value = (Vec<Arena>, Vec<Buffer>, Vec<Home>)> {
    let space = || proptest::sample::select(vec![Space::Device, Space::Host, Space::Disk]);
    let kinds = vec![BufferKind::Home, BufferKind::Storage, BufferKind::Workspace, BufferKind::Copy];
    let kind = proptest::sample::select(kinds);
    let arena = (space(), number(), proptest::option::of(number()), number());
    let arena = arena.prop_map(|(space, bytes, budget, alignment)| Arena { space, bytes, budget, alignment });
    let buffer = (name(), space(), number(), number(), kind, proptest::option::of(0..6u32));
    let buffer = buffer.prop_map(|(name, space, offset, bytes, kind, root)| Buffer {
        name,
        space,
        offset,
        bytes,
        kind,
        root: root.map(ValueId),
    });
    let home = (0..6u32, 0..6u32, 0..6u32).prop_map(|(initial, last, buffer)| Home {
        initial: ValueId(initial),
        last: ValueId(last),
        buffer: BufferId(buffer),
    });
    (vec(arena, 0..3), vec(buffer, 0..5), vec(home, 0..3))
}

/// Any schedule at all, safe or not: ids out of range, names twice, sizes that overflow.
pub fn any_schedule() -> impl Strategy<Value = Schedule> {
    let tables = (vec(name(), 0..5), vec(name(), 0..5), vec(name(), 0..4), vec(name(), 0..4), vec(role(), 0..4));
    let command = (0..5u32, action(), cause()).prop_map(|(stream, action, cause)| command(stream, action, cause));
    (name(), name(), tables, memory(), vec(command, 0..12)).prop_map(|(name, policy, tables, memory, commands)| {
        let (nodes, values, algorithms, events, streams) = tables;
        let (arenas, buffers, homes) = memory;
        let events = events.into_iter().map(|name| Event { name }).collect();
        let format = FORMAT;
        Schedule { format, name, policy, nodes, values, algorithms, arenas, buffers, homes, events, streams, commands }
    })
}
