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
//! fetched it, and gaps after the first only give the device bytes back.
//!
//! What streams lies at home in host memory when the iteration begins and ends; its first and its last stretch meet in the gap
//! that wraps around.
//!
//! An interval covers whole steps: taken when `start` begins, given back before the step after `end` begins. The same
//! intervals feed the live profile, placement and emission, so that all three agree.

use crate::{Allocation, Gap, Liveness, MemoryPlan, PlanError, Problem, Residency, Tier};
use std::collections::BTreeSet;
use vdnn_graph::{NodeId, Role, Step, ValueId};
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
    /// The copy in host memory, its home if it is `None`; and whether it is made in this gap, else it has been valid since an
    /// earlier one, or since the iteration began.
    pub host: Option<usize>,
    pub down: bool,
}

/// A storage's copy in host memory, from the use after which it is made to the one that it is fetched for last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostCopy {
    pub root: ValueId,
    /// That of the stretch it is made from.
    pub index: u32,
    pub start: Step,
    pub end: Step,
    pub bytes: Bytes,
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
    pub copies: Vec<HostCopy>,
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
        for (index, u) in plan.order.iter().enumerate() {
            let bytes = problem.chosen(plan, u.node).workspace;
            if bytes > 0 {
                intervals.workspaces.push(Borrowed { step: Step(index as u32), node: u.node, bytes });
            }
        }
        if plan.allocation == Allocation::NetworkWide {
            intervals.widen(problem);
        }
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
        let mut stretch = Stretch { root, index: 0, start, end: start, bytes };
        let first = self.stretches.len();
        let gaps = liveness.gaps(root).filter(|_| decided.leaves[root.index()]);
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
                    self.leave(gap, (release, fetch), &stretch, wrap.is_some());
                    self.stretches.push(Stretch { end: Step(release.0 - 1), ..stretch });
                    stretch = Stretch { index: stretch.index + 1, start: fetch, ..stretch };
                }
            }
        }
        let mut end = accesses.last().map_or(stretch.start, |access| access.step);
        if let Some((gap, (release, fetch))) = wrap {
            self.leave(gap, (release, fetch), &stretch, true);
            self.aways.last_mut().into_iter().for_each(|away| away.to = first);
            end = Step(release.0 - 1);
        }
        self.stretches.push(Stretch { end, ..stretch });
        Ok(())
    }

    /// Notes that the storage is away after `stretch`. What streams has its copy at home; anything else gets one of its own
    /// unless the last one still holds its bytes.
    fn leave(&mut self, gap: Gap, (release, fetch): (Step, Step), stretch: &Stretch, streams: bool) {
        let earlier = || self.aways.iter().rev().take_while(|away| away.gap.root == gap.root);
        let copied = earlier().find(|away| away.down).map(|away| away.gap.from.step);
        // At home there is a copy from the start.
        let there = streams || copied.is_some();
        let down = !there || gap.written.is_some_and(|written| copied.is_none_or(|copied| copied < written));
        let host = match (streams, earlier().next().and_then(|last| last.host).filter(|_| !down)) {
            (true, _) => None,
            (false, Some(host)) => {
                self.copies[host].end = gap.to.step;
                Some(host)
            }
            (false, None) => {
                let Stretch { root, index, bytes, .. } = *stretch;
                self.copies.push(HostCopy { root, index, start: gap.from.step, end: gap.to.step, bytes });
                Some(self.copies.len() - 1)
            }
        };
        let from = self.stretches.len();
        self.aways.push(Away { gap, release, fetch, from, to: from + 1, host, down });
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

    /// Bytes held on the device at each step, homes not counted, workspaces included.
    pub fn live_profile(&self) -> Vec<Bytes> {
        let mut change = vec![0i128; self.n_steps + 1];
        let spans = self.stretches.iter().map(|s| (s.start, s.end, s.bytes));
        for (start, end, bytes) in spans.chain(self.workspaces.iter().map(|w| (w.step, w.step, w.bytes))) {
            change[start.index()] += i128::from(bytes);
            change[end.index() + 1] -= i128::from(bytes);
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
    /// Open windows by root and the step that ends their gap.
    windows: Vec<&'a Window>,
    /// By root: whether it leaves in any gap. Most do not.
    leaves: Vec<bool>,
}

impl<'a> Decided<'a> {
    fn new(problem: &Problem<'_>, plan: &'a MemoryPlan, windows: &'a [Window]) -> Self {
        let mut windows: Vec<&Window> = windows.iter().filter(|window| !window.is_empty()).collect();
        windows.sort_by_key(|window| (window.gap.root, window.gap.to.step));
        let mut leaves = vec![false; problem.program.graph.values().len()];
        let roots = plan.gaps.keys().map(|&(root, _)| root).chain(windows.iter().map(|window| window.gap.root));
        roots.for_each(|root| leaves[root.index()] = true);
        Decided { plan, windows, leaves }
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
        let key = (gap.root, gap.to.step);
        match self.windows.binary_search_by_key(&key, |window| (window.gap.root, window.gap.to.step)) {
            Ok(found) => self.windows[found].residency(),
            Err(_) => {
                let ends = (gap.root, self.plan.order[gap.to.step.index()]);
                self.plan.gaps.get(&ends).copied().unwrap_or(Residency::Keep)
            }
        }
    }
}

/// By window: whether a copy that an earlier one of the same storage made is still valid, so that nothing is copied down.
pub(crate) fn still_copied(windows: &[Window]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..windows.len()).filter(|&i| !windows[i].is_empty()).collect();
    order.sort_by_key(|&i| (windows[i].gap.root, windows[i].gap.from.step));
    let mut valid = vec![false; windows.len()];
    // What streams has a copy at home from the start.
    let streams: BTreeSet<ValueId> = windows.iter().filter(|w| w.gap.wraps()).map(|w| w.gap.root).collect();
    let mut copied: Option<(ValueId, Step)> = None;
    for i in order {
        let gap = &windows[i].gap;
        let since = copied.filter(|&(root, _)| root == gap.root).map(|(_, step)| step);
        let there = since.is_some() || streams.contains(&gap.root);
        valid[i] = there && gap.written.is_none_or(|written| since.is_some_and(|since| written <= since));
        if !valid[i] {
            copied = Some((gap.root, gap.from.step));
        }
    }
    valid
}

fn illegal(problem: &Problem<'_>, gap: &Gap, what: &str) -> PlanError {
    let name = &problem.program.graph.value(gap.root).name;
    PlanError::IllegalPlan {
        reason: format!("{name} in its gap from step {} to step {}: {what}", gap.from.step.0, gap.to.step.0),
    }
}

fn check_drop(problem: &Problem<'_>, gap: &Gap) -> Result<(), PlanError> {
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
    if tier == Tier::Disk {
        return Err(illegal(problem, gap, "away on disk, which no device does yet; use the host tier"));
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
    if tier == Tier::Disk {
        return Err(illegal(problem, gap, "offloaded to disk, which no device does yet; use the host tier"));
    }
    if gap.from.step < release && release <= fetch && fetch <= gap.to.step {
        return Ok(());
    }
    let what = format!("expected from < release <= fetch <= to, found release {} and fetch {}", release.0, fetch.0);
    Err(illegal(problem, gap, &what))
}
