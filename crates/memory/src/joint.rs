//! One decision for every value at once: kept, offloaded or made again, with algorithms, windows and addresses to match.
//!
//! ```text
//!  fates (one a candidate) ─► order with later runs ─► gaps that leave ─► algorithms beside what is held
//!                             (recompute)              (offload)          (choose_beside)
//!                          ─► windows within the room ─► estimated seconds            [`Joint::estimate`]
//!                          ─► addresses within the budget                            [`Joint::settle`]
//! ```
//!
//! Not done here: which fates to try; that is a policy's.

mod crowd;
mod estimates;
mod held;
mod leaving;

pub(crate) use crowd::Crowd;

use self::estimates::Known;
use self::held::HeldAnyway;
use crate::algorithms::{Offered, choose_beside, least_workspace};
use crate::compile::compile_unplaced;
use crate::fit::{Streamed, fits, peak_of, windows_within, with_windows};
use crate::held::Held;
use crate::liveness::Operands;
use crate::recompute::{First, Makers, recompute_within, repeatable};
use crate::{Forget, Gap, Infeasible, Liveness, MemoryPlan, Problem, fit_to_budget};
use std::cell::RefCell;
use std::collections::BTreeMap;
use vdnn_graph::{NodeId, Phase, Role, ValueId};
use vdnn_sim::{Links, simulate};
use vdnn_tensor::Bytes;

/// Walks of [`Joint::settle`], each leaving more room for fragmentation.
const WALKS: usize = 5;

/// How many times its bytes the kernels of what is light hold.
const LIGHT: Bytes = 8;

/// Runs that an order may have, where it is not four times the program's.
const LONGEST_ORDER: usize = 20_000;

/// What happens to a candidate between forward and backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Keep,
    Offload,
    Recompute,
    /// Offloaded again after each use in backward that is not the last.
    OffloadEach,
    /// Offloaded again after a use in backward from which the next is far away: see [`Decision::patience`].
    OffloadApart,
    /// Made again for each use in backward.
    RecomputeEach,
    /// Made again for uses in backward that are far apart: see [`Decision::patience`].
    RecomputeApart,
    /// The same, the first time before the gradients that it is needed beside are all there.
    RecomputeAhead,
}

impl Fate {
    /// The same after each use.
    pub fn each(self) -> Fate {
        match self {
            Fate::Offload => Fate::OffloadEach,
            Fate::Recompute => Fate::RecomputeEach,
            other => other,
        }
    }

    /// Whether bytes cross the links.
    pub fn copies(self) -> bool {
        matches!(self, Fate::Offload | Fate::OffloadEach | Fate::OffloadApart)
    }

    /// What a storage that cannot be made again may not have.
    pub fn repeats(self) -> bool {
        matches!(self, Fate::Recompute | Fate::RecomputeEach | Fate::RecomputeApart | Fate::RecomputeAhead)
    }
}

/// A storage that is idle between forward and backward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub root: ValueId,
    pub bytes: Bytes,
    /// Its last use in forward and its first in backward, in the plain order.
    pub gap: Gap,
    /// Seconds of the kernels that write it, at their fastest.
    pub rerun_seconds: f64,
    /// When its gap begins if the fastest kernels run back to back, in seconds.
    pub idle_from: f64,
    /// Whether it can be made again as long as everything else is kept.
    pub repeatable: bool,
    /// Whether it is a small part of what its kernel holds, like a mask: to make it again takes more room than it gives.
    pub light: bool,
}

/// A problem with its candidates.
pub(crate) struct Joint<'a> {
    pub problem: &'a Problem<'a>,
    pub candidates: Vec<Candidate>,
    /// Seconds of forward and of the rest at the fastest.
    pub halves: [f64; 2],
    /// What windows are chosen for.
    pub links: Links,
    streamed: Streamed,
    policy: &'static str,
    offered: Offered,
    makers: Makers<'a>,
    operands: Operands,
    /// The least workspace of every kernel.
    leanest: BTreeMap<NodeId, usize>,
    held: HeldAnyway,
    /// By step of the program: bytes that gradients hold across its beginning.
    pressure: Vec<Bytes>,
    /// By value: the number of the candidate that it is the root of.
    numbers: Vec<Option<u32>>,
    /// What was estimated so far.
    known: RefCell<Known>,
}

