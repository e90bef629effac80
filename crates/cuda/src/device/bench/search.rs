//! Which of a convolution's plans are run, and for how long: enough to find what is worthwhile, not all.
//!
//! ```text
//!  plan, best guess first ─► less workspace than any measured ──────────────► run
//!                            guesses still find something ─► run, given up when slower than what has as little workspace
//!                            neither ─► left out; listing ends once something measured wants next to no workspace
//! ```
//!
//! Of 72 convolutions of ResNet-50 in bf16 (H200, batch 256) the fastest of about 16 plans was among the first eight in 66, and
//! in all but two on the first heuristic's list. What comes later and is left out may be some per cent faster.

use std::sync::Arc;
use std::time::Instant;

use super::{Bench, Failure, Gpu, Work};
use crate::cudnn::{Addresses, Listing, Plan};
use crate::device::convolution::{Convolution, epilogue_places};
use crate::device::measure::{Places, Rivals};

/// Plans that make a search complete whose time ran out.
const ENOUGH_PLANS: usize = 8;
/// Workspace of which less is not looked for.
const NEXT_TO_NONE: u64 = 1 << 20;
/// Room for workspace that is taken at once, so that scratch memory grows seldom.
const ROOM: u64 = 64 << 20;

/// What was found so far.
#[derive(Debug)]
pub(super) struct Search {
    /// (workspace, seconds) of each plan run.
    timed: Vec<(u64, f64)>,
    in_vain: usize,
    /// How many in a row may be in vain.
    patience: usize,
    late: bool,
}

impl Search {
    pub fn new(patience: usize) -> Self {
        Search { timed: Vec::new(), in_vain: 0, patience, late: false }
    }

    /// Time has run out.
    pub fn is_late(&mut self) {
        self.late = true;
    }

    fn least_workspace(&self) -> Option<u64> {
        self.timed.iter().map(|&(workspace, _)| workspace).min()
    }

    fn goes_on(&self) -> bool {
        !self.late && self.in_vain < self.patience
    }

    /// Whether a plan with so much workspace is run.
    pub fn wants(&self, workspace: u64) -> bool {
        self.goes_on() || self.least_workspace().is_none_or(|least| workspace < least)
    }

    /// Whether no further plan is asked for.
    pub fn is_over(&self) -> bool {
        !self.goes_on() && self.least_workspace().is_some_and(|least| least <= NEXT_TO_NONE)
    }

    /// Seconds that a plan must stay below to be worthwhile: the best one's with as little workspace.
    fn to_beat(&self, workspace: u64) -> Option<f64> {
        let as_small = self.timed.iter().filter(|timed| timed.0 <= workspace);
        as_small.map(|&(_, seconds)| seconds).min_by(f64::total_cmp)
    }

    /// What a plan with so much workspace is measured against; nothing for the first.
    pub fn rivals(&self, workspace: u64) -> Option<Rivals> {
        self.to_beat(u64::MAX).map(|best| Rivals { best, as_small: self.to_beat(workspace) })
    }

    /// Notes the time of a plan.
    pub fn found(&mut self, workspace: u64, seconds: f64) {
        let better = self.to_beat(workspace).is_none_or(|best| seconds < best);
        self.in_vain = if better { 0 } else { self.in_vain + 1 };
        self.timed.push((workspace, seconds));
    }

    /// Whether another search would find no more: it ended by itself, or after enough plans.
    pub fn is_complete(&self) -> bool {
        !self.late || self.timed.len() >= ENOUGH_PLANS
    }
}

/// Plans with their times, how the search went, and the least workspace of those for which memory did not suffice.
pub(super) struct Found {
    pub timed: Vec<(Plan, f64)>,
    pub complete: bool,
    pub too_large: Option<u64>,
}

impl Bench {
    /// Runs plans of a convolution on scratch memory. The first, and one with the least workspace, always are.
    pub(super) fn search(
        &mut self,
        gpu: &Gpu,
        found: &Convolution<'_>,
        listing: &mut Listing<'_>,
        share: f64,
    ) -> Result<Found, Failure> {
        let mut places = Places::default();
        let operands = found.operands.each_ref().map(|operand| places.operand(operand));
        let (within, epilogue_bytes) = epilogue_places(&found.problem);
        // An f32 bias is read where it is, which here is nowhere yet.
        let epilogue = places.bytes(epilogue_bytes.max(4 * found.problem.k));
        let workspace = places.bytes(0);
        let available = self.scratch.available(gpu)?.saturating_sub(places.end() + 256);
        let (start, mut search) = (Instant::now(), Search::new(self.options.patience));
        let (mut timed, mut too_large) = (Vec::new(), None::<u64>);
        while !search.is_over() {
            let Some(plan) = listing.next() else { break };
            let workspace_bytes = plan.workspace_bytes;
            if workspace_bytes > available {
                too_large = Some(too_large.map_or(workspace_bytes, |least| least.min(workspace_bytes)));
                continue;
            }
            if !timed.is_empty() && start.elapsed().as_secs_f64() > share {
                search.is_late();
            }
            if !search.wants(workspace_bytes) {
                continue;
            }
            let Some(base) = self.scratch.take(gpu, places.end() + workspace_bytes.max(ROOM.min(available)))? else {
                return Err(format!("its operands of {} bytes do not fit free memory", places.end()).into());
            };
            let [x, w, y] = operands.each_ref().map(|operand| base.address + operand.address);
            let (epilogue, workspace) = (within.map(|at| base.address + epilogue + at), base.address + workspace);
            let at = Addresses { x, w, y, epilogue, workspace, workspace_bytes };
            if let Some((plan, seconds)) = self.time(gpu, plan, at, search.rivals(workspace_bytes))? {
                search.found(workspace_bytes, seconds);
                timed.push((plan, seconds));
            }
        }
        Ok(Found { timed, complete: search.is_complete(), too_large })
    }

