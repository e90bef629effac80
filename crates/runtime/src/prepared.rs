//! A schedule resolved for devices whose arenas are ordinary memory: every id looked up, every region checked, so that an
//! iteration only runs tasks. What is wrong by itself is refused here; what is wrong in time (a missing wait) is met by the
//! arena's borrows.

use crate::cpu::{self, Launch};
use crate::memory::{Disk, Memory, Place, Tier};
use crate::operands::{Operands, Regions};
use crate::{Access, Borrow, ByteRegion, DeviceError, KernelRequest};
use std::sync::Arc;
use vdnn_graph::{Graph, Node, NodeId, Program};
use vdnn_schedule::{
    Action, Buffer, BufferId, Choice, Direction, EventId, FORMAT, KernelTable, Region, Schedule, Space, split_pieces,
    worthwhile_pieces,
};
use vdnn_tensor::{Bytes, TensorType};

/// Runs one kernel; [`cpu::launch`] but in tests of failures.
pub(crate) type LaunchFn = fn(Launch<'_>) -> Result<(), DeviceError>;

/// What one command does, ready to run.
#[derive(Debug)]
pub(crate) enum Task {
    /// The whole buffer, as a write.
    Alloc(Place),
    /// The whole buffer, as a write.
    Free(Place),
    Launch(Box<Kernel>),
    Transfer(Copy),
    Record(usize),
    Wait(usize),
}

/// A launch with its operands found.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub node: NodeId,
    pub algorithm: String,
    pub access: Arc<Access>,
    pub operands: Operands,
    input_types: Vec<TensorType>,
    output_types: Vec<TensorType>,
}

/// A transfer: a read in one tier, a write of as many bytes in another.
#[derive(Debug)]
pub(crate) struct Copy {
    pub src: Place,
    pub dst: Place,
    pub bytes: usize,
}

/// A schedule and its tasks, one a command.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub program: Arc<Program>,
    pub schedule: Arc<Schedule>,
    pub tasks: Vec<Task>,
}

/// The choices of every node, from the CPU's kernels; in pieces of the batch too where that is asked for.
///
/// # Errors
/// [`DeviceError::Unsupported`] without a kernel, [`DeviceError::Kernel`] when each wants more workspace than allowed.
pub(crate) fn kernel_table(graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
    let allowed = |choice: &Choice| {
        request.workspace_limit.is_none_or(|limit| choice.workspace <= limit)
            && (choice.deterministic || !request.deterministic)
    };
    let mut table = KernelTable::default();
    for node in graph.nodes() {
        let all = cpu::choices(graph, node)?;
        let least = all.iter().map(|choice| choice.workspace).min().unwrap_or(0);
        let choices: Vec<Choice> = all.into_iter().filter(allowed).collect();
        if choices.is_empty() {
            let reason = format!("expected a kernel within the workspace limit, the least wants {least} bytes");
            return Err(DeviceError::Kernel { node: node.name.clone(), algorithm: "any".to_string(), reason });
        }
        if request.pieces_within.is_some() {
            let pieces = cpu::pieces(graph, node)?.into_iter().filter(allowed).collect();
            table.pieces.push(worthwhile_pieces(&choices, pieces));
        }
        table.choices.push(choices);
    }
    Ok(table)
}

impl Kernel {
    /// Runs on borrowed operands.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn run(&self, borrow: &mut Borrow<'_>, graph: &Graph, launch: LaunchFn) -> Result<(), DeviceError> {
        let opened = borrow.open();
        if self.operands.moves {
            for (reading, writing) in opened.reads.iter().zip(opened.writes) {
                let source = reading.view::<u8>()?;
                writing.view::<u8>()?.copy_from(&source, 0..source.len());
            }
            return Ok(());
        }
        let node = graph.node(self.node);
        let views = self.operands.views(opened, &self.input_types, &self.output_types)?;
        launch(Launch {
            node: &node.name,
            op: &node.op,
            input_types: &self.input_types,
            output_types: &self.output_types,
            algorithm: &self.algorithm,
            inputs: views.inputs,
            outputs: views.outputs,
            workspace: views.workspace,
        })
    }
}

