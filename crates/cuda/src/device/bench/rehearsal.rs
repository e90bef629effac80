//! What kernels take in the middle of a step. Timed by themselves they find a cool card with its clock up; a step's keep it at
//! its power limit, and the clock falls.
//!
//! ```text
//!  captured  all kernels in order │ all │ all │ all │ …        until laps take as long as those before: the clock is where it stays
//!                                 └──┬──┘
//!                                  a lap: seconds of a step without copies
//!  issued    lap, lap, then record ─► kernel ─► record ─► kernel ─► record …      what is whose in a lap
//! ```
//! A kernel's *pace* is the seconds it has in a lap over those it took by itself; all its choices are taken to share it. Laps
//! end exactly where the paces say: what is left over is shared out by launches.
//!
//! On an H200 a 3x3 convolution in bf16 of 256 channels and 256 maps of 56x56 takes 1.01 ms alone over constants, 1.18 over
//! normal numbers (bits that do not change cost little power), and 1.40 after a second of others.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use vdnn_schedule::Choice;

use super::{Bench, Failure, Gpu, Pattern};
use crate::CudaError;
use crate::context::{Context, Event, Graph, Timing};
use crate::device::chain::LaunchTimes;
use crate::device::gpu::{Bytes, Work};
use crate::device::measure::{Places, Scratch, is_index, median};
use crate::kernels;

/// Seconds of laps before a look at whether the clock is where it stays. The limit on power acts within some hundredths of a second,
/// but after a search with its many short kernels the clock may need seconds to come back.
const WINDOW: f64 = 0.25;
/// Laps of two windows that differ by less than this share are where they stay.
const STEADY: f64 = 0.004;
/// Windows after which laps count as they are.
const WINDOWS: usize = 16;
/// Laps of a window at most.
const MOST_LAPS: usize = 1000;
/// Issued laps, of which the median counts; one of a network whose lap takes longer than a window.
const LAPS: usize = 5;
/// Captured laps before an issued one, so that the host gets ahead of the device.
const AHEAD: usize = 2;
/// A lap this long is not rehearsed.
const LONGEST: f64 = 10.0;

/// One kernel of a lap.
struct Part {
    /// Its number among the patterns.
    pattern: usize,
    /// What it was measured to take by itself.
    alone: f64,
    works: Vec<Work>,
}

/// The memory of a lap. Inputs are never written, so each kernel finds numbers that are as wild as when the memory was taken.
#[derive(Debug, Default)]
struct Stage {
    inputs: Scratch,
    positions: Scratch,
    outputs: Scratch,
}

/// Bytes of each kind of memory that a kernel needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Needs {
    inputs: u64,
    positions: u64,
    outputs: u64,
}

