//! An input staged while an iteration runs: the iteration does not see it, the next one does, on every device.

use crate::net::{kept, load, offloaded, program};
use std::sync::Arc;
use vdnn_graph::Program;
use vdnn_runtime::{ChaosDevice, CpuDevice, Device, DeviceError, Executor, NullDevice, ScheduleId};
use vdnn_schedule::{Schedule, Space};

const IMAGE: usize = 2 * 3 * 8 * 8;

fn image(step: usize) -> Vec<u8> {
    (0..IMAGE).flat_map(|at| (((at * 7 + step * 31) % 64) as f32 / 32.0 - 1.0).to_le_bytes()).collect()
}

/// An executor with room for a second image above everything, and where that is.
fn with_room<D: Device>(
    device: D,
    (program, mut schedule): (Arc<Program>, Schedule),
) -> (Executor<D>, ScheduleId, u64) {
    let at = schedule.peak_bytes(Space::Device).next_multiple_of(256);
    schedule.arenas.iter_mut().filter(|arena| arena.space == Space::Device).for_each(|arena| arena.bytes = at + 2048);
    let (mut executor, id) = load(device, (program, schedule)).unwrap();
    executor.reserve_staging(at, 2048).unwrap();
    (executor, id, at)
}

/// Losses and weights of three images, each written before its iteration or staged during the one before.
fn train<D: Device>(device: D, ahead: bool, parts: (Arc<Program>, Schedule)) -> Vec<u8> {
    let (mut executor, id, at) = with_room(device, parts);
    let mut seen = Vec::new();
    executor.write(id, "image", &image(0)).unwrap();
    for step in 0..3 {
        executor.start(id).unwrap();
        if ahead {
            // What is staged last counts.
            executor.stage(id, "image", at, &image(99)).unwrap();
            executor.stage(id, "image", at, &image(step + 1)).unwrap();
        }
        executor.finish().unwrap();
        seen.extend(executor.read(id, "loss").unwrap());
        seen.extend(executor.read(id, "w2'").unwrap());
        match ahead {
            true => executor.load_staged(id, "image", at).unwrap(),
            false => executor.write(id, "image", &image(step + 1)).unwrap(),
        }
    }
    seen
}

#[test]
fn the_next_image_may_come_while_an_iteration_runs() {
    let program = program();
    for parts in [kept(&program), offloaded(&program)] {
        let cpu = || CpuDevice::with_threads(2).unwrap();
        let want = train(cpu(), false, parts.clone());
        assert_eq!(train(cpu(), true, parts.clone()), want);
        // Chaos poisons whatever belongs to nobody before each iteration.
        for seed in 0..20 {
            assert_eq!(train(ChaosDevice::new(seed), true, parts.clone()), want, "seed {seed}");
        }
        train(NullDevice::new(), true, parts);
    }
}

#[test]
fn bytes_outside_the_region_are_refused() {
    let (mut executor, id, at) = with_room(CpuDevice::with_threads(1).unwrap(), kept(&program()));
    for outside in [0, at - 64, at + 2048 - 64, u64::MAX] {
        let refused = executor.stage(id, "image", outside, &image(0));
        assert!(matches!(refused, Err(DeviceError::Schedule { .. })), "{outside}");
        assert!(executor.load_staged(id, "image", outside).is_err(), "{outside}");
    }
    let refused = executor.stage(id, "image", at, &image(0)[4..]).unwrap_err();
    assert!(matches!(refused, DeviceError::HomeSize { expected: 1536, found: 1532, .. }), "{refused}");
    assert!(executor.stage(id, "picture", at, &image(0)).unwrap_err().to_string().contains("image"));
    let mut late = Executor::new(CpuDevice::with_threads(1).unwrap());
    assert!(late.reserve_staging(0, 64).is_err(), "before the arenas");
    late.reserve(4096, 0).unwrap();
    assert!(late.reserve_staging(4000, 100).is_err(), "beyond the arena");
}
