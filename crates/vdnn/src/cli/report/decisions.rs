//! What a plan decided, as tables: of all bytes by kind, of the largest values one by one, of the kernels that take longest.

use crate::cli::drawing::escape;
use crate::cli::explain::{Clock, GapStory, explain, serde_name, streams};
use crate::cli::occupancy::{KINDS, kind_of};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use vdnn_graph::{Op, Role, ValueId};
use vdnn_memory::{Residency, Tier};
use vdnn_tensor::{Bytes, format_bytes};
use vdnn_train::{Planned, Settings};

/// Values that are told one by one.
const VALUES: usize = 40;

/// What becomes of a storage between its uses. Of several things the first of this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Streamed,
    Disk,
    Offloaded,
    Recomputed,
    Rewritten,
    Kept,
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Fate::Streamed => "lives in host memory",
            Fate::Disk => "offloaded, rests on disk",
            Fate::Offloaded => "offloaded",
            Fate::Recomputed => "made again",
            Fate::Rewritten => "dropped until written anew",
            Fate::Kept => "kept",
        }
    }
}

/// Storages that some kernel touches, with their fates, in the program's order of values.
fn fates(planned: &Planned) -> BTreeMap<ValueId, Fate> {
    let program = planned.program.as_ref();
    let graph = &program.graph;
    let touched =
        planned.plan.order.iter().map(|u| graph.node(u.node)).flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let roots: BTreeSet<ValueId> = touched.map(|&id| program.aliases.root(id)).collect();
    let mut fates: BTreeMap<ValueId, Fate> = roots.into_iter().map(|root| (root, Fate::Kept)).collect();
    for ((root, ends), residency) in &planned.plan.gaps {
        let fate = match residency {
            Residency::Keep => Fate::Kept,
            Residency::Offload { tier: Tier::Disk { .. }, .. } => Fate::Disk,
            Residency::Offload { .. } => Fate::Offloaded,
            Residency::Drop if ends.run > 0 => Fate::Recomputed,
            Residency::Drop => Fate::Rewritten,
        };
        fates.entry(*root).and_modify(|so_far| *so_far = fate.min(*so_far));
    }
    for (root, fate) in &mut fates {
        if matches!(graph.value(*root).role, Role::Parameter | Role::State) && streams(planned, *root) {
            *fate = Fate::Streamed;
        }
    }
    fates
}

/// How many storages of each kind have which fate, and their bytes.
pub fn summary(planned: &Planned) -> String {
    let mut sums: BTreeMap<(usize, Fate), (usize, Bytes)> = BTreeMap::new();
    for (root, fate) in fates(planned) {
        let sum = sums.entry((kind_of(planned.program.graph.value(root).role), fate)).or_default();
        *sum = (sum.0 + 1, sum.1 + planned.program.aliases.storage_bytes(root));
    }
    let mut html = table(&["kind", "between its uses", "values", "bytes"]);
    for ((kind, fate), (count, bytes)) in sums {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{count}</td><td class=\"n\" title=\"{bytes} bytes\">{}</td></tr>",
            KINDS[kind].0,
            fate.name(),
            format_bytes(bytes)
        );
    }
    html + END
}

/// The largest values, each with its longest gap.
///
/// # Errors
/// As [`explain`].
pub fn values(planned: &Planned, settings: &Settings, clock: &Clock) -> Result<String> {
    let program = planned.program.as_ref();
    let fates = fates(planned);
    let mut largest: Vec<(Bytes, ValueId, Fate)> =
        fates.iter().map(|(&root, &fate)| (program.aliases.storage_bytes(root), root, fate)).collect();
    largest.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut html = table(&["value", "kind", "bytes", "decision", "longest gap", "costs", "why"]);
    for &(bytes, root, fate) in largest.iter().take(VALUES) {
        let told = explain(planned, settings, clock, root)?;
        let gap = told.gaps.iter().max_by_key(|gap| (gap.residency != "keep", gap.idle_steps));
        let (between, costs, why) = gap.map_or_else(Default::default, gap_cells);
        let others = told.storage.values.len() - 1;
        let also = if others > 0 { format!(" <small>and {others} more in its bytes</small>") } else { String::new() };
        let _ = writeln!(
            html,
            "<tr><td>{}{also}</td><td>{}{}</td><td class=\"n\" title=\"{bytes} bytes\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&told.value),
            serde_name(&told.role),
            encoded(planned, root),
            format_bytes(bytes),
            fate.name(),
            escape(&between),
            escape(&costs),
            escape(&why),
        );
    }
    let left: Bytes = largest.iter().skip(VALUES).map(|(bytes, ..)| bytes).sum();
    Ok(html + END + &left_out(largest.len(), VALUES, &format!("{} together", format_bytes(left))))
}

/// What stands in place of a feature map.
fn encoded(planned: &Planned, root: ValueId) -> &'static str {
    let graph = &planned.program.graph;
    let node = graph.value(root).producer.map(|node| graph.node(node));
    match node.map(|node| (&node.op, node.outputs.get(1) == Some(&root))) {
        Some((Op::ReluMask, true)) => " (mask)",
        Some((Op::MaxPool2dIndices(_), true)) => " (indices)",
        _ => "",
    }
}

/// Where a gap lies, what copies and making again cost, and the reason.
fn gap_cells(gap: &GapStory) -> (String, String, String) {
    let wraps = if gap.wraps { " around the iteration" } else { "" };
    let away = match (&gap.release, &gap.fetch) {
        (Some(release), Some(fetch)) => format!("; away from step {} to {}", release.step, fetch.step),
        _ => String::new(),
    };
    let between = format!("step {} to {}{wraps}, {:.3} ms{away}", gap.from_step, gap.to_step, gap.simulated_ms);
    let again = gap.recompute_ms.map_or(String::new(), |ms| format!("; made again in {ms:.3} ms"));
    let costs = format!("copies {:.3} ms down, {:.3} ms up{again}", gap.offload_ms, gap.prefetch_ms);
    (between, costs, gap.note.clone())
}

/// The head of a table.
pub fn table(heads: &[&str]) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    format!("<div class=\"wide\"><table>\n<tr>{heads}</tr>\n")
}

/// What closes a table.
pub const END: &str = "</table></div>\n";

/// What a table does not show of so many rows.
pub fn left_out(all: usize, shown: usize, what: &str) -> String {
    match all.checked_sub(shown) {
        None | Some(0) => String::new(),
        Some(rest) => format!("<p>Not listed: {rest} smaller ones, {what}.</p>\n"),
    }
}
