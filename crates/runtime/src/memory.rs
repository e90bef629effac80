//! The memory of devices whose arenas are ordinary memory: device and host arena, and a file or a stand-in for one.

use crate::prepared::Copy;
use crate::{Access, Arena, Borrow, ByteRegion, DeviceError, DiskFile};
use std::sync::Arc;
use vdnn_schedule::Space;
use vdnn_tensor::Bytes;

/// The two arenas, and what lies below them.
#[derive(Debug)]
pub(crate) struct Memory {
    pub device: Arena,
    pub host: Arena,
    pub disk: Disk,
    /// The bytes of the device arena that the host fills while iterations run.
    pub staging: ByteRegion,
}

/// Where values rest that host memory does not hold.
#[derive(Debug)]
pub(crate) enum Disk {
    Absent,
    File(DiskFile),
    /// A file for devices that want to see every byte of it.
    Memory(Arena),
}

impl Disk {
    fn bytes(&self) -> Bytes {
        match self {
            Disk::Absent => 0,
            Disk::File(file) => file.bytes(),
            Disk::Memory(arena) => arena.bytes(),
        }
    }
}

/// A tier that has an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Device,
    Host,
    Disk,
}

/// An access to one tier.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub tier: Tier,
    pub access: Arc<Access>,
}

impl Memory {
    /// Two arenas of zeros, and no disk.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub(crate) fn new(device: Bytes, host: Bytes) -> Result<Self, DeviceError> {
        let (device, host) = (Arena::new("device", device)?, Arena::new("host", host)?);
        Ok(Memory { device, host, disk: Disk::Absent, staging: ByteRegion::contiguous(0, 0) })
    }

    /// The arena of a tier, where it is one.
    pub(crate) fn arena(&self, tier: Tier) -> Option<&Arena> {
        match (tier, &self.disk) {
            (Tier::Device, _) => Some(&self.device),
            (Tier::Host, _) => Some(&self.host),
            (Tier::Disk, Disk::Memory(arena)) => Some(arena),
            (Tier::Disk, _) => None,
        }
    }

    pub(crate) fn bytes(&self, tier: Tier) -> Bytes {
        self.arena(tier).map_or_else(|| self.disk.bytes(), Arena::bytes)
    }

    pub(crate) fn borrow(&self, place: &Place) -> Result<Borrow<'_>, DeviceError> {
        let missing = || DeviceError::Schedule {
            place: place.access.label().to_string(),
            reason: "expected bytes of an arena, found bytes of a file".to_string(),
        };
        self.arena(place.tier).ok_or_else(missing)?.borrow(&place.access)
    }

    /// Copies a whole transfer.
    ///
    /// # Errors
    /// [`DeviceError::Conflict`] where something else touches the bytes, [`DeviceError::Disk`].
    pub(crate) fn transfer(&self, copy: &Copy) -> Result<(), DeviceError> {
        match &self.disk {
            Disk::File(file) if copy.dst.tier == Tier::Disk => {
                let mut src = self.borrow(&copy.src)?;
                for (reading, at) in src.open().reads.iter().zip(copy.dst.access.writes()) {
                    file.write(at.offset, reading.view::<u8>()?.as_slice().unwrap_or_default())?;
                }
                Ok(())
            }
            Disk::File(file) if copy.src.tier == Tier::Disk => {
                let mut dst = self.borrow(&copy.dst)?;
                for (writing, at) in dst.open().writes.into_iter().zip(copy.src.access.reads()) {
                    file.read(at.offset, writing.view::<u8>()?.into_slice().unwrap_or_default())?;
                }
                Ok(())
            }
            _ => {
                let (mut src, mut dst) = (self.borrow(&copy.src)?, self.borrow(&copy.dst)?);
                copy.run(&mut src, &mut dst, 0..copy.bytes)
            }
        }
    }

    /// The arena of a space.
    fn of_space(&self, space: Space) -> Result<&Arena, DeviceError> {
        match space {
            Space::Device => Ok(&self.device),
            Space::Host => Ok(&self.host),
            Space::Disk => Err(DeviceError::Schedule {
                place: "a home".to_string(),
                reason: "expected it on the device or in host memory, found it on disk".to_string(),
            }),
        }
    }

    /// Writes an arena's bytes between iterations.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] beyond the arena.
    pub(crate) fn write(&self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        let access = Access::new("host write", &[], &[ByteRegion::contiguous(offset, bytes.len() as Bytes)])?;
        for writing in self.of_space(space)?.borrow(&access)?.open().writes {
            writing.view::<u8>()?.copy_from(&crate::View::from_slice(bytes), 0..bytes.len());
        }
        Ok(())
    }

    /// Sets the staging region.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] beyond the arena.
    pub(crate) fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.staging = within(offset, bytes, ByteRegion::contiguous(0, self.device.bytes()))?;
        Ok(())
    }

    /// Writes bytes of the staging region, at any time.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] beyond the region.
    pub(crate) fn stage(&self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        within(offset, bytes.len() as Bytes, self.staging)?;
        self.write(Space::Device, offset, bytes)
    }

    /// Copies bytes of the staging region elsewhere in the device arena.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] beyond the region or the arena.
    pub(crate) fn load_staged(&self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        let from = within(from, bytes, self.staging)?;
        let access = Access::new("a staged input", &[from], &[ByteRegion::contiguous(to, bytes)])?;
        let mut borrow = self.device.borrow(&access)?;
        let open = borrow.open();
        for (reading, writing) in open.reads.iter().zip(open.writes) {
            writing.view::<u8>()?.copy_from(&reading.view::<u8>()?, 0..bytes as usize);
        }
        Ok(())
    }

    /// Reads an arena's bytes between iterations.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] beyond the arena.
    pub(crate) fn read(&self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let access = Access::new("host read", &[ByteRegion::contiguous(offset, bytes.len() as Bytes)], &[])?;
        for reading in self.of_space(space)?.borrow(&access)?.open().reads {
            let len = bytes.len();
            crate::ViewMut::from_slice(&mut *bytes).copy_from(&reading.view::<u8>()?, 0..len);
        }
        Ok(())
    }
}

/// A region inside another.
fn within(offset: Bytes, bytes: Bytes, outer: ByteRegion) -> Result<ByteRegion, DeviceError> {
    match offset.checked_add(bytes) {
        Some(end) if offset >= outer.offset && end <= outer.offset + outer.bytes() => {
            Ok(ByteRegion::contiguous(offset, bytes))
        }
        _ => {
            let (first, found) = (outer.offset, outer.bytes());
            let reason = format!("expected {bytes} bytes at {offset} within {found} at {first}");
            Err(DeviceError::Schedule { place: "the staging region".to_string(), reason })
        }
    }
}
