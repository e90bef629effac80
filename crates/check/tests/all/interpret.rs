//! Runs a schedule byte by byte under a random interleaving, twice in a row, and says what the homes end with.
//!
//! The judge of the checks: it knows neither clocks nor intervals. A byte holds a number; a kernel's output bytes are
//! hashes of its node and all its input bytes; alloc, free and workspaces scribble. Kernels and copies take time: they
//! start and end as two events, and others run between.

use std::collections::VecDeque;
use vdnn_graph::op::{Axis, Concat, Split};
use vdnn_graph::{Op, Program, ValueId};
use vdnn_schedule::{Action, BufferId, Home, Region, Schedule, Space};
use vdnn_tensor::philox4x32_10;

/// Regions and what is stored in them when a command ends.
type Writes = Vec<(Region, Vec<u64>)>;

fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ b.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// What a kernel writes, from what it has read.
fn compute(program: &Program, node: usize, inputs: &[Vec<u64>], lens: &[usize]) -> Vec<Vec<u64>> {
    let node_ref = &program.graph.nodes()[node];
    let samples = |id| program.graph.value(id).ty.shape.samples() as usize;
    match node_ref.op {
        Op::Concat(Concat { axis: Axis::Batch }) => vec![inputs.concat()],
        Op::Split(Split { axis: Axis::Batch, .. }) => {
            let starts = lens.iter().scan(0, |at, len| Some(std::mem::replace(at, *at + len)));
            starts.zip(lens).map(|(from, len)| inputs[0][from..from + len].to_vec()).collect()
        }
        Op::Flatten | Op::Unflatten(_) => vec![inputs[0].clone()],
        Op::Concat(_) => {
            let n = samples(node_ref.outputs[0]);
            let row = |i: usize, part: &Vec<u64>| part[i * part.len() / n..(i + 1) * part.len() / n].to_vec();
            vec![(0..n).flat_map(|i| inputs.iter().flat_map(move |part| row(i, part))).collect()]
        }
        Op::Split(_) => {
            let n = samples(node_ref.inputs[0]);
            let row = inputs[0].len() / n;
            let starts = lens.iter().scan(0, |at, len| Some(std::mem::replace(at, *at + len / n)));
            let part = |(from, len): (usize, &usize)| {
                (0..n).flat_map(|i| inputs[0][i * row + from..][..len / n].to_vec()).collect()
            };
            starts.zip(lens).map(part).collect()
        }
        _ => {
            let seed = inputs.iter().flatten().fold(node as u64, |hash, &byte| mix(hash, byte));
            let output = |o: usize, len: usize| (0..len as u64).map(|i| mix(mix(seed, o as u64), i)).collect();
            lens.iter().enumerate().map(|(o, &len)| output(o, len)).collect()
        }
    }
}

/// What every home must end with: the program run twice in order, every value in memory of its own.
pub fn reference(schedule: &Schedule, program: &Program) -> Vec<u64> {
    let graph = &program.graph;
    let bytes = |id: ValueId| graph.value(id).ty.bytes();
    let initial = |id: ValueId| (0..bytes(id)).map(|i| mix(u64::from(id.0), i)).collect();
    let mut values: Vec<Vec<u64>> = graph.value_ids().map(initial).collect();
    for _ in 0..2 {
        for &id in &program.order {
            let node = graph.node(id);
            let inputs: Vec<Vec<u64>> = node.inputs.iter().map(|id| values[id.index()].clone()).collect();
            let lens: Vec<usize> = node.outputs.iter().map(|&id| bytes(id) as usize).collect();
            let outputs = compute(program, id.index(), &inputs, &lens);
            node.outputs.iter().zip(outputs).for_each(|(id, output)| values[id.index()] = output);
        }
        for persistent in graph.persistents() {
            values[persistent.initial.index()] = values[persistent.last.index()].clone();
        }
    }
    schedule.homes.iter().flat_map(|home| values[home.last.index()].clone()).collect()
}

struct Machine<'a> {
    schedule: &'a Schedule,
    program: &'a Program,
    memory: [Vec<u64>; 2],
    scribble: u64,
}

