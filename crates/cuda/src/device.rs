//! The CUDA device: one arena, four streams, everything made before the first iteration.
//!
//! ```text
//!  open ─► kernel_table ─► reserve ─► prepare ─► begin ─ issue … issue ─ finish
//!  context, plans timed    arenas     addresses, works, events,          joins the streams
//!  handles  on scratch                kernels loaded
//! ```
//!
//! An iteration is captured when its schedule is prepared and then launched as one graph; with per-command timing, or where
//! capture failed (the description says why), commands are issued one by one. It looks nothing up and allocates nothing. The context's bytes are a sum, no part of it a remainder: what was
//! in use when the device was opened, what free memory lost around loading kernels and around pinning host memory (page
//! tables), and the rest of the arena's last page. Anything else that free memory loses, in taking the arena or in a step,
//! shows in [`Device::measured_peak`]. Left to others: what is legal in time (`check`), what is fast (policies).

mod arenas;
mod bench;
mod cache;
mod chain;
mod convolution;
mod disk;
mod feeding;
mod gpu;
mod iteration;
mod measure;
mod options;
mod prepared;
mod product;
mod recording;
mod replay;
mod site;
mod staging;
mod transposed;
mod trial;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vdnn_graph::{Graph, Program, Role};
use vdnn_runtime::{Description, Device, DeviceError, DiskFile, KernelRequest, PreparedId};
use vdnn_schedule::{Choice, KernelTable, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;

pub use chain::LaunchTimes;
pub(crate) use chain::{Chain, LAUNCHES};
pub use measure::MeasureOptions;
pub(crate) use measure::median;
pub use options::CudaOptions;

use crate::CudaError;
use crate::context::{Context, Streams};
use crate::library::LibraryOptions;
use crate::nvrtc::CubinCache;
use arenas::Arenas;
use bench::Bench;
use disk::DiskTier;
use gpu::Gpu;
use prepared::Prepared;
use replay::Replay;
pub(crate) use words::backend;
use words::{broken, chained, details, in_words, label, misuse, unavailable, within};

/// Kernels that want less than this part of the budget are not measured in pieces.
const PIECES_SHARE: Bytes = 32;

/// One NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDevice {
    prepared: Vec<Prepared>,
    bench: Bench,
    memory: Option<Memory>,
    gpu: Gpu,
    /// Taken outside the arena: by the context, libraries, kernels, page tables, and the rest of the arena's last page.
    context_bytes: Bytes,
    running: Option<PreparedId>,
    /// A batch was staged since the iteration began: the host may have come late to its end.
    staged: bool,
    timing: bool,
    timeline: Option<Timeline>,
    /// The failure after which the driver refuses everything.
    broken: Option<String>,
    synchronous: bool,
    replay: Replay,
    disk_folder: Option<PathBuf>,
}

impl Drop for CudaDevice {
    /// Functions of the host that are still queued use the pinned arena.
    fn drop(&mut self) {
        if self.running.is_some() && self.gpu.context.bind().is_ok() {
            // The iteration is given up: nobody is left to hear of its failures.
            let _ = self.gpu.streams.synchronize();
        }
    }
}

#[derive(Debug)]
struct Memory {
    arenas: Arenas,
    /// Free device memory just before the arena was taken.
    free_before: Bytes,
    /// Of `context_bytes`, what belongs to the time since: page tables, the rest of the last page, and kernels loaded.
    context_since: Bytes,
}

