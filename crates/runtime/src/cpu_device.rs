//! The CPU device: two arenas and perhaps a file, one thread a stream, kernels on a rayon pool. What a schedule overlaps really overlaps.
//!
//! ```text
//!  issue ─► compute   launch ─ record ─ launch ───── wait ─ launch        each stream runs its commands in order
//!        ─► offload      wait ┘ copy ─ record ┐        │                  events are flags under one lock
//!        ─► prefetch                     wait ┘ copy ─ record
//! ```
//!
//! A failed command ends the iteration: waiting streams wake, what is queued is skipped, `finish` reports the first
//! failure. Left to others: kernels (`cpu`), what is legal by itself (`prepared`), what is legal in time (`arena`).

mod iteration;

use crate::memory::{Disk, Memory};
use crate::prepared::{LaunchFn, Prepared, kernel_table};
use crate::{Description, Device, DeviceError, DiskFile, KernelRequest, PreparedId, cpu};
use iteration::{Iteration, State};
use rayon::ThreadPool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use vdnn_graph::{Graph, Program};
use vdnn_schedule::{KernelTable, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;

/// Memory, threads and kernels of this machine's CPU.
#[derive(Debug)]
pub struct CpuDevice {
    memory: Option<Arc<Memory>>,
    disk_folder: Option<PathBuf>,
    prepared: Vec<Arc<Prepared>>,
    pool: Arc<ThreadPool>,
    workers: Vec<Worker>,
    running: Option<(PreparedId, Arc<Iteration>)>,
    timing: bool,
    timeline: Option<Timeline>,
    launch: LaunchFn,
}

/// The thread of one stream.
#[derive(Debug)]
struct Worker {
    jobs: Sender<(Arc<Iteration>, usize)>,
    thread: JoinHandle<()>,
}

impl CpuDevice {
    /// A device with as many kernel threads as the machine has cores.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] when threads cannot be started.
    pub fn new() -> Result<Self, DeviceError> {
        Self::with_threads(0)
    }

    /// A device with `threads` kernel threads; 0 for as many as cores. Results do not depend on it.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] when threads cannot be started.
    pub fn with_threads(threads: usize) -> Result<Self, DeviceError> {
        let named = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("kernel {i}"));
        let pool = named.build().map_err(|error| no_threads(&error))?;
        Ok(CpuDevice {
            memory: None,
            disk_folder: None,
            prepared: Vec::new(),
            pool: Arc::new(pool),
            workers: Vec::new(),
            running: None,
            timing: false,
            timeline: None,
            launch: cpu::launch,
        })
    }

    fn memory(&self) -> Result<&Arc<Memory>, DeviceError> {
        self.memory.as_ref().ok_or_else(|| misuse("reserve", "expected memory reserved before anything else"))
    }

    fn start_workers(&mut self, streams: usize) -> Result<(), DeviceError> {
        while self.workers.len() < streams {
            let (jobs, queue) = mpsc::channel::<(Arc<Iteration>, usize)>();
            let run = move || queue.into_iter().for_each(|(iteration, command)| iteration.run(command));
            let named = std::thread::Builder::new().name(format!("stream {}", self.workers.len()));
            let thread = named.spawn(run).map_err(|error| no_threads(&error))?;
            self.workers.push(Worker { jobs, thread });
        }
        Ok(())
    }
}

fn no_threads(error: &dyn std::error::Error) -> DeviceError {
    DeviceError::Unavailable {
        what: "the CPU device".to_string(),
        reason: format!("its threads cannot be started: {error}"),
        advice: "Ask for fewer threads or raise the limit on processes.".to_string(),
    }
}

fn misuse(place: &str, reason: &str) -> DeviceError {
    DeviceError::Schedule { place: place.to_string(), reason: reason.to_string() }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        if let Some((_, iteration)) = self.running.take() {
            iteration.fail(misuse("drop", "the device was dropped during an iteration"));
        }
        for Worker { jobs, thread } in self.workers.drain(..) {
            drop(jobs);
            // A worker catches its commands' panics, so there is none to report.
            let _ = thread.join();
        }
    }
}

