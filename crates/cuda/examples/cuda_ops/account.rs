//! Where device memory goes, read from the driver beside the device's own account: what free memory loses while a network
//! of the zoo is opened, measured, given its arena, prepared and run.

use crate::feeds::Run;
use crate::{Outcome, Report, cuda};
use serde_json::json;
use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use vdnn_cuda::CudaDevice;
use vdnn_cuda::context::Context;
use vdnn_cuda::memory::PAGE;
use vdnn_graph::{Graph, Program};
use vdnn_layers::{Mode, Net};
use vdnn_runtime::{Description, Device, DeviceError, KernelRequest, PreparedId};
use vdnn_schedule::{KernelTable, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;
use vdnn_train::Feed;

/// Bytes of free memory lost around each kind of call; negative when some came back.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    measuring: i64,
    reserving: i64,
    preparing: i64,
    running: i64,
}

/// A device whose calls are watched from outside.
#[derive(Debug)]
struct Watched {
    device: CudaDevice,
    context: Arc<Context>,
    lost: Rc<RefCell<Lost>>,
}

impl Watched {
    fn free(&self) -> i64 {
        self.context.memory().map_or(0, |(free, _)| free as i64)
    }

    fn around<T>(&mut self, act: impl FnOnce(&mut CudaDevice) -> T, place: impl FnOnce(&mut Lost) -> &mut i64) -> T {
        let before = self.free();
        let result = act(&mut self.device);
        *place(&mut self.lost.borrow_mut()) += before - self.free();
        result
    }
}

impl Device for Watched {
    fn description(&self) -> Description {
        self.device.description()
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        self.around(|device| device.kernel_table(graph, request), |lost| &mut lost.measuring)
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        self.around(|watched| watched.reserve(device, host), |lost| &mut lost.reserving)
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.around(|device| device.reserve_staging(offset, bytes), |lost| &mut lost.preparing)
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        self.around(|device| device.prepare(program, schedule), |lost| &mut lost.preparing)
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        self.device.begin(schedule)
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        self.device.issue(schedule, command)
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.device.finish()
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(space, offset, bytes)
    }

    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.stage(offset, bytes)
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.device.load_staged(from, to, bytes)
    }

    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(space, offset, bytes)
    }

    fn measured_peak(&mut self) -> Option<Bytes> {
        self.device.measured_peak()
    }

    fn set_timing(&mut self, on: bool) {
        self.device.set_timing(on);
    }

    fn timeline(&mut self) -> Option<Timeline> {
        self.device.timeline()
    }
}

/// `NAME BATCH POLICY [BUDGET]`, any number of them with `,` between.
pub fn run(report: &mut Report, words: &[String]) -> Outcome {
    for case in words.split(|word| word == ",") {
        let name = format!("account of {}", case.join(" "));
        let outcome = account(case);
        report.outcome(&name, outcome);
    }
    Ok(())
}

pub fn account(words: &[String]) -> Outcome<(bool, serde_json::Value)> {
    let [name, batch, policy, rest @ ..] = words else {
        return Err("expected NAME BATCH POLICY [BUDGET IN MiB]".into());
    };
    let budget = rest.first().map(|mib| mib.parse::<u64>()).transpose()?.map(|mib| mib << 20);
    let build = |batch_size: u64, mode: Mode| -> Result<Net, Box<dyn Error + Send + Sync>> {
        let options = vdnn_models::Options { batch_size, mode, ..vdnn_models::Options::default() };
        Ok(vdnn_models::build(name, &options)?)
    };
    let run = Run { policy, budget, classes: 1000, ..Run::small(batch.parse()?, [3, 224, 224]) };
    let context = Context::open(0)?;
    let lost = Rc::new(RefCell::new(Lost::default()));
    let (before, total) = context.memory()?;
    let device = Watched { device: cuda()?, context: context.clone(), lost: lost.clone() };
    let opened = before as i64 - device.free();
    let mut trainer = run.trainer(&build, Box::new(device))?;
    let (images, labels) = run.batch(0);
    let feed = Feed::new(&images, &labels);
    for _ in 0..3 {
        let free = context.memory()?.0 as i64;
        trainer.step(feed, 1e-3)?;
        lost.borrow_mut().running += free - context.memory()?.0 as i64;
    }
    let (planned, host) = (trainer.peak_bytes(Space::Device), trainer.peak_bytes(Space::Host));
    let context_bytes = trainer.description().context_bytes;
    let in_use = total - context.memory()?.0;
    let lost = *lost.borrow();
    let measured = trainer.measured_peak();
    let facts = json!({
        "planned": planned, "budget": budget, "pages": planned.next_multiple_of(PAGE), "measured": measured,
        "host": host, "lost_opening": opened, "lost_measuring": lost.measuring, "lost_reserving": lost.reserving,
        "lost_preparing": lost.preparing, "lost_in_3_steps": lost.running,
        "in_use_at_the_end": in_use, "stated_context": context_bytes,
        "in_use_less_plan_and_context": in_use as i64 - (planned + context_bytes) as i64,
    });
    // The arena costs its pages, pinned memory an entry of eight bytes for each of its own pages of 4 KiB at most, steps
    // nothing, and the plan and the stated context are all there is.
    let tables = lost.reserving - planned.next_multiple_of(PAGE) as i64;
    let most = (host.div_ceil(4096) * 8).next_multiple_of(PAGE) as i64;
    let kept = (0..=most).contains(&tables) && lost.running == 0;
    let whole = in_use == planned + context_bytes && measured == Some(planned);
    Ok((kept && whole && budget.is_none_or(|budget| planned <= budget), facts))
}