impl CudaDevice {
    /// Opens a GPU with the libraries found by themselves.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] with what is missing, where it was looked for and what to do.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        Self::open_with(ordinal, &LibraryOptions::default(), CudaOptions::default())
    }

    /// Opens a GPU with libraries and ways of one's own.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn open_with(ordinal: usize, libraries: &LibraryOptions, options: CudaOptions) -> Result<Self, DeviceError> {
        Self::make(ordinal, libraries, options).map_err(|error| unavailable(ordinal, error))
    }

    fn make(ordinal: usize, libraries: &LibraryOptions, options: CudaOptions) -> Result<Self, CudaError> {
        let images = CubinCache::new(options.cache.clone());
        let gpu = Gpu::open(ordinal, libraries, images)?;
        let bench = Bench::new(&gpu, options.cache.as_deref(), &details(&gpu), options.measure)?;
        let (free, total) = gpu.context.memory()?;
        Ok(CudaDevice {
            prepared: Vec::new(),
            bench,
            memory: None,
            gpu,
            context_bytes: total.saturating_sub(free),
            running: None,
            staged: false,
            timing: false,
            timeline: None,
            broken: None,
            synchronous: options.synchronous,
            replay: Replay::new(!options.synchronous),
            disk_folder: None,
        })
    }

    /// Does something that loads kernels, and counts what they take to the context.
    fn loading<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.gpu.context.bind().map_err(backend)?;
        let before = self.gpu.free_bytes().map_err(backend)?;
        let result = act(self);
        let taken = before.saturating_sub(self.gpu.free_bytes().map_err(backend)?);
        self.context_bytes += taken;
        if let Some(memory) = &mut self.memory {
            memory.context_since += taken;
        }
        result
    }

    fn usable(&self) -> Result<&Memory, DeviceError> {
        if let Some(failure) = &self.broken {
            let call = format!("an earlier call on cuda:{}", self.gpu.context.ordinal);
            return Err(DeviceError::Backend { call, message: format!("{failure}; start the program again") });
        }
        self.memory.as_ref().ok_or_else(|| misuse("reserve", "expected memory reserved before anything else"))
    }

    /// Remembers a failure that leaves the context unusable, and puts it into words.
    fn failed(&mut self, place: &str, error: CudaError) -> DeviceError {
        self.running = None;
        if self.gpu.context.synchronize().is_err() {
            self.broken = Some(format!("{place}: {error}"));
        }
        DeviceError::Backend { call: place.to_string(), message: error.to_string() }
    }

    fn arenas(&mut self) -> Result<(&mut Arenas, &Gpu), DeviceError> {
        self.usable()?;
        self.gpu.context.bind().map_err(backend)?;
        match &mut self.memory {
            Some(memory) => Ok((&mut memory.arenas, &self.gpu)),
            None => Err(misuse("reserve", "expected memory reserved before anything else")),
        }
    }

    /// The device's choices for each node, measured in this order, and those in pieces of the batch where asked for.
    fn measured(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        let patterns = bench::patterns(graph);
        let found = self.bench.choices(&mut self.gpu, &patterns, request.deterministic);
        let named = graph.nodes().iter().zip(found);
        let choices: Vec<Vec<Choice>> =
            named.map(|(node, choices)| in_words(node, choices)).collect::<Result<_, _>>()?;
        let pieces = match request.pieces_within {
            Some(budget) => {
                let least = self.bench.pieces_from().max(budget / PIECES_SHARE);
                self.bench.pieces(&mut self.gpu, &patterns, &choices, request.deterministic, least)
            }
            None => Ok(Vec::new()),
        };
        let pieces = pieces.map_err(|failure| broken(&graph.name, failure))?;
        let paces = self.bench.paces(&mut self.gpu, &patterns, &choices);
        let paces = paces.map_err(|failure| broken(&graph.name, failure))?;
        Ok(KernelTable { choices, pieces }.at_paces(&paces))
    }

    /// The card's name.
    pub fn card(&self) -> &str {
        &self.gpu.context.name
    }

    /// What the smallest launch takes by itself and in a chain; the difference was taken off every measured time. `None` before
    /// anything was measured, or where no chain can be captured.
    pub fn launch_times(&self) -> Option<LaunchTimes> {
        self.bench.launch()
    }

    /// Finds out what launches take, and lends a chain of small ones to measure with; `None` where none can be captured.
    pub(crate) fn chain(&mut self) -> Result<Option<Chain>, DeviceError> {
        let found = self.loading(|device| Ok(device.bench.chain(&mut device.gpu)))?;
        found.map_err(|failure| broken("a chain of launches", failure))
    }

    /// For measuring beside the device's own work, between iterations.
    pub(crate) fn context_and_streams(&self) -> (&Arc<Context>, &Streams) {
        (&self.gpu.context, &self.gpu.streams)
    }

    fn check_types(&self, graph: &Graph) -> Result<(), DeviceError> {
        let device = format!("cuda:{}", self.gpu.context.ordinal);
        for node in graph.nodes() {
            let types = || node.inputs.iter().chain(&node.outputs).map(|&id| &graph.value(id).ty);
            let refused = types().find_map(|ty| words::no_type(ty.dtype, self.gpu.context.capability));
            if let Some(advice) = refused {
                let operands: Vec<String> = types().map(ToString::to_string).collect();
                let operands = format!("{}; {advice}", operands.join(", "));
                return Err(DeviceError::Unsupported { device, op: node.op.kind().to_string(), operands });
            }
        }
        Ok(())
    }
}

