//! A GPU on which some waits of a schedule are left out: what the mistakes look like that a test must notice.

use crate::watched::{Watch, Watched};
use vdnn_cuda::CudaDevice;
use vdnn_runtime::{Device, PreparedId};
use vdnn_schedule::{Action, Schedule, StreamRole};

/// Which waits: of a stream, for events of another; `None` for those of any.
pub type LeftOut = (StreamRole, Option<StreamRole>);

/// Leaves them out.
#[derive(Debug)]
pub struct Careless {
    left_out: LeftOut,
    /// By schedule and command.
    skipped: Vec<Vec<bool>>,
}

impl Careless {
    /// A device without them. Commands are issued one by one, so that some can be left out.
    pub fn on(mut device: CudaDevice, left_out: LeftOut) -> Watched<Self> {
        device.set_replay(false);
        Watched { device, watch: Careless { left_out, skipped: Vec::new() } }
    }
}

impl Watch for Careless {
    fn prepared(&mut self, schedule: &Schedule) {
        self.skipped.push(waits(schedule, self.left_out));
    }

    fn issues(&self, schedule: PreparedId, command: usize) -> bool {
        !self.skipped[schedule.0][command]
    }
}

/// The waits of a schedule that are left out, by command.
pub fn waits(schedule: &Schedule, (stream, of): LeftOut) -> Vec<bool> {
    let role = |index: usize| schedule.streams[schedule.commands[index].stream.index()];
    let recorded = |event| {
        let at = schedule.commands.iter().position(|command| command.action == Action::Record(event));
        at.map(role)
    };
    let skipped = |(index, command): (usize, &vdnn_schedule::Command)| match command.action {
        Action::Wait(event) => role(index) == stream && (of.is_none() || recorded(event) == of),
        _ => false,
    };
    schedule.commands.iter().enumerate().map(skipped).collect()
}
