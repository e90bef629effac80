//! From a plan to time intervals: which bytes are held when.
//!
//! ```text
//!  step          3      4      5   …   57     58
//!  X on device   [start ······ end)          offloaded in the gap 4 → 58, release 6, fetch 57
//!  X on host            [······················)
//!  X' on device                      [start ····
//! ```
//!
//! A copy on the host is made once for each time the storage is written: it stays until the last gap that it serves has
//! fetched it, and gaps after the first only give the device bytes back. A copy in a file stays as long; the host holds it
//! in slots on its way only:
//!
//! ```text
//!  X in the file        [······························)
//!  slots on the host    [··)  written           read [··)
//! ```
//!
//! What streams lies at home in host memory when the iteration begins and ends; its first and its last stretch meet in the gap
//! that wraps around.
//!
//! An interval covers whole steps: taken when `start` begins, given back before the step after `end` begins. The same
//! intervals feed the live profile, placement and emission, so that all three agree.

use crate::takeover::{take_over, taken_over};
use crate::{Allocation, Gap, Liveness, MemoryPlan, PlanError, Problem, Residency, Tier};
use std::ops::Range;
use vdnn_graph::{NodeId, Role, Step, Use, ValueId};
use vdnn_tensor::Bytes;

/// A time a storage spends on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub root: ValueId,
    /// 0 for the first stretch of this storage, counting up.
    pub index: u32,
    pub start: Step,
    pub end: Step,
    pub bytes: Bytes,
    /// The stretch of another storage that ends at `start`, whose bytes this one takes over, and the one that takes over this one's.
    pub over: Option<u32>,
    pub next: Option<u32>,
}

impl Stretch {
    /// The steps in which it holds bytes that no other stretch does.
    pub fn steps(&self) -> Range<usize> {
        self.start.index() + usize::from(self.over.is_some())..self.end.index() + 1
    }
}

/// A time a storage is away from the device, between two stretches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    pub gap: Gap,
    pub release: Step,
    pub fetch: Step,
    /// The stretch before.
    pub from: usize,
    /// The stretch after, which is copied to.
    pub to: usize,
    /// What is fetched: the copy in host memory or the slot that it is read to, its home if it is `None`; and whether the copy
    /// is made in this gap, else it has been valid since an earlier one, or since the iteration began.
    pub host: Option<usize>,
    pub down: bool,
    /// Where it rests if that is not in host memory.
    pub file: Option<Filed>,
}

/// A copy in the file, and the slots of the host arena on the way there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filed {
    /// Index into the files.
    pub copy: usize,
    /// The slot down if the copy is made in this gap, with the first step that may use its bytes.
    pub slot: Option<(usize, Step)>,
    /// The step at whose beginning the slot up is taken.
    pub read: Step,
}

/// What a storage's bytes below the device are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They stay in host memory while they are away.
    Host,
    /// A slot of host memory on the way to the file.
    ToDisk,
    /// A slot of host memory on the way from the file.
    FromDisk,
    /// They rest in the file.
    Disk,
}

/// A storage's copy below the device: from the use after which it is made to the one that it is fetched for last, or a slot
/// for as long as it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowerCopy {
    pub root: ValueId,
    /// That of the stretch it is made from, or for.
    pub index: u32,
    pub start: Step,
    pub end: Step,
    pub bytes: Bytes,
    pub purpose: Purpose,
}

/// The release and fetch of one offloaded gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub gap: Gap,
    pub release: Step,
    pub fetch: Step,
}

impl Window {
    /// True when the gap frees no step at all.
    pub fn is_empty(&self) -> bool {
        !self.gap.wraps() && self.release >= self.fetch
    }

    /// The residency to put into a plan.
    pub fn residency(&self) -> Residency {
        Residency::Offload { tier: Tier::Host, release: self.release, fetch: self.fetch }
    }
}

/// Bytes a kernel borrows for one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Borrowed {
    pub step: Step,
    pub node: NodeId,
    pub bytes: Bytes,
}

/// All intervals of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals {
    pub stretches: Vec<Stretch>,
    pub aways: Vec<Away>,
    /// Those in host memory, slots among them.
    pub copies: Vec<LowerCopy>,
    /// Those in the file.
    pub files: Vec<LowerCopy>,
    pub workspaces: Vec<Borrowed>,
    pub n_steps: usize,
}

impl Intervals {
    /// Cuts every storage's life into stretches.
    pub fn of(problem: &Problem<'_>, plan: &MemoryPlan, liveness: &Liveness) -> Result<Self, PlanError> {
        Self::with_windows(problem, plan, liveness, &[])
    }