/// Bytes that the host writes before an iteration.
fn input_bytes(program: &Program) -> Bytes {
    let inputs = program.graph.values().iter().filter(|value| value.role == Role::Input);
    inputs.map(|value| value.ty.bytes()).sum()
}

impl Device for CudaDevice {
    fn description(&self) -> Description {
        let staging = self.memory.as_ref().map_or(0, |memory| memory.arenas.staging_bytes());
        let pinned = if staging > 0 { format!(", {staging} pinned bytes for batches") } else { String::new() };
        Description {
            name: format!("cuda:{}", self.gpu.context.ordinal),
            details: format!("{}{}{pinned}{}", details(&self.gpu), chained(self.launch_times()), self.replay.note()),
            context_bytes: self.context_bytes,
        }
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        self.check_types(graph)?;
        let KernelTable { choices, mut pieces } = self.loading(|device| device.measured(graph, request))?;
        let nodes = graph.nodes().iter();
        let limited = nodes.zip(choices).map(|(node, choices)| within(&node.name, choices, request.workspace_limit));
        let limit = request.workspace_limit.unwrap_or(Bytes::MAX);
        pieces.iter_mut().for_each(|choices| choices.retain(|choice| choice.workspace <= limit));
        Ok(KernelTable { choices: limited.collect::<Result<_, _>>()?, pieces })
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        if self.memory.is_some() {
            return Err(misuse("reserve", "expected it once, found memory reserved before"));
        }
        self.gpu.context.bind().map_err(backend)?;
        let free_before = self.gpu.free_bytes().map_err(backend)?;
        let arenas = Arenas::new(&self.gpu, device, host)?;
        let context_since = arenas.overhead();
        self.context_bytes += context_since;
        self.memory = Some(Memory { arenas, free_before, context_since });
        Ok(())
    }

    fn set_disk_folder(&mut self, folder: &Path) {
        self.disk_folder = Some(folder.to_path_buf());
    }

    fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let no_folder = || misuse("reserve_disk", "expected a folder for what rests on disk, found none");
        let folder = self.disk_folder.as_deref().ok_or_else(no_folder)?;
        match &mut self.memory {
            Some(memory) if memory.arenas.disk.is_none() && self.prepared.is_empty() => {
                memory.arenas.disk = Some(DiskTier::new(DiskFile::create(folder, bytes)?));
                Ok(())
            }
            _ => Err(misuse("reserve_disk", "expected it once, after the arenas and before anything is prepared")),
        }
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        let (arenas, _) = self.arenas()?;
        check_range(offset, bytes as usize, arenas.device_bytes())?;
        self.loading(|device| match &mut device.memory {
            Some(memory) => memory.arenas.reserve_feeding(&device.gpu, offset, bytes).map_err(backend),
            None => Err(misuse("reserve_staging", "expected memory reserved before")),
        })
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        self.usable()?;
        self.check_types(&program.graph)?;
        self.loading(|device| {
            let Some(memory) = &mut device.memory else {
                return Err(misuse("prepare", "expected memory reserved before"));
            };
            memory.arenas.make_room(&device.gpu, input_bytes(&program)).map_err(backend)?;
            let (gpu, plans) = (&mut device.gpu, &mut device.bench.plans);
            let mut prepared = Prepared::new(&program, schedule, &memory.arenas, gpu, plans)?;
            device.replay.capture(&mut prepared, gpu, &memory.arenas);
            device.prepared.push(prepared);
            Ok(PreparedId(device.prepared.len() - 1))
        })
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        self.usable()?;
        let (None, Some(prepared)) = (self.running, self.prepared.get(schedule.0)) else {
            return Err(misuse("begin", "expected a prepared schedule and no iteration running"));
        };
        self.gpu.context.bind().map_err(backend)?;
        self.timeline = None;
        if self.timing {
            self.gpu.streams.compute.record(&prepared.start).map_err(backend)?;
        }
        if let Err(error) = self.replay.launch(prepared, &self.gpu, self.timing) {
            let place = format!("an iteration of {}", prepared.schedule.name);
            return Err(self.failed(&place, error));
        }
        (self.running, self.staged) = (Some(schedule), false);
        Ok(())
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        let (true, Some(memory)) = (self.running == Some(schedule), &self.memory) else {
            return Err(misuse("issue", "expected the schedule that was begun"));
        };
        let prepared = &self.prepared[schedule.0];
        if command >= prepared.tasks.len() {
            return Err(misuse("issue", "expected a command of the schedule"));
        }
        if self.replay.running {
            return Ok(());
        }
        let issued = prepared.issue(command, &self.gpu, &memory.arenas, self.timing);
        let issued = issued.and_then(|()| if self.synchronous { self.gpu.streams.synchronize() } else { Ok(()) });
        issued.map_err(|error| {
            let place = label(&self.prepared[schedule.0].schedule, command);
            self.failed(&place, error)
        })
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        let Some(id) = self.running.take() else { return Ok(()) };
        let seen = !self.staged || !self.gpu.streams.compute.is_idle();
        if let Err(error) = self.gpu.streams.synchronize() {
            // Which command it was the driver does not say; `synchronous` finds out.
            let name = self.prepared[id.0].schedule.name.clone();
            return Err(self.failed(&format!("an iteration of {name}"), error));
        }
        self.replay.ended(&mut self.prepared[id.0], seen);
        if let Some(memory) = &mut self.memory {
            memory.arenas.settled();
            if let Some(failure) = memory.arenas.disk.as_ref().and_then(|disk| disk.take_failure()) {
                return Err(failure);
            }
        }
        if self.timing {
            self.timeline = Some(self.prepared[id.0].timeline().map_err(backend)?);
        }
        Ok(())
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        let (arenas, gpu) = self.arenas()?;
        check_range(offset, bytes.len(), arenas.bytes_of(space))?;
        // Between iterations no stream uses the host arena.
        let written = match space {
            Space::Device => arenas.write(gpu, offset, bytes),
            Space::Disk => return Err(misuse("write", "expected a home on the device or in host memory")),
            Space::Host => arenas.write_host(offset, bytes),
        };
        written.map_err(|error| self.failed("a write between iterations", error))
    }

    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        let (arenas, _) = self.arenas()?;
        let (feeding, arena) = arenas.feeding(offset, bytes.len() as Bytes).ok_or_else(|| unstaged("stage"))?;
        let staged = feeding.stage(arena, offset, bytes);
        self.staged = true;
        staged.map_err(|error| self.failed("a copy of the next batch", error))
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        let (arenas, gpu) = self.arenas()?;
        check_range(to, bytes as usize, arenas.device_bytes())?;
        let (feeding, arena) = arenas.feeding(from, bytes).ok_or_else(|| unstaged("load_staged"))?;
        let loaded = feeding.load(gpu, arena, from, to, bytes);
        loaded.map_err(|error| self.failed("a copy of the staged batch", error))
    }

    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let (arenas, gpu) = self.arenas()?;
        check_range(offset, bytes.len(), arenas.bytes_of(space))?;
        let read = match space {
            Space::Device => arenas.read(gpu, offset, bytes),
            Space::Disk => return Err(misuse("read", "expected a home on the device or in host memory")),
            Space::Host => arenas.read_host(offset, bytes),
        };
        read.map_err(|error| self.failed("a read between iterations", error))
    }

    /// The drop in free memory since just before the arenas were taken, less the rest of the device arena's last page
    /// (computed) and what pinning host memory and loading kernels took (measured around them).
    fn measured_peak(&mut self) -> Option<Bytes> {
        let memory = self.memory.as_ref()?;
        self.gpu.context.bind().ok()?;
        let taken = memory.free_before.saturating_sub(self.gpu.free_bytes().ok()?);
        Some(taken.saturating_sub(memory.context_since))
    }

    fn set_timing(&mut self, on: bool) {
        self.timing = on;
    }

    fn set_replay(&mut self, on: bool) {
        self.replay.on = on && !self.synchronous;
    }

    fn timeline(&mut self) -> Option<Timeline> {
        self.timeline.clone()
    }
}

fn unstaged(place: &str) -> DeviceError {
    misuse(place, "expected bytes of the staging region, which is reserved after the arenas")
}

fn check_range(offset: Bytes, len: usize, reserved: Bytes) -> Result<(), DeviceError> {
    match offset.checked_add(len as Bytes) {
        Some(end) if end <= reserved => Ok(()),
        _ => {
            let reason = format!("expected {len} bytes at {offset} within an arena of {reserved}");
            Err(DeviceError::Schedule { place: "the host".to_string(), reason })
        }
    }
}
