//! A device that runs any legal interleaving, chosen by a seed, and poisons every byte that holds nothing.
//!
//! ```text
//!   issue     every stream gets a queue; nothing runs
//!   finish    pick a stream whose head may run, advance it, repeat:
//!             · launches and transfers have a start and an end, other streams move between them
//!             · a transfer is torn: it moves any number of bytes at a time
//!             · a wait may run once its event was recorded; if nothing may run, that is a deadlock
//!   poison    scratch memory at begin, buffers at alloc and free, workspaces and fresh outputs at launch (0xFF: NaN)
//! ```
//!
//! A schedule whose events order everything that matters gives the bits of in-order execution under every seed. One that
//! lacks a wait gives, for some seed, other bits, NaNs, or two accesses to the same bytes at once
//! ([`DeviceError::Conflict`]).

mod interleave;

use crate::memory::{Disk, Memory, Place, Tier};
use crate::prepared::{LaunchFn, Prepared, kernel_table};
use crate::{Access, Arena, ByteRegion, Description, Device, DeviceError, KernelRequest, PreparedId, cpu};
use interleave::Interleaving;
use std::collections::VecDeque;
use std::sync::Arc;
use vdnn_graph::{Graph, Program};
use vdnn_schedule::{BufferKind, KernelTable, Schedule, Space, Timeline};
use vdnn_tensor::{Bytes, Philox};

/// Every byte of dead memory: NaN as a float of any size, -1 as an integer.
const POISON: u8 = 0xFF;

/// The CPU's memory and kernels under an adversary's timing.
#[derive(Debug)]
pub struct ChaosDevice {
    seed: u64,
    iterations: u64,
    memory: Option<Memory>,
    prepared: Vec<Arc<Prepared>>,
    running: Option<PreparedId>,
    queues: Vec<VecDeque<usize>>,
    launch: LaunchFn,
}

impl ChaosDevice {
    /// A device whose interleavings follow from `seed` and the number of the iteration.
    pub fn new(seed: u64) -> Self {
        ChaosDevice {
            seed,
            iterations: 0,
            memory: None,
            prepared: Vec::new(),
            running: None,
            queues: Vec::new(),
            launch: cpu::launch,
        }
    }

    fn memory(&self) -> Result<&Memory, DeviceError> {
        self.memory.as_ref().ok_or_else(|| misuse("reserve", "expected memory reserved before anything else"))
    }

    /// Poisons all bytes outside the homes of every prepared schedule and the staging region.
    fn poison_scratch(&self) -> Result<(), DeviceError> {
        let memory = self.memory()?;
        for (tier, space) in [(Tier::Device, Space::Device), (Tier::Host, Space::Host), (Tier::Disk, Space::Disk)] {
            let Some(arena) = memory.arena(tier) else { continue };
            let mut homes: Vec<(Bytes, Bytes)> = self
                .prepared
                .iter()
                .flat_map(|prepared| &prepared.schedule.buffers)
                .filter(|buffer| buffer.kind == BufferKind::Home && buffer.space == space)
                .map(|buffer| (buffer.offset, buffer.offset.saturating_add(buffer.bytes)))
                .collect();
            if tier == Tier::Device {
                homes.push((memory.staging.offset, memory.staging.end()));
            }
            homes.sort_unstable();
            homes.push((arena.bytes(), arena.bytes()));
            let mut start = 0;
            for (home, end) in homes {
                if start < home.min(arena.bytes()) {
                    let gap = ByteRegion::contiguous(start, home.min(arena.bytes()) - start);
                    let access = Access::new("poison", &[], &[gap])?;
                    poison(memory, &Place { tier, access })?;
                }
                start = start.max(end);
            }
        }
        Ok(())
    }
}

fn poison(memory: &Memory, place: &Place) -> Result<(), DeviceError> {
    memory.arena(place.tier).map_or(Ok(()), |arena| arena.fill(&place.access, POISON))
}

fn misuse(place: &str, reason: &str) -> DeviceError {
    DeviceError::Schedule { place: place.to_string(), reason: reason.to_string() }
}

impl Device for ChaosDevice {
    fn description(&self) -> Description {
        let details = format!("interleavings of seed {}", self.seed);
        Description { name: "chaos".to_string(), details, context_bytes: 0 }
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        kernel_table(graph, request)
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        if self.memory.is_some() {
            return Err(misuse("reserve", "expected it once, found memory reserved before"));
        }
        self.memory = Some(Memory::new(device, host)?);
        Ok(())
    }

    /// Takes memory, so that what lies on disk can be poisoned.
    fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        match &mut self.memory {
            _ if bytes == 0 => Ok(()),
            Some(memory @ Memory { disk: Disk::Absent, .. }) => {
                memory.disk = Disk::Memory(Arena::new("disk", bytes)?);
                Ok(())
            }
            _ => Err(misuse("reserve_disk", "expected it once, after the arenas")),
        }
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        let early = || misuse("reserve_staging", "expected it after the arenas");
        self.memory.as_mut().ok_or_else(early)?.reserve_staging(offset, bytes)
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        let prepared = Prepared::new(program, schedule, self.memory()?)?;
        self.prepared.push(Arc::new(prepared));
        Ok(PreparedId(self.prepared.len() - 1))
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        let (None, Some(prepared)) = (self.running, self.prepared.get(schedule.0)) else {
            return Err(misuse("begin", "expected a prepared schedule and no iteration running"));
        };
        self.queues = vec![VecDeque::new(); prepared.schedule.streams.len()];
        self.poison_scratch()?;
        self.running = Some(schedule);
        Ok(())
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        if self.running != Some(schedule) {
            return Err(misuse("issue", "expected the schedule that was begun"));
        }
        let commands = &self.prepared[schedule.0].schedule.commands;
        let issued = commands.get(command).ok_or_else(|| misuse("issue", "expected a command of the schedule"))?;
        self.queues[issued.stream.index()].push_back(command);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        let Some(id) = self.running.take() else {
            return Ok(());
        };
        let queues = std::mem::take(&mut self.queues);
        let random = Philox::new(self.seed, self.iterations);
        self.iterations += 1;
        Interleaving::new(&self.prepared[id.0], self.memory()?, self.launch, queues, random).run()
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory()?.write(space, offset, bytes)
    }

    /// Before the commands of the iteration that was begun, which run when it is finished.
    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory()?.stage(offset, bytes)
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.memory()?.load_staged(from, to, bytes)
    }

    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory()?.read(space, offset, bytes)
    }

    /// Nothing: poisoning changes every byte.
    fn measured_peak(&mut self) -> Option<Bytes> {
        None
    }

    fn set_timing(&mut self, _on: bool) {}

    /// None: interleavings have no times.
    fn timeline(&mut self) -> Option<Timeline> {
        None
    }
}
