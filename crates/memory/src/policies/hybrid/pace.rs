//! What `hybrid` does last: decisions that fill room and link ([`filled`]), where one is estimated about as fast as the plan that
//! was found, by either program and with parameters and states at home or streaming.
//!
//! ```text
//!  plan ─► its homes │ all at home │ states, all streaming   plain │ encoded       glanced at, the best two
//!            └─► shares of room and link: a grid, then ever nearer                 estimated
//!                  └─► less made again ─► blocks changed                           the faster of this and the plan
//! ```
//! Such decisions are right up to a few values, which blocks of neighbours do not come to. Not done here: the decisions
//! themselves.

use super::filled::{Fill, filled};
use super::seeds::PATIENCE;
use super::{PERFECT, Planned, Search, with};
use crate::joint::{Decision, Fate, Joint};
use crate::policies::streaming;
use crate::{MemoryPlan, Problem, State};
use std::collections::BTreeSet;
use vdnn_graph::ValueId;
use vdnn_sim::Links;
use vdnn_tensor::Bytes;

/// Estimates at most.
const MOST: usize = 800;
/// Estimates in all, in steps, and plans with addresses. With fewer estimates than is worth the while nothing is done.
const FILLING_STEPS: usize = 700_000;
const FILLING_SIMULATIONS: usize = 16;
const FEWEST: usize = 24;
/// Estimates for each variant that is glanced at, about, and variants that are gone on with.
const GLANCED: usize = 16;
const PROMISING: usize = 2;
/// By how much a variant may be estimated slower than the plan and still be gone on with, as a share.
const SLOWER: f64 = 0.02;
/// Times that shares are chosen, each for the room at which the addresses of the one before fitted, and by how much less is tried
/// where none did.
const SETTLED: usize = 3;
const UNSETTLED: f64 = 0.97;
/// Times that what lies between that room and all of it is halved.
const GROWN: usize = 3;
/// Shares of that room to begin with, of the link besides all of it, and by how much both are changed then.
const ROOMS: [f64; 5] = [1.0, 0.94, 0.85, 0.7, 0.5];
const LESS: f64 = 0.9;
const NEARER: [f64; 3] = [0.04, 0.02, 0.01];
/// Share of the room that algorithms leave to copies, where that is faster than none.
const RESERVE: f64 = 0.12;
/// Share of the time for which copies up are taken to slow those down.
const BOTH_WAYS: f64 = 0.2;

/// Which program is planned, with which parameters and states in host memory.
#[derive(Clone, Debug, PartialEq)]
struct Variant {
    streamed: BTreeSet<ValueId>,
    encoded: bool,
}

/// What a decision is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    fill: Fill,
    /// Whether what leaves does so after each use.
    each: bool,
    reserve: f64,
}

/// The plan, or a faster one that fills room and link.
pub(super) fn kept(problem: &Problem<'_>, plan: MemoryPlan) -> MemoryPlan {
    let estimates = (FILLING_STEPS / problem.program.n_steps().max(1)).min(MOST);
    if estimates < FEWEST {
        return plan;
    }
    let least = streaming::seconds(problem, &plan);
    let promising = promising(problem, &plan, least, (estimates / GLANCED).max(1));
    let share = estimates / promising.len().max(1);
    let mut best = (least, plan);
    for variant in promising {
        let found = within(problem, &variant, |joint| {
            Search { estimates: share, simulations: FILLING_SIMULATIONS, ..Search::new(joint) }.filling()
        });
        if let Some((seconds, found)) = found.flatten().filter(|(seconds, _)| *seconds * (1.0 + PERFECT) < best.0) {
            let found = if variant.encoded { with(problem.variants(), found) } else { found };
            best = (seconds, MemoryPlan { streamed: variant.streamed, ..found });
        }
    }
    best.1
}

