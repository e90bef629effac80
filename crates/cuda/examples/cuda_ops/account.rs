//! Where device memory goes, read from the driver beside the device's own account: what free memory loses while a network
//! of the zoo is opened, measured, given its arena, prepared and run.

use crate::feeds::Run;
use crate::watched::{Call, Watch, Watched};
use crate::{Outcome, Report, cuda};
use serde_json::json;
use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use vdnn_cuda::context::Context;
use vdnn_cuda::memory::PAGE;
use vdnn_layers::{Mode, Net};
use vdnn_schedule::Space;
use vdnn_train::Feed;

/// Bytes of free memory lost around each kind of call; negative when some came back.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    measuring: i64,
    reserving: i64,
    preparing: i64,
    running: i64,
}

/// Reads the driver's free memory before and after each call.
#[derive(Debug)]
struct Account {
    context: Arc<Context>,
    lost: Rc<RefCell<Lost>>,
}

impl Account {
    fn free(&self) -> i64 {
        self.context.memory().map_or(0, |(free, _)| free as i64)
    }
}

impl Watch for Account {
    fn around<T>(&mut self, call: Call, act: impl FnOnce() -> T) -> T {
        let before = self.free();
        let result = act();
        let mut lost = self.lost.borrow_mut();
        let place = match call {
            Call::Measure => &mut lost.measuring,
            Call::Reserve => &mut lost.reserving,
            Call::Prepare => &mut lost.preparing,
        };
        *place += before - self.free();
        result
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
    let watch = Account { context: context.clone(), lost: lost.clone() };
    let device = Watched { device: cuda()?, watch };
    let opened = before as i64 - device.watch.free();
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
