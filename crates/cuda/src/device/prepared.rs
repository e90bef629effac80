//! A schedule made ready: every region an address, every kernel found and settled, every event made.
//!
//! ```text
//!  command ─► Launch   ─► works at final addresses      (own kernels, plans, products; none when nothing is to do)
//!          ─► Transfer ─► rows in both arenas, or a function of the host for what rests on disk
//!          ─► Record, Wait ─► event
//!          ─► Alloc, Free ─► nothing: addresses were planned
//! ```
//!
//! What is wrong by itself is refused here, with the command's name. What is wrong in time is `check`'s to find.

use std::sync::Arc;

use vdnn_graph::{Node, Program, ValueId};
use vdnn_runtime::DeviceError;
use vdnn_schedule::{
    Action, BufferId, BufferKind, Direction, EventId, FORMAT, Region, Schedule, Space, StreamId, StreamRole,
};
use vdnn_tensor::TensorType;

use super::arenas::Arenas;
use super::bench::precision;
use super::disk::DiskCopy;
use super::gpu::{Bytes, Gpu, Work};
use super::site::{Plans, Site};
use super::trial::Trial;
use super::{backend, label};
use crate::context::{Event, Graph, Timing};
use crate::kernels::Operand;
use crate::memory::Rows;

/// What one command does.
#[derive(Debug)]
pub(super) enum Task {
    Nothing,
    Launch(Vec<Work>),
    Transfer { direction: Direction, src: Rows, dst: Rows },
    Disk(Arc<DiskCopy>),
    Record(usize),
    Wait(usize),
}

/// One of the device's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Compute,
    Offload,
    Prefetch,
    Disk,
}

/// A schedule's tasks, one a command, with the events they use.
#[derive(Debug)]
pub(super) struct Prepared {
    pub schedule: Arc<Schedule>,
    pub tasks: Vec<(Lane, Task)>,
    pub events: Vec<Event>,
    /// Start and end of each command that takes time, and the start of the iteration.
    pub times: Vec<Option<[Event; 2]>>,
    pub start: Event,
    /// All commands as one launch, once captured.
    pub graph: Option<Graph>,
    /// Finds out whether that is the quicker way, where it may not be.
    pub trial: Option<Trial>,
}

impl Prepared {
    /// Resolves, builds and loads.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] for a schedule that contradicts itself or its program, [`DeviceError::Kernel`] for a
    /// launch that cannot run as it says.
    pub fn new(
        program: &Program,
        schedule: Arc<Schedule>,
        arenas: &Arenas,
        gpu: &mut Gpu,
        plans: &mut Plans,
    ) -> Result<Self, DeviceError> {
        let resolver = Resolver { program, schedule: &schedule, arenas };
        resolver.check_header()?;
        let mut tasks = Vec::with_capacity(schedule.commands.len());
        for command in 0..schedule.commands.len() {
            tasks.push((resolver.lane(command)?, resolver.task(command, gpu, plans)?));
        }
        resolver.load(&tasks, gpu)?;
        let context = gpu.context.clone();
        let timed = |(_, task): &(Lane, Task)| match task {
            Task::Transfer { .. } | Task::Disk(_) => true,
            Task::Launch(works) => !works.is_empty(),
            _ => false,
        };
        let pair = || -> Result<[Event; 2], crate::CudaError> {
            Ok([Event::new(&context, Timing::On)?, Event::new(&context, Timing::On)?])
        };
        let times: Result<_, _> = tasks.iter().map(|task| timed(task).then(pair).transpose()).collect();
        let events = Event::many(&context, Timing::Off, schedule.events.len()).map_err(backend)?;
        let start = Event::new(&context, Timing::On).map_err(backend)?;
        Ok(Prepared { tasks, events, times: times.map_err(backend)?, start, schedule, graph: None, trial: None })
    }

    /// Whether anything runs beside the compute stream.
    pub fn has_copies(&self) -> bool {
        self.tasks.iter().any(|(lane, _)| *lane != Lane::Compute)
    }