impl Machine<'_> {
    fn bytes(&self, region: &Region) -> (usize, Vec<usize>) {
        let buffer = self.schedule.buffer(region.buffer);
        let base = buffer.offset + region.offset;
        let row = |i: u64| base + i * region.row_stride;
        let all = (0..region.rows).flat_map(|i| row(i)..row(i) + region.row_bytes).map(|at| at as usize);
        (usize::from(buffer.space != Space::Device), all.collect())
    }

    fn load(&self, region: &Region) -> Vec<u64> {
        let (space, at) = self.bytes(region);
        at.into_iter().map(|i| self.memory[space][i]).collect()
    }

    fn store(&mut self, region: &Region, data: &[u64]) {
        let (space, at) = self.bytes(region);
        at.into_iter().zip(data).for_each(|(i, &byte)| self.memory[space][i] = byte);
    }

    fn poison(&mut self, region: &Region) {
        let (space, at) = self.bytes(region);
        for i in at {
            self.scribble = mix(self.scribble, 77);
            self.memory[space][i] = self.scribble;
        }
    }

    fn whole(&self, buffer: BufferId) -> Region {
        Region::contiguous(buffer, 0, self.schedule.buffer(buffer).bytes)
    }

    /// The result of a launch, to be stored when it ends.
    fn launched(&self, action: &Action) -> Writes {
        match action {
            Action::Launch { node, reads, writes, .. } => {
                let inputs: Vec<Vec<u64>> = reads.iter().map(|region| self.load(region)).collect();
                let lens: Vec<usize> = writes.iter().map(|region| region.bytes() as usize).collect();
                let outputs = compute(self.program, node.index(), &inputs, &lens);
                writes.iter().copied().zip(outputs).collect()
            }
            Action::Transfer { src, dst, .. } => vec![(*dst, self.load(src))],
            _ => Vec::new(),
        }
    }

    fn instant(&mut self, action: &Action) {
        match action {
            Action::Alloc(id) | Action::Free(id) => {
                let region = self.whole(*id);
                self.poison(&region);
            }
            Action::Launch { workspace: Some(region), .. } => self.poison(region),
            _ => {}
        }
    }
}

/// Bytes of every home after two iterations, or `None` when the streams wait for each other for ever.
pub fn run(schedule: &Schedule, program: &Program, seed: u64) -> Option<Vec<u64>> {
    let size = |space| schedule.peak_bytes(space) as usize;
    let memory = [vec![1; size(Space::Device)], vec![2; size(Space::Host)]];
    let mut machine = Machine { schedule, program, memory, scribble: seed };
    for home in &schedule.homes {
        if program.graph.value(home.initial).producer.is_none() {
            let region = machine.whole(home.buffer);
            let data: Vec<u64> = (0..region.bytes()).map(|i| mix(u64::from(home.initial.0), i)).collect();
            machine.store(&region, &data);
        }
    }
    interleave(&mut machine, seed).then(|| {
        // A buffer may be larger than what it holds.
        let held = |home: &Home| Region::contiguous(home.buffer, 0, program.graph.value(home.last).ty.bytes());
        let homes = schedule.homes.iter().map(|home| machine.load(&held(home)));
        homes.flatten().collect()
    })
}

fn interleave(machine: &mut Machine<'_>, seed: u64) -> bool {
    let schedule = machine.schedule;
    let n = schedule.streams.len();
    let mut queues: Vec<VecDeque<(usize, usize)>> = vec![VecDeque::new(); n];
    for iteration in 0..2 {
        for (index, command) in schedule.commands.iter().enumerate() {
            queues[command.stream.index()].push_back((iteration, index));
        }
    }
    let mut records = vec![0usize; schedule.events.len()];
    let mut running: Vec<Option<Writes>> = vec![None; n];
    let mut favourite = 0;
    for turn in 0u64.. {
        let draw = philox4x32_10([turn as u32, (turn >> 32) as u32, 3, 0], [seed as u32, (seed >> 32) as u32]);
        // One stream runs ahead for a while, so that rare overlaps happen.
        if draw[0].is_multiple_of(7) {
            favourite = draw[1] as usize % n;
        }
        let first = if !draw[2].is_multiple_of(4) { favourite } else { draw[3] as usize % n };
        let ready = |s: usize| match queues[s].front() {
            None => false,
            Some(&(iteration, index)) => match schedule.commands[index].action {
                Action::Wait(event) => records[event.index()] > iteration,
                _ => true,
            },
        };
        let Some(s) = (0..n).map(|i| (first + i) % n).find(|&s| ready(s)) else {
            return queues.iter().all(VecDeque::is_empty);
        };
        let (_, index) = *queues[s].front().unwrap();
        let action = &schedule.commands[index].action;
        if let Some(results) = running[s].take() {
            // Half of all kernels read late: what they read must stay until they end.
            let results = if draw[1].is_multiple_of(2) { machine.launched(action) } else { results };
            results.iter().for_each(|(region, data)| machine.store(region, data));
        } else {
            machine.instant(action);
            if matches!(action, Action::Launch { .. } | Action::Transfer { .. }) {
                running[s] = Some(machine.launched(action));
                continue;
            }
            if let Action::Record(event) = action {
                records[event.index()] += 1;
            }
        }
        queues[s].pop_front();
    }
    unreachable!("the turns never end")
}
