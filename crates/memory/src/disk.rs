//! Which copies rest on disk, where the host budget does not hold them all: a step after any policy's decisions.
//!
//! ```text
//!  X on the device   ▓▓▓▓▓▓▓ release ······················ fetch ▓▓▓▓      as the policy has it
//!  slots (host)         ▓▓▓▓▓▓▓ written            read ▓▓▓▓▓▓▓▓▓▓▓▓       chosen here
//!  file                       ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
//! ```
//! Copies go to disk longest idle first, or longest idle for its bytes: the fewest that make the host arena fit with the
//! shortest slots, and some more, which leaves room for longer ones. Slots are held until the disk is estimated to be done and taken early enough for it, as far
//! as the host budget has room; start times come from a simulation of the candidate before. The candidate with the shortest
//! simulated iteration counts. What the device holds, and when, stays as it was. Homes stay in host memory.

use crate::address::{place_disk, place_host};
use crate::compile::emit_unplaced;
use crate::stretch::{Intervals, Purpose};
use crate::{Liveness, MemoryPlan, PlanError, Problem, Residency, Tier};
use vdnn_graph::{Step, Use, ValueId};
use vdnn_schedule::{Action, Direction};
use vdnn_sim::{DiskRates, simulate};
use vdnn_tensor::Bytes;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// One choice of copies with one choice of slots: for one of many plans that a search prices.
    Quick,
    /// Several of each: for the plan that runs.
    Full,
}

/// Times that slots are chosen for one choice of copies, each on the start times of the one before.
const ROUNDS: usize = 3;
/// Attempts at leaving room for fragmentation of the host arena.
const ATTEMPTS: usize = 5;

/// The plan with some of its copies on disk and its intervals, or `None` where the host budget holds them all or there is no
/// disk budget.
///
/// # Errors
/// [`PlanError::NoDiskRate`], and [`PlanError::LowerBudgets`] where both budgets together do not hold them.
pub(crate) fn rest_on_disk(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    liveness: &Liveness,
    intervals: &Intervals,
    care: Care,
) -> Result<Option<(MemoryPlan, Intervals)>, PlanError> {
    let Some(disk_budget) = problem.budgets.disk else { return Ok(None) };
    let rates = problem.links.disk.ok_or(PlanError::NoDiskRate { budget: disk_budget })?;
    let Some(host_budget) = problem.budgets.host else { return Ok(None) };
    if place_host(problem, intervals).extent <= host_budget {
        return Ok(None);
    }
    let mut choice =
        Choice { problem, plan, liveness, rates, host_budget, disk_budget, groups: groups(problem, plan, intervals) };
    let mut best: Option<(f64, Candidate)> = None;
    let mut lacking = Vec::new();
    for order in [Group::by_idle, Group::by_idle_and_bytes] {
        choice.groups.sort_by(|a, b| order(b).total_cmp(&order(a)));
        let (least, late) = match choice.least()? {
            Ok(found) => found,
            Err(needs) => {
                lacking.push(needs);
                continue;
            }
        };
        for count in choice.counts(least, care) {
            let better = choice.best(count, late, care)?;
            best = [best, better].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        }
        if care == Care::Quick {
            break;
        }
    }
    match (best, lacking.into_iter().min()) {
        (Some((_, candidate)), _) => Ok(Some(candidate)),
        (None, Some(Needs { host, disk, .. })) => {
            Err(PlanError::LowerBudgets { host_needed: host, host_budget, disk_needed: disk, disk_budget })
        }
        (None, None) => Ok(None),
    }
}

/// What is lacking at best: first that host memory is over its budget by little, then that the file is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Needs {
    over: Bytes,
    disk: Bytes,
    host: Bytes,
}

/// A plan and its intervals.
type Candidate = (MemoryPlan, Intervals);

/// A copy in host memory and the gaps that it serves, which go to disk together.
struct Group {
    gaps: Vec<Served>,
    /// Seconds for which it is idle in host memory, for each copy up.
    idle: f64,
    bytes: Bytes,
}