    /// Whether values rest on disk.
    pub fn uses_disk(&self) -> bool {
        self.tasks.iter().any(|(lane, _)| *lane == Lane::Disk)
    }
}

struct Resolver<'a> {
    program: &'a Program,
    schedule: &'a Schedule,
    arenas: &'a Arenas,
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
        for space in [Space::Device, Space::Host, Space::Disk] {
            let (needed, reserved) = (schedule.peak_bytes(space), self.arenas.bytes_of(space));
            if needed > reserved {
                return refuse(format!("expected {needed} bytes of {space:?} memory, found {reserved} reserved"));
            }
        }
        Ok(())
    }

    fn refuse(&self, command: usize, reason: String) -> DeviceError {
        DeviceError::Schedule { place: label(self.schedule, command), reason }
    }

    fn lane(&self, command: usize) -> Result<Lane, DeviceError> {
        let StreamId(index) = self.schedule.commands[command].stream;
        match self.schedule.streams.get(index as usize) {
            Some(StreamRole::Compute) => Ok(Lane::Compute),
            Some(StreamRole::Offload) => Ok(Lane::Offload),
            Some(StreamRole::Prefetch) => Ok(Lane::Prefetch),
            Some(StreamRole::Disk) => Ok(Lane::Disk),
            found => {
                let reason = format!("expected a compute, offload, prefetch or disk stream, found {found:?}");
                Err(self.refuse(command, reason))
            }
        }
    }

    fn task(&self, command: usize, gpu: &mut Gpu, plans: &mut Plans) -> Result<Task, DeviceError> {
        let refuse = |reason| self.refuse(command, reason);
        match &self.schedule.commands[command].action {
            Action::Alloc(_) | Action::Free(_) => Ok(Task::Nothing),
            Action::Record(id) => self.event(*id).map(Task::Record).map_err(refuse),
            Action::Wait(id) => self.event(*id).map(Task::Wait).map_err(refuse),
            Action::Transfer { direction, src, dst } => {
                let lane = self.lane(command)?;
                self.transfer(lane, *direction, src, dst).map_err(refuse)
            }
            Action::Launch { .. } => self.launch(command, gpu, plans).map(Task::Launch),
        }
    }

    fn event(&self, id: EventId) -> Result<usize, String> {
        match id.index() {
            index if index < self.schedule.events.len() => Ok(index),
            _ => Err(format!("expected an event of the schedule, found {id:?}")),
        }
    }

    fn transfer(&self, lane: Lane, direction: Direction, src: &Region, dst: &Region) -> Result<Task, String> {
        let (from, to) = match (direction, lane) {
            (Direction::Offload, Lane::Disk) => (Space::Host, Space::Disk),
            (Direction::Prefetch, Lane::Disk) => (Space::Disk, Space::Host),
            (Direction::Offload, _) => (Space::Device, Space::Host),
            (Direction::Prefetch, _) => (Space::Host, Space::Device),
        };
        let (source, target) = (self.rows(src, from)?, self.rows(dst, to)?);
        if source.bytes() != target.bytes() {
            return Err(format!(
                "expected as many bytes on both sides, found {} and {}",
                source.bytes(),
                target.bytes()
            ));
        }
        match (lane, direction) {
            (Lane::Disk, Direction::Offload) => self.arenas.disk_copy(direction, source, target).map(Task::Disk),
            (Lane::Disk, Direction::Prefetch) => self.arenas.disk_copy(direction, target, source).map(Task::Disk),
            _ => Ok(Task::Transfer { direction, src: source, dst: target }),
        }
    }

    /// A launch's works. Kernels run on the compute stream, to which the libraries' handles are bound.
    fn launch(&self, command: usize, gpu: &mut Gpu, plans: &mut Plans) -> Result<Vec<Work>, DeviceError> {
        let Action::Launch { node, algo, reads, writes, workspace, .. } = &self.schedule.commands[command].action
        else {
            return Ok(Vec::new());
        };
        let refuse = |reason| self.refuse(command, reason);
        if self.lane(command)? != Lane::Compute {
            return Err(refuse("expected a kernel on the compute stream".to_string()));
        }
        let graph = &self.program.graph;
        let unknown = || refuse(format!("expected a node of the program, found {node:?}"));
        let node = graph.nodes().get(node.index()).ok_or_else(unknown)?;
        let algorithm = self.schedule.algorithms.get(algo.index());
        let algorithm = algorithm.ok_or_else(|| refuse(format!("expected an algorithm, found {algo:?}")))?;
        let workspace = workspace.as_ref().map(|region| self.workspace(region)).transpose().map_err(refuse)?;
        let site = Site {
            op: &node.op,
            precision: precision(graph),
            inputs: self.operands("inputs", reads, &node.inputs).map_err(refuse)?,
            outputs: self.operands("outputs", writes, &node.outputs).map_err(refuse)?,
            algorithm,
            workspace: workspace.unwrap_or_default(),
        };
        site.works(gpu, plans).map_err(|reason| kernel_error(node, algorithm, reason))
    }

    fn workspace(&self, region: &Region) -> Result<Bytes, String> {
        let rows = self.rows(region, Space::Device)?;
        if rows.rows != 1 {
            return Err(format!("expected a workspace in one piece, found {} rows", rows.rows));
        }
        Ok(Bytes { address: self.arenas.address(rows.offset), bytes: rows.row_bytes })
    }

    fn operands(&self, what: &str, regions: &[Region], ids: &[ValueId]) -> Result<Vec<Operand<'_>>, String> {
        if regions.len() != ids.len() {
            return Err(format!("expected {} {what}, found {}", ids.len(), regions.len()));
        }
        let operand = |(region, id): (&Region, &ValueId)| {
            let ty = &self.program.graph.value(*id).ty;
            let rows = self.rows(region, Space::Device)?;
            operand(ty, &rows, self.arenas.address(rows.offset)).map_err(|reason| format!("{reason} in {what}"))
        };
        regions.iter().zip(ids).map(operand).collect()
    }

    /// A region's rows in its arena, inside its buffer and the arena.
    fn rows(&self, region: &Region, space: Space) -> Result<Rows, String> {
        let Region { buffer: id, offset, rows, row_bytes, row_stride: stride } = *region;
        let buffer = self.schedule.buffers.get(id.index());
        let buffer = buffer.ok_or_else(|| format!("expected a buffer of the schedule, found {id:?}"))?;
        if buffer.space != space {
            return Err(format!("expected {} in {space:?} memory, found it in {:?}", buffer.name, buffer.space));
        }
        let span = rows.saturating_sub(1).checked_mul(stride).and_then(|span| span.checked_add(row_bytes));
        let end = if rows == 0 { Some(offset) } else { span.and_then(|span| span.checked_add(offset)) };
        if end.is_none_or(|end| end > buffer.bytes) {
            return Err(format!(
                "expected a region within the {} bytes of {}, found an end of {end:?}",
                buffer.bytes, buffer.name
            ));
        }
        let reserved = self.arenas.bytes_of(space);
        match buffer.offset.checked_add(buffer.bytes) {
            Some(end) if end <= reserved => Ok(Rows { offset: buffer.offset + offset, rows, row_bytes, stride }),
            _ => Err(format!("expected {} within the {reserved} bytes reserved, found it beyond", buffer.name)),
        }
    }

    /// Runs each library kernel of the schedule once, because its first run loads it, which takes device memory. What it
    /// writes is no home: homes may already hold weights.
    fn load(&self, tasks: &[(Lane, Task)], gpu: &Gpu) -> Result<(), DeviceError> {
        for (command, (_, task)) in tasks.iter().enumerate() {
            let (Task::Launch(works), Action::Launch { writes, .. }) = (task, &self.schedule.commands[command].action)
            else {
                continue;
            };
            if writes.iter().any(|region| self.is_home(region.buffer)) {
                continue;
            }
            for work in works.iter().filter(|work| work.loads_when_run()) {
                let failed = |e: crate::CudaError| self.refuse(command, format!("its kernel cannot be loaded: {e}"));
                work.run(gpu).map_err(failed)?;
            }
        }
        gpu.streams.synchronize().map_err(backend)
    }

    fn is_home(&self, id: BufferId) -> bool {
        self.schedule.buffer(id).kind == BufferKind::Home
    }
}