    /// The same as if `windows` were decided in the plan as well.
    pub fn with_windows(
        problem: &Problem<'_>,
        plan: &MemoryPlan,
        liveness: &Liveness,
        windows: &[Window],
    ) -> Result<Self, PlanError> {
        let mut intervals = Intervals { n_steps: plan.order.len(), ..Intervals::default() };
        let decided = Decided::new(problem, plan, windows);
        for &root in liveness.roots() {
            intervals.cut(problem, &decided, liveness, root)?;
        }
        if plan.allocation == Allocation::NetworkWide {
            intervals.widen(problem);
        } else {
            take_over(&mut intervals.stretches, &taken_over(plan, liveness));
        }
        let borrowed = problem.by_step(plan, |choice| choice.workspace).into_iter().zip(&plan.order).enumerate();
        let borrowed = borrowed.filter(|&(_, (bytes, _))| bytes > 0);
        intervals.workspaces =
            borrowed.map(|(at, (bytes, u))| Borrowed { step: Step(at as u32), node: u.node, bytes }).collect();
        Ok(intervals)
    }

    fn cut(
        &mut self,
        problem: &Problem<'_>,
        decided: &Decided<'_>,
        liveness: &Liveness,
        root: ValueId,
    ) -> Result<(), PlanError> {
        let bytes = problem.program.aliases.storage_bytes(root);
        let accesses = liveness.accesses(root);
        let wrap = match liveness.wrap(root) {
            Some(gap) => Some((gap, decided.wrapped(problem, &gap)?)),
            None => None,
        };
        let start = wrap.map_or(accesses[0].step, |(_, (_, fetch))| fetch);
        let mut stretch = Stretch { root, index: 0, start, end: start, bytes, over: None, next: None };
        let first = self.stretches.len();
        let gaps = liveness.gaps(root).filter(|_| decided.leaves(root));
        for gap in gaps {
            match decided.residency(&gap) {
                Residency::Keep => {}
                Residency::Drop => {
                    check_drop(problem, &gap)?;
                    self.stretches.push(Stretch { end: gap.from.step, ..stretch });
                    stretch = Stretch { index: stretch.index + 1, start: gap.to.step, ..stretch };
                }
                Residency::Offload { tier, release, fetch } => {
                    check_offload(problem, &gap, tier, release, fetch)?;
                    if wrap.is_some() && tier.is_disk() {
                        return Err(illegal(problem, &gap, AT_HOME));
                    }
                    self.leave(gap, (tier, release, fetch), &stretch, wrap.is_some());
                    self.stretches.push(Stretch { end: Step(release.0 - 1), ..stretch });
                    stretch = Stretch { index: stretch.index + 1, start: fetch, ..stretch };
                }
            }
        }
        let mut end = accesses.last().map_or(stretch.start, |access| access.step);
        if let Some((gap, (release, fetch))) = wrap {
            self.leave(gap, (Tier::Host, release, fetch), &stretch, true);
            self.aways.last_mut().into_iter().for_each(|away| away.to = first);
            end = Step(release.0 - 1);
        }
        self.stretches.push(Stretch { end, ..stretch });
        Ok(())
    }

    /// Notes that the storage is away after `stretch`. What streams has its copy at home; anything else gets one of its own
    /// unless the last one, in the same tier, still holds its bytes.
    fn leave(&mut self, gap: Gap, (tier, release, fetch): (Tier, Step, Step), stretch: &Stretch, streams: bool) {
        let earlier = || self.aways.iter().rev().take_while(|away| away.gap.root == gap.root);
        let alike = || earlier().take_while(|away| away.file.is_some() == tier.is_disk());
        let copied = alike().find(|away| away.down).map(|away| away.gap.from.step);
        // At home there is a copy from the start.
        let there = streams || copied.is_some();
        let down = !there || gap.written.is_some_and(|written| copied.is_none_or(|copied| copied < written));
        let last = alike().next().copied().filter(|_| !down);
        let (host, file) = match tier {
            Tier::Host if streams => (None, None),
            Tier::Host => (Some(self.hold(last.and_then(|last| last.host), gap, stretch)), None),
            Tier::Disk { written, read } => {
                let (slot, filed) = self.file(last.and_then(|last| last.file), (written, read), gap, stretch);
                (Some(slot), Some(filed))
            }
        };
        let from = self.stretches.len();
        self.aways.push(Away { gap, release, fetch, from, to: from + 1, host, down, file });
    }

    /// The copy in host memory for a gap: one that is there already, held on, or a new one.
    fn hold(&mut self, there: Option<usize>, gap: Gap, stretch: &Stretch) -> usize {
        if let Some(there) = there {
            self.copies[there].end = gap.to.step;
            return there;
        }
        let Stretch { root, index, bytes, .. } = *stretch;
        let (start, end) = (gap.from.step, gap.to.step);
        self.copies.push(LowerCopy { root, index, start, end, bytes, purpose: Purpose::Host });
        self.copies.len() - 1
    }