/// Fates, and the share of the room that algorithms leave to copies under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub fates: Vec<Fate>,
    pub reserve: f64,
    /// Steps of the program for which what was made again or copied back may wait for its next use, where its fate is
    /// [`Fate::RecomputeApart`] or [`Fate::OffloadApart`].
    pub patience: u32,
    /// What is made again first.
    pub first: First,
}

impl Decision {
    /// These fates, with all the room for algorithms.
    pub fn of(fates: Vec<Fate>, patience: u32) -> Self {
        Decision { fates, reserve: 0.0, patience, first: First::Early }
    }
}

/// What fates make of the iteration, before algorithms and windows.
struct Arranged {
    /// The order, and what is made again.
    plan: MemoryPlan,
    liveness: Liveness,
    /// What is held while nothing leaves.
    held: Held,
    /// What leaves.
    gaps: Vec<Gap>,
}

impl<'a> Joint<'a> {
    /// Finds the candidates: feature maps of at least the least offload that cross from forward to backward.
    pub fn new(problem: &'a Problem<'a>, policy: &'static str) -> Self {
        let (program, liveness) = (problem.program, problem.liveness());
        let graph = &program.graph;
        let least = problem.options.min_offload.max(1);
        let mut rerun = vec![0.0; graph.values().len()];
        let mut halves = [0.0; 2];
        for id in graph.node_ids() {
            let (node, seconds) = (graph.node(id), problem.kernels.of(id)[0].seconds);
            halves[usize::from(node.phase != Phase::Forward)] += seconds;
            let mut roots: Vec<ValueId> = node.outputs.iter().map(|&value| program.aliases.root(value)).collect();
            roots.dedup();
            if node.phase == Phase::Forward {
                roots.iter().for_each(|root| rerun[root.index()] += seconds);
            }
        }
        let starts = problem.step_starts(&MemoryPlan::keep_all(program));
        let mut candidates: Vec<Candidate> = liveness
            .roots()
            .iter()
            .filter(|&&root| graph.value(root).role == Role::FeatureMap)
            .filter_map(|&root| liveness.gaps(root).find(|gap| problem.crosses(gap)))
            .map(|gap| Candidate {
                root: gap.root,
                bytes: program.aliases.storage_bytes(gap.root),
                gap,
                rerun_seconds: rerun[gap.root.index()],
                idle_from: starts[gap.from.step.index() + 1],
                repeatable: true,
                light: is_light(problem, gap.root),
            })
            .filter(|candidate| candidate.bytes >= least && candidate.gap.to.step.0 > candidate.gap.from.step.0 + 1)
            .collect();
        candidates.sort_by_key(|candidate| (candidate.gap.from.step, candidate.root));
        let makers = Makers::of(program);
        let pressure = pressure(problem, &liveness);
        let mut numbers = vec![None; graph.values().len()];
        (0..).zip(&candidates).for_each(|(number, candidate)| numbers[candidate.root.index()] = Some(number));
        let (offered, operands) = (Offered::Whole, Operands::of(program, problem.homes));
        let leanest = least_workspace(problem, offered);
        let held = HeldAnyway::of(problem, &liveness, &candidates, &leanest);
        let (links, streamed) = (problem.links, Streamed::Lengthened);
        let mut joint = Joint {
            problem,
            candidates,
            halves,
            links,
            streamed,
            policy,
            offered,
            makers,
            operands,
            leanest,
            held,
            pressure,
            numbers,
            known: RefCell::default(),
        };
        joint.find_repeatable();
        joint
    }

    /// The same with kernels in pieces of the batch among the choices.
    pub fn in_pieces(self) -> Self {
        let offered = Offered::Pieces;
        let leanest = least_workspace(self.problem, offered);
        let held = HeldAnyway::of(self.problem, &self.problem.liveness(), &self.candidates, &leanest);
        Joint { offered, leanest, held, known: RefCell::default(), ..self }
    }

