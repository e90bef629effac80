//! Whole iterations as one launch: a schedule's commands, of all streams, captured when it is prepared.
//!
//! Launches, copies and waits are captured at their planned addresses, as `issue` queues them. What varies between
//! iterations is in buffers, so every replay is the same graph. Where capture fails, or is not wanted, commands are issued
//! one by one; the device's description then says why. Schedules with values on disk are not captured: their copies are
//! functions of the host, whose failures end an iteration.
//!
//! A graph that is one chain is quicker than its commands one by one. With copies beside the chain it may be slower, by up to
//! 8 %, and nothing in the schedule says when (`docs/decisions/0022-captured-iterations.md`). Then a [`Trial`] decides.

use std::time::{Duration, Instant};

use super::arenas::Arenas;
use super::gpu::Gpu;
use super::prepared::Prepared;
use super::trial::Trial;
use crate::CudaError;

/// Whether iterations are launched as graphs.
#[derive(Debug)]
pub(super) struct Replay {
    /// Wanted.
    pub on: bool,
    /// The iteration under way was launched as a whole.
    pub running: bool,
    /// When an iteration began that a trial follows.
    began: Option<Instant>,
    /// What the last trial that came to its end found.
    found: Option<[Duration; 2]>,
    /// Why a schedule could not be captured.
    refused: Option<String>,
}

impl Replay {
    pub fn new(on: bool) -> Self {
        Replay { on, running: false, began: None, found: None, refused: None }
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
            Ok(graph) => {
                prepared.graph = Some(graph);
                prepared.trial = prepared.has_copies().then(Trial::default);
            }
            Err(error) => self.refused = Some(error.to_string()),
        }
    }

    /// Launches an iteration as a whole, if it was captured, that is the quicker way, and nobody wants to see its commands.
    pub fn launch(&mut self, prepared: &Prepared, gpu: &Gpu, by_command: bool) -> Result<(), CudaError> {
        let captured = prepared.graph.as_ref().filter(|_| self.on && !by_command);
        self.began = captured.and(prepared.trial.as_ref()).map(|_| Instant::now());
        let graph = captured.filter(|_| prepared.trial.as_ref().is_none_or(Trial::as_graph));
        self.running = graph.is_some();
        graph.map_or(Ok(()), |graph| graph.launch(&gpu.streams.compute))
    }

    /// The iteration has ended, just now if the host has `seen` it; else nobody knows when.
    pub fn ended(&mut self, prepared: &mut Prepared, seen: bool) {
        if let (Some(began), Some(trial)) = (self.began.take().filter(|_| seen), &mut prepared.trial) {
            trial.took(began.elapsed());
            self.found = trial.found().or(self.found);
        }
    }

    /// What a reader of results should know.
    pub fn note(&self) -> String {
        match (&self.refused, self.found) {
            _ if !self.on => String::new(),
            (Some(why), _) => format!(", commands issued one by one ({why})"),
            (None, Some([graph, issued])) => {
                let ms = |time: Duration| time.as_secs_f64() * 1e3;
                format!(", an iteration {:.2} ms as a graph, {:.2} ms issued", ms(graph), ms(issued))
            }
            (None, None) => String::new(),
        }
    }
}
