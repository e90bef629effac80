//! Parameters and states that stream: the gaps in which they are away from the device.
//!
//! ```text
//!   home (host)   W ──────────────────────────────────────────────────────────── W after the update ──
//!                   └ prefetch                  └ prefetch                    ┌ offload
//!   device            ▓▓▓ forward  (given back)   ▓▓▓ gradients ▓ update ▓▓▓▓▓
//!                                                                              └ release
//! ```
//! What streams is always away in the gap that wraps around the iteration. It is away between two uses of an iteration as
//! well where kernels between them take at least as long as fetching it again; while nothing writes it that costs no
//! second copy down. Momentum is used once, by its update. Not done here: choosing what streams (`policies::hybrid`).

use crate::{Gap, Liveness, MemoryPlan, Problem};
use std::borrow::Cow;

/// `gaps`, and the gaps in which what streams is away.
pub(crate) fn with_streamed<'a>(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    liveness: &Liveness,
    gaps: &'a [Gap],
) -> Cow<'a, [Gap]> {
    if liveness.streamed().is_empty() {
        return Cow::Borrowed(gaps);
    }
    let starts = problem.step_starts(plan);
    let worth_it = |gap: &Gap| {
        let idle = starts[gap.to.step.index()] - starts[gap.from.step.index() + 1];
        let bytes = problem.program.aliases.storage_bytes(gap.root) as f64;
        gap.to.step.0 > gap.from.step.0 + 1 && idle >= problem.links.latency + bytes / problem.links.h2d
    };
    let mut all = gaps.to_vec();
    for &root in liveness.streamed() {
        all.extend(liveness.gaps(root).filter(worth_it));
        all.extend(liveness.wrap(root));
    }
    Cow::Owned(all)
}