    /// The same with windows as other links would want them.
    pub fn with_windows_for(self, links: Links) -> Self {
        Joint { links, known: RefCell::default(), ..self }
    }

    /// The same with windows of what streams as short as can be where not all have room.
    pub fn with_short_streams(self) -> Self {
        Joint { streamed: Streamed::Tight, known: RefCell::default(), ..self }
    }

    /// Leaves out what cannot be made again.
    fn find_repeatable(&mut self) {
        let again = repeatable(&self.makers, self.candidates.iter().map(|candidate| candidate.root));
        for candidate in &mut self.candidates {
            candidate.repeatable = again.contains(&candidate.root);
        }
    }

    /// Whether some parameters or states are at home in host memory.
    pub fn streams(&self) -> bool {
        self.problem.homes.host_extent() > 0
    }

    /// Whether launches begin later beside copies.
    pub fn copies_delay(&self) -> bool {
        self.problem.links.launch_delay(true, true) > 0.0
    }

    /// Seconds of the fastest kernels.
    pub fn oracle(&self) -> f64 {
        self.halves.iter().sum()
    }

    /// Bytes that homes leave of the device budget.
    pub fn room(&self) -> Option<Bytes> {
        self.problem.budgets.device?.checked_sub(self.problem.homes.extent())
    }

    /// Made again before the last step, up to `patience` before the first that needs it, at whose beginning gradients hold less
    /// than there.
    fn ahead(&self, candidate: &Candidate, patience: u32) -> Forget {
        let needed = candidate.gap.to.step.0;
        let earliest = needed.saturating_sub(patience).max(candidate.gap.from.step.0 + 1);
        let there = self.pressure[needed as usize];
        let from = (earliest..needed).rev().find(|&step| self.pressure[step as usize] < there).unwrap_or(needed);
        Forget::Ahead { from, idle: patience }
    }

    /// The order that the fates make, and what leaves in it. `None` when something cannot be made again.
    fn arrange(&self, decision: &Decision) -> Option<Arranged> {
        let &Decision { ref fates, patience, first, .. } = decision;
        let program = self.problem.program;
        let forgotten = self.candidates.iter().zip(fates).filter_map(|(candidate, fate)| {
            let forget = match fate {
                Fate::Recompute => Forget::Once,
                Fate::RecomputeEach => Forget::AfterEachUse,
                Fate::RecomputeApart => Forget::WhenIdle(patience),
                Fate::RecomputeAhead => self.ahead(candidate, patience),
                _ => return None,
            };
            Some((candidate.root, forget))
        });
        let most = (4 * program.n_steps()).max(LONGEST_ORDER);
        let made = recompute_within(&self.makers, &forgotten.collect(), first, most).ok()?;
        let plan = MemoryPlan { order: made.order, gaps: made.drops, ..MemoryPlan::keep_all(program) };
        let liveness = Liveness::under(&self.operands, &plan.order);
        let gaps = self.leaving(&plan, &liveness, decision)?;
        let held = Held::of(self.problem, &plan, &liveness)?;
        Some(Arranged { plan, liveness, held, gaps })
    }

