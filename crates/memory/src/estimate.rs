//! When each step begins if kernels wait for copies: a quick walk over the steps, for choosing windows.
//!
//! It knows one queue of copies each way, by which launches are delayed, and no contention; the simulator knows more. What it is for: where the link is
//! the bottleneck, kernels stand still, and copies then have more time than the kernels' own times let expect.
//!
//! A search walks some thousand times, so what does not depend on the windows is found once: [`Pace`] for the steps,
//! [`Copies`] for the gaps.

use crate::layer_spans::LayerSpans;
use crate::stretch::{Window, still_copied};
use crate::{Gap, Liveness, MemoryPlan, Prefetch, Problem, Residency, Sync};
use vdnn_graph::Step;
use vdnn_sim::Links;

/// How fast a plan's steps follow each other by themselves.
pub(crate) struct Pace {
    /// By step: seconds of its kernel.
    pub seconds: Vec<f64>,
    /// The runs of layers, where the problem's options look at them.
    pub layers: Option<LayerSpans>,
}

impl Pace {
    /// That of a plan's order and algorithms.
    pub fn of(problem: &Problem<'_>, plan: &MemoryPlan) -> Self {
        let layered = problem.options.sync == Sync::PerLayer || problem.options.prefetch != Prefetch::Cost;
        let layers = layered.then(|| LayerSpans::of(problem, plan));
        Pace { seconds: problem.step_seconds(plan), layers }
    }

    /// Start of every step if kernels ran back to back, with the end of the last one at the end.
    pub fn starts(&self) -> Vec<f64> {
        let mut now = 0.0;
        let mut starts = Vec::with_capacity(self.seconds.len() + 1);
        for seconds in &self.seconds {
            starts.push(now);
            now += seconds;
        }
        starts.push(now);
        starts
    }

    fn ends_layer(&self, step: usize) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.end(Step(step as u32)).index() == step)
    }
}

/// The copies of some gaps: in which order they are made, and how long each takes.
pub(crate) struct Copies {
    /// Gaps in order of issue, and of need.
    pub by_issue: Vec<u32>,
    pub by_need: Vec<u32>,
    /// By gap: whether nothing is copied down, because a copy is still valid.
    pub copied: Vec<bool>,
    /// By gap: seconds down and up without the latency.
    pub down: Vec<f64>,
    pub up: Vec<f64>,
    /// By step: gaps whose bytes are needed then, and those whose copies down are issued, in order of need.
    needs: Lists,
    issues: Lists,
}

impl Copies {
    /// Those of windows' gaps; whichever windows of a gap are open, they are the same.
    pub fn of(problem: &Problem<'_>, windows: &[Window], n_steps: usize) -> Self {
        let order = |key: fn(&Gap) -> Step| {
            let mut order: Vec<u32> = (0..windows.len() as u32).collect();
            order.sort_unstable_by_key(|&i| (key(&windows[i as usize].gap), windows[i as usize].gap.root, i));
            order
        };
        let (by_issue, by_need) = (order(|gap| gap.from.step), order(|gap| gap.to.step));
        let copied = still_copied(windows, &by_issue);
        let open = || by_need.iter().copied().filter(|&i| !windows[i as usize].is_empty());
        let needs = Lists::of(n_steps, open().map(|i| (windows[i as usize].gap.to.step, i)));
        // Nothing is issued, and nothing to wait for, where a copy is still valid.
        let issued = open().filter(|&i| !copied[i as usize]);
        let issues = Lists::of(n_steps, issued.map(|i| (windows[i as usize].gap.from.step, i)));
        let seconds = |rate: f64| {
            let bytes = |window: &Window| problem.program.aliases.storage_bytes(window.gap.root) as f64;
            windows.iter().map(|window| bytes(window) / rate).collect()
        };
        let (down, up) = (seconds(problem.links.d2h), seconds(problem.links.h2d));
        Copies { by_issue, by_need, copied, down, up, needs, issues }
    }
}

/// Start of every step in seconds under `windows`, with the end of the last step at the end.
pub(crate) fn stretched_starts(problem: &Problem<'_>, plan: &MemoryPlan, windows: &[Window]) -> Vec<f64> {
    starts_under(problem, &Pace::of(problem, plan), &Copies::of(problem, windows, plan.order.len()), windows)
}

