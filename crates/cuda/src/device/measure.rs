//! How long work takes on this GPU, on scratch memory that is given back before the arenas are taken.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Instant;

use vdnn_tensor::{DType, Philox, TensorType};

use super::chain::{Chain, LAUNCHES, LaunchTimes};
use super::gpu::{Bytes, Gpu, Work};
use crate::CudaError;
use crate::context::{Event, Stream, Timing};
use crate::kernels::Operand;
use crate::memory::{DeviceArena, copy_on_device};

/// Places in scratch memory start at multiples of this.
const ALIGNMENT: u64 = 256;
/// Bytes of numbers that scratch memory repeats.
const NUMBERS: usize = 4 << 20;
/// A plan so many times slower than the best is timed by one run.
const SLOW: f64 = 3.0;
/// Bytes copied to measure the copy rate.
const COPY_BYTES: u64 = 256 << 20;

/// How kernels are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasureOptions {
    /// Time for all measuring of a device's life. Beyond it only the most promising plan and the one with the least
    /// workspace are measured. Kernels in pieces of the batch, if asked for, may take as much again; beyond it they are left
    /// out.
    pub seconds: f64,
    /// Kernels whose fastest choice wants no more workspace, nor more than a small share of the budget, are not measured in
    /// pieces.
    pub pieces_from: u64,
    /// Timed runs of a kernel, of which the median counts.
    pub repetitions: usize,
    /// A plan is given up when its first timed run takes so many times that of the best one with as little workspace.
    pub give_up: f64,
    /// A convolution's search ends when so many plans in a row, best guesses first, brought nothing.
    pub patience: usize,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        MeasureOptions { seconds: 60.0, pieces_from: 64 << 20, repetitions: 5, give_up: 1.5, patience: 12 }
    }
}

/// Device memory to measure in. Grows when asked for more; dropped after measuring.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    arena: Option<DeviceArena>,
}

impl Scratch {
    /// `bytes` of memory filled with harmless numbers, or `None` when the GPU has not that much.
    pub fn take(&mut self, gpu: &Gpu, bytes: u64) -> Result<Option<Bytes>, CudaError> {
        self.take_with(gpu, bytes, write_numbers)
    }

    /// As [`Scratch::take`], filled with zeros.
    pub fn take_zeros(&mut self, gpu: &Gpu, bytes: u64) -> Result<Option<Bytes>, CudaError> {
        self.take_with(gpu, bytes, |arena, stream| arena.fill(stream, 0, arena.bytes(), 0))
    }

    fn take_with(
        &mut self,
        gpu: &Gpu,
        bytes: u64,
        fill: fn(&DeviceArena, &Stream) -> Result<(), CudaError>,
    ) -> Result<Option<Bytes>, CudaError> {
        let bytes = bytes.max(1);
        if self.arena.as_ref().is_none_or(|arena| arena.bytes() < bytes) {
            self.arena = None;
            self.arena = match DeviceArena::new(&gpu.context, bytes) {
                Ok(arena) => {
                    fill(&arena, &gpu.streams.compute)?;
                    Some(arena)
                }
                Err(CudaError::DeviceMemory { .. }) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(self.arena.as_ref().map(|arena| Bytes { address: arena.address(0), bytes: arena.bytes() }))
    }

    /// The most that can be taken now.
    pub fn available(&self, gpu: &Gpu) -> Result<u64, CudaError> {
        // The driver keeps some to itself, and loading kernels takes some.
        let reserve = 256 << 20;
        let held = self.arena.as_ref().map_or(0, DeviceArena::bytes);
        Ok((gpu.free_bytes()? + held).saturating_sub(reserve))
    }
}

/// Numbers like those of a network: normal ones of deviation 1/32 in bf16, which are finite in every dtype, half of them zeros as
/// behind a ReLU. A constant's bits do not change from one multiplication to the next, and zeros' products not either: over
/// constants a convolution takes less power, and so less time, than it ever does in training; over normal numbers alone more.
fn numbers() -> &'static [u8] {
    static ONCE: OnceLock<Vec<u8>> = OnceLock::new();
    ONCE.get_or_init(|| {
        let mut random = Philox::new(0, 0);
        let mut half = || {
            let bits = ((random.normal() / 32.0) as f32).to_bits();
            if random.word().is_multiple_of(2) { 0 } else { (bits >> 16) as u16 }
        };
        (0..NUMBERS / 2).flat_map(|_| half().to_le_bytes()).collect()
    })
}

/// Fills an arena with [`numbers`], over and over.
fn write_numbers(arena: &DeviceArena, stream: &Stream) -> Result<(), CudaError> {
    let (numbers, bytes) = (numbers(), arena.bytes());
    let mut filled = bytes.min(NUMBERS as u64);
    arena.write(stream, 0, &numbers[..filled as usize])?;
    while filled < bytes {
        let more = filled.min(bytes - filled);
        copy_on_device(stream, arena, 0, filled, more)?;
        filled += more;
    }
    Ok(())
}

/// Places one after the other in scratch memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    end: u64,
    /// Where operands lie that were read from so many bytes at an address.
    read: BTreeMap<(u64, u64), u64>,
}

