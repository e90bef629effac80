//! The null device counts what the schedule says.

use crate::net::{load, offloaded, program, train};
use vdnn_runtime::{Counts, Device, Executor, KernelRequest, NullDevice};
use vdnn_schedule::Direction;

#[test]
fn counts_are_the_schedules() {
    let (program, schedule) = offloaded(&program());
    let moved = schedule.transfer_bytes(Direction::Offload);
    assert_eq!((moved, schedule.transfer_bytes(Direction::Prefetch)), (2048, 2048));
    let n_commands = schedule.commands.len() as u64;
    let (mut executor, id) = load(NullDevice::new(), (program, schedule)).unwrap();
    let written_bytes = executor.device().counts().written_bytes;
    train(&mut executor, id, 3).unwrap();
    let expected = Counts {
        iterations: 3,
        commands: 3 * n_commands,
        launches: 3 * 8,
        recomputed: 0,
        allocs: 3 * 5,
        frees: 3 * 5,
        records: 3 * 4,
        waits: 3 * 4,
        offload_bytes: 3 * moved,
        prefetch_bytes: 3 * moved,
        to_disk_bytes: 0,
        from_disk_bytes: 0,
        written_bytes,
        read_bytes: 3 * (4 + 288),
    };
    assert_eq!(executor.device().counts(), expected);
    assert_eq!((executor.measured_peak(), executor.timeline()), (None, None));
}

#[test]
fn every_node_has_a_choice_and_memory_is_still_checked() {
    let (program, schedule) = offloaded(&program());
    let mut device = NullDevice::new();
    let request = KernelRequest { workspace_limit: Some(0), ..KernelRequest::whole(true) };
    let table = device.kernel_table(&program.graph, request).unwrap();
    assert!(table.choices.len() == program.n_steps() && table.choices.iter().all(|choices| !choices.is_empty()));
    let mut executor = Executor::new(device);
    executor.reserve(schedule.peak_bytes(vdnn_schedule::Space::Device) - 1, 1 << 20).unwrap();
    assert!(executor.add(program, std::sync::Arc::new(schedule)).is_err());
}
