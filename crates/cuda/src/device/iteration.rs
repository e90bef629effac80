//! One iteration: commands to streams, and what the clock says of them afterwards.

use vdnn_schedule::{Span, Timeline};

use super::arenas::Arenas;
use super::gpu::Gpu;
use super::prepared::{Lane, Prepared, Task};
use crate::CudaError;
use crate::context::Stream;

fn stream(gpu: &Gpu, lane: Lane) -> &Stream {
    match lane {
        Lane::Compute => &gpu.streams.compute,
        Lane::Offload => &gpu.streams.offload,
        Lane::Prefetch => &gpu.streams.prefetch,
        Lane::Disk => &gpu.streams.disk,
    }
}

impl Prepared {
    /// Queues one command, between its pair of events when it is timed.
    pub fn issue(&self, command: usize, gpu: &Gpu, arenas: &Arenas, timing: bool) -> Result<(), CudaError> {
        let (lane, task) = &self.tasks[command];
        let times = self.times[command].as_ref().filter(|_| timing);
        let stream = stream(gpu, *lane);
        if let Some([start, _]) = times {
            stream.record(start)?;
        }
        match task {
            Task::Nothing => {}
            Task::Launch(works) => works.iter().try_for_each(|work| work.run(gpu))?,
            Task::Transfer { direction, src, dst } => arenas.transfer(stream, *direction, *src, *dst)?,
            Task::Disk(copy) => copy.queue(stream)?,
            Task::Record(event) => stream.record(&self.events[*event])?,
            Task::Wait(event) => stream.wait(&self.events[*event])?,
        }
        if let Some([_, end]) = times {
            stream.record(end)?;
        }
        Ok(())
    }

    /// Times of the last iteration, which must have ended.
    pub fn timeline(&self) -> Result<Timeline, CudaError> {
        let mut timeline = Timeline::default();
        for (command, pair) in self.times.iter().enumerate() {
            if let Some([start, end]) = pair {
                let seconds = |event| self.start.elapsed_ms(event).map(|ms| ms / 1e3);
                let span = Span { command: command as u32, start: seconds(start)?, end: seconds(end)? };
                timeline.seconds = timeline.seconds.max(span.end);
                timeline.spans.push(span);
            }
        }
        Ok(timeline)
    }
}
