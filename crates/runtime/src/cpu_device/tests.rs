//! What needs a kernel of one's own: panics, streams that really run at once, accesses that meet.

use super::CpuDevice;
use crate::cpu::{LOOP, Launch};
use crate::memory::Disk;
use crate::{Device, DeviceError, DiskFile, PreparedId};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use vdnn_graph::{Graph, InPlace, NodeId, Op, Program, Step, ValueId};
use vdnn_schedule::{
    Action, AlgoId, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Region, Schedule,
    Space, StreamId, StreamRole,
};
use vdnn_tensor::{DType, TensorType};

/// `a = relu(x)` on the first stream and `b = relu(y)` on the second, then the first waits for the second. Value i lies
/// in buffer `buffers[i]`, 64 bytes each.
fn two_streams(buffers: [u32; 4]) -> (Arc<Program>, Arc<Schedule>) {
    let mut g = Graph::new("two streams");
    let ty = TensorType::new([16], DType::F32);
    let (x, y) = (g.input("x", ty.clone()).unwrap(), g.input("y", ty).unwrap());
    g.push("a", Op::Relu, &[x]).unwrap();
    g.push("b", Op::Relu, &[y]).unwrap();
    let region = |value: ValueId| Region::contiguous(BufferId(buffers[value.index()]), 0, 64);
    let launch = |node: u32, stream: u32| {
        let (reads, writes) = (vec![region(ValueId(node))], vec![region(ValueId(node + 2))]);
        let action = Action::Launch { node: NodeId(node), run: 0, algo: AlgoId(0), reads, writes, workspace: None };
        Command { stream: StreamId(stream), action, because: Cause::Step(Step(node)) }
    };
    let event = |stream: u32, action| Command { stream: StreamId(stream), action, because: Cause::EndOfIteration };
    let commands =
        vec![launch(0, 0), launch(1, 1), event(1, Action::Record(EventId(0))), event(0, Action::Wait(EventId(0)))];
    let buffer = |i: u64| {
        let (space, kind) = (Space::Device, BufferKind::Storage);
        Buffer { name: format!("buffer {i}"), space, offset: 64 * i, bytes: 64, kind, root: None }
    };
    let schedule = Schedule {
        format: FORMAT,
        name: g.name.clone(),
        policy: String::new(),
        nodes: vec!["a".to_string(), "b".to_string()],
        values: g.values().iter().map(|value| value.name.clone()).collect(),
        algorithms: vec![LOOP.to_string()],
        arenas: Vec::new(),
        buffers: (0..4).map(buffer).collect(),
        homes: Vec::new(),
        events: vec![Event { name: "b done".to_string() }],
        streams: vec![StreamRole::Compute, StreamRole::Comm],
        commands,
    };
    (Arc::new(Program::linearize(g, InPlace::PersistentsOnly).unwrap()), Arc::new(schedule))
}

fn device(launch: crate::prepared::LaunchFn, buffers: [u32; 4]) -> (CpuDevice, PreparedId) {
    let mut device = CpuDevice::with_threads(2).unwrap();
    device.launch = launch;
    device.reserve(256, 0).unwrap();
    let (program, schedule) = two_streams(buffers);
    let id = device.prepare(program, schedule).unwrap();
    (device, id)
}

fn run(device: &mut CpuDevice, id: PreparedId) -> Result<(), DeviceError> {
    device.begin(id)?;
    (0..4).try_for_each(|command| device.issue(id, command))?;
    device.finish()
}

fn panics_on_b(launch: Launch<'_>) -> Result<(), DeviceError> {
    assert_ne!(launch.node, "b", "b is broken");
    Ok(())
}

#[test]
fn a_panic_is_an_error_and_wakes_the_other_stream() {
    let (mut device, id) = device(panics_on_b, [0, 1, 2, 3]);
    for _ in 0..20 {
        let error = run(&mut device, id).unwrap_err();
        let DeviceError::Panic { command, message } = &error else { panic!("{error}") };
        assert!(command == "b" && message.contains("b is broken"), "{error}");
    }
    device.launch = crate::cpu::launch;
    run(&mut device, id).unwrap();
}

/// Kernels that have met, for the test below only.
static MET: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

fn meets_the_other(launch: Launch<'_>) -> Result<(), DeviceError> {
    let (met, changed) = (&MET.0, &MET.1);
    let mut count = met.lock().unwrap();
    *count += 1;
    changed.notify_all();
    let waited = changed.wait_timeout_while(count, Duration::from_secs(20), |count| *count < 2).unwrap();
    if waited.1.timed_out() {
        return Err(DeviceError::Backend { call: launch.node.to_string(), message: "ran alone".to_string() });
    }
    Ok(())
}