impl Device for CpuDevice {
    fn description(&self) -> Description {
        let details =
            format!("{} {}, {} threads", std::env::consts::ARCH, std::env::consts::OS, self.pool.current_num_threads());
        Description { name: "cpu".to_string(), details, context_bytes: 0 }
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        kernel_table(graph, request)
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        if self.memory.is_some() {
            return Err(misuse("reserve", "expected it once, found memory reserved before"));
        }
        let memory = Memory::new(device, host)?;
        self.pool.install(|| memory.device.fill_pattern().and_then(|()| memory.host.fill_pattern()))?;
        self.memory = Some(Arc::new(memory));
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
        match self.memory.as_mut().and_then(Arc::get_mut) {
            Some(memory @ Memory { disk: Disk::Absent, .. }) => {
                memory.disk = Disk::File(DiskFile::create(folder, bytes)?);
                Ok(())
            }
            _ => Err(misuse("reserve_disk", "expected it once, after the arenas and before the first iteration")),
        }
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        let memory = self.memory.as_mut().and_then(Arc::get_mut);
        let early = || misuse("reserve_staging", "expected it after the arenas and before the first iteration");
        memory.ok_or_else(early)?.reserve_staging(offset, bytes)
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        let prepared = Prepared::new(program, schedule, self.memory()?)?;
        self.start_workers(prepared.schedule.streams.len())?;
        self.prepared.push(Arc::new(prepared));
        Ok(PreparedId(self.prepared.len() - 1))
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        let (None, Some(prepared)) = (&self.running, self.prepared.get(schedule.0)) else {
            return Err(misuse("begin", "expected a prepared schedule and no iteration running"));
        };
        let memory = Arc::clone(self.memory()?);
        let (prepared, pool) = (Arc::clone(prepared), Arc::clone(&self.pool));
        let iteration = Iteration::new(prepared, memory, pool, self.launch, self.timing);
        self.timeline = None;
        self.running = Some((schedule, Arc::new(iteration)));
        Ok(())
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        let Some((_, iteration)) = self.running.as_ref().filter(|(id, _)| *id == schedule) else {
            return Err(misuse("issue", "expected the schedule that was begun"));
        };
        let Some(stream) = iteration.queue(command) else {
            return Err(misuse("issue", "expected a command of the schedule"));
        };
        let job = (Arc::clone(iteration), command);
        // The receiver lives as long as the worker, which lives as long as this device.
        self.workers[stream].jobs.send(job).map_err(|_| misuse("issue", "the stream's thread has ended"))
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        let Some((_, iteration)) = self.running.take() else {
            return Ok(());
        };
        let State { failure, spans, .. } = iteration.join();
        if let Some(failure) = failure {
            return Err(failure);
        }
        if self.timing {
            let seconds = spans.iter().map(|span| span.end).fold(0.0, f64::max);
            self.timeline = Some(Timeline { spans, seconds });
        }
        Ok(())
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory()?.write(space, offset, bytes)
    }

    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory()?.stage(offset, bytes)
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.memory()?.load_staged(from, to, bytes)
    }

    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory()?.read(space, offset, bytes)
    }

    fn measured_peak(&mut self) -> Option<Bytes> {
        self.memory.as_ref().and_then(|memory| memory.device.highest_changed().ok())
    }

    fn measured_host_peak(&mut self) -> Option<Bytes> {
        self.memory.as_ref().and_then(|memory| memory.host.highest_changed().ok())
    }

    fn set_timing(&mut self, on: bool) {
        self.timing = on;
    }

    fn timeline(&mut self) -> Option<Timeline> {
        self.timeline.clone()
    }
}

#[cfg(test)]
mod tests;
