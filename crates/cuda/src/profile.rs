//! Profiles: every distinct kernel of some graphs measured with all its worthwhile choices, and the rates of the link.
//!
//! A profile is what planning needs of a device that is not there. It is made in pieces when time is short: what a former
//! profile holds is not measured again.

use std::time::{Duration, Instant};

use vdnn_graph::{Graph, Op};
use vdnn_runtime::{Device, DeviceError};
use vdnn_schedule::Profile;

use crate::CudaError;
use crate::context::{Context, Event, Stream, Streams, Timing};
use crate::device::{CudaDevice, backend};
use crate::memory::{DeviceArena, PinnedArena, Rows, offload, prefetch};
use std::sync::Arc;

/// Bytes of one copy.
const COPY_BYTES: u64 = 256 << 20;
/// Copies of each direction that are timed together.
const COPIES: usize = 4;

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

/// Measures what `known` does not hold: the link's rates, then the kernels of the graphs in order, then the convolutions of
/// `pieces`, which are the same networks with fewer samples: what a kernel takes for a piece of the batch.
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