    /// A plan with its time; `None` when it refuses to run.
    fn time(
        &self,
        gpu: &Gpu,
        plan: Plan,
        at: Addresses,
        rivals: Option<Rivals>,
    ) -> Result<Option<(Plan, f64)>, Failure> {
        // SAFETY: scratch memory has room for the operands with their strides and for the workspace, and nothing else uses it.
        let Ok(site) = (unsafe { plan.bind(at) }) else { return Ok(None) };
        let plan = Arc::new(plan);
        let work = [Work::Convolution { plan: plan.clone(), site }];
        match self.timer.seconds(gpu, &work, rivals, &self.options) {
            Ok(seconds) => {
                drop(work);
                Ok(Arc::into_inner(plan).map(|plan| (plan, seconds)))
            }
            // A plan that refuses to run is left out, unless it took the whole device with it.
            Err(_) => {
                gpu.context.synchronize()?;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the plans that the search wants, in order: which were run, and how many were listed.
    fn run(plans: &[(u64, f64)], late_after: usize) -> (Vec<usize>, usize) {
        let (mut search, mut ran) = (Search::new(8), Vec::new());
        for (index, &(workspace, seconds)) in plans.iter().enumerate() {
            if search.is_over() {
                return (ran, index);
            }
            if ran.len() >= late_after {
                search.is_late();
            }
            if search.wants(workspace) {
                search.found(workspace, seconds);
                ran.push(index);
            }
        }
        (ran, plans.len())
    }

    const MANY: usize = usize::MAX;

    #[test]
    fn guesses_that_find_nothing_end_the_search() {
        let mut plans = vec![(0, 1.0); 60];
        assert_eq!(run(&plans, MANY), ((0..9).collect(), 9));
        // The seventh is better, so eight more are tried after it.
        plans[6] = (0, 0.9);
        assert_eq!(run(&plans, MANY), ((0..15).collect(), 15));
        // A better one beyond is not found.
        plans[20] = (0, 0.1);
        assert_eq!(run(&plans, MANY).1, 15);
    }

    #[test]
    fn less_workspace_is_looked_for_to_the_end() {
        let large = 1 << 30;
        let mut plans = vec![(large, 1.0); 40];
        plans[30] = (large / 2, 5.0);
        plans[31] = (large / 2, 4.0);
        plans[35] = (4096, 50.0);
        let (ran, listed) = run(&plans, MANY);
        // The second of those with half as much is given its chance, as the search had found something again.
        assert_eq!(
            (&ran[..9], &ran[9..]),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[30, 31, 32, 33, 34, 35, 36, 37, 38, 39][..])
        );
        assert_eq!(listed, 40);
        // Next to no workspace is as good as none.
        assert_eq!(run(&[vec![(1 << 20, 1.0); 20], vec![(0, 1.0)]].concat(), MANY).1, 9);
    }

    #[test]
    fn when_time_runs_out_the_first_and_the_least_workspace_are_left() {
        let plans = [(1 << 30, 1.0), (1 << 30, 0.5), (1 << 25, 3.0), (1 << 25, 2.0), (0, 9.0), (0, 8.0)];
        assert_eq!(run(&plans, 1), (vec![0, 2, 4], 5));
        assert_eq!(run(&plans, 0).0[0], 0);
    }

    #[test]
    fn a_plan_has_to_beat_those_with_as_little_workspace() {
        let mut search = Search::new(8);
        assert_eq!(search.to_beat(0), None);
        search.found(100, 1.0);
        search.found(10, 3.0);
        assert_eq!((search.to_beat(9), search.to_beat(10), search.to_beat(100)), (None, Some(3.0), Some(1.0)));
        assert_eq!(search.rivals(20), Some(Rivals { best: 1.0, as_small: Some(3.0) }));
    }

    #[test]
    fn a_search_cut_short_is_not_kept() {
        let mut search = Search::new(8);
        search.found(0, 1.0);
        assert!(search.is_complete());
        search.is_late();
        assert!(!search.is_complete());
        (1..8).for_each(|_| search.found(0, 1.0));
        assert!(search.is_complete());
    }
}
