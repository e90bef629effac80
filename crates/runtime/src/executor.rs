//! The loop that runs a schedule, the same for every device, and the homes the host reads and writes by name.
//!
//! It takes no decision: every command is issued in order, then the streams are joined. What a command needs was settled
//! when the schedule was compiled; what it needs of the device, when the schedule was added.

use crate::{Description, Device, DeviceError, PreparedId};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_graph::{Program, Role};
use vdnn_schedule::{Home, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;

/// A schedule added to an executor; good for that executor only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(usize);

/// A device and the schedules made ready on it. `Executor<Box<dyn Device>>` serves a device chosen at run time.
#[derive(Debug)]
pub struct Executor<D: Device> {
    device: D,
    loaded: Vec<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    prepared: PreparedId,
    schedule: Arc<Schedule>,
    homes: BTreeMap<String, Place>,
}

/// Where a home's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    space: Space,
    offset: Bytes,
    bytes: Bytes,
    persistent: bool,
}

impl<D: Device> Executor<D> {
    /// An executor over a device. Nothing is reserved yet.
    pub fn new(device: D) -> Self {
        Executor { device, loaded: Vec::new() }
    }

    /// An executor with all schedules of a run: arenas as large as the largest of each.
    ///
    /// # Errors
    /// As [`Executor::reserve`], [`Executor::reserve_disk`] and [`Executor::add`].
    pub fn with_schedules(
        device: D,
        schedules: &[(Arc<Program>, Arc<Schedule>)],
    ) -> Result<(Self, Vec<ScheduleId>), DeviceError> {
        let mut executor = Executor::new(device);
        let peak = |space| schedules.iter().map(|(_, schedule)| schedule.peak_bytes(space)).max().unwrap_or(0);
        executor.reserve(peak(Space::Device), peak(Space::Host))?;
        executor.reserve_disk(peak(Space::Disk))?;
        let add = |(program, schedule): &(Arc<Program>, Arc<Schedule>)| {
            executor.add(Arc::clone(program), Arc::clone(schedule))
        };
        let ids = schedules.iter().map(add).collect::<Result<Vec<_>, _>>()?;
        Ok((executor, ids))
    }

