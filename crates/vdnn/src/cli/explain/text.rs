//! An explanation of a value as text for people.

use super::{At, Explanation, GapStory, Lies, Used};
use serde::Serialize;
use vdnn_tensor::format_bytes;

/// The whole explanation as text.
pub fn describe(told: &Explanation) -> String {
    let Explanation { value, ty, storage, .. } = told;
    let producer = told.producer.as_deref().map_or("given".to_string(), |node| format!("made by {node}"));
    let role = serde_name(&told.role);
    let budget = told.budget_bytes.map_or("none".to_string(), format_bytes);
    let mut text = format!(
        "{value}: {ty}, {} ({} bytes), {role}, {producer}; policy {}, budget {budget}\n",
        format_bytes(told.bytes),
        told.bytes,
        told.policy
    );
    text.push_str(&format!(
        "storage {}: {} ({} bytes), {value} from byte {}, holds {}\n\nuses\n",
        storage.name,
        format_bytes(storage.bytes),
        storage.bytes,
        storage.offset,
        storage.values.join(", ")
    ));
    told.uses.iter().for_each(|used| text.push_str(&describe_use(used)));
    text.push_str("\ngaps\n");
    told.gaps.iter().for_each(|gap| text.push_str(&describe_gap(gap)));
    text.push_str("\nlies at\n");
    told.lies.iter().for_each(|lies| text.push_str(&describe_place(lies)));
    text
}

fn describe_use(used: &Used) -> String {
    let run = if used.run > 0 { format!(", run {}", used.run) } else { String::new() };
    let said = |verb: &str, names: &[String]| {
        let list = names.join(", ");
        (!names.is_empty()).then(|| format!("{verb} {list}"))
    };
    let does: Vec<String> = said("reads", &used.reads).into_iter().chain(said("writes", &used.writes)).collect();
    let Used { step, node, phase, .. } = used;
    format!("  step {step:>5}  {node}{run} ({}): {}\n", serde_name(phase), does.join(", "))
}

fn describe_gap(gap: &GapStory) -> String {
    let wraps = if gap.wraps { ", around the iteration" } else { "" };
    let steps = format!("  {:>5} to {:>5}{wraps}", gap.from_step, gap.to_step);
    if gap.residency == "keep" && gap.idle_steps == 0 {
        return format!("{steps}: keep, {}\n", gap.note);
    }
    let at = |at: &Option<At>| {
        at.as_ref().map_or(String::new(), |at| match &at.node {
            Some(node) => format!("{} ({node})", at.step),
            None => at.step.to_string(),
        })
    };
    let decision = match gap.residency {
        "offload" => {
            let tier = gap.tier.unwrap_or("host");
            let slots = match gap.tier {
                Some("disk") => format!("; written before step {}, read at step {}", at(&gap.written), at(&gap.read)),
                _ => String::new(),
            };
            let (release, fetch) = (at(&gap.release), at(&gap.fetch));
            format!("offload to {tier}, released at step {release}, fetched at step {fetch}{slots}")
        }
        other => other.to_string(),
    };
    let again = gap.recompute_ms.map_or("cannot be made again".to_string(), |ms| format!("made again in {ms:.3} ms"));
    format!(
        "{steps}: {decision}\n{:17}{} idle steps, {:.3} ms of kernels, {:.3} ms simulated; copies {:.3} ms down, \
         {:.3} ms up; {again}\n{:17}{}\n",
        "", gap.idle_steps, gap.compute_ms, gap.simulated_ms, gap.offload_ms, gap.prefetch_ms, "", gap.note
    )
}

fn describe_place(lies: &Lies) -> String {
    let when = match (lies.from_step, lies.until_step) {
        (Some(from), Some(until)) => format!("steps {from} to {until}"),
        _ => "always".to_string(),
    };
    let end = lies.offset + lies.bytes;
    format!("  {}[{:#x}..{end:#x}]  {}, {when}\n", serde_name(&lies.space), lies.offset, lies.buffer)
}

/// An enum's name as documents have it, with spaces.
pub fn serde_name(value: &impl Serialize) -> String {
    let name = serde_json::to_value(value).unwrap_or_default();
    name.as_str().unwrap_or_default().replace('_', " ")
}
