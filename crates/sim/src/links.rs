//! How fast bytes move between device and host memory.

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