    /// The same in the file, with its slots; the first is that of the way up.
    fn file(
        &mut self,
        there: Option<Filed>,
        (written, read): (Step, Step),
        gap: Gap,
        stretch: &Stretch,
    ) -> (usize, Filed) {
        let Stretch { root, index, bytes, .. } = *stretch;
        let up = LowerCopy { root, index: index + 1, start: read, end: gap.to.step, bytes, purpose: Purpose::FromDisk };
        self.copies.push(up);
        let host = self.copies.len() - 1;
        if let Some(Filed { copy, .. }) = there {
            self.files[copy].end = gap.to.step;
            return (host, Filed { copy, slot: None, read });
        }
        let (start, end) = (gap.from.step, gap.to.step);
        self.files.push(LowerCopy { root, index, start, end, bytes, purpose: Purpose::Disk });
        let end = Step(written.0 - 1);
        self.copies.push(LowerCopy { root, index, start, end, bytes, purpose: Purpose::ToDisk });
        (host, Filed { copy: self.files.len() - 1, slot: Some((host + 1, written)), read })
    }

    /// The paper's baseline holds feature maps and weight gradients for the whole iteration.
    fn widen(&mut self, problem: &Problem<'_>) {
        let last = Step(self.n_steps.saturating_sub(1) as u32);
        for stretch in &mut self.stretches {
            if problem.program.graph.value(stretch.root).role != Role::Gradient {
                (stretch.start, stretch.end) = (Step(0), last);
            }
        }
    }

    /// A stretch and those that take its bytes over, one after the other.
    pub fn taken_over(&self, first: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(first), |&i| self.stretches[i].next.map(|next| next as usize))
    }

    /// The same with nothing taken over; `None` where nothing is.
    pub fn apart(&self) -> Option<Self> {
        let own = |stretch: &Stretch| Stretch { over: None, next: None, ..*stretch };
        let some = self.stretches.iter().any(|stretch| stretch.over.is_some());
        some.then(|| Intervals { stretches: self.stretches.iter().map(own).collect(), ..self.clone() })
    }

    /// Bytes held on the device at each step, homes not counted, workspaces included.
    pub fn live_profile(&self) -> Vec<Bytes> {
        let mut change = vec![0i128; self.n_steps + 1];
        let spans = self.stretches.iter().map(|s| (s.steps(), s.bytes));
        let borrowed = self.workspaces.iter().map(|w| (w.step.index()..w.step.index() + 1, w.bytes));
        for (steps, bytes) in spans.chain(borrowed) {
            change[steps.start] += i128::from(bytes);
            change[steps.end] -= i128::from(bytes);
        }
        let mut live = 0;
        change[..self.n_steps]
            .iter()
            .map(|delta| {
                live += delta;
                live as Bytes
            })
            .collect()
    }
}

/// What a plan and windows beside it decide, by gap.
struct Decided<'a> {
    plan: &'a MemoryPlan,
    /// Open windows by root and the step that ends their gap; what the plan says by root and the use that ends it.
    windows: Vec<&'a Window>,
    planned: Vec<(Use, Residency)>,
    /// By root: which of these are its own. Most have none.
    own_windows: Vec<(u32, u32)>,
    own_planned: Vec<(u32, u32)>,
}

impl<'a> Decided<'a> {
    fn new(problem: &Problem<'_>, plan: &'a MemoryPlan, windows: &'a [Window]) -> Self {
        let mut windows: Vec<&Window> = windows.iter().filter(|window| !window.is_empty()).collect();
        windows.sort_by_key(|window| (window.gap.root, window.gap.to.step));
        let n = problem.program.graph.values().len();
        let own_windows = own(n, windows.iter().map(|window| window.gap.root));
        let own_planned = own(n, plan.gaps.keys().map(|&(root, _)| root));
        let planned = plan.gaps.iter().map(|(&(_, ends), &residency)| (ends, residency)).collect();
        Decided { plan, windows, planned, own_windows, own_planned }
    }

    /// Whether a storage leaves in any gap.
    fn leaves(&self, root: ValueId) -> bool {
        self.own_windows[root.index()].1 > 0 || self.own_planned[root.index()].1 > 0
    }

    /// When what streams is given back after its last use and taken again before its first: as short as can be if nothing
    /// else is decided.
    fn wrapped(&self, problem: &Problem<'_>, gap: &Gap) -> Result<(Step, Step), PlanError> {
        match self.residency(gap) {
            Residency::Offload { tier, release, fetch } => {
                check_wrap(problem, gap, tier, release, fetch, self.plan.order.len())?;
                Ok((release, fetch))
            }
            Residency::Keep => Ok((Step(gap.from.step.0 + 1), gap.to.step)),
            Residency::Drop => Err(illegal(problem, gap, "dropped, but the next iteration reads it")),
        }
    }