impl Group {
    /// The longest first: the disk has most time for it.
    fn by_idle(&self) -> f64 {
        self.idle
    }

    /// What the disk would have done most often in the time: small ones, whose slots are small and soon free, come sooner.
    fn by_idle_and_bytes(&self) -> f64 {
        self.idle / self.bytes.max(1) as f64
    }
}

/// A gap that a copy serves.
#[derive(Clone, Copy, Debug)]
struct Served {
    root: ValueId,
    ends: Use,
    bytes: Bytes,
    /// The steps of the uses around the gap, and whether the first writes.
    from: Step,
    to: Step,
    writes: bool,
    release: Step,
    fetch: Step,
    /// Whether the copy is made in this gap.
    down: bool,
}

/// When a gap's slots are given back and taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    written: Step,
    read: Step,
}

/// What is decided about.
struct Choice<'a> {
    problem: &'a Problem<'a>,
    plan: &'a MemoryPlan,
    liveness: &'a Liveness,
    rates: DiskRates,
    host_budget: Bytes,
    disk_budget: Bytes,
    /// The first to go first.
    groups: Vec<Group>,
}

/// The copies that may go to disk.
fn groups(problem: &Problem<'_>, plan: &MemoryPlan, intervals: &Intervals) -> Vec<Group> {
    let starts = problem.step_starts(plan);
    let mut groups = Vec::new();
    for (index, copy) in intervals.copies.iter().enumerate().filter(|(_, copy)| copy.purpose == Purpose::Host) {
        let served = intervals.aways.iter().filter(|away| away.host == Some(index));
        let gaps: Vec<Served> = served
            .map(|away| Served {
                root: copy.root,
                ends: plan.order[away.gap.to.step.index()],
                bytes: copy.bytes,
                from: away.gap.from.step,
                to: away.gap.to.step,
                writes: away.gap.from.writes,
                release: away.release,
                fetch: away.fetch,
                down: away.down,
            })
            .collect();
        let idle = (starts[copy.end.index()] - starts[copy.start.index() + 1]) / gaps.len().max(1) as f64;
        groups.push(Group { gaps, idle, bytes: copy.bytes });
    }
    groups
}