impl Places {
    /// Bytes used so far.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Room for a workspace.
    pub fn bytes(&mut self, bytes: u64) -> u64 {
        let offset = self.end.next_multiple_of(ALIGNMENT);
        self.end = offset + bytes;
        offset
    }

    /// An operand like `pattern`, whose address counts only for its alignment, at an offset.
    pub fn operand<'a>(&mut self, pattern: &Operand<'a>) -> Operand<'a> {
        let odd = pattern.address % ALIGNMENT;
        let offset = self.bytes(odd + pattern.span().max(pattern.ty.bytes())) + odd;
        Operand { address: offset, ..*pattern }
    }

    /// The same for what is read. What is read twice has one place, as it has where it belongs: members of a group are one launch
    /// only where they read one learning rate.
    pub fn read<'a>(&mut self, pattern: &Operand<'a>) -> Operand<'a> {
        let key = (pattern.address, pattern.span());
        let address = match self.read.get(&key) {
            Some(&address) => address,
            None => self.operand(pattern).address,
        };
        self.read.insert(key, address);
        Operand { address, ..*pattern }
    }
}

/// True for operands that kernels read as positions: garbage in them must not lead out of bounds.
pub(super) fn is_index(ty: &TensorType) -> bool {
    !matches!(ty.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
}

/// A pair of events on the compute stream. Once it knows what launches take in a chain, its times are theirs.
#[derive(Debug)]
pub(super) struct Timer {
    start: Event,
    end: Event,
    /// Runs before what is timed; there while measuring.
    pub chain: Option<Chain>,
    /// What is taken off; nothing until it is known.
    pub launch: Option<LaunchTimes>,
}

impl Timer {
    pub fn new(gpu: &Gpu) -> Result<Self, CudaError> {
        let [start, end] = [Event::new(&gpu.context, Timing::On)?, Event::new(&gpu.context, Timing::On)?];
        Ok(Timer { start, end, chain: None, launch: None })
    }

    /// Seconds between two events around what `act` queues, as they are; the stream is idle afterwards.
    fn between_events(&self, gpu: &Gpu, act: impl Fn() -> Result<(), CudaError>) -> Result<f64, CudaError> {
        let stream = &gpu.streams.compute;
        self.chain.as_ref().map_or(Ok(()), |chain| chain.launch(stream))?;
        stream.record(&self.start)?;
        act()?;
        stream.record(&self.end)?;
        self.end.synchronize()?;
        Ok(self.start.elapsed_ms(&self.end)? / 1e3)
    }

    /// Seconds that the works take once, as in a chain.
    fn once(&self, gpu: &Gpu, works: &[Work]) -> Result<f64, CudaError> {
        let seconds = self.between_events(gpu, || works.iter().try_for_each(|work| work.run(gpu)))?;
        Ok(self.launch.map_or(seconds, |launch| launch.in_chain(seconds)))
    }

    /// What the chain's launches take, by themselves and in it; `None` without a chain.
    pub fn launches(&self, gpu: &Gpu, options: &MeasureOptions) -> Result<Option<LaunchTimes>, CudaError> {
        let Some(chain) = &self.chain else { return Ok(None) };
        let stream = &gpu.streams.compute;
        let timed = |act: &dyn Fn() -> Result<(), CudaError>| {
            self.between_events(gpu, act)?;
            let times: Result<Vec<f64>, CudaError> =
                (0..options.repetitions.max(1)).map(|_| self.between_events(gpu, act)).collect();
            times.map(median)
        };
        let alone = timed(&|| chain.link().iter().try_for_each(|work| work.run(gpu)))?;
        let whole = timed(&|| chain.launch(stream))?;
        Ok(Some(LaunchTimes { alone, chained: whole / LAUNCHES as f64 }))
    }

    /// Seconds that the works take: the median of some runs after one that loads kernels. What is hopeless beside its rivals
    /// is run only once or twice.
    pub fn seconds(
        &self,
        gpu: &Gpu,
        works: &[Work],
        rivals: Option<Rivals>,
        options: &MeasureOptions,
    ) -> Result<f64, CudaError> {
        let first = self.once(gpu, works)?;
        if rivals.is_some_and(|rivals| rivals.beat_a_first_run_of(first)) {
            return Ok(first);
        }
        let mut times = vec![self.once(gpu, works)?];
        if rivals.is_some_and(|rivals| rivals.beat(times[0], options)) {
            return Ok(times[0]);
        }
        let start = Instant::now();
        while times.len() < options.repetitions.max(1) && start.elapsed().as_secs_f64() < 0.1 {
            times.push(self.once(gpu, works)?);
        }
        Ok(median(times))
    }
}

/// The middle one of some times; the later one of two. 0 of none.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// What a plan is measured against: seconds of the best, and of the best with as little workspace, if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rivals {
    pub best: f64,
    pub as_small: Option<f64>,
}