impl Copy {
    /// Copies bytes `range` of the transfer.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] when the places do not hold what they should.
    pub(crate) fn run(
        &self,
        src: &mut Borrow<'_>,
        dst: &mut Borrow<'_>,
        range: std::ops::Range<usize>,
    ) -> Result<(), DeviceError> {
        let (source, target) = (src.open().reads, dst.open().writes);
        for (reading, writing) in source.iter().zip(target) {
            writing.view::<u8>()?.copy_from(&reading.view::<u8>()?, range.clone());
        }
        Ok(())
    }
}

impl Prepared {
    /// Resolves a schedule against its program and the arenas' sizes.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] with the first command that is wrong by itself, or a kernel's refusal.
    pub(crate) fn new(program: Arc<Program>, schedule: Arc<Schedule>, memory: &Memory) -> Result<Self, DeviceError> {
        let resolver = Resolver { program: &program, schedule: &schedule, memory };
        resolver.check_header()?;
        let tasks = (0..schedule.commands.len()).map(|command| resolver.task(command)).collect::<Result<_, _>>()?;
        Ok(Prepared { program, schedule, tasks })
    }

    /// The command in words, for messages.
    pub(crate) fn label(&self, command: usize) -> String {
        label(&self.schedule, command)
    }
}

fn label(schedule: &Schedule, command: usize) -> String {
    let buffer = |id: &BufferId| schedule.buffers.get(id.index()).map_or("a buffer", |buffer| buffer.name.as_str());
    let event = |id: &EventId| schedule.events.get(id.index()).map_or("an event", |event| event.name.as_str());
    match &schedule.commands[command].action {
        Action::Alloc(id) => format!("alloc {}", buffer(id)),
        Action::Free(id) => format!("free {}", buffer(id)),
        Action::Record(id) => format!("record {}", event(id)),
        Action::Wait(id) => format!("wait {}", event(id)),
        Action::Transfer { direction: Direction::Offload, src, .. } => format!("offload {}", buffer(&src.buffer)),
        Action::Transfer { direction: Direction::Prefetch, dst, .. } => format!("prefetch {}", buffer(&dst.buffer)),
        Action::Launch { node, run, .. } => {
            let name = schedule.nodes.get(node.index()).map_or("a node", String::as_str);
            if *run == 0 { name.to_string() } else { format!("{name} (run {run})") }
        }
    }
}

/// What is needed to resolve a command.
struct Resolver<'a> {
    program: &'a Program,
    schedule: &'a Schedule,
    memory: &'a Memory,
}

