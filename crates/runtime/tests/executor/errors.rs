//! What a user or a broken schedule can get wrong is a typed error before anything runs.

use crate::net::{kept, load, offloaded, program};
use std::sync::Arc;
use vdnn_runtime::{ChaosDevice, CpuDevice, Device, DeviceError, Executor, KernelRequest};
use vdnn_schedule::{Action, AlgoId, BufferId, EventId, Region, Schedule, Space, StreamId};

#[test]
fn homes_are_named_and_sized() {
    let (mut executor, id) = load(CpuDevice::with_threads(1).unwrap(), kept(&program())).unwrap();
    let error = executor.write(id, "w9", &[0]).unwrap_err();
    assert!(matches!(&error, DeviceError::UnknownValue { known, .. } if known.contains("w2'")), "{error}");
    let error = executor.write(id, "w2", &[0; 287]).unwrap_err();
    assert_eq!(error.to_string(), "the home of w2 holds 288 bytes, found 287");
    assert!(matches!(executor.read_into(id, "loss", &mut [0; 8]), Err(DeviceError::HomeSize { expected: 4, .. })));
    assert_eq!(executor.read(id, "w2").unwrap(), executor.read(id, "w2'").unwrap());
}

#[test]
fn memory_is_reserved_once_and_is_enough() {
    let (program, schedule) = offloaded(&program());
    let (device, host) = (schedule.peak_bytes(Space::Device), schedule.peak_bytes(Space::Host));
    for (device, host) in [(device - 1, host), (device, host - 1)] {
        let mut executor = Executor::new(CpuDevice::with_threads(1).unwrap());
        assert!(executor.add(Arc::clone(&program), Arc::new(schedule.clone())).is_err(), "nothing reserved");
        executor.reserve(device, host).unwrap();
        let error = executor.add(Arc::clone(&program), Arc::new(schedule.clone())).unwrap_err();
        assert!(matches!(&error, DeviceError::Schedule { reason, .. } if reason.contains("reserved")), "{error}");
        assert!(executor.reserve(device, host).is_err());
    }
    let mut executor = Executor::new(CpuDevice::with_threads(1).unwrap());
    let error = executor.reserve(u64::MAX / 4, 0).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { space: "device", .. }));
}

/// Every way to spoil one command, with the word its error must hold.
#[test]
fn a_broken_schedule_is_refused_when_added() {
    type Spoil = fn(&mut Schedule, usize);
    let launch = |schedule: &Schedule, name: &str| {
        let is =
            |action: &Action| matches!(action, Action::Launch { node, .. } if schedule.nodes[node.index()] == name);
        schedule.commands.iter().position(|command| is(&command.action)).unwrap()
    };
    let cases: [(&str, Spoil); 10] = [
        ("stream", |s, at| s.commands[at].stream = StreamId(9)),
        ("buffer", |s, at| s.commands[at].action = Action::Free(BufferId(99))),
        ("event", |s, at| s.commands[at].action = Action::Wait(EventId(99))),
        ("format", |s, _| s.format = 2),
        ("program", |s, _| s.nodes.truncate(3)),
        ("on disk", |s, _| s.buffers.iter_mut().for_each(|b| b.space = Space::Disk)),
        ("outputs", |s, at| edit(s, at, |_, writes, _| writes.clear())),
        ("bytes of f32", |s, at| edit(s, at, |reads, _, _| reads[0].row_bytes -= 4)),
        ("within the", |s, at| edit(s, at, |reads, _, _| reads[0].offset = 1 << 40)),
        ("apart or in place", |s, at| edit(s, at, |reads, writes, _| writes[0] = overlapping(reads[0]))),
    ];
    for (word, spoil) in cases {
        let (program, mut schedule) = offloaded(&program());
        let at = launch(&schedule, "d");
        // Room for a region that overlaps another by half.
        schedule.buffers.iter_mut().filter(|b| b.name == "c").for_each(|b| b.bytes += 512);
        schedule.homes.clear();
        spoil(&mut schedule, at);
        for device in [Box::new(CpuDevice::with_threads(1).unwrap()) as Box<dyn Device>, Box::new(ChaosDevice::new(0))]
        {
            let mut executor = Executor::new(device);
            executor.reserve(1 << 20, 1 << 20).unwrap();
            let error = executor.add(Arc::clone(&program), Arc::new(schedule.clone())).unwrap_err();
            assert!(error.to_string().contains(word), "expected {word:?}, found {error}");
        }
    }
}

fn overlapping(read: Region) -> Region {
    Region::contiguous(read.buffer, read.offset + 1536, 1024)
}

fn edit(schedule: &mut Schedule, at: usize, change: fn(&mut Vec<Region>, &mut Vec<Region>, &mut AlgoId)) {
    if let Action::Launch { reads, writes, algo, .. } = &mut schedule.commands[at].action {
        change(reads, writes, algo);
    }
}

#[test]
fn an_algorithm_or_workspace_the_device_does_not_have() {
    let (program, schedule) = kept(&program());
    for spoil in [0, 1] {
        let mut schedule = schedule.clone();
        if spoil == 0 {
            schedule.algorithms.iter_mut().for_each(|name| name.push('?'));
        }
        for command in &mut schedule.commands {
            if let Action::Launch { workspace, .. } = &mut command.action {
                *workspace = workspace.filter(|_| spoil == 0);
            }
        }
        let error = load(CpuDevice::with_threads(1).unwrap(), (Arc::clone(&program), schedule)).err().unwrap();
        let DeviceError::Kernel { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains(["one of", "workspace"][spoil]), "{reason}");
    }
}

#[test]
fn the_kernel_table_keeps_the_workspace_limit() {
    let program = program();
    let mut device = CpuDevice::with_threads(1).unwrap();
    let table = |device: &mut CpuDevice, workspace_limit| {
        device.kernel_table(&program.graph, KernelRequest { workspace_limit, ..KernelRequest::whole(true) }).unwrap()
    };
    let (all, none) = (table(&mut device, None), table(&mut device, Some(0)));
    assert!(none.choices.iter().flatten().all(|choice| choice.workspace == 0));
    assert!(all.choices.iter().flatten().any(|choice| choice.workspace > 0));
}

#[test]
fn schedules_of_one_run_share_their_weights() {
    let program = program();
    let (_, first) = kept(&program);
    let (_, mut second) = offloaded(&program);
    let size = |space| first.peak_bytes(space).max(second.peak_bytes(space)) + 4096;
    let mut executor = Executor::new(CpuDevice::with_threads(1).unwrap());
    executor.reserve(size(Space::Device), size(Space::Host)).unwrap();
    executor.add(Arc::clone(&program), Arc::new(first)).unwrap();
    executor.add(Arc::clone(&program), Arc::new(second.clone())).unwrap();
    second.buffers.iter_mut().filter(|buffer| buffer.name == "w2").for_each(|buffer| buffer.offset += 64);
    let error = executor.add(program, Arc::new(second)).unwrap_err();
    assert!(matches!(&error, DeviceError::Schedule { place, .. } if place.starts_with("w2")), "{error}");
}
