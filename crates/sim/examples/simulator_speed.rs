//! How fast a schedule is simulated: a network of VGG-416's size with every input offloaded.
//!
//! `cargo run --release -p vdnn-sim --example simulator_speed [layers]`

use std::time::Instant;
use vdnn_graph::{NodeId, Step};
use vdnn_schedule::{
    Action, AlgoId, Buffer, BufferId, BufferKind, Cause, Choice, Command, Direction, Event, EventId, FORMAT,
    KernelTable, Region, Schedule, Space, StreamId, StreamRole,
};
use vdnn_sim::{Machine, SimError, Simulator};

const RUNS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layers = std::env::args().nth(1).map_or(Ok(416), |text| text.parse())?;
    let (schedule, table) = network(layers);
    let links = Machine::named("titan-x")?.links();
    let start = Instant::now();
    let simulator = Simulator::new(&schedule, &table, &links)?;
    println!("{} commands, prepared in {:.3} ms", schedule.commands.len(), start.elapsed().as_secs_f64() * 1e3);
    println!("run (timeline)    {:.3} ms", median(|| simulator.run().map(|timeline| timeline.seconds))?);
    println!("run (length only) {:.3} ms", median(|| simulator.seconds())?);
    println!("simulated iteration {:.1} ms", simulator.seconds()? * 1e3);
    Ok(())
}

/// Median wall time of many calls, in milliseconds.
fn median(mut call: impl FnMut() -> Result<f64, SimError>) -> Result<f64, SimError> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        std::hint::black_box(call()?);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// A chain of convolutions with ReLU: five kernels and an update a layer, X copied out in forward, back in backward.
fn network(layers: u32) -> (Schedule, KernelTable) {
    let mut schedule = empty();
    let mut table = KernelTable::default();
    for layer in 0..layers {
        forward(&mut schedule, &mut table, layer);
    }
    for layer in (0..layers).rev() {
        backward(&mut schedule, &mut table, layer);
    }
    (schedule, table)
}

fn empty() -> Schedule {
    Schedule {
        format: FORMAT,
        name: "chain".to_string(),
        policy: "all-p".to_string(),
        nodes: Vec::new(),
        values: Vec::new(),
        algorithms: ["winograd", "implicit_precomp_gemm", "implicit_gemm", "default"].map(str::to_string).to_vec(),
        arenas: Vec::new(),
        buffers: Vec::new(),
        homes: Vec::new(),
        events: Vec::new(),
        streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch],
        commands: Vec::new(),
    }
}

fn forward(schedule: &mut Schedule, table: &mut KernelTable, layer: u32) {
    let x = buffer(schedule, format!("x{layer}"), Space::Device);
    let host = buffer(schedule, format!("x{layer}@host"), Space::Host);
    push(schedule, 0, Action::Alloc(x.buffer));
    launch(schedule, table, format!("conv{layer}"), 2e-3);
    launch(schedule, table, format!("relu{layer}"), 2e-4);
    order(schedule, 0, 1);
    push(schedule, 1, Action::Transfer { direction: Direction::Offload, src: x, dst: host });
    order(schedule, 1, 0);
    push(schedule, 0, Action::Free(x.buffer));
}

fn backward(schedule: &mut Schedule, table: &mut KernelTable, layer: u32) {
    let x = buffer(schedule, format!("x{layer}'"), Space::Device);
    let host = Region::contiguous(BufferId(2 * layer + 1), 0, x.bytes());
    order(schedule, 0, 2);
    push(schedule, 0, Action::Alloc(x.buffer));
    push(schedule, 2, Action::Transfer { direction: Direction::Prefetch, src: host, dst: x });
    order(schedule, 2, 0);
    for (name, seconds) in [("relu.dx", 3e-4), ("conv.dw", 2e-3), ("conv.dx", 2e-3), ("bias.dw", 1e-4), ("sgd", 1e-4)] {
        push(schedule, 0, Action::Alloc(x.buffer));
        launch(schedule, table, format!("{name}{layer}"), seconds);
        push(schedule, 0, Action::Free(x.buffer));
    }
    push(schedule, 0, Action::Free(x.buffer));
}

fn launch(schedule: &mut Schedule, table: &mut KernelTable, name: String, seconds: f64) {
    let node = NodeId(schedule.nodes.len() as u32);
    schedule.nodes.push(name);
    let choice = |(index, algorithm): (usize, &String)| {
        let seconds = seconds * (index + 1) as f64;
        Choice { algorithm: algorithm.clone(), workspace: 0, seconds, deterministic: true }
    };
    table.choices.push(schedule.algorithms.iter().enumerate().map(choice).collect());
    let (reads, writes) = (Vec::new(), Vec::new());
    push(schedule, 0, Action::Launch { node, run: 0, algo: AlgoId(node.0 % 4), reads, writes, workspace: None });
}

/// Makes one stream wait for another.
fn order(schedule: &mut Schedule, first: u32, then: u32) {
    let event = EventId(schedule.events.len() as u32);
    schedule.events.push(Event { name: format!("point {}", event.0) });
    push(schedule, first, Action::Record(event));
    push(schedule, then, Action::Wait(event));
}

/// 25 MB, the size of a feature map of VGG at batch 32 in its third group.
fn buffer(schedule: &mut Schedule, name: String, space: Space) -> Region {
    let (id, bytes) = (BufferId(schedule.buffers.len() as u32), 25 << 20);
    schedule.buffers.push(Buffer { name, space, offset: 0, bytes, kind: BufferKind::Storage, root: None });
    Region::contiguous(id, 0, bytes)
}

fn push(schedule: &mut Schedule, stream: u32, action: Action) {
    schedule.commands.push(Command { stream: StreamId(stream), action, because: Cause::Step(Step(0)) });
}