    fn for_windows(&self) -> Problem<'a> {
        Problem { links: self.links, ..*self.problem }
    }

    /// A whole plan for a decision, addresses within the budget included, and the room at which they fitted: `room` at most.
    /// Windows as long as live bytes allow first; where those do not find addresses, shorter ones.
    pub fn settle(&self, decision: &Decision, room: Bytes) -> Option<(MemoryPlan, Bytes)> {
        let arranged = self.arrange(decision)?;
        let long = |room: Bytes| {
            let chosen = self.algorithms(&arranged, decision, room)?;
            let about = (&arranged.liveness, &arranged.held);
            let (_, windows) =
                windows_within(&self.for_windows(), &chosen, about, &arranged.gaps, (room, self.streamed))?;
            let plan = with_windows(&chosen, &windows);
            Some((peak_of(self.problem, &plan, &arranged.liveness), Some(plan)))
        };
        let short = |room: Bytes| {
            let chosen = self.algorithms(&arranged, decision, room)?;
            match fit_to_budget(self.problem, self.policy, &chosen, &arranged.gaps) {
                Ok(fitted) => Some((fitted.peak, Some(fitted.plan))),
                Err(refusal) => Some((refusal.floor, None)),
            }
        };
        self.walk(room, long).or_else(|| self.walk(room, short))
    }

    /// Asks for plans in ever less room until one's peak keeps the budget.
    fn walk(
        &self,
        mut room: Bytes,
        plan: impl Fn(Bytes) -> Option<(Bytes, Option<MemoryPlan>)>,
    ) -> Option<(MemoryPlan, Bytes)> {
        let budget = self.problem.budgets.device?;
        for _ in 0..WALKS {
            match plan(room)? {
                (peak, Some(plan)) if peak <= budget => return Some((plan, room)),
                (peak, _) => room = room.checked_sub(peak - budget)?,
            }
        }
        None
    }

    /// The arranged plan with the fastest algorithms that fit beside it.
    fn algorithms(&self, arranged: &Arranged, decision: &Decision, room: Bytes) -> Option<MemoryPlan> {
        let reserve = (room as f64 * decision.reserve) as Bytes;
        let Arranged { plan, liveness, held, gaps } = arranged;
        let offered = if decision.reserve > 0.0 { self.offered.lean() } else { self.offered };
        choose_beside(self.problem, plan, (liveness, held), gaps, (room, reserve), offered)
    }

    /// Seconds of the schedule that a plan makes; `None` when it makes none.
    pub fn simulated(&self, plan: &MemoryPlan) -> Option<f64> {
        let schedule = compile_unplaced(self.problem, plan, self.policy).ok()?;
        simulate(&schedule, self.problem.kernels, &self.problem.links).ok().map(|timeline| timeline.seconds)
    }

    /// The plan of the fates with the least workspace of every kernel, if it fits.
    pub fn least(&self, fates: &[Fate]) -> Option<MemoryPlan> {
        let Arranged { plan, gaps, .. } = self.arrange_with_least_workspace(&Decision::of(fates.to_vec(), 0))?;
        fits(self.problem, &plan, &gaps)
    }

    /// How much that plan lacks; `None` where it fits or something cannot be made again.
    pub fn lacking(&self, fates: &[Fate]) -> Option<Infeasible> {
        let Arranged { plan, gaps, .. } = self.arrange_with_least_workspace(&Decision::of(fates.to_vec(), 0))?;
        fit_to_budget(self.problem, self.policy, &plan, &gaps).err()
    }

    fn arrange_with_least_workspace(&self, decision: &Decision) -> Option<Arranged> {
        let mut arranged = self.arrange(decision)?;
        arranged.plan.algos.clone_from(&self.leanest);
        Some(arranged)
    }
}

/// Whether the kernels that write a storage hold many times its bytes.
fn is_light(problem: &Problem<'_>, root: ValueId) -> bool {
    let graph = &problem.program.graph;
    let bytes = |root: ValueId| problem.program.aliases.storage_bytes(root);
    let Some(node) = graph.value(root).producer else { return false };
    let held: Bytes = problem.operands(node).into_iter().map(bytes).sum();
    LIGHT.saturating_mul(bytes(root)) <= held
}

/// By step of the plain order: bytes that gradients hold across its beginning.
fn pressure(problem: &Problem<'_>, liveness: &Liveness) -> Vec<Bytes> {
    let (program, n) = (problem.program, problem.program.n_steps());
    let mut change = vec![0i128; n + 1];
    for &root in liveness.roots().iter().filter(|&&root| program.graph.value(root).role == Role::Gradient) {
        let (accesses, bytes) = (liveness.accesses(root), i128::from(program.aliases.storage_bytes(root)));
        if let [first, .., last] = accesses {
            change[first.step.index() + 1] += bytes;
            change[last.step.index() + 1] -= bytes;
        }
    }
    let sum = |held: &mut i128, change: i128| {
        *held += change;
        Some(*held as Bytes)
    };
    change.into_iter().scan(0i128, sum).collect()
}
