//! Where `hybrid` begins: splits of what must leave between links and recomputation, and every n-th value kept; of small programs
//! all decisions.

use super::FATES;
use crate::joint::{Decision, Fate, Joint};
use vdnn_tensor::Bytes;

/// Shares of the room (or of what there is) that stay.
const KEPT: [f64; 8] = [1.0, 0.9, 0.8, 0.7, 0.55, 0.4, 0.2, 0.0];
/// Shares of what the links carry beside the kernels that are offloaded.
const CARRIED: [f64; 6] = [0.0, 0.4, 0.7, 1.0, 1.5, f64::INFINITY];
/// Shares of the room that stay, and that what is on its way out takes, where copies keep pace with the kernels.
const PACED: [(f64, &[f64]); 4] =
    [(0.0, &[0.1, 0.2, 0.35, 0.5]), (0.3, &[0.1, 0.2, 0.35]), (0.5, &[0.1, 0.2, 0.35]), (0.7, &[0.1, 0.2])];
/// One checkpoint in so many values.
const STRIDES: [usize; 9] = [1, 2, 3, 4, 6, 8, 12, 20, 32];
/// Shares of the room that algorithms leave to copies.
const RESERVES: [f64; 3] = [0.0, 0.12, 0.3];
/// Decisions up to which all are estimated.
const EXHAUSTIVE: usize = 15_625;
/// Steps that what is made again waits for its next use, where a search comes to ask that ([`Fate::RecomputeApart`]).
pub(super) const PATIENCE: u32 = 12;

/// Decisions to begin with, the most promising kinds first.
pub(super) fn seeds(joint: &Joint<'_>) -> Vec<Decision> {
    let mut fates = every_way(joint.candidates.len());
    for carried in CARRIED {
        for kept in KEPT {
            let once = split(joint, kept, carried);
            // Where that does not fit: what leaves is not held between two uses either.
            fates.push(once.iter().copied().map(Fate::each).collect());
            fates.push(once);
        }
    }
    for stride in STRIDES {
        for checkpoint in [Fate::Keep, Fate::Offload, Fate::OffloadEach] {
            fates.push(strided(joint, stride, checkpoint));
        }
    }
    with_reserves(&fates)
}

/// Decisions whose copies keep pace with the kernels.
pub(super) fn paced_seeds(joint: &Joint<'_>) -> Vec<Decision> {
    let shares = PACED.iter().flat_map(|(kept, waiting)| waiting.iter().map(move |waiting| (*kept, *waiting)));
    let once: Vec<Vec<Fate>> = shares.map(|(kept, waiting)| paced(joint, kept, waiting)).collect();
    let each = once.iter().map(|once| once.iter().copied().map(Fate::each).collect());
    with_reserves(&each.chain(once.iter().cloned()).collect::<Vec<_>>())
}

fn with_reserves(fates: &[Vec<Fate>]) -> Vec<Decision> {
    let mut decisions: Vec<Decision> = Vec::new();
    for reserve in RESERVES {
        decisions.extend(fates.iter().map(|fates| Decision { reserve, ..Decision::of(fates.clone(), PATIENCE) }));
    }
    decisions.dedup();
    decisions
}

/// Whether a seed's fates come again later, with another reserve.
pub(super) fn comes_again(seed: &Decision) -> bool {
    RESERVES.last().is_some_and(|last| seed.reserve < *last)
}

/// How many decisions there are, where they are few enough to look at all.
pub(super) fn ways(candidates: usize) -> Option<usize> {
    FATES.len().checked_pow(candidates as u32).filter(|&count| count <= EXHAUSTIVE)
}

/// All decisions where there are few enough.
fn every_way(candidates: usize) -> Vec<Vec<Fate>> {
    let count = ways(candidates).unwrap_or(0);
    let way = |number: usize| {
        let fate = |rest: &mut usize| {
            let fate = FATES[*rest % FATES.len()];
            *rest /= FATES.len();
            Some(fate)
        };
        std::iter::repeat_n((), candidates).scan(number, |rest, ()| fate(rest)).collect()
    };
    (0..count).map(way).collect()
}

/// Keeps a share, offloads what the links carry (times a share), makes the rest again.
fn split(joint: &Joint<'_>, kept: f64, carried: f64) -> Vec<Fate> {
    let candidates = &joint.candidates;
    let total: Bytes = candidates.iter().map(|candidate| candidate.bytes).sum();
    let stays = kept * (joint.room().unwrap_or(0).min(total)) as f64;
    let leaves = (total as f64 - stays).max(0.0);
    let remade = (leaves - carried * joint.carries()).max(0.0);
    let mut fates = vec![Fate::Keep; candidates.len()];
    let mut order: Vec<usize> = (0..candidates.len()).filter(|&i| candidates[i].repeatable).collect();
    let price = |i: usize| candidates[i].rerun_seconds / candidates[i].bytes as f64;
    // Among equals every other one, so that chains that are made again stay short.
    order.sort_by(|&a, &b| price(a).total_cmp(&price(b)).then((a % 2, a).cmp(&(b % 2, b))));
    let mut gone = 0.0;
    for i in order {
        if gone >= remade {
            break;
        }
        fates[i] = Fate::Recompute;
        gone += candidates[i].bytes as f64;
    }
    // What was made first has the longest time to leave and to come back.
    for i in 0..candidates.len() {
        if gone >= leaves {
            break;
        }
        if fates[i] == Fate::Keep {
            fates[i] = Fate::Offload;
            gone += candidates[i].bytes as f64;
        }
    }
    fates
}

/// Keeps a share of the room of what is made last. Of the rest, in order, offloads what the link takes while no more than a share of
/// the room waits for it, and makes again what comes too fast. So where a network makes more bytes a second than the link carries,
/// as it does where its maps are large, checkpoints lie as close as copies allow, and the link is never idle for lack of them.
fn paced(joint: &Joint<'_>, kept: f64, waiting: f64) -> Vec<Fate> {
    let candidates = &joint.candidates;
    let room = joint.room().unwrap_or(0) as f64;
    let rate = joint.problem.links.d2h;
    let mut fates = vec![Fate::Keep; candidates.len()];
    let mut stays = 0.0;
    let leave = candidates.iter().rposition(|candidate| {
        stays += candidate.bytes as f64;
        stays > kept * room
    });
    let mut free = 0.0f64;
    for (candidate, fate) in candidates.iter().zip(&mut fates).take(leave.map_or(0, |last| last + 1)) {
        let (now, bytes) = (candidate.idle_from, candidate.bytes as f64);
        let waits = (free - now).max(0.0) * rate + bytes;
        *fate = if waits <= waiting * room || !candidate.repeatable { Fate::Offload } else { Fate::Recompute };
        if *fate == Fate::Offload {
            free = free.max(now) + bytes / rate;
        }
    }
    fates
}

/// Every n-th candidate is a checkpoint, the others are made again where they can be.
pub(super) fn strided(joint: &Joint<'_>, stride: usize, checkpoint: Fate) -> Vec<Fate> {
    let fate = |(i, repeatable): (usize, bool)| match (repeatable, i % stride) {
        (true, 1..) => Fate::Recompute,
        _ => checkpoint,
    };
    joint.candidates.iter().map(|candidate| candidate.repeatable).enumerate().map(fate).collect()
}
