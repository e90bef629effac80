//! When each step begins if kernels wait for copies: a quick walk over the steps, for choosing windows.
//!
//! It knows one queue of copies each way and no contention; the simulator knows more. What it is for: where the link is
//! the bottleneck, kernels stand still, and copies then have more time than the kernels' own times let expect.

use crate::layer_spans::LayerSpans;
use crate::stretch::{Window, still_copied};
use crate::{Gap, Liveness, MemoryPlan, Problem, Residency, Sync};
use vdnn_graph::Step;

/// Start of every step in seconds under `windows`, with the end of the last step at the end.
pub(crate) fn stretched_starts(problem: &Problem<'_>, plan: &MemoryPlan, windows: &[Window]) -> Vec<f64> {
    let mut walk = Walk::new(problem, windows, plan.order.len());
    let layers = LayerSpans::of(problem, plan);
    let mut starts = Vec::with_capacity(plan.order.len() + 1);
    for (index, u) in plan.order.iter().enumerate() {
        walk.begin(index);
        starts.push(walk.now);
        walk.offload(index, false);
        walk.now += problem.chosen(plan, u.node).seconds;
        walk.offload(index, true);
        let ends_layer = layers.end(Step(index as u32)).index() == index;
        if ends_layer && problem.options.sync == Sync::PerLayer {
            walk.now = walk.now.max(walk.down_free).max(walk.up_free);
        }
    }
    walk.begin(plan.order.len());
    starts.push(walk.now);
    starts
}

/// Length of the iteration that a plan makes, in seconds.
pub(crate) fn estimated_seconds(problem: &Problem<'_>, plan: &MemoryPlan) -> f64 {
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let liveness = Liveness::of(problem, &plan.order);
    let window = |gap: Gap| match plan.gaps.get(&(gap.root, plan.order[gap.to.step.index()])) {
        Some(&Residency::Offload { release, fetch, .. }) => Some(Window { gap, release, fetch }),
        _ => None,
    };
    let windows: Vec<Window> = liveness
        .roots()
        .iter()
        .flat_map(|&root| liveness.gaps(root).chain(liveness.wrap(root)))
        .filter_map(window)
        .collect();
    stretched_starts(problem, plan, &windows).last().copied().unwrap_or(0.0)
}

struct Walk<'a> {
    problem: &'a Problem<'a>,
    windows: &'a [Window],
    releases: Vec<Vec<usize>>,
    fetches: Vec<Vec<usize>>,
    needs: Vec<Vec<usize>>,
    issues: Vec<Vec<usize>>,
    now: f64,
    down_free: f64,
    up_free: f64,
    down_done: Vec<f64>,
    up_done: Vec<f64>,
}

impl<'a> Walk<'a> {
    fn new(problem: &'a Problem<'a>, windows: &'a [Window], n_steps: usize) -> Self {
        // What was updated last is released at the end of the iteration.
        let mut lists = [(); 4].map(|()| vec![Vec::new(); n_steps + 1]);
        let mut order: Vec<usize> = (0..windows.len()).filter(|&i| !windows[i].is_empty()).collect();
        order.sort_by_key(|&i| (windows[i].gap.to.step, windows[i].gap.root));
        let copied = still_copied(windows);
        for i in order {
            let window = &windows[i];
            let steps = [window.release, window.fetch, window.gap.to.step, window.gap.from.step];
            // Nothing is issued, and nothing to wait for, where a copy is still valid.
            for (list, step) in lists.iter_mut().zip(steps).take(if copied[i] { 3 } else { 4 }) {
                list[step.index()].push(i);
            }
        }
        let [releases, fetches, needs, issues] = lists;
        let never = vec![0.0; windows.len()];
        let (down_done, up_done) = (never.clone(), never);
        let (now, down_free, up_free) = (0.0, 0.0, 0.0);
        Walk { problem, windows, releases, fetches, needs, issues, now, down_free, up_free, down_done, up_done }
    }

    /// Everything that a step waits for or starts before its kernel.
    fn begin(&mut self, step: usize) {
        for &i in &self.releases[step] {
            self.now = self.now.max(self.down_done[i]);
        }
        for &i in &self.fetches[step] {
            let begin = self.up_free.max(self.now).max(self.down_done[i]);
            self.up_free = begin + self.seconds(i, self.problem.links.h2d);
            self.up_done[i] = self.up_free;
        }
        for &i in &self.needs[step] {
            self.now = self.now.max(self.up_done[i]);
        }
    }

    /// Starts the copies down of a step: those of what it reads before its kernel, of what it writes after.
    fn offload(&mut self, step: usize, written: bool) {
        for &i in self.issues[step].iter().filter(|&&i| self.windows[i].gap.from.writes == written) {
            self.down_free = self.down_free.max(self.now) + self.seconds(i, self.problem.links.d2h);
            self.down_done[i] = self.down_free;
        }
    }

    fn seconds(&self, i: usize, rate: f64) -> f64 {
        let bytes = self.problem.program.aliases.storage_bytes(self.windows[i].gap.root);
        self.problem.links.latency + bytes as f64 / rate
    }
}
