//! How long a plan takes on this device.

use super::descriptor::Handle;
use super::plan::{BoundPlan, Plan};
use crate::CudaError;
use crate::context::{Event, Timing};

/// How often a plan is run to time it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repetitions {
    /// Timed runs, after two for warming up.
    pub count: usize,
    /// No further run is started once the timed ones have taken so many milliseconds together.
    pub max_ms: f64,
}

impl Default for Repetitions {
    fn default() -> Self {
        Self { count: 7, max_ms: 200.0 }
    }
}

/// Median time of a run in milliseconds, from events on the handle's stream; the stream is idle afterwards.
///
/// Also the way to have a plan's kernels loaded before the first step.
pub fn time_plan(handle: &Handle, plan: &Plan, site: &BoundPlan, repetitions: Repetitions) -> Result<f64, CudaError> {
    let stream = handle.stream();
    let context = stream.context();
    let (start, end) = (Event::new(context, Timing::On)?, Event::new(context, Timing::On)?);
    let once = || -> Result<f64, CudaError> {
        stream.record(&start)?;
        plan.execute(handle, site)?;
        stream.record(&end)?;
        end.synchronize()?;
        start.elapsed_ms(&end)
    };
    // The first run loads kernels, the second finds the clocks up.
    once()?;
    let warm = once()?;
    let (mut times, mut spent) = (vec![warm], warm);
    while times.len() <= repetitions.count && spent < repetitions.max_ms {
        let ms = once()?;
        times.push(ms);
        spent += ms;
    }
    // The warm-up counts only when time allowed nothing else.
    let timed = if times.len() > 1 { &mut times[1..] } else { &mut times[..] };
    timed.sort_by(f64::total_cmp);
    Ok(timed[timed.len() / 2])
}