/// The same with the copies of the windows' gaps.
pub(crate) fn starts_under(problem: &Problem<'_>, pace: &Pace, copies: &Copies, windows: &[Window]) -> Vec<f64> {
    let n_steps = pace.seconds.len();
    let mut walk = Walk::new(problem, copies, windows, n_steps);
    let joins = problem.options.sync == Sync::PerLayer;
    let mut starts = Vec::with_capacity(n_steps + 1);
    for (index, seconds) in pace.seconds.iter().enumerate() {
        walk.begin(index);
        starts.push(walk.now);
        walk.offload(index, false);
        walk.launch(*seconds);
        walk.offload(index, true);
        if joins && pace.ends_layer(index) {
            walk.now = walk.now.max(walk.down_free).max(walk.up_free);
        }
    }
    walk.begin(n_steps);
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

/// By step: numbers, in the order given.
struct Lists {
    /// Where each step's numbers begin, with the end of the last at the end.
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Lists {
    fn of(n_steps: usize, pairs: impl Iterator<Item = (Step, u32)> + Clone) -> Self {
        // What was updated last is released at the end of the iteration.
        let mut starts = vec![0u32; n_steps + 2];
        let mut count = 0;
        for (step, _) in pairs.clone() {
            starts[step.index() + 1] += 1;
            count += 1;
        }
        let mut before = 0;
        for start in &mut starts {
            before += *start;
            *start = before;
        }
        let mut next = starts.clone();
        let mut numbers = vec![0; count];
        for (step, number) in pairs {
            let slot = &mut next[step.index()];
            numbers[*slot as usize] = number;
            *slot += 1;
        }
        Lists { starts, numbers }
    }

    fn at(&self, step: usize) -> &[u32] {
        &self.numbers[self.starts[step] as usize..self.starts[step + 1] as usize]
    }
}

struct Walk<'a> {
    copies: &'a Copies,
    windows: &'a [Window],
    links: Links,
    releases: Lists,
    fetches: Lists,
    now: f64,
    down_free: f64,
    up_free: f64,
    down_done: Vec<f64>,
    up_done: Vec<f64>,
}

impl<'a> Walk<'a> {
    fn new(problem: &Problem<'_>, copies: &'a Copies, windows: &'a [Window], n_steps: usize) -> Self {
        let open =
            || copies.by_need.iter().map(|&i| (i, &windows[i as usize])).filter(|(_, window)| !window.is_empty());
        let releases = Lists::of(n_steps, open().map(|(i, window)| (window.release, i)));
        let fetches = Lists::of(n_steps, open().map(|(i, window)| (window.fetch, i)));
        let (down_done, up_done) = (vec![0.0; windows.len()], vec![0.0; windows.len()]);
        let (links, now, down_free, up_free) = (problem.links, 0.0, 0.0, 0.0);
        Walk { copies, windows, links, releases, fetches, now, down_free, up_free, down_done, up_done }
    }

    /// Everything that a step waits for or starts before its kernel.
    fn begin(&mut self, step: usize) {
        for &i in self.releases.at(step) {
            self.now = self.now.max(self.down_done[i as usize]);
        }
        for &i in self.fetches.at(step) {
            let begin = self.up_free.max(self.now).max(self.down_done[i as usize]);
            self.up_free = begin + (self.links.latency + self.copies.up[i as usize]);
            self.up_done[i as usize] = self.up_free;
        }
        for &i in self.copies.needs.at(step) {
            self.now = self.now.max(self.up_done[i as usize]);
        }
    }

    /// Runs a kernel, which begins later beside copies.
    fn launch(&mut self, seconds: f64) {
        if seconds > 0.0 {
            self.now += self.links.launch_delay(self.now < self.down_free, self.now < self.up_free) + seconds;
        }
    }

    /// Starts the copies down of a step: those of what it reads before its kernel, of what it writes after.
    fn offload(&mut self, step: usize, written: bool) {
        for &i in self.copies.issues.at(step) {
            if self.windows[i as usize].gap.from.writes == written {
                self.down_free = self.down_free.max(self.now) + (self.links.latency + self.copies.down[i as usize]);
                self.down_done[i as usize] = self.down_free;
            }
        }
    }
}