impl Bench {
    /// How many times as long each pattern's fastest choice takes in the middle of the others; 1 of those that cannot be run
    /// so: without memory for it, or where nothing can be captured.
    pub fn paces(
        &mut self,
        gpu: &mut Gpu,
        patterns: &[Pattern<'_>],
        choices: &[Vec<Choice>],
    ) -> Result<Vec<f64>, Failure> {
        let key = key_of(patterns, choices);
        if let Some(paces) = self.measured.paces(&key).filter(|paces| paces.len() == patterns.len()) {
            return Ok(paces.to_vec());
        }
        let mut paces = vec![1.0; patterns.len()];
        let sum: f64 = choices.iter().flat_map(|choices| choices.first()).map(|fastest| fastest.seconds).sum();
        if sum > 0.0 && sum < LONGEST {
            match self.rehearse(gpu, patterns, choices, &mut paces) {
                Ok(()) => {
                    self.measured.record_paces(key, paces.clone());
                    self.measured.save();
                }
                // Times alone are better than none, unless this took the whole device with it.
                Err(_) => gpu.context.synchronize()?,
            }
        }
        Ok(paces)
    }

    fn rehearse(
        &mut self,
        gpu: &mut Gpu,
        patterns: &[Pattern<'_>],
        choices: &[Vec<Choice>],
        paces: &mut [f64],
    ) -> Result<(), Failure> {
        let mut stage = Stage::default();
        let parts = self.parts(gpu, &mut stage, patterns, choices)?;
        let all = || parts.iter().flat_map(|part| &part.works);
        if all().next().is_none() {
            return Ok(());
        }
        // Functions are loaded before anything is captured.
        all().try_for_each(|work| work.run(gpu))?;
        let graph = gpu.streams.compute.capture(|| all().try_for_each(|work| work.run(gpu)))?;
        gpu.streams.compute.synchronize()?;
        let laps = Laps { gpu, graph, parts: &parts };
        let lap = laps.warm()?;
        let intervals = laps.intervals(lap)?;
        let launch = self.timer.launch.unwrap_or(LaunchTimes { alone: 0.0, chained: 0.0 });
        let seconds = shares(lap, &intervals, &launch, parts.iter().map(|part| part.works.len()));
        for (part, seconds) in parts.iter().zip(seconds) {
            paces[part.pattern] = seconds / part.alone;
        }
        Ok(())
    }

    /// The works of all patterns that take time, on a stage that is large enough.
    fn parts(
        &mut self,
        gpu: &mut Gpu,
        stage: &mut Stage,
        patterns: &[Pattern<'_>],
        choices: &[Vec<Choice>],
    ) -> Result<Vec<Part>, Failure> {
        let timed = |choices: &Vec<Choice>| choices.first().filter(|fastest| fastest.seconds > 0.0).cloned();
        let fastest: Vec<Option<Choice>> = choices.iter().map(timed).collect();
        let mut needs = Needs::default();
        for (pattern, choice) in patterns.iter().zip(&fastest) {
            if let Some(choice) = choice {
                needs = needs.and(pattern.clone().on(&Needs::default(), choice.workspace).1);
            }
        }
        let at = stage.take(gpu, &needs)?.ok_or_else(|| "expected free memory to rehearse in".to_string())?;
        let mut parts = Vec::with_capacity(patterns.len());
        for (number, (pattern, choice)) in patterns.iter().zip(&fastest).enumerate() {
            let Some(choice) = choice else { continue };
            let (placed, _, workspace) = pattern.clone().on(&at, choice.workspace);
            let site = super::Site { workspace, ..placed.site(&choice.algorithm) };
            let works = site.works(gpu, &mut self.plans)?;
            // Of a concatenation only the parts that move in place are timed; all of them move here.
            if pattern.launches().is_none_or(|launches| launches == works.len()) {
                parts.push(Part { pattern: number, alone: choice.seconds, works });
            }
        }
        Ok(parts)
    }
}

impl Needs {
    /// What two kernels need that do not run together.
    fn and(self, other: Needs) -> Needs {
        let (inputs, positions) = (self.inputs.max(other.inputs), self.positions.max(other.positions));
        Needs { inputs, positions, outputs: self.outputs.max(other.outputs) }
    }
}

impl Stage {
    /// Where each kind of memory begins; `None` when there is not enough.
    fn take(&mut self, gpu: &Gpu, needs: &Needs) -> Result<Option<Needs>, CudaError> {
        let inputs = self.inputs.take(gpu, needs.inputs)?;
        let positions = self.positions.take_zeros(gpu, needs.positions)?;
        let outputs = self.outputs.take(gpu, needs.outputs)?;
        Ok(match (inputs, positions, outputs) {
            (Some(inputs), Some(positions), Some(outputs)) => {
                Some(Needs { inputs: inputs.address, positions: positions.address, outputs: outputs.address })
            }
            _ => None,
        })
    }
}

impl Pattern<'_> {
    /// The pattern with operands where memory of their kind begins, what that takes, and a workspace behind the outputs.
    fn on(mut self, at: &Needs, workspace: u64) -> (Self, Needs, Bytes) {
        let [mut inputs, mut positions, mut outputs] = [(); 3].map(|()| Places::default());
        for operand in &mut self.inputs {
            let (places, base) =
                if is_index(operand.ty) { (&mut positions, at.positions) } else { (&mut inputs, at.inputs) };
            operand.address = base + places.read(operand).address;
        }
        self.outputs.iter_mut().for_each(|operand| operand.address = at.outputs + outputs.operand(operand).address);
        let offset = outputs.bytes(workspace);
        let needs = Needs { inputs: inputs.end(), positions: positions.end(), outputs: outputs.end() };
        (self, needs, Bytes { address: at.outputs + offset, bytes: workspace })
    }

    /// Launches of an own kernel where it lies; `None` of others.
    fn launches(&self) -> Option<usize> {
        let own = matches!(self.node.op, vdnn_graph::Op::Concat(_) | vdnn_graph::Op::Split(_));
        let plan = own.then(|| kernels::prepare(&self.node.op, &self.inputs, &self.outputs, 0))?;
        plan.ok().map(|plan| plan.launches.len())
    }
}

/// Laps of one network.
struct Laps<'a> {
    gpu: &'a Gpu,
    graph: Graph,
    parts: &'a [Part],
}

impl Laps<'_> {
    /// Runs captured laps until they take as long as those before, and returns what they take.
    fn warm(&self) -> Result<f64, CudaError> {
        // The first finds the card idle: it says only how many fill a window.
        let mut lap = self.window(1)?;
        for number in 0..WINDOWS {
            let before = lap;
            lap = self.window(((WINDOW / before.max(1e-6)).ceil() as usize).clamp(1, MOST_LAPS))?;
            if number > 0 && (lap - before).abs() <= STEADY * before {
                break;
            }
        }
        Ok(lap)
    }