fn kernel_error(node: &Node, algorithm: &str, reason: String) -> DeviceError {
    DeviceError::Kernel { node: node.name.clone(), algorithm: algorithm.to_string(), reason }
}

/// A value at its rows: in one piece, or a row a sample or, where channels are innermost, a pixel.
fn operand<'a>(ty: &'a TensorType, rows: &Rows, address: u64) -> Result<Operand<'a>, String> {
    let size = ty.dtype.size();
    if rows.bytes() != ty.bytes() {
        return Err(format!("expected {} bytes of {ty}, found {}", ty.bytes(), rows.bytes()));
    }
    if rows.rows <= 1 || rows.stride == rows.row_bytes || ty.bytes() == 0 {
        return Ok(Operand::contiguous(ty, address));
    }
    if rows.rows != ty.rows() || !rows.stride.is_multiple_of(size) || rows.stride < rows.row_bytes {
        let (rows, stride) = (rows.rows, rows.stride);
        return Err(format!(
            "expected {ty} with a row for each sample, or pixel where channels are innermost, found {rows} rows at a distance \
             of {stride} bytes"
        ));
    }
    Ok(Operand::from_rows(ty, address, rows.rows, rows.stride))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::DType;

    #[test]
    fn rows_become_strides_between_samples() {
        let ty = TensorType::new([3, 2, 2], DType::F32);
        let slice = operand(&ty, &Rows { offset: 0, rows: 3, row_bytes: 16, stride: 40 }, 256).unwrap();
        assert_eq!((slice.address, slice.row_stride), (256, 10));
        let whole = operand(&ty, &Rows::contiguous(0, 48), 256).unwrap();
        assert_eq!(whole.row_stride, 4);
        let adjacent = operand(&ty, &Rows { offset: 0, rows: 6, row_bytes: 8, stride: 8 }, 256).unwrap();
        assert_eq!(adjacent.row_stride, 4);
    }

    #[test]
    fn rows_become_strides_between_pixels_where_channels_are_innermost() {
        let layout = vdnn_tensor::Layout { order: vdnn_tensor::MemoryOrder::Nhwc, channel_padding: 0 };
        let ty = TensorType { layout, ..TensorType::new([2, 3, 1, 2], DType::BF16) };
        let slice = operand(&ty, &Rows { offset: 0, rows: 4, row_bytes: 6, stride: 16 }, 256).unwrap();
        assert_eq!((slice.row_stride, slice.span()), (8, (3 * 8 + 3) * 2));
        let samples = Rows { offset: 0, rows: 2, row_bytes: 12, stride: 32 };
        assert!(operand(&ty, &samples, 256).unwrap_err().contains("or pixel"));
    }

    #[test]
    fn rows_that_are_not_samples_are_refused() {
        let ty = TensorType::new([3, 2, 2], DType::F32);
        let refused =
            |rows, row_bytes, stride| operand(&ty, &Rows { offset: 0, rows, row_bytes, stride }, 256).unwrap_err();
        assert!(refused(6, 8, 16).contains("a row for each sample"));
        assert!(refused(3, 16, 42).contains("a row for each sample"));
        assert!(refused(3, 12, 40).contains("expected 48 bytes"));
    }

    #[test]
    fn values_without_elements_lie_anywhere() {
        let ty = TensorType::new([0, 2, 2], DType::F32);
        assert!(operand(&ty, &Rows { offset: 0, rows: 0, row_bytes: 16, stride: 40 }, 256).is_ok());
    }
}