/// Of so many variants, those that are estimated fastest and about as fast as the plan, which takes `least` seconds.
fn promising(problem: &Problem<'_>, plan: &MemoryPlan, least: f64, glances: usize) -> Vec<Variant> {
    let estimated = |variant: Variant| {
        let slow = |joint: &Joint<'_>| least > joint.oracle() * (1.0 + PERFECT);
        let seconds = within(problem, &variant, |joint| if slow(joint) { glance(joint) } else { None })??;
        (seconds < least * (1.0 + SLOWER)).then_some((seconds, variant))
    };
    let mut variants: Vec<(f64, Variant)> =
        variants(problem, plan).into_iter().take(glances).filter_map(estimated).collect();
    variants.sort_by(|a, b| a.0.total_cmp(&b.0));
    variants.into_iter().take(PROMISING).map(|(_, variant)| variant).collect()
}

/// What may be planned, the plan's own variant first.
fn variants(problem: &Problem<'_>, plan: &MemoryPlan) -> Vec<Variant> {
    let mut sets = vec![plan.streamed.clone()];
    if problem.options.state == State::Auto {
        sets.push(BTreeSet::new());
        // All of it, and half: the states.
        sets.extend(streaming::shares(problem).into_iter().rev().step_by(2));
    }
    let mut variants = Vec::new();
    for encoded in [plan.is_encoded(), !plan.is_encoded()] {
        for streamed in &sets {
            let variant = Variant { streamed: streamed.clone(), encoded };
            if (!encoded || problem.encoded.is_some()) && !variants.contains(&variant) {
                variants.push(variant);
            }
        }
    }
    variants
}

/// What `of` says of a variant; `None` where its homes alone do not fit.
fn within<T>(problem: &Problem<'_>, variant: &Variant, of: impl Fn(&Joint<'_>) -> T) -> Option<T> {
    let of = |problem: &Problem<'_>| {
        let problem = if variant.encoded { problem.with_encodings()? } else { problem.plain() };
        let joint = Joint::new(&problem, "hybrid").in_pieces().with_windows_for(careful(&problem.links));
        joint.room().map(|_| of(&joint))
    };
    if variant.streamed.is_empty() { of(problem) } else { streaming::streaming(problem, &variant.streamed, of) }
}

/// Links that copies in the other direction slow: always those up, which come beside many down, and those down at times.
fn careful(links: &Links) -> Links {
    let slowed = |rate: f64, share: f64| rate + (rate.min(links.duplex_each) - rate) * share;
    Links { d2h: slowed(links.d2h, BOTH_WAYS), h2d: slowed(links.h2d, 1.0), ..*links }
}

/// The least estimate of a few shares of the room.
fn glance(joint: &Joint<'_>) -> Option<f64> {
    let room = joint.room()?;
    let estimate = |shape| joint.estimate(&decision(joint, room, shape), room);
    coarse(1.0).into_iter().filter_map(estimate).min_by(f64::total_cmp)
}

/// A few shares of the room, where what leaves does so once and where it does after each use.
fn coarse(rate: f64) -> Vec<Shape> {
    let shape = |each, room| Shape { fill: Fill { room, rate }, each, reserve: 0.0 };
    [false, true].into_iter().flat_map(|each| ROOMS.map(|room| shape(each, room))).collect()
}

fn decision(joint: &Joint<'_>, room: Bytes, shape: Shape) -> Decision {
    let mut fates = filled(joint, room, shape.fill);
    if shape.each {
        fates.iter_mut().for_each(|fate| *fate = fate.each());
    }
    Decision { reserve: shape.reserve, ..Decision::of(fates, PATIENCE) }
}

fn share_of(room: Bytes, share: f64) -> Bytes {
    (room as f64 * share) as Bytes
}

/// A little more and less of room and link.
fn beside(shape: Shape, by: f64) -> [Shape; 4] {
    let Fill { room, rate } = shape.fill;
    let fills = [(room + by, rate), (room - by, rate), (room, rate + by), (room, rate - by)];
    fills.map(|(room, rate)| Shape { fill: Fill { room, rate }, ..shape })
}

