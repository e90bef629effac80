//! Profiles: every distinct kernel of some graphs measured with all its worthwhile choices, the rates of the link, and how much
//! later launches begin beside its copies.
//!
//! A profile is what planning needs of a device that is not there. It is made in pieces when time is short: what a former
//! profile holds is not measured again.

use std::time::{Duration, Instant};

use vdnn_graph::{Graph, Op};
use vdnn_runtime::{Device, DeviceError};
use vdnn_schedule::Profile;

use crate::CudaError;
use crate::context::{Context, Event, Stream, Streams, Timing};
use crate::device::{Chain, CudaDevice, LAUNCHES, LaunchTimes, backend, median};
use crate::memory::{DeviceArena, PinnedArena, Rows, offload, prefetch};
use std::sync::Arc;

/// Bytes of one copy.
const COPY_BYTES: u64 = 256 << 20;
/// Copies of each direction that are timed together.
const COPIES: usize = 4;

/// Timed runs of a chain beside copies, of which the median counts.
const DELAYS: usize = 9;

/// What is measured and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProfileOptions {
    /// Only kernels whose results never vary between runs.
    pub deterministic: bool,
    /// No further kernel is started after so many seconds.
    pub seconds: f64,
}

impl Default for ProfileOptions {
    /// Deterministic kernels, ten minutes.
    fn default() -> Self {
        ProfileOptions { deterministic: true, seconds: 600.0 }
    }
}

/// A profile, and how much of it is still missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiled {
    /// What was measured, now and before.
    pub profile: Profile,
    /// Distinct kernels that time did not suffice for: go on with this profile as `known`.
    pub missing: usize,
}

/// Measures what `known` does not hold: the link's rates and the delays of launches, then the kernels of the graphs in order, then the convolutions of
/// `pieces`, which are the same networks with fewer samples: what a kernel takes for a piece of the batch.
///
/// Times are of launches among each other: each graph's kernels are rehearsed together, in order. Kernels of a profile that
/// were timed one at a time are measured again.
///
/// # Errors
/// [`DeviceError`] for a kernel that cannot run, or when the device or its memory fails.
pub fn profile(
    device: &mut CudaDevice,
    graphs: &[&Graph],
    pieces: &[&Graph],
    options: ProfileOptions,
    known: Option<Profile>,
) -> Result<Profiled, DeviceError> {
    let deadline = Instant::now() + Duration::from_secs_f64(options.seconds.clamp(0.0, 1e9));
    let mut profile = known.unwrap_or_else(|| Profile::new(device.card(), device.description().details));
    if profile.d2h <= 0.0 || profile.h2d <= 0.0 || profile.duplex_each <= 0.0 {
        let (context, streams) = device.context_and_streams();
        let rates = Rates::measure(context, streams).map_err(backend)?;
        (profile.d2h, profile.h2d, profile.duplex_each) = (rates.d2h, rates.h2d, rates.duplex_each);
    }
    let chain = device.chain()?;
    if profile.launch_delay_d2h.is_none() || profile.launch_delay_h2d.is_none() {
        let (context, streams) = device.context_and_streams();
        if let Some(chain) = &chain {
            let delays = Delays::measure(context, streams, chain).map_err(backend)?;
            (profile.launch_delay_d2h, profile.launch_delay_h2d) = (Some(delays.d2h), Some(delays.h2d));
        }
    }
    drop(chain);
    rehearsed(&mut profile, device.launch_times());
    let mut missing = 0;
    let is_convolution: fn(&Op) -> bool =
        |op| matches!(op, Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Conv2dDataGrad(_) | Op::Conv2dWeightGrad(_));
    for (graphs, wanted) in [(graphs, (|_| true) as fn(&Op) -> bool), (pieces, is_convolution)] {
        for graph in graphs {
            missing += device.measure_into(graph, options.deterministic, &mut profile, deadline, wanted)?;
        }
    }
    Ok(Profiled { profile, missing })
}

/// Makes a profile one of kernels rehearsed together: what was timed otherwise goes.
fn rehearsed(profile: &mut Profile, launch: Option<LaunchTimes>) {
    if profile.launch_overhead.is_none() || !profile.rehearsed {
        profile.kernels.clear();
        profile.launch_overhead = Some(launch.map_or(0.0, |launch| launch.overhead()));
        profile.rehearsed = true;
    }
}

/// How much later a launch begins while a copy is under way, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delays {
    /// While one to the host is.
    d2h: f64,
    /// While one to the device is.
    h2d: f64,
}

impl Delays {
    /// Times a chain of small launches beside copies of pinned memory, and without.
    fn measure(context: &Arc<Context>, streams: &Streams, chain: &Chain) -> Result<Self, CudaError> {
        let device = DeviceArena::new(context, COPY_BYTES)?;
        let host = PinnedArena::new(context, COPY_BYTES)?;
        let all = Rows::contiguous(0, COPY_BYTES);
        let down = |stream: &Stream| offload(stream, &device, all, &host, all);
        let up = |stream: &Stream| prefetch(stream, &host, all, &device, all);
        let clock = Clock { context, streams };
        let alone = clock.beside(chain, None)?;
        let d2h = clock.beside(chain, Some((&streams.offload, &down)))?;
        let h2d = clock.beside(chain, Some((&streams.prefetch, &up)))?;
        Ok(Delays { d2h: delay(alone, d2h), h2d: delay(alone, h2d) })
    }
}

