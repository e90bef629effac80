//! How fast bytes move between device and host memory, what that costs launches, and how fast a disk is.

use vdnn_schedule::Direction;
use vdnn_tensor::Bytes;

/// Rates of the two directions, in bytes a second, the latency of one transfer and the delays of launches beside it, in seconds.
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
    /// How much later a launch begins while a copy to the host is under way, in seconds.
    pub launch_delay_d2h: f64,
    /// How much later a launch begins while a copy to the device is under way, in seconds.
    pub launch_delay_h2d: f64,
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
    /// Links of these rates whose copies begin at once and delay no launch, without a disk.
    pub const fn new(d2h: f64, h2d: f64, duplex_each: f64) -> Self {
        Links { d2h, h2d, duplex_each, latency: 0.0, launch_delay_d2h: 0.0, launch_delay_h2d: 0.0, disk: None }
    }

    /// The same links with copies that delay no launch.
    pub fn without_launch_delays(self) -> Self {
        Links { launch_delay_d2h: 0.0, launch_delay_h2d: 0.0, ..self }
    }

    /// How much later a launch begins while copies are under way down, up or both ways: the delays add up.
    pub fn launch_delay(&self, down: bool, up: bool) -> f64 {
        let of = |under_way: bool, delay: f64| if under_way { delay } else { 0.0 };
        of(down, self.launch_delay_d2h) + of(up, self.launch_delay_h2d)
    }

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