impl Choice<'_> {
    /// The fewest copies on disk with which the host budget is kept, and whether copies up to the device must then begin as
    /// late as can be; or what is lacking.
    fn least(&self) -> Result<Result<(usize, bool), Needs>, PlanError> {
        let mut lacking: Option<Needs> = None;
        for late in [false, true] {
            // The more rest on disk the less the host holds, but for what addresses make of it.
            let (mut low, mut high) = (0, self.groups.len());
            while low < high {
                let middle = usize::midpoint(low, high);
                if self.extents(middle, late)?.0 <= self.host_budget { high = middle } else { low = middle + 1 }
            }
            let (host, disk) = self.extents(low, late)?;
            if host <= self.host_budget && disk <= self.disk_budget {
                return Ok(Ok((low, late)));
            }
            let needs = Needs { over: host.saturating_sub(self.host_budget), disk, host };
            lacking = Some(lacking.map_or(needs, |other| other.min(needs)));
        }
        Ok(Err(lacking.expect("both ways were tried")))
    }

    /// Extents of host arena and file with the first `count` copies on disk and the shortest slots.
    fn extents(&self, count: usize, late: bool) -> Result<(Bytes, Bytes), PlanError> {
        let gaps = self.gaps(count, late);
        let tight: Vec<Slots> = gaps.iter().map(Slots::tight).collect();
        let (_, intervals) = self.with(&gaps, &tight)?;
        Ok((place_host(self.problem, &intervals).extent, place_disk(self.problem, &intervals).extent))
    }

    /// Numbers of copies to try: the least, and more of them in growing steps.
    fn counts(&self, least: usize, care: Care) -> Vec<usize> {
        let most = self.groups.len();
        let steps = std::iter::successors(Some(1usize), |step| Some(2 * step)).take_while(|step| least + step < most);
        let more = steps.map(|step| least + step).chain((least < most).then_some(most));
        std::iter::once(least).chain(more.filter(|_| care == Care::Full)).collect()
    }

    /// Gaps of the first `count` copies; with `late` the way up to the device begins when the need arises.
    fn gaps(&self, count: usize, late: bool) -> Vec<Served> {
        let gaps = self.groups[..count].iter().flat_map(|group| &group.gaps);
        gaps.map(|gap| Served { fetch: if late { gap.to } else { gap.fetch }, ..*gap }).collect()
    }

    /// The plan with these gaps on disk.
    fn with(&self, gaps: &[Served], slots: &[Slots]) -> Result<Candidate, PlanError> {
        let mut plan = self.plan.clone();
        for (gap, &Slots { written, read }) in gaps.iter().zip(slots) {
            let (tier, release, fetch) = (Tier::Disk { written, read }, gap.release, gap.fetch);
            plan.gaps.insert((gap.root, gap.ends), Residency::Offload { tier, release, fetch });
        }
        let intervals = Intervals::of(self.problem, &plan, self.liveness)?;
        Ok((plan, intervals))
    }

    /// The shortest iteration with the first `count` copies on disk, of those that keep both budgets.
    fn best(&self, count: usize, late: bool, care: Care) -> Result<Option<(f64, Candidate)>, PlanError> {
        let gaps = self.gaps(count, late);
        let mut starts = self.problem.step_starts(self.plan);
        let mut best: Option<(f64, Candidate)> = None;
        for _ in 0..if care == Care::Full { ROUNDS } else { 1 } {
            let Some(candidate) = self.fitted(&gaps, &starts)? else { break };
            let Some((seconds, next)) = self.timed(&candidate) else { break };
            starts = next;
            if best.as_ref().is_none_or(|(fewest, _)| seconds < *fewest) {
                best = Some((seconds, candidate));
            }
        }
        Ok(best)
    }

    /// The longest slots that fit if steps begin at `starts`, or the shortest.
    fn fitted(&self, gaps: &[Served], starts: &[f64]) -> Result<Option<Candidate>, PlanError> {
        let (tight, relaxed) = (gaps.iter().map(Slots::tight).collect::<Vec<_>>(), self.relaxed(gaps, starts));
        let fits = |intervals: &Intervals| {
            let host = place_host(self.problem, intervals).extent;
            let disk = place_disk(self.problem, intervals).extent;
            (host.saturating_sub(self.host_budget), disk <= self.disk_budget)
        };
        let least = self.with(gaps, &tight)?;
        let mut room = self.host_budget.saturating_sub(self.problem.homes.host_extent());
        for _ in 0..ATTEMPTS {
            let slots = self.lengthened(gaps, &tight, &relaxed, &least.1, room);
            let candidate = self.with(gaps, &slots)?;
            match fits(&candidate.1) {
                (0, true) => return Ok(Some(candidate)),
                (_, false) => return Ok(None),
                (excess, true) => room = room.saturating_sub(excess),
            }
        }
        Ok((fits(&least.1) == (0, true)).then_some(least))
    }

    /// Slots held until the disk is estimated to be done, and taken early enough for it: writes one after the other in order
    /// of issue, reads in order of need.
    fn relaxed(&self, gaps: &[Served], starts: &[f64]) -> Vec<Slots> {
        let mut slots: Vec<Slots> = gaps.iter().map(Slots::tight).collect();
        let mut order: Vec<usize> = (0..gaps.len()).collect();
        order.sort_by_key(|&i| (gaps[i].from, gaps[i].root));
        let mut done = 0.0f64;
        for &i in order.iter().filter(|&&i| gaps[i].down) {
            let issue = starts[gaps[i].from.index() + usize::from(gaps[i].writes)];
            let copied = issue + self.problem.links.transfer_seconds(Direction::Offload, gaps[i].bytes);
            done = done.max(copied) + self.rates.transfer_seconds(Direction::Offload, gaps[i].bytes);
            slots[i].written = Step(starts.partition_point(|&start| start < done) as u32);
        }
        order.sort_by_key(|&i| std::cmp::Reverse((gaps[i].to, gaps[i].root)));
        let mut next = f64::INFINITY;
        for &i in &order {
            let deadline = starts[gaps[i].fetch.index()].min(next);
            next = deadline - self.rates.transfer_seconds(Direction::Prefetch, gaps[i].bytes);
            let after = starts.partition_point(|&start| start <= next);
            slots[i].read = Step((after as u32).saturating_sub(1));
        }
        let bound = |(gap, slots): (&Served, Slots)| Slots {
            written: slots.written.clamp(Step(gap.from.0 + 1), gap.to),
            read: slots.read.clamp(Step(gap.from.0 + 1), gap.fetch),
        };
        gaps.iter().zip(slots).map(bound).collect()
    }

    /// The shortest slots made longer towards `relaxed`, as far as no step holds more than `room` bytes of host memory besides
    /// homes: writes in order of issue, then reads in order of need, none ahead of one that is needed earlier.
    fn lengthened(
        &self,
        gaps: &[Served],
        tight: &[Slots],
        relaxed: &[Slots],
        least: &Intervals,
        room: Bytes,
    ) -> Vec<Slots> {
        let mut held = held_in_host(least);
        let mut take = |step: u32, bytes: Bytes| {
            let fits = held[step as usize].saturating_add(bytes) <= room;
            if fits {
                held[step as usize] += bytes;
            }
            fits
        };
        let mut chosen = tight.to_vec();
        let mut order: Vec<usize> = (0..gaps.len()).collect();
        order.sort_by_key(|&i| (gaps[i].from, gaps[i].root));
        for &i in order.iter().filter(|&&i| gaps[i].down) {
            let latest = relaxed[i].written.min(tight[i].read);
            while chosen[i].written < latest && take(chosen[i].written.0, gaps[i].bytes) {
                chosen[i].written.0 += 1;
            }
        }
        order.sort_by_key(|&i| (gaps[i].to, gaps[i].root));
        let mut not_before = Step(0);
        for &i in &order {
            let earliest = relaxed[i].read.max(chosen[i].written).max(not_before);
            while chosen[i].read > earliest && take(chosen[i].read.0 - 1, gaps[i].bytes) {
                chosen[i].read.0 -= 1;
            }
            not_before = chosen[i].read;
        }
        chosen
    }

    /// Seconds of the iteration, and when each step begins in it, with its end.
    fn timed(&self, (plan, intervals): &Candidate) -> Option<(f64, Vec<f64>)> {
        let schedule = emit_unplaced(self.problem, plan, "", intervals);
        let timeline = simulate(&schedule, self.problem.kernels, &self.problem.links).ok()?;
        let launch = |command: u32| matches!(schedule.commands[command as usize].action, Action::Launch { .. });
        let launches = timeline.spans.iter().filter(|span| launch(span.command)).map(|span| span.start);
        Some((timeline.seconds, launches.chain([timeline.seconds]).collect()))
    }
}

impl Slots {
    /// As short as can be: compute waits for the disk at the next step, and reading begins when the copy up does.
    fn tight(gap: &Served) -> Self {
        Slots { written: Step(gap.from.0 + 1), read: gap.fetch }
    }
}

/// Bytes held in host memory at each step, homes not counted.
fn held_in_host(intervals: &Intervals) -> Vec<Bytes> {
    let mut held = vec![0; intervals.n_steps];
    for copy in &intervals.copies {
        held[copy.start.index()..=copy.end.index()].iter_mut().for_each(|held| *held += copy.bytes);
    }
    held
}