/// What each launch of a chain lost that took `beside` seconds where it takes `alone`.
fn delay(alone: f64, beside: f64) -> f64 {
    ((beside - alone) / LAUNCHES as f64).max(0.0)
}

/// Rates of the link between device and host, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Device to host alone.
    pub d2h: f64,
    /// Host to device alone.
    pub h2d: f64,
    /// Each direction while both run.
    pub duplex_each: f64,
}

impl Rates {
    /// Copies pinned memory to and fro.
    ///
    /// # Errors
    /// [`CudaError`] without memory for it.
    pub fn measure(context: &Arc<Context>, streams: &Streams) -> Result<Self, CudaError> {
        let device = DeviceArena::new(context, 2 * COPY_BYTES)?;
        let host = PinnedArena::new(context, 2 * COPY_BYTES)?;
        let (low, high) = (Rows::contiguous(0, COPY_BYTES), Rows::contiguous(COPY_BYTES, COPY_BYTES));
        let down = |stream: &Stream| offload(stream, &device, low, &host, low);
        let up = |stream: &Stream| prefetch(stream, &host, high, &device, high);
        let clock = Clock { context, streams };
        // The first copies find the link asleep.
        clock.run(Some(&down), Some(&up))?;
        let [d2h, _] = clock.run(Some(&down), None)?;
        let [_, h2d] = clock.run(None, Some(&up))?;
        let [down_too, up_too] = clock.run(Some(&down), Some(&up))?;
        Ok(Rates { d2h, h2d, duplex_each: down_too.min(up_too).min(d2h).min(h2d) })
    }
}

type Copy<'a> = &'a dyn Fn(&Stream) -> Result<(), CudaError>;

struct Clock<'a> {
    context: &'a Arc<Context>,
    streams: &'a Streams,
}

impl Clock<'_> {
    /// Median seconds of a chain while a copy is under way, or none.
    fn beside(&self, chain: &Chain, copy: Option<(&Stream, Copy<'_>)>) -> Result<f64, CudaError> {
        let compute = &self.streams.compute;
        let [start, end] = [Event::new(self.context, Timing::On)?, Event::new(self.context, Timing::On)?];
        let once = |_| {
            if let Some((stream, copy)) = copy {
                // Two, of some milliseconds each, outlast both chains.
                (0..2).try_for_each(|_| copy(stream))?;
            }
            // While the first one runs the copy begins.
            chain.launch(compute)?;
            compute.record(&start)?;
            chain.launch(compute)?;
            compute.record(&end)?;
            self.streams.synchronize()?;
            Ok(start.elapsed_ms(&end)? / 1e3)
        };
        let times: Result<Vec<f64>, CudaError> = (0..DELAYS).map(once).collect();
        times.map(median)
    }

    /// Bytes a second of copies down and up, started together; 0 for a direction that is not tried.
    fn run(&self, down: Option<Copy<'_>>, up: Option<Copy<'_>>) -> Result<[f64; 2], CudaError> {
        let Streams { compute, offload, prefetch, .. } = self.streams;
        let sides = [(offload, down), (prefetch, up)];
        let start = Event::new(self.context, Timing::On)?;
        let ends = [Event::new(self.context, Timing::On)?, Event::new(self.context, Timing::On)?];
        compute.record(&start)?;
        for ((stream, copy), end) in sides.iter().zip(&ends) {
            stream.wait(&start)?;
            if let Some(copy) = copy {
                (0..COPIES).try_for_each(|_| copy(stream))?;
            }
            stream.record(end)?;
        }
        self.streams.synchronize()?;
        let mut rates = [0.0; 2];
        for (rate, ((_, copy), end)) in rates.iter_mut().zip(sides.iter().zip(&ends)) {
            if copy.is_some() {
                *rate = (COPIES as u64 * COPY_BYTES) as f64 / (start.elapsed_ms(end)? / 1e3).max(1e-9);
            }
        }
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_schedule::Choice;

    #[test]
    fn a_delay_is_a_launchs_share_of_what_the_chain_lost() {
        let launches = LAUNCHES as f64;
        assert!((delay(launches * 2e-6, launches * 7.5e-6) - 5.5e-6).abs() < 1e-12);
        assert_eq!(delay(2e-4, 1.9e-4), 0.0, "a copy makes no launch earlier");
    }

    #[test]
    fn kernels_timed_one_at_a_time_are_measured_again_and_others_are_not() {
        let choice = Choice { algorithm: "nvrtc".into(), workspace: 0, seconds: 1e-5, deterministic: true };
        let mut profile = Profile::new("card", "before");
        profile.record("relu".into(), vec![choice.clone()]);
        rehearsed(&mut profile, Some(LaunchTimes { alone: 5e-6, chained: 2e-6 }));
        assert_eq!((profile.kernels.len(), profile.launch_overhead), (0, Some(5e-6 - 2e-6)));
        // Timed in chains, but one at a time.
        (profile.rehearsed, profile.launch_overhead) = (false, Some(1e-6));
        profile.record("relu".into(), vec![choice.clone()]);
        rehearsed(&mut profile, Some(LaunchTimes { alone: 5e-6, chained: 2e-6 }));
        assert_eq!((profile.kernels.len(), profile.rehearsed), (0, true));
        profile.record("relu".into(), vec![choice]);
        let made = profile.clone();
        rehearsed(&mut profile, Some(LaunchTimes { alone: 6e-6, chained: 2e-6 }));
        assert_eq!(profile, made);
    }
}
