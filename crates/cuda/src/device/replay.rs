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
use crate::CudaError;

/// Iterations before any is timed: the first ones load and allocate.
const UNTIMED: usize = 2;
/// Timed iterations of each way, of which the quickest counts.
const TIMED: usize = 3;

/// The two ways of an iteration that has copies beside its launches, timed in turn from its third one on; the quicker one is
/// kept. Both compute the same bits.
#[derive(Debug, Default)]
pub(super) struct Trial {
    seen: usize,
    /// Least time as a graph, and one by one.
    least: [Option<Duration>; 2],
}

impl Trial {
    /// Whether the next iteration is to be a graph.
    fn as_graph(&self) -> bool {
        self.found().map_or(self.seen.is_multiple_of(2), |[graph, issued]| graph <= issued)
    }

    /// Both ways' times, once every one has had its turns.
    fn found(&self) -> Option<[Duration; 2]> {
        let [graph, issued] = self.least;
        (self.seen >= UNTIMED + 2 * TIMED).then_some([graph?, issued?])
    }

    /// An iteration of its choosing took so long.
    fn took(&mut self, time: Duration) {
        if (UNTIMED..UNTIMED + 2 * TIMED).contains(&self.seen) {
            let least = &mut self.least[usize::from(!self.as_graph())];
            *least = Some(least.map_or(time, |before| before.min(time)));
        }
        self.seen += 1;
    }
}

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

    /// The iteration has ended.
    pub fn ended(&mut self, prepared: &mut Prepared) {
        if let (Some(began), Some(trial)) = (self.began.take(), &mut prepared.trial) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(graph: u64, issued: u64) -> Vec<bool> {
        let mut trial = Trial::default();
        let one = |_| {
            let as_graph = trial.as_graph();
            // The first iteration of all is slow.
            let ms = if trial.seen == 0 {
                1000
            } else if as_graph {
                graph
            } else {
                issued
            };
            trial.took(Duration::from_millis(ms));
            as_graph
        };
        (0..10).map(one).collect()
    }

    #[test]
    fn a_trial_takes_turns_and_keeps_the_quicker_way() {
        let turns = [true, false, true, false, true, false, true, false];
        assert_eq!(ways(30, 40), [&turns[..], &[true, true]].concat());
        assert_eq!(ways(40, 30), [&turns[..], &[false, false]].concat());
    }
}