    fn residency(&self, gap: &Gap) -> Residency {
        let windows = of_root(&self.windows, self.own_windows[gap.root.index()]);
        if let Ok(found) = windows.binary_search_by_key(&gap.to.step, |window| window.gap.to.step) {
            return windows[found].residency();
        }
        let planned = of_root(&self.planned, self.own_planned[gap.root.index()]);
        let ends = self.plan.order[gap.to.step.index()];
        planned.binary_search_by_key(&ends, |planned| planned.0).map_or(Residency::Keep, |found| planned[found].1)
    }
}

/// By root, of `n` values: where its own begin among many that are sorted by root, and how many there are.
fn own(n: usize, roots: impl Iterator<Item = ValueId>) -> Vec<(u32, u32)> {
    let mut own = vec![(0, 0); n];
    for (at, root) in (0..).zip(roots) {
        let (start, len) = &mut own[root.index()];
        (*start, *len) = (at - *len, *len + 1);
    }
    own
}

fn of_root<T>(all: &[T], (start, len): (u32, u32)) -> &[T] {
    &all[start as usize..(start + len) as usize]
}

/// By window: whether a copy that an earlier one of the same storage made is still valid, so that nothing is copied down.
/// `by_issue` has the windows in order of issue.
pub(crate) fn still_copied(windows: &[Window], by_issue: &[u32]) -> Vec<bool> {
    let n = windows.iter().map(|window| window.gap.root.index() + 1).max().unwrap_or(0);
    // By root: whether it has a copy at home from the start, and when the last copy down was made.
    let mut streams = vec![false; n];
    windows.iter().filter(|window| window.gap.wraps()).for_each(|window| streams[window.gap.root.index()] = true);
    let mut copied: Vec<Option<Step>> = vec![None; n];
    let mut valid = vec![false; windows.len()];
    for i in by_issue.iter().map(|&i| i as usize).filter(|&i| !windows[i].is_empty()) {
        let (gap, root) = (&windows[i].gap, windows[i].gap.root.index());
        let (since, there) = (copied[root], copied[root].is_some() || streams[root]);
        valid[i] = there && gap.written.is_none_or(|written| since.is_some_and(|since| written <= since));
        if !valid[i] {
            copied[root] = Some(gap.from.step);
        }
    }
    valid
}

/// Why what streams does not rest on disk.
const AT_HOME: &str = "away on disk, but its home in host memory holds its bytes; use the host tier";

fn illegal(problem: &Problem<'_>, gap: &Gap, what: &str) -> PlanError {
    let name = &problem.program.graph.value(gap.root).name;
    PlanError::IllegalPlan {
        reason: format!("{name} in its gap from step {} to step {}: {what}", gap.from.step.0, gap.to.step.0),
    }
}

/// What is dropped must be written anew by the use that ends its gap.
pub(crate) fn check_drop(problem: &Problem<'_>, gap: &Gap) -> Result<(), PlanError> {
    if gap.to.writes && !gap.to.reads {
        return Ok(());
    }
    Err(illegal(problem, gap, "dropped, but the next use reads it; run its producer again first or offload it"))
}

fn check_wrap(
    problem: &Problem<'_>,
    gap: &Gap,
    tier: Tier,
    release: Step,
    fetch: Step,
    n_steps: usize,
) -> Result<(), PlanError> {
    if tier.is_disk() {
        return Err(illegal(problem, gap, AT_HOME));
    }
    if gap.from.step < release && release.index() <= n_steps && fetch <= gap.to.step {
        return Ok(());
    }
    let what = format!(
        "expected from < release <= {n_steps} and fetch <= to around the iteration, found release {} and fetch {}",
        release.0, fetch.0
    );
    Err(illegal(problem, gap, &what))
}

fn check_offload(problem: &Problem<'_>, gap: &Gap, tier: Tier, release: Step, fetch: Step) -> Result<(), PlanError> {
    if gap.from.step >= release || release > fetch || fetch > gap.to.step {
        let what = format!("expected from < release <= fetch <= to, found release {} and fetch {}", release.0, fetch.0);
        return Err(illegal(problem, gap, &what));
    }
    match tier {
        Tier::Disk { written, read }
            if gap.from.step >= written || written > gap.to.step || gap.from.step >= read || read > fetch =>
        {
            let what = format!(
                "expected from < written <= to and from < read <= fetch {} of what rests on disk, found written {} and read {}",
                fetch.0, written.0, read.0
            );
            Err(illegal(problem, gap, &what))
        }
        _ => Ok(()),
    }
}