impl Search<'_, '_> {
    /// The best plan that comes of filling room and link, and its seconds.
    fn filling(mut self) -> Option<(f64, MemoryPlan)> {
        let all = self.joint.room()?;
        let (mut room, mut start) = (all, None::<(Planned, Shape)>);
        for _ in 0..SETTLED {
            let shape = self.tuned(room)?;
            let planned = self.planned_within(decision(self.joint, room, shape), room);
            let fitted = planned.as_ref().map_or(share_of(room, UNSETTLED), |planned| planned.room);
            let faster = |planned: &Planned| start.as_ref().is_none_or(|(start, _)| planned.seconds < start.seconds);
            start = planned.filter(faster).map(|planned| (planned, shape)).or(start);
            if fitted == room {
                break;
            }
            room = fitted;
        }
        let (start, shape) = start?;
        let start = self.grown(start, shape, all);
        let start = self.lightened(start);
        let share = self.estimates;
        self.climb(start, share);
        self.best
    }

    /// The same shape in more room, between that at which addresses fitted and `all`, halved each time: that room was come to by leaving
    /// out what addresses lacked, which is often more than need be.
    fn grown(&mut self, start: Planned, shape: Shape, all: Bytes) -> Planned {
        let (mut fits, mut most, mut best) = (start.room, all, start);
        for _ in 0..GROWN {
            let room = fits + (most - fits) / 2;
            if room == fits {
                break;
            }
            let planned = self.planned_within(decision(self.joint, room, shape), room);
            match &planned {
                Some(planned) if planned.room == room => fits = room,
                _ => most = room,
            }
            best = planned.filter(|planned| planned.seconds < best.seconds).unwrap_or(best);
        }
        best
    }

    /// The shape that is estimated fastest within `room`: over a grid, then ever nearer to the best.
    fn tuned(&mut self, room: Bytes) -> Option<Shape> {
        let mut best = None;
        for shape in coarse(1.0) {
            self.look(&mut best, shape, room);
        }
        let each = best?.1.each;
        for shape in coarse(LESS).into_iter().filter(|shape| shape.each == each) {
            self.look(&mut best, shape, room);
        }
        let (_, shape) = best?;
        self.look(&mut best, Shape { reserve: RESERVE, ..shape }, room);
        for by in NEARER {
            for shape in beside(best?.1, by) {
                self.look(&mut best, shape, room);
            }
        }
        best.map(|(_, shape)| shape)
    }

    fn look(&mut self, best: &mut Option<(f64, Shape)>, shape: Shape, room: Bytes) {
        let limit = best.map_or(f64::INFINITY, |(least, _)| least);
        if let Some(seconds) = self.estimate_below(&decision(self.joint, room, shape), room, limit) {
            *best = Some((seconds, shape));
        }
    }

    /// Makes less again where that is estimated faster, one value after the other, those that take longest for their bytes
    /// first. Half of the estimates are left to what comes after.
    fn lightened(&mut self, start: Planned) -> Planned {
        let candidates = &self.joint.candidates;
        let mut again: Vec<usize> = (0..candidates.len()).filter(|&i| start.decision.fates[i].repeats()).collect();
        let price = |i: usize| candidates[i].rerun_seconds / candidates[i].bytes as f64;
        again.sort_by(|&a, &b| price(b).total_cmp(&price(a)));
        again.truncate(self.estimates / 4);
        let mut pass = start.clone();
        for i in again {
            for fate in [Fate::Offload, Fate::Keep] {
                let mut decision = pass.decision.clone();
                decision.fates[i] = fate;
                if let Some(faster) = self.faster(decision, &pass) {
                    pass = faster;
                    break;
                }
            }
        }
        let reached =
            if pass.decision == start.decision { None } else { self.planned_within(pass.decision, start.room) };
        reached.filter(|reached| reached.seconds < start.seconds).unwrap_or(start)
    }
}
