//! The CPU device: bits, high-water mark, timing, failures.

use crate::net::{fill, kept, load, offloaded, program, train};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_runtime::{CpuDevice, Device, DeviceError, Executor};
use vdnn_schedule::{Action, Space};

#[test]
fn offloading_changes_no_bit() {
    let program = program();
    let (mut plain, id) = load(CpuDevice::new().unwrap(), kept(&program)).unwrap();
    let expected = train(&mut plain, id, 3).unwrap();
    let (mut moving, id) = load(CpuDevice::new().unwrap(), offloaded(&program)).unwrap();
    assert_eq!(train(&mut moving, id, 3).unwrap(), expected);
    let loss = f32::from_le_bytes(expected[..4].try_into().unwrap());
    assert!((5.0..7.0).contains(&loss), "256 classes, untrained: about ln 256, found {loss}");
    assert_ne!(expected[..expected.len() / 3], expected[expected.len() * 2 / 3..], "the weights move");
}

#[test]
fn bits_do_not_depend_on_the_run_or_the_threads() {
    let program = program();
    let run = |threads| {
        let (mut executor, id) = load(CpuDevice::with_threads(threads).unwrap(), offloaded(&program)).unwrap();
        train(&mut executor, id, 2).unwrap()
    };
    let expected = run(1);
    assert_eq!(run(1), expected);
    assert_eq!(run(2), expected);
    assert_eq!(run(5), expected);
}

#[test]
fn a_boxed_device_is_a_device() {
    let device: Box<dyn Device> = Box::new(CpuDevice::with_threads(1).unwrap());
    let (mut executor, id) = load(device, offloaded(&program())).unwrap();
    train(&mut executor, id, 1).unwrap();
    assert_eq!(executor.description().name, "cpu");
}

#[test]
fn the_measured_peak_is_the_planned_one_to_the_byte() {
    let (program, mut schedule) = offloaded(&program());
    // Without workspaces at the end of the arena, the last bytes are the weight gradient's, which are written whole.
    let top = schedule.buffers.iter().filter(|b| b.space == Space::Device).map(|b| b.offset + b.bytes).max().unwrap();
    let gradient = schedule.buffers.iter_mut().find(|buffer| buffer.name == "dw2").unwrap();
    gradient.offset = top.next_multiple_of(64);
    let planned = gradient.offset + gradient.bytes;
    schedule.arenas[0].bytes = planned;
    let mut executor = Executor::new(CpuDevice::with_threads(1).unwrap());
    executor.reserve(planned + 100_003, schedule.peak_bytes(Space::Host)).unwrap();
    assert_eq!(executor.measured_peak(), Some(0), "nothing ran yet");
    let id = executor.add(program, Arc::new(schedule)).unwrap();
    fill(&mut executor, id).unwrap();
    assert!(executor.measured_peak().unwrap() < planned);
    train(&mut executor, id, 2).unwrap();
    assert_eq!(executor.measured_peak(), Some(planned));
}

#[test]
fn the_timeline_has_every_launch_and_transfer_in_stream_order() {
    let (program, schedule) = offloaded(&program());
    let commands = schedule.commands.clone();
    let (mut executor, id) = load(CpuDevice::new().unwrap(), (program, schedule)).unwrap();
    train(&mut executor, id, 1).unwrap();
    assert_eq!(executor.timeline(), None, "timing is off");
    executor.set_timing(true);
    train(&mut executor, id, 1).unwrap();
    let timeline = executor.timeline().unwrap();
    let timed = |(i, command): (usize, &vdnn_schedule::Command)| {
        matches!(command.action, Action::Launch { .. } | Action::Transfer { .. }).then_some(i as u32)
    };
    let expected: Vec<u32> = commands.iter().enumerate().filter_map(timed).collect();
    assert_eq!(timeline.spans.iter().map(|span| span.command).collect::<Vec<_>>(), expected);
    let mut reached = BTreeMap::new();
    for span in &timeline.spans {
        let last = reached.insert(commands[span.command as usize].stream, span.end).unwrap_or(0.0);
        assert!(last <= span.start && span.start <= span.end && span.end <= timeline.seconds, "{span:?}");
    }
    assert_eq!(reached.len(), 3);
}

/// A kernel that refuses its values must end the iteration on every stream, and the device must serve the next one.
#[test]
fn a_failing_kernel_ends_the_iteration_and_not_the_device() {
    let (mut executor, id) = load(CpuDevice::new().unwrap(), offloaded(&program())).unwrap();
    let expected = train(&mut executor, id, 1).unwrap();
    for _ in 0..20 {
        executor.write(id, "labels", &[7i32, 4000].map(i32::to_le_bytes).concat()).unwrap();
        let error = executor.run(id).unwrap_err();
        assert!(matches!(&error, DeviceError::Kernel { node, .. } if node == "loss"), "{error}");
    }
    fill(&mut executor, id).unwrap();
    assert_eq!(train(&mut executor, id, 1).unwrap(), expected);
}

/// A wait that nobody answers is reported, whether its record is missing or comes too late on its own stream.
#[test]
fn a_schedule_that_waits_for_ever_is_an_error() {
    for event in ["computed r", "offloaded r", "loss computed", "prefetched r"] {
        let (program, mut schedule) = offloaded(&program());
        let at = schedule.events.iter().position(|e| e.name == event).unwrap();
        schedule.commands.retain(|command| !matches!(command.action, Action::Record(id) if id.index() == at));
        let (mut executor, id) = load(CpuDevice::new().unwrap(), (program, schedule)).unwrap();
        let error = executor.run(id).unwrap_err();
        assert!(matches!(&error, DeviceError::Deadlock { waiting } if waiting.contains(event)), "{error}");
        assert!(executor.run(id).is_err(), "and again, not a hang");
    }
}

#[test]
fn a_device_dropped_in_an_iteration_ends_its_threads() {
    let (program, schedule) = offloaded(&program());
    let wait = schedule.commands.iter().position(|command| matches!(command.action, Action::Wait(_))).unwrap();
    let mut device = CpuDevice::new().unwrap();
    device.reserve(schedule.peak_bytes(Space::Device), schedule.peak_bytes(Space::Host)).unwrap();
    let id = device.prepare(program, Arc::new(schedule)).unwrap();
    device.begin(id).unwrap();
    device.issue(id, wait).unwrap();
    drop(device);
}
