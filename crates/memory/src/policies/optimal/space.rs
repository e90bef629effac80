//! The plans that `optimal` chooses from: orders, gaps that may leave in each, algorithms of each kernel.
//!
//! ```text
//!  candidates ─► forgotten: not, once, after each use ─► an order each (recompute) ─► gaps that end after forward
//!  [Space]                                               [Arrangement]               kept, or away in any window
//! ```
//! Bytes are counted as buffers that begin at multiples of the alignment take them. Not done here: choosing.

use crate::held::Held;
use crate::recompute::{First, Makers, recompute_within};
use crate::stretch::{Intervals, Window};
use crate::{Forget, Gap, Liveness, MemoryPlan, Problem};
use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::{NodeId, Phase, Role, Step, ValueId};
use vdnn_tensor::Bytes;

/// Runs that an order may have, as a multiple of the program's.
const LONGEST: usize = 4;

/// One algorithm of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pick {
    /// Its number in the kernel table.
    pub number: usize,
    pub seconds: f64,
    /// As the table has it, and aligned.
    pub workspace: Bytes,
    pub bytes: Bytes,
}

/// What is the same for all orders.
pub(super) struct Space<'a> {
    pub problem: &'a Problem<'a>,
    /// Feature maps that cross from forward to backward.
    pub candidates: Vec<ValueId>,
    /// By node: the algorithms worth choosing, fastest first, each with less workspace than those before it.
    pub picks: Vec<Vec<Pick>>,
    makers: Makers<'a>,
}

/// One order, what is made again in it, and what may leave.
pub(super) struct Arrangement {
    /// The order and the drops; fastest algorithms.
    pub plan: MemoryPlan,
    pub liveness: Liveness,
    pub gaps: Vec<Gap>,
    /// By step: bytes held when every gap is away for as long as can be, workspaces not counted.
    pub held: Vec<Bytes>,
    /// The same when nothing is away, not aligned.
    pub holds: Held,
    /// By step: the most that the topmost buffer may lack to a multiple of the alignment.
    pub slack: Vec<Bytes>,
}

impl<'a> Space<'a> {
    pub fn of(problem: &'a Problem<'a>) -> Self {
        let graph = &problem.program.graph;
        let makers = Makers::of(problem.program);
        let mut space = Space { problem, candidates: candidates(problem), picks: Vec::new(), makers };
        space.picks = graph.node_ids().map(|node| space.worth_choosing(node)).collect();
        space
    }

    /// The algorithms of a node that no other is as good as, in time and in workspace.
    fn worth_choosing(&self, node: NodeId) -> Vec<Pick> {
        let choices = self.problem.kernels.all(node).enumerate();
        let mut picks: Vec<Pick> = choices
            .map(|(number, choice)| {
                let (seconds, workspace) = (choice.seconds, choice.workspace);
                Pick { number, seconds, workspace, bytes: self.aligned(workspace) }
            })
            .collect();
        picks.sort_by(|a, b| {
            a.seconds.total_cmp(&b.seconds).then(a.workspace.cmp(&b.workspace)).then(a.number.cmp(&b.number))
        });
        let mut least = Bytes::MAX;
        picks.retain(|pick| {
            let leaner = pick.workspace < least;
            least = least.min(pick.workspace);
            leaner
        });
        picks
    }

    pub fn aligned(&self, bytes: Bytes) -> Bytes {
        bytes.next_multiple_of(self.problem.options.alignment.max(1))
    }

    pub fn bytes(&self, gap: &Gap) -> Bytes {
        self.aligned(self.problem.program.aliases.storage_bytes(gap.root))
    }

    /// Bytes above the homes that a budget leaves.
    pub fn room(&self, budget: Bytes) -> Option<Bytes> {
        budget.checked_sub(self.aligned(self.problem.homes.extent()))
    }

    /// Every order that forgetting some candidates makes, each once.
    pub fn arrangements(&self) -> Vec<Arrangement> {
        let ways = 3usize.pow(self.candidates.len() as u32);
        let mut seen = BTreeSet::new();
        let all = (0..ways).filter_map(|way| self.arrange(way));
        all.filter(|made| seen.insert((made.plan.order.clone(), made.plan.gaps.clone()))).collect()
    }

