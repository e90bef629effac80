//! A training iteration ready to be planned, compiled and run: its program, what it starts from, its kernels and homes.

use crate::random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_autograd::{Optimizer, Options as Differentiation, UpdateAt, differentiate, encode};
use vdnn_graph::op::Sgd;
use vdnn_graph::{InPlace, NodeId, Op, Program};
use vdnn_layers::Net;
use vdnn_memory::{Budgets, Encoded, HomeLayout, MemoryPlan, Options, PlanError, Problem, compile};
use vdnn_runtime::{CpuDevice, Device, DeviceError, Executor, KernelRequest, ScheduleId};
use vdnn_schedule::{KernelTable, Schedule};
use vdnn_sim::{DiskRates, Links};
use vdnn_tensor::{DType, HostTensor};

/// Copies about as slow as kernels, so that windows matter.
pub const LINKS: Links = Links { disk: Some(DISK), ..Links::new(1e9, 1e9, 1e9) };

/// A disk a third as fast.
const DISK: DiskRates = DiskRates { write: 3e8, read: 4e8, latency: 0.0 };

/// Small values count.
pub fn options() -> Options {
    Options { min_offload: 0, memory_optimal_workspace: 0, state: vdnn_memory::State::Device, ..Options::default() }
}

/// SGD, with momentum unless it is 0.
pub fn sgd(momentum: f64) -> Optimizer {
    Optimizer::Sgd(Sgd { momentum, dampening: 0.0, weight_decay: 1e-3, nesterov: false })
}

/// The CPU's kernels for a program, all deterministic.
pub fn kernels(program: &Program) -> KernelTable {
    offered(program, KernelRequest::whole(true))
}

/// The same, in pieces of the batch too.
pub fn kernels_in_pieces(program: &Program) -> KernelTable {
    offered(program, KernelRequest { pieces_within: Some(0), ..KernelRequest::whole(true) })
}

fn offered(program: &Program, request: KernelRequest) -> KernelTable {
    CpuDevice::with_threads(1).unwrap().kernel_table(&program.graph, request).unwrap()
}

/// What outlives an iteration, and what was measured, by name.
pub type State = Vec<(String, Vec<u8>)>;

/// One program with everything needed to plan and run it.
pub struct Iteration {
    /// What runs.
    pub program: Arc<Program>,
    /// Parameters and states as the network starts them.
    pub initial: BTreeMap<String, HostTensor>,
    /// The CPU's kernels.
    pub kernels: KernelTable,
    /// Homes of this program alone.
    pub homes: HomeLayout,
}

impl Iteration {
    /// Forward, backward and updates of a network that classifies.
    pub fn training(net: Net, optimizer: Optimizer, update_at: UpdateAt) -> Self {
        let initial = initial_of(&net);
        let options = Differentiation { update_at, ..Differentiation::train(net.loss().unwrap(), optimizer) };
        let graph = differentiate(net.into_graph(), &options).unwrap().graph;
        Self::of(Program::linearize(graph, InPlace::Allowed).unwrap(), initial)
    }

    /// The forward pass alone.
    pub fn forward(net: Net) -> Self {
        let initial = initial_of(&net);
        Self::of(Program::linearize(net.into_graph(), InPlace::Allowed).unwrap(), initial)
    }

    /// A program, and what its persistents start from.
    pub fn of(program: Program, initial: BTreeMap<String, HostTensor>) -> Self {
        let homes = HomeLayout::for_graphs(&[&program.graph], 256);
        Iteration { kernels: kernels(&program), program: Arc::new(program), initial, homes }
    }

    /// The same iteration with encoded gradient rules, where it has any.
    pub fn encoded(&self) -> Option<Self> {
        let program = encode(&self.program).unwrap()?;
        let layout = |graph| HomeLayout::for_graphs(&[graph], 256);
        assert_eq!(layout(&program.graph), layout(&self.program.graph));
        Some(Iteration { homes: self.homes.clone(), ..Self::of(program, self.initial.clone()) })
    }

    /// The planning problem with an alternative.
    pub fn problem_or<'a>(&'a self, encoded: Option<&'a Self>, options: Options, device: Option<u64>) -> Problem<'a> {
        let encoded = encoded.map(|it| Encoded { program: &it.program, kernels: &it.kernels });
        Problem { encoded, ..self.problem(options, device) }
    }

