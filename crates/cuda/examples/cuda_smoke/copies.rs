//! Device and pinned arena, copies in one piece and by rows, both directions at once.

use std::time::Instant;

use serde_json::json;
use vdnn_cuda::CudaError;
use vdnn_cuda::context::{Event, Timing};
use vdnn_cuda::memory::{DeviceArena, PinnedArena, Rows, copy_on_device, offload, prefetch};

use crate::Bench;

const SIZE: u64 = 64 << 20;

pub fn run(bench: &mut Bench) -> Result<(), CudaError> {
    let device = DeviceArena::new(&bench.context, 2 * SIZE + 123)?;
    let start = Instant::now();
    let host = PinnedArena::new(&bench.context, SIZE)?;
    let facts = json!({
        "bytes": host.bytes(), "reserved": host.reserved_bytes(), "seconds": start.elapsed().as_secs_f64(),
    });
    bench.report("pinned arena", host.reserved_bytes() < SIZE + 65536, facts);
    let contiguous = Rows::contiguous(512, SIZE / 2);
    round_trip(bench, &device, &host, "one piece", contiguous, Rows { offset: 64, ..contiguous })?;
    // 100 samples of 7777 bytes out of a concatenation of 50_000-byte samples, packed on the host.
    let slice = Rows { offset: 4096, rows: 100, row_bytes: 7777, stride: 50_000 };
    round_trip(bench, &device, &host, "rows to packed", slice, Rows { offset: 32, stride: 7777, ..slice })?;
    round_trip(bench, &device, &host, "rows to rows", slice, Rows { offset: 1, stride: 9000, ..slice })?;
    on_device(bench, &device)?;
    limits(bench, &device, &host);
    speed(bench)
}

/// Offloads, wipes, prefetches to the same place, and compares every byte in and between the rows.
fn round_trip(
    bench: &mut Bench,
    device: &DeviceArena,
    host: &PinnedArena,
    name: &str,
    at: Rows,
    kept: Rows,
) -> Result<(), CudaError> {
    let pattern: Vec<u8> = (0..device.bytes()).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    let streams = &bench.streams;
    device.write(&streams.compute, 0, &pattern)?;
    host.write(0, &vec![0; SIZE as usize])?;
    offload(&streams.offload, device, at, host, kept)?;
    streams.offload.synchronize()?;
    device.fill(&streams.compute, 0, device.bytes(), 0xEE)?;
    streams.compute.synchronize()?;
    prefetch(&streams.prefetch, host, kept, device, at)?;
    streams.prefetch.synchronize()?;
    let mut result = vec![0; device.bytes() as usize];
    device.read(&streams.compute, 0, &mut result)?;
    let mut expected = vec![0xEE; device.bytes() as usize];
    for row in 0..at.rows {
        let range = (at.offset + row * at.stride) as usize..(at.offset + row * at.stride + at.row_bytes) as usize;
        expected[range.clone()].copy_from_slice(&pattern[range]);
    }
    bench.report(&format!("copy {name}"), result == expected, json!({"bytes": at.bytes()}));
    Ok(())
}

fn on_device(bench: &mut Bench, device: &DeviceArena) -> Result<(), CudaError> {
    let stream = &bench.streams.compute;
    device.write(stream, 0, b"some bytes")?;
    copy_on_device(stream, device, 0, 4096, 10)?;
    let mut copy = [0; 10];
    device.read(stream, 4096, &mut copy)?;
    bench.report("copy on device", &copy == b"some bytes", json!({}));
    Ok(())
}

fn limits(bench: &mut Bench, device: &DeviceArena, host: &PinnedArena) {
    let beyond = Rows::contiguous(SIZE, 1);
    let refused = offload(&bench.streams.offload, device, beyond, host, beyond);
    bench.report("beyond the end", matches!(refused, Err(CudaError::OutOfRange { .. })), json!({}));
    let huge = DeviceArena::new(&bench.context, 1 << 45).err();
    let text = huge.as_ref().map(ToString::to_string);
    bench.report("no memory", matches!(huge, Some(CudaError::DeviceMemory { .. })), json!({"error": text}));
    let huge = PinnedArena::new(&bench.context, 1 << 45).err();
    let text = huge.as_ref().map(ToString::to_string);
    bench.report("no host memory", matches!(huge, Some(CudaError::HostMemory { .. })), json!({"error": text}));
}

/// Gigabytes a second each way, both directions together.
fn speed(bench: &mut Bench) -> Result<(), CudaError> {
    let bytes = 1u64 << 30;
    let device = DeviceArena::new(&bench.context, 2 * bytes)?;
    let start = Instant::now();
    let host = PinnedArena::new(&bench.context, 2 * bytes)?;
    let pin_seconds = start.elapsed().as_secs_f64();
    let events = Event::many(&bench.context, Timing::On, 3)?;
    let (out, back) = (&bench.streams.offload, &bench.streams.prefetch);
    let (low, high) = (Rows::contiguous(0, bytes), Rows::contiguous(bytes, bytes));
    let mut ms = f64::MAX;
    for _ in 0..3 {
        out.record(&events[0])?;
        back.wait(&events[0])?;
        offload(out, &device, low, &host, low)?;
        prefetch(back, &host, high, &device, high)?;
        back.record(&events[1])?;
        out.wait(&events[1])?;
        out.record(&events[2])?;
        events[2].synchronize()?;
        ms = ms.min(events[0].elapsed_ms(&events[2])?);
    }
    let facts = json!({"pin_2GiB_seconds": pin_seconds, "ms": ms, "sum_gb_per_s": 2.0 * bytes as f64 / ms / 1e6});
    bench.report("both directions", true, facts);
    Ok(())
}