    /// Takes the arenas, once, for every schedule to come.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        self.device.reserve(device, host)
    }

    /// Takes what the schedules to come rest on disk, once, after the arenas.
    ///
    /// # Errors
    /// As [`Device::reserve_disk`].
    pub fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        self.device.reserve_disk(bytes)
    }

    /// Makes a schedule of a program ready to run.
    ///
    /// # Errors
    /// [`DeviceError`] when the device cannot run it, or when a persistent value's home is not where the schedules added
    /// before have it.
    pub fn add(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<ScheduleId, DeviceError> {
        let homes = homes(&program, &schedule)?;
        for loaded in &self.loaded {
            same_persistents(&loaded.homes, &homes)?;
        }
        let prepared = self.device.prepare(program, Arc::clone(&schedule))?;
        self.loaded.push(Loaded { prepared, schedule, homes });
        Ok(ScheduleId(self.loaded.len() - 1))
    }

    /// Says which bytes of the device arena, used by no schedule, are filled while iterations run.
    ///
    /// # Errors
    /// As [`Device::reserve_staging`].
    pub fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.device.reserve_staging(offset, bytes)
    }

    /// Runs one iteration to its end.
    ///
    /// # Errors
    /// The first failure. Persistent values may then be half updated: restore them before going on.
    pub fn run(&mut self, id: ScheduleId) -> Result<(), DeviceError> {
        self.start(id)?;
        self.finish()
    }

    /// Starts one iteration, for [`Executor::finish`] to wait for. Until then only [`Executor::stage`] may be called.
    ///
    /// # Errors
    /// The first failure, after which nothing runs.
    pub fn start(&mut self, id: ScheduleId) -> Result<(), DeviceError> {
        let Loaded { prepared, schedule, .. } = &self.loaded[id.0];
        self.device.begin(*prepared)?;
        let issued = (0..schedule.commands.len()).try_for_each(|command| self.device.issue(*prepared, command));
        // Joined when issuing failed, so that nothing runs on after an error is returned.
        issued.inspect_err(|_| drop(self.device.finish()))
    }

    /// Waits for the iteration that was started.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn finish(&mut self) -> Result<(), DeviceError> {
        self.device.finish()
    }

    /// Writes what an input is to hold next to its place `at` in the staging region, also while an iteration runs.
    ///
    /// # Errors
    /// As [`Executor::write`], and [`Device::stage`].
    pub fn stage(&mut self, id: ScheduleId, name: &str, at: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        let place = self.home(id, name)?;
        check_size(name, place, bytes.len())?;
        self.device.stage(at, bytes)
    }

    /// Brings an input from its place in the staging region home, between iterations.
    ///
    /// # Errors
    /// [`DeviceError::UnknownValue`], and [`Device::load_staged`].
    pub fn load_staged(&mut self, id: ScheduleId, name: &str, at: Bytes) -> Result<(), DeviceError> {
        let place = self.home(id, name)?;
        self.device.load_staged(at, place.offset, place.bytes)
    }

    /// Writes a value's home: an input before an iteration, a parameter or state at any boundary.
    ///
    /// # Errors
    /// [`DeviceError::UnknownValue`], or [`DeviceError::HomeSize`] unless `bytes` fills the value.
    pub fn write(&mut self, id: ScheduleId, name: &str, bytes: &[u8]) -> Result<(), DeviceError> {
        let place = self.home(id, name)?;
        check_size(name, place, bytes.len())?;
        self.device.write(place.space, place.offset, bytes)
    }

    /// Reads a value's home: a metric after an iteration, a parameter or state at any boundary.
    ///
    /// # Errors
    /// [`DeviceError::UnknownValue`].
    pub fn read(&mut self, id: ScheduleId, name: &str) -> Result<Vec<u8>, DeviceError> {
        let place = self.home(id, name)?;
        let mut bytes = vec![0; place.bytes as usize];
        self.device.read(place.space, place.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a value's home into bytes of one's own.
    ///
    /// # Errors
    /// [`DeviceError::UnknownValue`], or [`DeviceError::HomeSize`] unless `bytes` is as large as the value.
    pub fn read_into(&mut self, id: ScheduleId, name: &str, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let place = self.home(id, name)?;
        check_size(name, place, bytes.len())?;
        self.device.read(place.space, place.offset, bytes)
    }

    /// Size of a value's home in bytes.
    ///
    /// # Errors
    /// [`DeviceError::UnknownValue`].
    pub fn home_bytes(&self, id: ScheduleId, name: &str) -> Result<Bytes, DeviceError> {
        self.home(id, name).map(|place| place.bytes)
    }

    /// A schedule that was added.
    pub fn schedule(&self, id: ScheduleId) -> &Arc<Schedule> {
        &self.loaded[id.0].schedule
    }

    /// What the device is.
    pub fn description(&self) -> Description {
        self.device.description()
    }

    /// Memory actually used so far; see [`Device::measured_peak`].
    pub fn measured_peak(&mut self) -> Option<Bytes> {
        self.device.measured_peak()
    }

    /// Host memory actually used so far; see [`Device::measured_host_peak`].
    pub fn measured_host_peak(&mut self) -> Option<Bytes> {
        self.device.measured_host_peak()
    }

    /// Turns per-command timing on or off.
    pub fn set_timing(&mut self, on: bool) {
        self.device.set_timing(on);
    }

    /// Times of the last iteration's commands, when timing is on.
    pub fn timeline(&mut self) -> Option<Timeline> {
        self.device.timeline()
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to ask it more than the executor does.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn home(&self, id: ScheduleId, name: &str) -> Result<Place, DeviceError> {
        let homes = &self.loaded[id.0].homes;
        homes.get(name).copied().ok_or_else(|| DeviceError::UnknownValue {
            name: name.to_string(),
            known: homes.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

/// Checks that so many bytes fill a home.
fn check_size(name: &str, place: Place, found: usize) -> Result<(), DeviceError> {
    let (expected, found) = (place.bytes, found as Bytes);
    if expected == found {
        return Ok(());
    }
    Err(DeviceError::HomeSize { name: name.to_string(), expected, found })
}

/// Homes by the names of the values they hold: an updated persistent goes by its name before and after the iteration.
fn homes(program: &Program, schedule: &Schedule) -> Result<BTreeMap<String, Place>, DeviceError> {
    let mut homes = BTreeMap::new();
    for home in &schedule.homes {
        let place = place(program, schedule, home)?;
        for value in [home.initial, home.last] {
            homes.insert(program.graph.value(value).name.clone(), place);
        }
    }
    Ok(homes)
}

fn place(program: &Program, schedule: &Schedule, home: &Home) -> Result<Place, DeviceError> {
    let refuse = |reason| DeviceError::Schedule { place: format!("a home in {}", schedule.name), reason };
    let values = program.graph.values();
    let (Some(value), Some(_)) = (values.get(home.initial.index()), values.get(home.last.index())) else {
        return Err(refuse(format!(
            "expected values of the program, found ids {:?} and {:?}",
            home.initial, home.last
        )));
    };
    let Some(buffer) = schedule.buffers.get(home.buffer.index()) else {
        return Err(refuse(format!("expected a buffer for {}, found id {:?}", value.name, home.buffer)));
    };
    let persistent = matches!(value.role, Role::Parameter | Role::State);
    // Parameters and states may live in host memory.
    let there = buffer.space == Space::Device || (persistent && buffer.space == Space::Host);
    if !there || buffer.bytes < value.ty.bytes() {
        let (expected, found) = (value.ty.bytes(), buffer.bytes);
        let (name, space) = (&value.name, buffer.space);
        return Err(refuse(format!("expected {expected} bytes on the device for {name}, found {found} in {space:?}")));
    }
    Ok(Place { space: buffer.space, offset: buffer.offset, bytes: value.ty.bytes(), persistent })
}

/// Schedules of one run share the homes of persistent values, or each would train its own copy.
fn same_persistents(before: &BTreeMap<String, Place>, now: &BTreeMap<String, Place>) -> Result<(), DeviceError> {
    let both = now.iter().filter_map(|(name, place)| before.get(name).map(|earlier| (name, earlier, place)));
    for (name, earlier, place) in both.filter(|(_, earlier, place)| earlier.persistent && place.persistent) {
        if earlier != place {
            let at = |place: &Place| format!("{:?} {} ({} bytes)", place.space, place.offset, place.bytes);
            let (expected, found) = (at(earlier), at(place));
            let reason = format!("expected its home at {expected} as in schedules added before, found {found}");
            return Err(DeviceError::Schedule { place: name.clone(), reason });
        }
    }
    Ok(())
}