    /// Median seconds of so many captured laps.
    fn window(&self, laps: usize) -> Result<f64, CudaError> {
        let stream = &self.gpu.streams.compute;
        let events = events(&self.gpu.context, laps + 1)?;
        stream.record(&events[0])?;
        for event in &events[1..] {
            self.graph.launch(stream)?;
            stream.record(event)?;
        }
        stream.synchronize()?;
        Ok(median(between(&events)?))
    }

    /// Median seconds between events around each part in a lap.
    fn intervals(&self, lap: f64) -> Result<Vec<f64>, CudaError> {
        let (stream, context) = (&self.gpu.streams.compute, &self.gpu.context);
        let events = events(context, self.parts.len() + 1)?;
        let mut laps = Vec::new();
        for _ in 0..self.count(lap) {
            (0..AHEAD).try_for_each(|_| self.graph.launch(stream))?;
            stream.record(&events[0])?;
            for (part, event) in self.parts.iter().zip(&events[1..]) {
                part.works.iter().try_for_each(|work| work.run(self.gpu))?;
                stream.record(event)?;
            }
            stream.synchronize()?;
            laps.push(between(&events)?);
        }
        let of_part = |part: usize| median(laps.iter().map(|lap| lap[part]).collect());
        Ok((0..self.parts.len()).map(of_part).collect())
    }

    fn count(&self, lap: f64) -> usize {
        if lap > WINDOW { 1 } else { LAPS }
    }
}

fn events(context: &Arc<Context>, count: usize) -> Result<Vec<Event>, CudaError> {
    Event::many(context, Timing::On, count)
}

/// Seconds from each event to the next.
fn between(events: &[Event]) -> Result<Vec<f64>, CudaError> {
    events.windows(2).map(|pair| Ok(pair[0].elapsed_ms(&pair[1])? / 1e3)).collect()
}

/// What each part of a lap takes there: its interval without what events add, and by launches an equal share of what is then left
/// of the lap. Never less than a launch in a chain.
fn shares(lap: f64, intervals: &[f64], launch: &LaunchTimes, launches: impl Iterator<Item = usize>) -> Vec<f64> {
    let launches: Vec<f64> = launches.map(|count| count as f64).collect();
    let seconds: Vec<f64> = intervals.iter().map(|&interval| launch.in_chain(interval)).collect();
    let left = (lap - seconds.iter().sum::<f64>()) / launches.iter().sum::<f64>().max(1.0);
    let least = launch.chained;
    let share = |(seconds, launches): (&f64, &f64)| (seconds + left * launches).max(least.min(*seconds));
    seconds.iter().zip(&launches).map(share).collect()
}