#[test]
fn streams_run_at_once() {
    let (mut device, id) = device(meets_the_other, [0, 1, 2, 3]);
    run(&mut device, id).unwrap();
}

/// Set once `a` holds its operands, so that `b` surely comes second.
static HELD: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn holds_until_released(launch: Launch<'_>) -> Result<(), DeviceError> {
    let mut held = HELD.0.lock().unwrap();
    if launch.node == "a" {
        *held = true;
        HELD.1.notify_all();
        drop(HELD.1.wait_timeout_while(held, Duration::from_secs(20), |held| *held).unwrap());
    }
    Ok(())
}

/// Both write buffer 2 with no order between them: refused as it happens, never a race.
#[test]
fn unordered_writes_to_the_same_bytes_are_a_conflict() {
    let (mut device, id) = device(holds_until_released, [0, 1, 2, 2]);
    device.begin(id).unwrap();
    device.issue(id, 0).unwrap();
    let held = HELD.1.wait_timeout_while(HELD.0.lock().unwrap(), Duration::from_secs(20), |held| !*held).unwrap().0;
    assert!(*held);
    drop(held);
    (1..4).for_each(|command| device.issue(id, command).unwrap());
    // Only the conflict can empty the second stream now.
    while device.running.as_ref().is_some_and(|(_, iteration)| !iteration.has_failed()) {
        std::thread::yield_now();
    }
    *HELD.0.lock().unwrap() = false;
    HELD.1.notify_all();
    let error = device.finish().unwrap_err();
    assert!(matches!(&error, DeviceError::Conflict { first, second } if first == "a" && second == "b"), "{error}");
}

/// `a`, and on a disk stream beside it 64 bytes of host memory written to a file.
fn with_disk() -> (Arc<Program>, Arc<Schedule>) {
    let (program, schedule) = two_streams([0, 1, 2, 3]);
    let mut schedule = Schedule::clone(&schedule);
    for (name, space) in [("slot", Space::Host), ("file", Space::Disk)] {
        let (kind, root) = (BufferKind::Copy, Some(ValueId(1)));
        schedule.buffers.push(Buffer { name: name.to_string(), space, offset: 0, bytes: 64, kind, root });
    }
    schedule.streams[1] = StreamRole::Disk;
    let [src, dst] = [4, 5].map(|id| Region::contiguous(BufferId(id), 0, 64));
    schedule.commands[1].action = Action::Transfer { direction: Direction::Offload, src, dst };
    (program, Arc::new(schedule))
}

#[test]
fn a_disk_that_cannot_be_written_ends_the_iteration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    std::fs::write(&path, [0; 64]).unwrap();
    for broken in [false, true] {
        let mut device = CpuDevice::with_threads(1).unwrap();
        device.reserve(256, 64).unwrap();
        device.set_disk_folder(folder.path());
        device.reserve_disk(64).unwrap();
        assert!(device.reserve_disk(64).is_err(), "once");
        if broken {
            let memory = Arc::get_mut(device.memory.as_mut().unwrap()).unwrap();
            memory.disk = Disk::File(DiskFile::read_only(&path, 64));
        }
        let (program, schedule) = with_disk();
        let id = device.prepare(program, schedule).unwrap();
        match run(&mut device, id) {
            Ok(()) => assert!(!broken),
            Err(DeviceError::Disk { way, file, offset: 0, bytes: 64, reason }) => {
                assert!(
                    broken && way == "write" && file.ends_with("full") && reason.contains("os error 9"),
                    "{reason}"
                );
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_disk_has_to_be_reserved_and_needs_a_folder() {
    let (program, schedule) = with_disk();
    let mut device = CpuDevice::with_threads(1).unwrap();
    device.reserve(256, 64).unwrap();
    let error = device.prepare(program, schedule).unwrap_err().to_string();
    assert!(error.contains("on disk, of which nothing is reserved"), "{error}");
    let error = device.reserve_disk(64).unwrap_err().to_string();
    assert!(error.contains("expected a folder"), "{error}");
    device.reserve_disk(0).unwrap();
}

#[test]
fn calls_out_of_order_are_refused() {
    let (mut device, id) = device(crate::cpu::launch, [0, 1, 2, 3]);
    device.finish().unwrap();
    assert!(device.issue(id, 0).is_err());
    assert!(device.begin(PreparedId(7)).is_err());
    device.begin(id).unwrap();
    assert!(device.begin(id).is_err());
    assert!(device.issue(id, 4).is_err());
    assert!(
        device.write(Space::Device, 250, &[0; 7]).is_err() && device.read(Space::Device, 250, &mut [0; 7]).is_err()
    );
    device.finish().unwrap();
    run(&mut device, id).unwrap();
}