    /// The order when candidate i is forgotten as the i-th digit of `way` says. `None` when something cannot be made again.
    fn arrange(&self, way: usize) -> Option<Arrangement> {
        let program = self.problem.program;
        let forget = |i: usize| [None, Some(Forget::Once), Some(Forget::AfterEachUse)][way / 3usize.pow(i as u32) % 3];
        let forgotten: BTreeMap<ValueId, Forget> =
            self.candidates.iter().enumerate().filter_map(|(i, &root)| Some((root, forget(i)?))).collect();
        let made = recompute_within(&self.makers, &forgotten, First::Early, LONGEST * program.n_steps()).ok()?;
        let plan = MemoryPlan { order: made.order, gaps: made.drops, ..MemoryPlan::keep_all(program) };
        let liveness = Liveness::of(self.problem, &plan.order);
        let gaps = self.gaps(&plan, &liveness);
        let tight: Vec<Window> = gaps.iter().map(tightest).collect();
        let intervals = Intervals::with_windows(self.problem, &plan, &liveness, &tight).ok()?;
        let kept = Intervals::with_windows(self.problem, &plan, &liveness, &[]).ok()?;
        let (held, slack) = (self.held(&intervals), self.slack(&plan, &kept));
        let holds = Held::of(self.problem, &plan, &liveness)?;
        Some(Arrangement { plan, liveness, gaps, held, holds, slack })
    }

    /// Gaps of candidates that end after forward, last for a step at least, and do not end with the bytes made anew.
    fn gaps(&self, plan: &MemoryPlan, liveness: &Liveness) -> Vec<Gap> {
        let graph = &self.problem.program.graph;
        let backward = |step: usize| {
            let u = plan.order[step];
            u.run > 0 || graph.node(u.node).phase != Phase::Forward
        };
        let turns = (0..plan.order.len()).find(|&step| backward(step)).unwrap_or(plan.order.len());
        let dropped = |gap: &Gap| plan.gaps.contains_key(&(gap.root, plan.order[gap.to.step.index()]));
        let mut gaps = Vec::new();
        for &root in &self.candidates {
            let all: Vec<Gap> = liveness.gaps(root).collect();
            for (i, gap) in all.iter().enumerate() {
                let idle = gap.to.step.index() >= turns && gap.to.step.0 > gap.from.step.0 + 1;
                // Bytes that a later run has yet to fill cannot be copied.
                let later = all[i..].iter().take_while(|later| !dropped(later));
                let whole = later.map(|later| later.to).all(|to| !to.writes || plan.order[to.step.index()].run == 0);
                if idle && !dropped(gap) && whole {
                    gaps.push(*gap);
                }
            }
        }
        gaps.sort_by_key(|gap| (gap.from.step, gap.root));
        gaps
    }

    fn held(&self, intervals: &Intervals) -> Vec<Bytes> {
        let mut held = vec![0; intervals.n_steps];
        for stretch in &intervals.stretches {
            held[stretch.steps()].iter_mut().for_each(|bytes| *bytes += self.aligned(stretch.bytes));
        }
        held
    }

    fn slack(&self, plan: &MemoryPlan, kept: &Intervals) -> Vec<Bytes> {
        let mut slack = vec![0; kept.n_steps];
        for stretch in &kept.stretches {
            let lacks = self.aligned(stretch.bytes) - stretch.bytes;
            slack[stretch.steps()].iter_mut().for_each(|most| *most = lacks.max(*most));
        }
        for (step, u) in plan.order.iter().enumerate() {
            let lacks =
                self.problem.kernels.all(u.node).map(|choice| self.aligned(choice.workspace) - choice.workspace);
            slack[step] = lacks.fold(slack[step], Bytes::max);
        }
        slack
    }
}

impl Arrangement {
    pub fn n_steps(&self) -> usize {
        self.plan.order.len()
    }

    /// The node of a step.
    pub fn node(&self, step: usize) -> NodeId {
        self.plan.order[step].node
    }

    /// By step: bytes of the room that are left beside what is held in any case. `None` where that alone is too much.
    pub fn left(&self, room: Bytes) -> Option<Vec<Bytes>> {
        self.held.iter().zip(&self.slack).map(|(held, slack)| (room + slack).checked_sub(*held)).collect()
    }
}

/// Feature maps of at least the least offload with a gap from forward to backward.
fn candidates(problem: &Problem<'_>) -> Vec<ValueId> {
    let (graph, liveness) = (&problem.program.graph, problem.liveness());
    let least = problem.options.min_offload.max(1);
    let wanted = |root: &ValueId| {
        graph.value(*root).role == Role::FeatureMap
            && problem.program.aliases.storage_bytes(*root) >= least
            && liveness.gaps(*root).any(|gap| problem.crosses(&gap) && gap.to.step.0 > gap.from.step.0 + 1)
    };
    liveness.roots().iter().copied().filter(wanted).collect()
}

/// The window in which a gap is away for as long as can be.
pub(super) fn tightest(gap: &Gap) -> Window {
    Window { gap: *gap, release: Step(gap.from.step.0 + 1), fetch: gap.to.step }
}