/// The network as far as laps depend on it: its kernels in order, what each runs as, and what own ones are.
fn key_of(patterns: &[Pattern<'_>], choices: &[Vec<Choice>]) -> String {
    let mut hash = Sha256::new();
    for (pattern, choices) in patterns.iter().zip(choices) {
        let algorithm = choices.first().map_or("", |fastest| &fastest.algorithm);
        hash.update(format!("{}{} {algorithm} {}\n", pattern.key, pattern.slices(), pattern.own_code()));
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Operand;

    #[test]
    fn shares_add_up_to_the_lap() {
        let launch = LaunchTimes { alone: 4e-6, chained: 1e-6 };
        // 3 us of each interval are the events'. A lap has 6 us more, which are those of three launches.
        let shares = shares(136e-6, &[103e-6, 33e-6], &launch, [1, 2].into_iter());
        let expected = [102e-6, 34e-6];
        assert!(shares.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12), "{shares:?}");
    }

    #[test]
    fn no_share_is_less_than_a_launch() {
        let launch = LaunchTimes { alone: 4e-6, chained: 1e-6 };
        let shares = shares(50e-6, &[103e-6, 4.5e-6], &launch, [1, 1].into_iter());
        assert_eq!(shares[1], 1e-6);
        assert!(shares[0] < 100e-6 && shares[0] > 50e-6);
    }

    /// Two members' updates in one launch, since they read one learning rate and one iteration.
    #[test]
    fn a_group_is_one_launch_on_the_stage_too() {
        use vdnn_graph::op::{Group, Sgd};
        use vdnn_graph::{Node, Op};
        use vdnn_tensor::{DType, TensorType};
        let (vector, number) = (TensorType::new([8], DType::F32), TensorType::new([1], DType::F32));
        let count = TensorType::new([1], DType::U64);
        let mut graph = vdnn_graph::Graph::new("updates");
        graph.begin_layer("layer");
        let x = graph.input("x", vector.clone()).unwrap();
        graph.push("relu", Op::Relu, &[x]).unwrap();
        let sgd = Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false };
        let group = Op::Group(Group { op: Box::new(Op::Sgd(sgd)), members: 2, inputs: 4 });
        let node = Node { op: group, ..graph.nodes()[0].clone() };
        let at = |ty, place: u64| Operand::contiguous(ty, place << 40);
        let (rate, iteration) = (at(&number, 1), at(&count, 2));
        let [one, other] = [[at(&vector, 3), at(&vector, 4)], [at(&vector, 5), at(&vector, 6)]];
        let inputs = vec![one[0], one[1], rate, iteration, other[0], other[1], rate, iteration];
        let (outputs, precision) = (vec![one[0], other[0]], crate::cudnn::Precision::Fp32);
        let pattern = Pattern { node: &node, key: "key".to_string(), inputs, outputs, precision };
        let launches = |pattern: &Pattern<'_>| {
            kernels::prepare(&pattern.node.op, &pattern.inputs, &pattern.outputs, 0).unwrap().launches.len()
        };
        let (placed, _, _) = pattern.clone().on(&Needs { inputs: 1 << 20, positions: 2 << 20, outputs: 3 << 20 }, 0);
        assert_eq!((launches(&pattern), launches(&placed)), (1, 1));
        assert_eq!(placed.inputs[2].address, placed.inputs[6].address);
        assert!(placed.outputs.iter().all(|output| output.address >= 3 << 20), "numbers that are read stay");
    }

    #[test]
    fn kinds_of_memory_do_not_mix() {
        use vdnn_graph::Op;
        use vdnn_tensor::{DType, TensorType};
        let types = [
            TensorType::new([2, 8], DType::U8),
            TensorType::new([2, 8], DType::F32),
            TensorType::new([2, 8], DType::F32),
        ];
        let mut graph = vdnn_graph::Graph::new("mask");
        graph.begin_layer("layer");
        let x = graph.input("x", types[1].clone()).unwrap();
        graph.push("relu", Op::Relu, &[x]).unwrap();
        let [mask, dy, dx] = types.each_ref().map(|ty| Operand::contiguous(ty, 4096));
        let (node, precision) = (&graph.nodes()[0], crate::cudnn::Precision::Fp32);
        let pattern = Pattern { node, key: "key".to_string(), inputs: vec![mask, dy], outputs: vec![dx], precision };
        let at = Needs { inputs: 1 << 20, positions: 2 << 20, outputs: 3 << 20 };
        let (placed, needs, workspace) = pattern.on(&at, 100);
        assert_eq!((placed.inputs[0].address, placed.inputs[1].address), (2 << 20, 1 << 20));
        assert_eq!((placed.outputs[0].address, workspace.address, workspace.bytes), (3 << 20, (3 << 20) + 256, 100));
        assert_eq!(needs, Needs { inputs: 64, positions: 16, outputs: 356 });
        assert_eq!(needs.and(Needs { inputs: 100, positions: 1, outputs: 0 }), Needs { inputs: 100, ..needs });
    }
}
