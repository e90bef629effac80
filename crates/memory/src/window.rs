//! When offloaded bytes are given back and taken again: the release and fetch step of each gap.
//!
//! Releases: with [`Sync::PerLayer`] at the end of the layer that offloads (the paper's join); with [`Sync::Events`] when the
//! copy is estimated to be done, so that nobody waits, or in the tight form right after the use.
//! Fetches: by the rule of [`Prefetch`]; in the tight form the cost rule fetches when the need arises.
//! Not done here: choosing what to offload, and making the result fit (`fit`).

use crate::estimate::{Copies, Pace, starts_under};
use crate::layer_spans::LayerSpans;
use crate::stretch::Window;
use crate::{Gap, Prefetch, Problem, Sync};
use vdnn_graph::{Op, Step};

/// Times the relaxed windows are chosen: first from kernels' own times, then from times stretched by waiting for copies.
const ROUNDS: usize = 4;

/// How long bytes are held around a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slack {
    /// As long as the copies are estimated to take.
    Relaxed,
    /// As short as the rules allow; kernels wait for copies.
    Tight,
}

/// The shortest windows of `gaps` that the rules allow, in the order given. They do not depend on times.
pub(crate) fn tight(problem: &Problem<'_>, pace: &Pace, gaps: &[Gap]) -> Vec<Window> {
    windows_of(problem, pace, &[], gaps, Slack::Tight, None)
}

/// Windows for gaps under the problem's options and the plan's algorithms, from their `tight` ones, and the seconds that the
/// iteration then takes.
///
/// Relaxed windows hold the bytes as long as their copies take; where the links are too slow to hide them, every gap
/// still gives its bytes up for at least a step, as late as that allows, so that kernels wait as little as they can: what
/// a policy wants offloaded is offloaded. Copies up begin in order of need, since they run one after the other.
pub(crate) fn relaxed(
    problem: &Problem<'_>,
    pace: &Pace,
    copies: &Copies,
    gaps: &[Gap],
    tight: &[Window],
) -> (f64, Vec<Window>) {
    let mut starts = pace.starts();
    let mut best: Option<(f64, Vec<Window>)> = None;
    let mut last: Vec<Window> = Vec::new();
    for round in 0..ROUNDS {
        let chosen = relaxed_at(problem, pace, copies, &starts, gaps, tight);
        // The same windows make the same times again.
        if round > 0 && chosen == last {
            break;
        }
        starts = starts_under(problem, pace, copies, &chosen);
        let end = starts.last().copied().unwrap_or(0.0);
        last.clone_from(&chosen);
        if best.as_ref().is_none_or(|(least, _)| end < *least) {
            best = Some((end, chosen));
        }
    }
    best.unwrap_or_default()
}

/// Relaxed windows if steps began at `starts`.
fn relaxed_at(
    problem: &Problem<'_>,
    pace: &Pace,
    copies: &Copies,
    starts: &[f64],
    gaps: &[Gap],
    tight: &[Window],
) -> Vec<Window> {
    let mut chosen = windows_of(problem, pace, starts, gaps, Slack::Relaxed, Some(copies));
    chosen.iter_mut().zip(tight).for_each(|(wide, narrow)| *wide = opened(wide, narrow));
    if problem.options.prefetch == Prefetch::Cost {
        let mut not_before = Step(0);
        for i in copies.by_need.iter().map(|&i| i as usize) {
            not_before = chosen[i].fetch.max(not_before).min(gaps[i].to.step);
            chosen[i].fetch = not_before;
        }
    }
    chosen
}

/// A relaxed window, opened by at least a step where the tight one is.
fn opened(wide: &Window, narrow: &Window) -> Window {
    if narrow.is_empty() {
        return *narrow;
    }
    if wide.gap.wraps() {
        return *wide;
    }
    let release = wide.release.min(Step(narrow.fetch.0 - 1)).max(narrow.release);
    let fetch = wide.fetch.max(Step(release.0 + 1)).min(narrow.fetch.max(wide.fetch));
    Window { release, fetch, ..*wide }
}