    /// The planning problem under options and a device budget.
    pub fn problem(&self, options: Options, device: Option<u64>) -> Problem<'_> {
        Problem {
            program: &self.program,
            kernels: &self.kernels,
            links: LINKS,
            homes: &self.homes,
            budgets: Budgets { device, host: None, disk: None },
            options,
            encoded: None,
        }
    }

    /// Whether a node makes a mask or indices.
    pub fn is_encoded(&self, node: NodeId) -> bool {
        matches!(self.program.graph.node(node).op, Op::ReluMask | Op::MaxPool2dIndices(_))
    }

    /// Keeps everything, with the algorithms of another plan.
    pub fn kept(&self, like: &MemoryPlan) -> MemoryPlan {
        MemoryPlan { algos: like.algos.clone(), ..MemoryPlan::keep_all(&self.program) }
    }

    /// Compiles a plan.
    pub fn compile(&self, options: Options, plan: &MemoryPlan) -> Result<Schedule, PlanError> {
        compile(&self.problem(options, None), plan, "test")
    }

    /// Compiles a plan that must be good, and checks the result.
    pub fn checked(&self, options: Options, plan: &MemoryPlan) -> Arc<Schedule> {
        let schedule = self.compile(options, plan).unwrap_or_else(|error| panic!("{error}\n{plan:?}"));
        let mut violations = vdnn_check::check(&schedule, &self.program);
        violations.extend(vdnn_check::kernels(&schedule, &self.kernels));
        assert!(violations.is_empty(), "{violations:#?}\n{plan:?}\n{}", schedule.to_text());
        Arc::new(schedule)
    }

    /// What lasts, and the metrics of the last iteration, after `iterations` on a fresh device.
    pub fn run(
        &self,
        device: Box<dyn Device>,
        schedule: &Arc<Schedule>,
        iterations: u64,
    ) -> Result<State, DeviceError> {
        let pair = (Arc::clone(&self.program), Arc::clone(schedule));
        let (mut executor, ids) = Executor::with_schedules(device, &[pair])?;
        self.start(&mut executor, ids[0])?;
        for iteration in 0..iterations {
            self.iterate(&mut executor, ids[0], iteration)?;
        }
        self.state(&mut executor, ids[0])
    }

    /// Runs in order on the CPU.
    pub fn run_on_cpu(&self, schedule: &Arc<Schedule>, iterations: u64) -> State {
        let mut device = CpuDevice::with_threads(1).unwrap();
        device.set_disk_folder(&std::env::temp_dir());
        self.run(Box::new(device), schedule, iterations).unwrap()
    }

    /// Writes parameters and states as they start.
    pub fn start(&self, executor: &mut Executor<Box<dyn Device>>, id: ScheduleId) -> Result<(), DeviceError> {
        let graph = &self.program.graph;
        for persistent in graph.persistents() {
            let value = graph.value(persistent.initial);
            let zeros = vec![0; value.ty.bytes() as usize];
            let bytes = self.initial.get(&value.name).map_or(&zeros[..], |tensor| tensor.as_bytes());
            executor.write(id, &value.name, bytes)?;
        }
        Ok(())
    }

    /// Feeds a batch that follows from the number of the iteration, and runs.
    pub fn iterate(
        &self,
        executor: &mut Executor<Box<dyn Device>>,
        id: ScheduleId,
        iteration: u64,
    ) -> Result<(), DeviceError> {
        let graph = &self.program.graph;
        let mut random = Random::new(1000 + iteration);
        for value in graph.values().iter().filter(|value| value.producer.is_none()) {
            let elements = value.ty.shape.elements();
            let bytes: Vec<u8> = match (value.name.as_str(), value.ty.dtype) {
                ("image", _) => (0..elements).flat_map(|_| random.centred().to_le_bytes()).collect(),
                ("label", _) => (0..elements).flat_map(|_| (random.below(3) as i32).to_le_bytes()).collect(),
                ("learning_rate", _) => 0.05f32.to_le_bytes().to_vec(),
                ("iteration", DType::U64) => iteration.to_le_bytes().to_vec(),
                _ => continue,
            };
            executor.write(id, &value.name, &bytes)?;
        }
        executor.run(id)
    }

    /// Everything that lasts, and the metrics.
    pub fn state(&self, executor: &mut Executor<Box<dyn Device>>, id: ScheduleId) -> Result<State, DeviceError> {
        let graph = &self.program.graph;
        let lasting = graph.persistents().iter().map(|persistent| persistent.initial);
        let ids = lasting.chain(graph.metrics().iter().copied());
        let names = ids.map(|id| graph.value(id).name.clone());
        names.map(|name| executor.read(id, &name).map(|bytes| (name, bytes))).collect()
    }
}

fn initial_of(net: &Net) -> BTreeMap<String, HostTensor> {
    net.initial_values().map(|(name, value)| (name.to_string(), value)).collect()
}

/// Names of the entries in which two states differ.
pub fn differences(a: &State, b: &State) -> Vec<String> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).filter(|(a, b)| a != b).map(|(a, _)| a.0.clone()).collect()
}

/// The first number of an entry.
pub fn number(state: &State, name: &str) -> f32 {
    let (_, bytes) = state.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no {name}"));
    f32::from_le_bytes(bytes[..4].try_into().unwrap())
}
