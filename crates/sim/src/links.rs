//! How fast bytes move between device and host memory, and between host memory and a disk.

use vdnn_schedule::Direction;
use vdnn_tensor::Bytes;

/// Rates of the two directions, in bytes a second, and the latency of one transfer, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// Device to host alone.
    pub d2h: f64,
    /// Host to device alone.
    pub h2d: f64,
    /// Each direction while both run. Never more than the direction's rate alone.
    pub duplex_each: f64,
    /// Time from the start of a transfer until bytes flow.
    pub latency: f64,
    /// Host memory to and from a file; `None` without a disk.
    pub disk: Option<DiskRates>,
}

/// Rates of a disk, in bytes a second, and the latency of one transfer, in seconds. It does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskRates {
    /// Host memory to file.
    pub write: f64,
    /// File to host memory.
    pub read: f64,
    /// Time from the start of a transfer until bytes flow.
    pub latency: f64,
}

impl DiskRates {
    /// Rate of a direction.
    pub fn rate(&self, direction: Direction) -> f64 {
        match direction {
            Direction::Offload => self.write,
            Direction::Prefetch => self.read,
        }
    }

    /// Time of one transfer.
    pub fn transfer_seconds(&self, direction: Direction, bytes: Bytes) -> f64 {
        self.latency + bytes as f64 / self.rate(direction)
    }
}

impl Links {
    /// Rate of a direction, alone or while the other one runs too.
    pub fn rate(&self, direction: Direction, both: bool) -> f64 {
        let alone = match direction {
            Direction::Offload => self.d2h,
            Direction::Prefetch => self.h2d,
        };
        if both { alone.min(self.duplex_each) } else { alone }
    }

    /// Time of one transfer that has the links to itself.
    pub fn transfer_seconds(&self, direction: Direction, bytes: Bytes) -> f64 {
        self.latency + bytes as f64 / self.rate(direction, false)
    }

    /// Time of one transfer while the other direction is busy throughout.
    pub fn duplex_seconds(&self, direction: Direction, bytes: Bytes) -> f64 {
        self.latency + bytes as f64 / self.rate(direction, true)
    }
}