fn windows_of(
    problem: &Problem<'_>,
    pace: &Pace,
    starts: &[f64],
    gaps: &[Gap],
    slack: Slack,
    copies: Option<&Copies>,
) -> Vec<Window> {
    let releases = releases(problem, pace, starts, gaps, copies);
    let fetches = match (problem.options.prefetch, copies, &pace.layers) {
        (Prefetch::Paper, _, Some(layers)) => paper_fetches(problem, layers, gaps),
        (Prefetch::Lookahead(n), _, Some(layers)) => {
            gaps.iter().map(|gap| layers.backward_before(gap.to.step, n)).collect()
        }
        (_, Some(copies), _) if slack == Slack::Relaxed => cost_fetches(problem, copies, starts, gaps),
        _ => gaps.iter().map(|gap| gap.to.step).collect(),
    };
    let end = Step(pace.seconds.len() as u32);
    let bound = |(gap, (release, fetch)): (&Gap, (Step, Step))| {
        if gap.wraps() {
            return Window { gap: *gap, release: release.min(end), fetch: fetch.min(gap.to.step) };
        }
        let fetch = fetch.clamp(Step(gap.from.step.0 + 1), gap.to.step);
        Window { gap: *gap, release: release.min(gap.to.step), fetch }
    };
    gaps.iter().zip(releases.into_iter().zip(fetches)).map(bound).collect()
}

fn releases(problem: &Problem<'_>, pace: &Pace, starts: &[f64], gaps: &[Gap], copies: Option<&Copies>) -> Vec<Step> {
    match (problem.options.sync, &pace.layers, copies) {
        (Sync::PerLayer, Some(layers), _) => gaps.iter().map(|gap| Step(layers.end(gap.from.step).0 + 1)).collect(),
        (_, _, Some(copies)) => cost_releases(problem, copies, starts, gaps),
        _ => gaps.iter().map(|gap| Step(gap.from.step.0 + 1)).collect(),
    }
}

/// The first step that begins after the copy down is done, copies running one after the other in order of issue; the next
/// step where the last copy is still valid.
fn cost_releases(problem: &Problem<'_>, copies: &Copies, starts: &[f64], gaps: &[Gap]) -> Vec<Step> {
    let mut done = 0.0f64;
    let mut releases = vec![Step(0); gaps.len()];
    // Copies end in the order in which they are issued, so the first step after one is not before that after the last.
    let mut first = 0;
    for i in copies.by_issue.iter().map(|&i| i as usize) {
        let gap = &gaps[i];
        if copies.copied[i] {
            releases[i] = Step(gap.from.step.0 + 1);
            continue;
        }
        let issue = starts[gap.from.step.index() + usize::from(gap.from.writes)];
        done = done.max(issue) + problem.links.latency + copies.down[i];
        first += starts[first..].iter().take_while(|&&start| start < done).count();
        releases[i] = Step((first as u32).max(gap.from.step.0 + 1));
    }
    releases
}

/// The last step at which the copy up, and the copies after it, can begin and still be done in time.
fn cost_fetches(problem: &Problem<'_>, copies: &Copies, starts: &[f64], gaps: &[Gap]) -> Vec<Step> {
    let mut next_start = f64::INFINITY;
    let mut fetches = vec![Step(0); gaps.len()];
    let mut after = starts.len();
    for i in copies.by_need.iter().rev().map(|&i| i as usize) {
        let deadline = starts[gaps[i].to.step.index()].min(next_start);
        let begin = deadline - problem.links.latency - copies.up[i];
        next_start = begin;
        after -= starts[..after].iter().rev().take_while(|&&start| start > begin).count();
        fetches[i] = Step((after as u32).saturating_sub(1));
    }
    fetches
}

/// The paper's rule. On the backward of layer c, layers c−1, c−2, … are searched for one that was offloaded and not yet
/// fetched: it is fetched now. A convolution that was not offloaded ends the search. What no layer fetched in time is
/// fetched at the start of the layer that needs it.
fn paper_fetches(problem: &Problem<'_>, layers: &LayerSpans, gaps: &[Gap]) -> Vec<Step> {
    let n_layers = problem.program.graph.layers().len();
    let mut of_layer: Vec<Vec<usize>> = vec![Vec::new(); n_layers];
    for (i, gap) in gaps.iter().enumerate().filter(|(_, gap)| !gap.wraps()) {
        of_layer[layers.layer(gap.from.step).index()].push(i);
    }
    let is_conv = conv_layers(problem);
    let mut fetches: Vec<Step> = gaps.iter().map(|gap| layers.start(gap.to.step)).collect();
    let mut fetched = vec![false; n_layers];
    for (layer, start) in layers.backward_starts() {
        for earlier in (0..layer.index()).rev() {
            if !of_layer[earlier].is_empty() {
                if fetched[earlier] {
                    continue;
                }
                fetched[earlier] = true;
                for &i in &of_layer[earlier] {
                    fetches[i] = fetches[i].min(start);
                }
                break;
            }
            if is_conv[earlier] {
                break;
            }
        }
    }
    fetches
}

fn conv_layers(problem: &Problem<'_>) -> Vec<bool> {
    let graph = &problem.program.graph;
    let mut is_conv = vec![false; graph.layers().len()];
    for node in graph.nodes() {
        is_conv[node.layer.index()] |= matches!(node.op, Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Conv2dStats(_));
    }
    is_conv
}