impl Resolver<'_> {
    fn check_header(&self) -> Result<(), DeviceError> {
        let (schedule, graph) = (self.schedule, &self.program.graph);
        let refuse = |reason| Err(DeviceError::Schedule { place: schedule.name.clone(), reason });
        if schedule.format != FORMAT {
            return refuse(format!("expected format {FORMAT}, found {}", schedule.format));
        }
        if schedule.nodes.len() != graph.nodes().len() || schedule.values.len() != graph.values().len() {
            return refuse("expected the nodes and values of the program it is run with".to_string());
        }
        for (space, tier) in [(Space::Device, Tier::Device), (Space::Host, Tier::Host), (Space::Disk, Tier::Disk)] {
            let (needed, reserved) = (schedule.peak_bytes(space), self.memory.bytes(tier));
            if needed > reserved {
                return refuse(format!("expected {needed} bytes of {space:?} memory, found {reserved} reserved"));
            }
        }
        Ok(())
    }

    fn task(&self, command: usize) -> Result<Task, DeviceError> {
        let place = label(self.schedule, command);
        let refuse = |reason| DeviceError::Schedule { place: place.clone(), reason };
        let issued = &self.schedule.commands[command];
        if issued.stream.index() >= self.schedule.streams.len() {
            return Err(refuse(format!("expected a stream of the schedule, found {:?}", issued.stream)));
        }
        match &issued.action {
            Action::Alloc(id) => self.whole(&place, *id).map(Task::Alloc),
            Action::Free(id) => self.whole(&place, *id).map(Task::Free),
            Action::Record(id) | Action::Wait(id) if id.index() >= self.schedule.events.len() => {
                Err(refuse(format!("expected an event of the schedule, found {id:?}")))
            }
            Action::Record(id) => Ok(Task::Record(id.index())),
            Action::Wait(id) => Ok(Task::Wait(id.index())),
            Action::Transfer { direction, src, dst } => self.transfer(&place, *direction, src, dst).map(Task::Transfer),
            Action::Launch { .. } => self.launch(&place, &issued.action).map(|kernel| Task::Launch(Box::new(kernel))),
        }
    }

    fn whole(&self, place: &str, id: BufferId) -> Result<Place, DeviceError> {
        let buffer = self.buffer(id).map_err(|reason| DeviceError::Schedule { place: place.to_string(), reason })?;
        let (tier, region) = self.region(place, &Region::contiguous(id, 0, buffer.bytes))?;
        Ok(Place { tier, access: Access::new(place, &[], &[region])? })
    }

    fn transfer(&self, place: &str, direction: Direction, src: &Region, dst: &Region) -> Result<Copy, DeviceError> {
        let (from, to) = (self.region(place, src)?, self.region(place, dst)?);
        let on_disk = from.0 == Tier::Disk || to.0 == Tier::Disk;
        let tiers = match (direction, on_disk) {
            (Direction::Offload, false) => (Tier::Device, Tier::Host),
            (Direction::Prefetch, false) => (Tier::Host, Tier::Device),
            (Direction::Offload, true) => (Tier::Host, Tier::Disk),
            (Direction::Prefetch, true) => (Tier::Disk, Tier::Host),
        };
        let refuse = |reason| Err(DeviceError::Schedule { place: place.to_string(), reason });
        if (from.0, to.0) != tiers || from.1.bytes() != to.1.bytes() {
            let (from_bytes, to_bytes) = (from.1.bytes(), to.1.bytes());
            let found = format!("{from_bytes} bytes of {:?} to {to_bytes} of {:?}", from.0, to.0);
            return refuse(format!("expected as many bytes from {:?} to {:?}, found {found}", tiers.0, tiers.1));
        }
        if on_disk && from.1.rows.max(to.1.rows) > 1 {
            return refuse(format!("expected one piece to or from disk, found {} and {} rows", from.1.rows, to.1.rows));
        }
        let src = Place { tier: from.0, access: Access::new(place, &[from.1], &[])? };
        let dst = Place { tier: to.0, access: Access::new(place, &[], &[to.1])? };
        Ok(Copy { src, dst, bytes: from.1.bytes() as usize })
    }

    fn launch(&self, place: &str, action: &Action) -> Result<Kernel, DeviceError> {
        let Action::Launch { node, algo, reads, writes, workspace, .. } = action else {
            unreachable!("called for launches only");
        };
        let refuse = |reason| DeviceError::Schedule { place: place.to_string(), reason };
        let graph = &self.program.graph;
        let id = *node;
        let node = graph.nodes().get(id.index()).ok_or_else(|| refuse(format!("expected a node, found {id:?}")))?;
        let algorithm = self.schedule.algorithms.get(algo.index());
        let algorithm = algorithm.ok_or_else(|| refuse(format!("expected an algorithm, found {algo:?}")))?.clone();
        let input_types: Vec<TensorType> = node.inputs.iter().map(|&id| graph.value(id).ty.clone()).collect();
        let output_types: Vec<TensorType> = node.outputs.iter().map(|&id| graph.value(id).ty.clone()).collect();
        let inputs = self.operands(place, "inputs", reads, &input_types)?;
        let outputs = self.operands(place, "outputs", writes, &output_types)?;
        let workspace = workspace.as_ref().map(|region| self.device_region(place, region)).transpose()?;
        self.check_algorithm(node, &algorithm, workspace.map_or(0, |region| region.bytes()))?;
        let types = [&input_types[..], &output_types[..]];
        let regions = Regions { op: &node.op, types, inputs: &inputs, outputs: &outputs, workspace };
        let operands = Operands::bind(&regions).map_err(refuse)?;
        let access = Access::new(place, &operands.reads, &operands.writes)?;
        Ok(Kernel { node: id, algorithm, access, operands, input_types, output_types })
    }

    fn operands(
        &self,
        place: &str,
        what: &str,
        regions: &[Region],
        types: &[TensorType],
    ) -> Result<Vec<ByteRegion>, DeviceError> {
        let refuse = |reason| Err(DeviceError::Schedule { place: place.to_string(), reason });
        if regions.len() != types.len() {
            return refuse(format!("expected {} {what}, found {}", types.len(), regions.len()));
        }
        let found = regions.iter().map(|region| self.device_region(place, region)).collect::<Result<Vec<_>, _>>()?;
        match found.iter().zip(types).find(|(region, ty)| region.bytes() != ty.bytes()) {
            Some((region, ty)) => {
                refuse(format!("expected {} bytes of {ty} in {what}, found {}", ty.bytes(), region.bytes()))
            }
            None => Ok(found),
        }
    }

    fn check_algorithm(&self, node: &Node, algorithm: &str, workspace: Bytes) -> Result<(), DeviceError> {
        let refuse = |reason| DeviceError::Kernel { node: node.name.clone(), algorithm: algorithm.to_string(), reason };
        let mut choices = cpu::choices(&self.program.graph, node)?;
        if split_pieces(algorithm).1 > 1 {
            choices.extend(cpu::pieces(&self.program.graph, node)?);
        }
        let names = || choices.iter().map(|choice| choice.algorithm.as_str()).collect::<Vec<_>>().join(", ");
        let choice = choices.iter().find(|choice| choice.algorithm == algorithm);
        let choice = choice.ok_or_else(|| refuse(format!("expected one of {} on this device", names())))?;
        if choice.workspace > workspace {
            return Err(refuse(format!("expected a workspace of {} bytes, found {workspace}", choice.workspace)));
        }
        Ok(())
    }

    fn buffer(&self, id: BufferId) -> Result<&Buffer, String> {
        self.schedule.buffers.get(id.index()).ok_or_else(|| format!("expected a buffer of the schedule, found {id:?}"))
    }

    fn device_region(&self, place: &str, region: &Region) -> Result<ByteRegion, DeviceError> {
        let (tier, found) = self.region(place, region)?;
        if tier != Tier::Device {
            let reason = format!("expected an operand on the device, found one in the {tier:?} tier");
            return Err(DeviceError::Schedule { place: place.to_string(), reason });
        }
        Ok(found)
    }

    /// A region's place in its arena, in normal form, inside its buffer and the arena.
    fn region(&self, place: &str, region: &Region) -> Result<(Tier, ByteRegion), DeviceError> {
        self.locate(region).map_err(|reason| DeviceError::Schedule { place: place.to_string(), reason })
    }

    fn locate(&self, region: &Region) -> Result<(Tier, ByteRegion), String> {
        let buffer = self.buffer(region.buffer)?;
        let tier = match buffer.space {
            Space::Device => Tier::Device,
            Space::Host => Tier::Host,
            Space::Disk if matches!(self.memory.disk, Disk::Absent) => {
                return Err(format!("{} lies on disk, of which nothing is reserved", buffer.name));
            }
            Space::Disk => Tier::Disk,
        };
        let Region { offset, rows, row_bytes, row_stride: stride, .. } = *region;
        let inside = ByteRegion { offset, rows, row_bytes, stride }.normalised()?;
        if inside.end() > buffer.bytes {
            let (end, bytes) = (inside.end(), buffer.bytes);
            return Err(format!(
                "expected a region within the {bytes} bytes of {}, found an end of {end}",
                buffer.name
            ));
        }
        let reserved = self.memory.bytes(tier);
        match buffer.offset.checked_add(buffer.bytes) {
            Some(end) if end <= reserved => Ok((tier, ByteRegion { offset: buffer.offset + inside.offset, ..inside })),
            _ => Err(format!("expected {} within the {reserved} bytes reserved, found it beyond", buffer.name)),
        }
    }
}
