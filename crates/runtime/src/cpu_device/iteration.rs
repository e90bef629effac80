//! One iteration in flight, shared by the threads of its streams.

use crate::DeviceError;
use crate::memory::Memory;
use crate::prepared::{Kernel, LaunchFn, Prepared, Task};
use rayon::ThreadPool;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use vdnn_schedule::Span;

/// What the streams of one iteration share.
#[derive(Debug)]
pub(super) struct Iteration {
    prepared: Arc<Prepared>,
    memory: Arc<Memory>,
    pool: Arc<ThreadPool>,
    launch: LaunchFn,
    /// Start of the iteration, when timing is on.
    started: Option<Instant>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How far an iteration is.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Events recorded.
    fired: Vec<bool>,
    /// Commands issued and not yet run, by stream.
    queued: Vec<usize>,
    /// The wait a stream is held by, as (command, event).
    held: Vec<Option<(usize, usize)>>,
    /// True once no more commands will be issued.
    all_issued: bool,
    /// The first failure.
    pub failure: Option<DeviceError>,
    /// Times of launches and transfers.
    pub spans: Vec<Span>,
}

impl Iteration {
    pub(super) fn new(
        prepared: Arc<Prepared>,
        memory: Arc<Memory>,
        pool: Arc<ThreadPool>,
        launch: LaunchFn,
        timing: bool,
    ) -> Self {
        let streams = prepared.schedule.streams.len();
        let state = State {
            fired: vec![false; prepared.schedule.events.len()],
            queued: vec![0; streams],
            held: vec![None; streams],
            ..State::default()
        };
        let started = timing.then(Instant::now);
        Iteration { prepared, memory, pool, launch, started, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Counts a command as issued; its stream, or `None` when there is no such command.
    pub(super) fn queue(&self, command: usize) -> Option<usize> {
        let stream = self.prepared.schedule.commands.get(command)?.stream.index();
        self.state().queued[stream] += 1;
        Some(stream)
    }

    /// Runs one command on the thread of its stream.
    pub(super) fn run(&self, command: usize) {
        let stream = self.prepared.schedule.commands[command].stream.index();
        if self.state().failure.is_none() {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.execute(stream, command)));
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => self.fail(failure),
                Err(panic) => self.fail(DeviceError::Panic {
                    command: self.prepared.label(command),
                    message: panic_text(panic.as_ref()),
                }),
            }
        }
        let mut state = self.state();
        state.queued[stream] -= 1;
        if state.queued[stream] == 0 {
            // Only an empty queue is news to `join` and to stuck streams.
            self.fail_if_stuck(&mut state);
            self.changed.notify_all();
        }
    }

    /// Ends the iteration unless it has failed already.
    pub(super) fn fail(&self, failure: DeviceError) {
        self.state().failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// True once a command has failed.
    #[cfg(test)]
    pub(super) fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Waits for all streams, after the last command was issued.
    pub(super) fn join(&self) -> State {
        let mut state = self.state();
        state.all_issued = true;
        self.fail_if_stuck(&mut state);
        self.changed.notify_all();
        while state.queued.iter().any(|&queued| queued > 0) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.spans.sort_by_key(|span| span.command);
        std::mem::take(&mut state)
    }

    fn execute(&self, stream: usize, command: usize) -> Result<(), DeviceError> {
        match &self.prepared.tasks[command] {
            // Addresses are planned: there is nothing to allocate.
            Task::Alloc(_) | Task::Free(_) => Ok(()),
            Task::Launch(kernel) => self.timed(command, || self.launch(kernel)),
            Task::Transfer(copy) => self.timed(command, || self.memory.transfer(copy)),
            Task::Record(event) => {
                self.state().fired[*event] = true;
                self.changed.notify_all();
                Ok(())
            }
            Task::Wait(event) => {
                self.wait(stream, command, *event);
                Ok(())
            }
        }
    }

    fn launch(&self, kernel: &Kernel) -> Result<(), DeviceError> {
        let mut borrow = self.memory.device.borrow(&kernel.access)?;
        self.pool.install(|| kernel.run(&mut borrow, &self.prepared.program.graph, self.launch))
    }

    /// Runs and, when timing is on, notes when.
    fn timed(&self, command: usize, run: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let Some(started) = self.started else {
            return run();
        };
        let start = started.elapsed().as_secs_f64();
        run()?;
        let end = started.elapsed().as_secs_f64();
        self.state().spans.push(Span { command: command as u32, start, end });
        Ok(())
    }

    /// Holds a stream until an event is recorded or the iteration has failed.
    fn wait(&self, stream: usize, command: usize, event: usize) {
        let mut state = self.state();
        while !state.fired[event] && state.failure.is_none() {
            state.held[stream] = Some((command, event));
            self.fail_if_stuck(&mut state);
            if state.failure.is_none() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.held[stream] = None;
    }

    /// Every stream with work left is held by an event nobody can record any more: an error, not a hang.
    fn fail_if_stuck(&self, state: &mut State) {
        let is_held = |held: &Option<(usize, usize)>| held.is_some_and(|(_, event)| !state.fired[event]);
        let busy = state.queued.iter().zip(&state.held).filter(|(queued, _)| **queued > 0);
        let (left, held) = busy.fold((0, 0), |(left, held), (_, wait)| (left + 1, held + usize::from(is_held(wait))));
        if !state.all_issued || state.failure.is_some() || left == 0 || held < left {
            return;
        }
        let waits = state.held.iter().flatten().map(|&(command, _)| self.prepared.label(command));
        state.failure = Some(DeviceError::Deadlock { waiting: waits.collect::<Vec<_>>().join(", ") });
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}