impl Rivals {
    /// A first run may load a kernel, which takes some hundredths of a second at most.
    fn beat_a_first_run_of(&self, seconds: f64) -> bool {
        seconds > 10.0 * self.best + 0.1
    }

    /// Whether a timed run shows that a plan is not worthwhile, or so slow that its median need not be known well.
    fn beat(&self, seconds: f64, options: &MeasureOptions) -> bool {
        seconds > SLOW * self.best || self.as_small.is_some_and(|rival| seconds > options.give_up * rival)
    }
}

/// Bytes a second that copies on the device read and write together; `None` without memory to try.
pub(super) fn copy_rate(gpu: &Gpu, timer: &Timer) -> Result<Option<f64>, CudaError> {
    let arena = match DeviceArena::new(&gpu.context, 2 * COPY_BYTES) {
        Ok(arena) => arena,
        Err(CudaError::DeviceMemory { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stream = &gpu.streams.compute;
    let mut least = f64::INFINITY;
    for _ in 0..4 {
        stream.record(&timer.start)?;
        copy_on_device(stream, &arena, 0, COPY_BYTES, COPY_BYTES)?;
        stream.record(&timer.end)?;
        timer.end.synchronize()?;
        least = least.min(timer.start.elapsed_ms(&timer.end)? / 1e3);
    }
    Ok(Some(2.0 * COPY_BYTES as f64 / least.max(1e-9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_alignment_and_leave_room_for_strides() {
        let ty = TensorType::new([3, 5], DType::F32);
        let mut places = Places::default();
        let whole = places.operand(&Operand::contiguous(&ty, 512));
        let odd = places.operand(&Operand { ty: &ty, address: 516, row_stride: 7 });
        let last = places.operand(&Operand::contiguous(&ty, 0));
        assert_eq!((whole.address, odd.address, odd.row_stride), (0, 260, 7));
        assert!(last.address >= 260 + (2 * 7 + 5) * 4 && last.address.is_multiple_of(ALIGNMENT));
        assert_eq!(places.end(), last.address + 60);
    }

    #[test]
    fn what_is_read_twice_has_one_place() {
        let (vector, number) = (TensorType::new([100], DType::F32), TensorType::new([1], DType::F32));
        let mut places = Places::default();
        let mut at = |ty, address| places.read(&Operand::contiguous(ty, address)).address;
        assert_eq!([at(&vector, 512), at(&number, 4096), at(&number, 4096)], [0, 512, 512]);
        // A part that begins where the whole does is something else.
        assert_eq!([at(&number, 512), at(&vector, 512)], [768, 0]);
        assert_eq!(places.end(), 772);
    }

    #[test]
    fn numbers_are_finite_in_every_dtype_and_differ() {
        let halves: Vec<u16> = numbers().chunks(2).map(|half| u16::from_le_bytes(half.try_into().unwrap())).collect();
        assert_eq!(halves.len() * 2, NUMBERS);
        let zeros = halves.iter().filter(|&&half| half == 0).count() as f64 / halves.len() as f64;
        assert!((0.49..0.51).contains(&zeros), "{zeros}");
        // Infinities and other garbage have all bits of the exponent.
        assert!(halves.iter().all(|half| half & 0x7C00 != 0x7C00), "f16");
        assert!(halves.iter().all(|half| half & 0x7F80 != 0x7F80), "bf16, and f32 by its upper half");
        assert!(halves.iter().collect::<std::collections::BTreeSet<_>>().len() > 1000);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!((median(vec![2.0, 1.0]), median(vec![5.0]), median(Vec::new())), (2.0, 5.0, 0.0));
    }

    #[test]
    fn what_is_hopeless_is_run_once_or_twice() {
        let (options, rivals) = (MeasureOptions::default(), Rivals { best: 1.0, as_small: Some(1.2) });
        assert!(rivals.beat_a_first_run_of(10.2) && !rivals.beat_a_first_run_of(10.0));
        assert!(rivals.beat(1.9, &options) && !rivals.beat(1.7, &options));
        // With less workspace than any other it is worthwhile however slow, but not worth many runs.
        let alone = Rivals { as_small: None, ..rivals };
        assert!(alone.beat(3.1, &options) && !alone.beat(2.9, &options));
    }

    #[test]
    fn operands_without_elements_have_a_place() {
        let ty = TensorType::new([0, 5], DType::F32);
        let mut places = Places::default();
        places.operand(&Operand::contiguous(&ty, 0));
        assert_eq!(places.end(), 0);
    }
}
