//! One iteration as an interleaving of its streams' queues.

use super::{POISON, poison};
use crate::memory::Memory;
use crate::prepared::{Kernel, LaunchFn, Prepared, Task};
use crate::{Borrow, DeviceError};
use std::collections::VecDeque;
use vdnn_schedule::StreamRole;
use vdnn_tensor::Philox;

/// Which streams are favoured. Fair coins alone would hardly ever hold a copy back for many kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Any stream that may move.
    Fair,
    /// Copies run as soon as they may.
    EarlyCopies,
    /// Copies run only when kernels wait for them.
    LateCopies,
    /// Copies start as soon as they may and end only when kernels wait for them.
    SlowCopies,
}

/// A launch or transfer between its start and its end.
struct InFlight<'a> {
    command: usize,
    /// What is read by a transfer.
    source: Option<Borrow<'a>>,
    /// A transfer's destination, or all of a launch's operands.
    target: Borrow<'a>,
    /// Bytes moved; for a launch 1 once the kernel has run.
    progress: usize,
}

pub(super) struct Interleaving<'a> {
    prepared: &'a Prepared,
    memory: &'a Memory,
    launch: LaunchFn,
    queues: Vec<VecDeque<usize>>,
    in_flight: Vec<Option<InFlight<'a>>>,
    fired: Vec<bool>,
    random: Philox,
    pace: Pace,
}

impl<'a> Interleaving<'a> {
    pub(super) fn new(
        prepared: &'a Prepared,
        memory: &'a Memory,
        launch: LaunchFn,
        queues: Vec<VecDeque<usize>>,
        mut random: Philox,
    ) -> Self {
        let paces = [Pace::Fair, Pace::EarlyCopies, Pace::LateCopies, Pace::SlowCopies];
        let pace = paces[random.word() as usize % paces.len()];
        let in_flight = queues.iter().map(|_| None).collect();
        let fired = vec![false; prepared.schedule.events.len()];
        Interleaving { prepared, memory, launch, queues, in_flight, fired, random, pace }
    }

    /// Runs every queue to its end.
    pub(super) fn run(mut self) -> Result<(), DeviceError> {
        loop {
            let ready: Vec<usize> = (0..self.queues.len()).filter(|&stream| self.may_move(stream)).collect();
            if ready.is_empty() {
                return self.end();
            }
            let stream = self.pick(&ready);
            self.advance(stream)?;
        }
    }

    fn end(&self) -> Result<(), DeviceError> {
        let heads = self.queues.iter().filter_map(|queue| queue.front());
        let waiting: Vec<String> = heads.map(|&command| self.prepared.label(command)).collect();
        if waiting.is_empty() { Ok(()) } else { Err(DeviceError::Deadlock { waiting: waiting.join(", ") }) }
    }

    fn may_move(&self, stream: usize) -> bool {
        let head = self.queues[stream].front().map(|&command| &self.prepared.tasks[command]);
        match head {
            _ if self.in_flight[stream].is_some() => true,
            Some(Task::Wait(event)) => self.fired[*event],
            Some(_) => true,
            None => false,
        }
    }

    fn pick(&mut self, ready: &[usize]) -> usize {
        let is_copy = |stream: &usize| self.prepared.schedule.streams[*stream] != StreamRole::Compute;
        let favoured: Vec<usize> = match self.pace {
            Pace::Fair => Vec::new(),
            Pace::EarlyCopies => ready.iter().copied().filter(is_copy).collect(),
            Pace::LateCopies => ready.iter().copied().filter(|stream| !is_copy(stream)).collect(),
            Pace::SlowCopies => ready.iter().copied().filter(|s| !is_copy(s) || self.in_flight[*s].is_none()).collect(),
        };
        let among = if favoured.is_empty() { ready } else { &favoured };
        among[self.random.word() as usize % among.len()]
    }

    /// Moves one stream by a bit: the head's start, some of its bytes, or its end.
    fn advance(&mut self, stream: usize) -> Result<(), DeviceError> {
        if let Some(in_flight) = self.in_flight[stream].take() {
            self.in_flight[stream] = self.progress(in_flight)?;
            return Ok(());
        }
        let Some(command) = self.queues[stream].pop_front() else {
            return Ok(());
        };
        let (prepared, memory) = (self.prepared, self.memory);
        match &prepared.tasks[command] {
            Task::Alloc(place) | Task::Free(place) => poison(memory, place)?,
            Task::Record(event) => self.fired[*event] = true,
            // Picked only once its event has fired.
            Task::Wait(_) => {}
            Task::Transfer(copy) => {
                let (source, target) = (Some(memory.borrow(&copy.src)?), memory.borrow(&copy.dst)?);
                self.in_flight[stream] = Some(InFlight { command, source, target, progress: 0 });
            }
            Task::Launch(kernel) => {
                let mut target = memory.device.borrow(&kernel.access)?;
                poison_fresh(kernel, &mut target)?;
                let mut in_flight = InFlight { command, source: None, target, progress: 0 };
                if self.random.word() & 1 == 0 {
                    self.compute(&mut in_flight, kernel)?;
                }
                self.in_flight[stream] = Some(in_flight);
            }
        }
        Ok(())
    }

    /// What is left in flight after one more bit of it.
    fn progress(&mut self, mut in_flight: InFlight<'a>) -> Result<Option<InFlight<'a>>, DeviceError> {
        let prepared = self.prepared;
        match (&prepared.tasks[in_flight.command], &mut in_flight.source) {
            (Task::Transfer(copy), Some(source)) => {
                let left = copy.bytes - in_flight.progress;
                // About half of what is left, so that large transfers end too; the rest now and then.
                let some = match self.random.word() % 4 {
                    0 => left,
                    _ => (self.random.uniform() * left as f32) as usize,
                };
                let end = in_flight.progress + some.clamp(usize::from(left > 0), left);
                copy.run(source, &mut in_flight.target, in_flight.progress..end)?;
                in_flight.progress = end;
                Ok((end < copy.bytes).then_some(in_flight))
            }
            (Task::Launch(kernel), _) => {
                if in_flight.progress == 0 {
                    self.compute(&mut in_flight, kernel)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn compute(&self, in_flight: &mut InFlight<'a>, kernel: &Kernel) -> Result<(), DeviceError> {
        in_flight.progress = 1;
        kernel.run(&mut in_flight.target, &self.prepared.program.graph, self.launch)
    }
}

/// Outputs that hold no input, and the workspace, start as poison: a kernel writes all it promises and reads no leftovers.
fn poison_fresh(kernel: &Kernel, borrow: &mut Borrow<'_>) -> Result<(), DeviceError> {
    let fresh: Vec<usize> = kernel.operands.fresh().collect();
    for (index, writing) in borrow.open().writes.into_iter().enumerate() {
        if fresh.contains(&index) {
            writing.view::<u8>()?.for_each_row(|row| row.fill(POISON));
        }
    }
    Ok(())
}
