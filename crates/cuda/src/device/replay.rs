//! Whole iterations as one launch: a schedule's commands, of all streams, captured when it is prepared.
//!
//! Launches, copies and waits are captured at their planned addresses, as `issue` queues them. What varies between
//! iterations is in buffers, so every replay is the same graph. Where capture fails, or is not wanted, commands are issued
//! one by one; the device's description then says why. Schedules with values on disk are not captured: their copies are
//! functions of the host, whose failures end an iteration.

use super::arenas::Arenas;
use super::gpu::Gpu;
use super::prepared::Prepared;
use crate::CudaError;

/// Whether iterations are launched as graphs.
#[derive(Debug)]
pub(super) struct Replay {
    /// Wanted.
    pub on: bool,
    /// The iteration under way was launched as a whole.
    pub running: bool,
    /// Why a schedule could not be captured.
    refused: Option<String>,
}

impl Replay {
    pub fn new(on: bool) -> Self {
        Replay { on, running: false, refused: None }
    }

    /// Captures a schedule, if that is wanted.
    pub fn capture(&mut self, prepared: &mut Prepared, gpu: &Gpu, arenas: &Arenas) {
        if !self.on {
            return;
        }
        if prepared.uses_disk() {
            self.refused = Some("values rest on disk".to_string());
            return;
        }
        let commands = 0..prepared.tasks.len();
        let issue = || commands.into_iter().try_for_each(|command| prepared.issue(command, gpu, arenas, false));
        match gpu.streams.compute.capture(issue) {
            Ok(graph) => prepared.graph = Some(graph),
            Err(error) => self.refused = Some(error.to_string()),
        }
    }

    /// Launches an iteration as a whole, if it was captured and nobody wants to see its commands.
    pub fn launch(&mut self, prepared: &Prepared, gpu: &Gpu, by_command: bool) -> Result<(), CudaError> {
        let graph = prepared.graph.as_ref().filter(|_| self.on && !by_command);
        self.running = graph.is_some();
        graph.map_or(Ok(()), |graph| graph.launch(&gpu.streams.compute))
    }

    /// What a reader of results should know.
    pub fn note(&self) -> String {
        let refused = self.refused.as_ref().filter(|_| self.on);
        refused.map_or(String::new(), |why| format!(", commands issued one by one ({why})"))
    }
}
