//! The time axis that the pictures of a page share, so that what stands above each other happens at once.

use crate::cli::drawing::{number, step};
use std::fmt::Write;

/// Width of a picture, and of what stands left and right of the time it shows.
pub const WIDTH: f64 = 1200.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;

/// From seconds to a place in a picture.
#[derive(Clone, Copy)]
pub struct Axis {
    /// Length of what is shown.
    pub seconds: f64,
}

impl Axis {
    /// Where a time stands, to a hundredth.
    pub fn x(self, seconds: f64) -> f64 {
        let share = if self.seconds > 0.0 { seconds / self.seconds } else { 0.0 };
        ((LEFT + share * (WIDTH - LEFT - RIGHT)) * 100.0).round() / 100.0
    }

    /// Left and right end.
    pub fn ends(self) -> (f64, f64) {
        (LEFT, WIDTH - RIGHT)
    }

    /// Seconds that are one unit wide.
    pub fn unit(self) -> f64 {
        self.seconds / (WIDTH - LEFT - RIGHT)
    }

    /// Marks from top to bottom with their milliseconds below.
    pub fn ticks(self, svg: &mut String, top: f64, bottom: f64) {
        let (most, every) = (self.seconds * 1e3, step(self.seconds * 1e3 / 2.0));
        let marks = (0..=100).map(|i| f64::from(i) * every).take_while(|&ms| ms <= most);
        for ms in marks {
            let x = self.x(ms / 1e3);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x},{top}V{bottom}\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}{}</text>",
                bottom + 15.0,
                number(ms),
                if ms == 0.0 { " ms" } else { "" }
            );
        }
    }
}
