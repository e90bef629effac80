//! One copy down for each time a storage is written, however many gaps it leaves in.

use crate::cases::{forked, same_as_kept};
use crate::iteration::{Iteration, options, sgd};
use crate::plan::{every_gap, full_and_idle};
use std::collections::BTreeMap;
use vdnn_autograd::UpdateAt;
use vdnn_graph::{Step, ValueId};
use vdnn_layers::Mode;
use vdnn_memory::{Gap, Liveness, MemoryPlan, Options, Sync, compile};
use vdnn_schedule::{Action, BufferId, BufferKind, Direction, Schedule};

/// Commands that begin and end a buffer's life, and its transfers each way.
#[derive(Default)]
struct Life {
    down: usize,
    up: Vec<usize>,
    free: usize,
}

fn copies(schedule: &Schedule) -> BTreeMap<BufferId, Life> {
    let mut lives: BTreeMap<BufferId, Life> = BTreeMap::new();
    for (index, command) in schedule.commands.iter().enumerate() {
        match &command.action {
            Action::Transfer { direction: Direction::Offload, dst, .. } => {
                lives.entry(dst.buffer).or_default().down += 1;
            }
            Action::Transfer { src, .. } => lives.entry(src.buffer).or_default().up.push(index),
            Action::Free(id) if schedule.buffer(*id).kind == BufferKind::Copy => {
                lives.entry(*id).or_default().free = index;
            }
            _ => {}
        }
    }
    lives
}

#[test]
fn one_copy_serves_all_gaps_until_the_next_write() {
    let iteration = Iteration::training(forked(4, Mode::Train), sgd(0.9), UpdateAt::Layer);
    let plan = every_gap(&iteration.program);
    let bytes = |gap: &Gap| iteration.program.aliases.storage_bytes(gap.root);
    // What is written between two gaps goes down again, what is only read does not.
    let (mut down, mut up, mut last): (u64, u64, Option<Gap>) = (0, 0, None);
    for gap in full_and_idle(&iteration.program, &plan) {
        let since = last.filter(|last| last.root == gap.root).map(|last| last.from.step);
        let written = writes_between(&iteration, &plan, gap.root, since, gap.from.step);
        down += if written { bytes(&gap) } else { 0 };
        up += bytes(&gap);
        last = Some(if written || since.is_none() { gap } else { last.unwrap() });
    }
    assert!(down < up, "{down} of {up} bytes go down");
    for sync in [Sync::Events, Sync::PerLayer] {
        let problem = iteration.problem(Options { sync, ..options() }, None);
        let schedule = compile(&problem, &plan, "test").unwrap();
        assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![]);
        assert_eq!(schedule.transfer_bytes(Direction::Offload), down);
        assert_eq!(schedule.transfer_bytes(Direction::Prefetch), up);
        let copies = copies(&schedule);
        assert!(copies.values().all(|life| life.down == 1 && life.up.iter().all(|&at| at < life.free)));
        assert!(copies.values().any(|life| life.up.len() > 1));
    }
    same_as_kept(&iteration, &plan);
}

/// Whether a storage is written after step `since` (or ever) and up to step `until`.
fn writes_between(iteration: &Iteration, plan: &MemoryPlan, root: ValueId, since: Option<Step>, until: Step) -> bool {
    let liveness = Liveness::analyse(&iteration.program, &plan.order);
    let within = |step: Step| since.is_none_or(|since| since < step) && step <= until;
    liveness.accesses(root).iter().any(|access| access.writes && within(access.step))
}
