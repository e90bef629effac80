//! Tables and figures over networks and policies.

use super::Figure;
use super::cells::{Cell, Cells, Detail, NETWORKS, Network, POLICIES, Wanted};
use super::chart::{Chart, Series};
use crate::cli::table::{Show, Table};
use serde_json::{Value, json};

/// VGG ever deeper, with the paper's batch for these.
pub const DEEP: [Network; 5] = [("vgg16", 32), ("vgg-116", 32), ("vgg-216", 32), ("vgg-316", 32), ("vgg-416", 32)];

/// Policies that move feature maps.
const MOVING: [&str; 5] = ["all-m", "all-p", "conv-m", "conv-p", "dyn"];

/// `vgg16 (256)`.
pub fn name((model, batch_size): Network) -> String {
    format!("{model} ({batch_size})")
}

fn names() -> Vec<String> {
    NETWORKS.iter().map(|&network| name(network)).collect()
}

/// What more there is of the plan of a network under a policy.
fn detail<'a>(cells: &'a Cells, network: Network, policy: &'static str) -> Option<(&'a Cell, &'a Detail)> {
    let cell = &cells[&Wanted::of(network, policy)];
    cell.plan.as_ref().map(|plan| (cell, plan))
}

/// Per cent that `part` is less than `whole`.
pub fn saving(part: f64, whole: f64) -> f64 {
    (1.0 - part / whole) * 100.0
}

/// Per cent that a step takes more than the fastest kernels.
pub fn slowdown(cell: &Cell) -> Option<f64> {
    Some((cell.number("predicted_ms")? / cell.number("oracle_ms")? - 1.0) * 100.0)
}

/// All networks under all policies.
pub fn plans(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("network", "network (batch)", Show::Plain),
        ("policy", "policy", Show::Plain),
        ("peak_bytes", "peak GB", Show::Gb),
        ("fits", "in 12 GiB", Show::Plain),
        ("host_peak_bytes", "host GB", Show::Gb),
        ("offload_bytes", "moved each way GB", Show::Gb),
        ("predicted_ms", "step ms", Show::Digits(0)),
        ("slowdown_percent", "slowdown %", Show::Digits(1)),
    ]);
    for network in NETWORKS {
        for policy in POLICIES {
            let cell = &cells[&Wanted::of(network, policy)];
            let number = |key: &str| json!(cell.number(key));
            table.rows.push(vec![
                json!(name(network)),
                json!(policy),
                number("peak_bytes"),
                json!(if cell.fits() { "yes" } else { "no" }),
                number("host_peak_bytes"),
                number("offload_bytes"),
                number("predicted_ms"),
                json!(slowdown(cell)),
            ]);
        }
    }
    Figure {
        title: "Plans".into(),
        text: "Every network under every policy: waits by events, prefetch by cost, no budget but for `dyn`, which has the card's 12 GiB. \
               Slowdown is over the sum of the fastest kernels."
            .into(),
        table,
        chart: None,
    }
}

/// Figure 1: what the baseline allocates, and the most of it that one kernel uses.
pub fn allocation(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("network", "network (batch)", Show::Plain),
        ("baseline_bytes", "baseline GB", Show::Gb),
        ("largest_kernel_bytes", "largest kernel GB", Show::Gb),
        ("used_percent", "used by it %", Show::Digits(1)),
        ("fits", "in 12 GiB", Show::Plain),
    ]);
    let mut bars: [Vec<Option<f64>>; 2] = Default::default();
    for network in NETWORKS {
        let found = detail(cells, network, "baseline");
        let peak = found.and_then(|(cell, _)| cell.number("peak_bytes"));
        let largest = found.map(|(_, plan)| plan.largest_kernel as f64);
        let share = peak.zip(largest).map(|(peak, largest)| largest / peak * 100.0);
        let fits = found.is_some_and(|(cell, _)| cell.fits());
        table.rows.push(vec![json!(name(network)), json!(peak), json!(largest), json!(share), yes(fits)]);
        bars[0].push(peak.map(gb));
        bars[1].push(largest.map(gb));
    }
    let [all, largest] = bars;
    Figure {
        title: "Figure 1: network-wide allocation, and the largest part of it that one layer uses".into(),
        text: "Bytes that one kernel reads, writes and borrows as workspace, of the kernel with most.".into(),
        table,
        chart: Some(Chart::grouped(
            "GB",
            names(),
            vec![Series::of("baseline", all), Series::of("largest kernel", largest)],
        )),
    }
}

/// Figure 4: what the baseline's memory is for.
pub fn kinds(cells: &Cells) -> Figure {
    let mut columns = vec![("network", "network (batch)", Show::Plain)];
    columns.extend(BY_KIND.iter().map(|&(key, head, _)| (key, head, Show::Gb)));
    columns.push(("feature_maps_percent", "feature maps %", Show::Digits(1)));
    columns.push(("feature_extraction_percent", "feature extraction %", Show::Digits(1)));
    let mut table = Table::new(&columns);
    let mut bars: Vec<Vec<Option<f64>>> = vec![Vec::new(); BY_KIND.len()];
    for network in NETWORKS {
        let fullest = detail(cells, network, "baseline").map(|(_, plan)| (plan.fullest, plan.classifier));
        let of = |kinds: &[usize]| fullest.map(|(now, _)| kinds.iter().map(|&kind| now.levels[kind]).sum::<u64>());
        let share = |kinds: &[usize]| Some(of(kinds)? as f64 / fullest?.0.bytes() as f64 * 100.0);
        let features = fullest.map(|(now, classifier)| saving(classifier as f64, now.bytes() as f64));
        let mut row = vec![json!(name(network))];
        row.extend(BY_KIND.iter().map(|&(_, _, kinds)| json!(of(kinds))));
        row.extend([json!(share(BY_KIND[2].2)), json!(features)]);
        table.rows.push(row);
        for (bar, (_, _, kinds)) in bars.iter_mut().zip(BY_KIND) {
            bar.push(of(kinds).map(|bytes| gb(bytes as f64)));
        }
    }
    let series = BY_KIND.iter().zip(bars).map(|(&(_, head, _), bars)| Series::of(head.trim_end_matches(" GB"), bars));
    Figure {
        title: "Figure 4: the baseline's memory by kind".into(),
        text: "At its fullest. Feature extraction is everything but parameters, their gradients and maps from the first fully connected \
               layer on."
            .into(),
        table,
        chart: Some(Chart::stacked("GB", names(), series.collect())),
    }
}

/// (key, head, indices into the kinds of `occupancy`); together all of them.
const BY_KIND: [(&str, &str, &[usize]); 4] = [
    ("parameter_bytes", "parameters and their gradients GB", &[0, 1, 6]),
    ("workspace_bytes", "workspace GB", &[7]),
    ("feature_map_bytes", "feature maps GB", &[2, 3, 4]),
    ("gradient_map_bytes", "gradient maps GB", &[5]),
];

/// Figure 11: average and largest use of memory under each policy.
pub fn memory(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("network", "network (batch)", Show::Plain),
        ("policy", "policy", Show::Plain),
        ("average_bytes", "average GB", Show::Gb),
        ("peak_bytes", "most GB", Show::Gb),
        ("average_saving_percent", "average saved %", Show::Digits(1)),
        ("peak_saving_percent", "most saved %", Show::Digits(1)),
        ("average_saving_without_parameters_percent", "average saved without parameters %", Show::Digits(1)),
        ("fits", "in 12 GiB", Show::Plain),
    ]);
    let policies = || POLICIES.iter().filter(|policy| **policy != "none");
    let mut series: Vec<Series> = policies().map(|policy| Series::of(policy, Vec::new())).collect();
    for network in NETWORKS {
        let baseline = detail(cells, network, "baseline");
        for (policy, series) in policies().zip(&mut series) {
            let found = detail(cells, network, policy);
            series.values.push(found.map(|found| gb(average(found))));
            series.hollow.push(!found.is_some_and(|(cell, _)| cell.fits()));
            let saved = |of: fn((&Cell, &Detail)) -> f64| Some(saving(of(found?), of(baseline?)));
            table.rows.push(vec![
                json!(name(network)),
                json!(policy),
                json!(found.map(average)),
                json!(found.map(most)),
                json!(saved(average)),
                json!(saved(most)),
                json!(saved(
                    |(cell, plan)| average((cell, plan)) - KEPT.iter().map(|&kind| plan.average[kind]).sum::<f64>()
                )),
                yes(found.is_some_and(|(cell, _)| cell.fits())),
            ]);
        }
    }
    Figure {
        title: "Figure 11: average and largest use of device memory".into(),
        text: "The average is over the time of a simulated step, of all bytes on the device, weights included; savings are against the baseline, \
               which holds what it allocates all the time. The last saving leaves out parameters and states, which these policies never move. \
               The drawing has the averages, hollow where the plan needs more than the card's 12 GiB."
            .into(),
        table,
        chart: Some(Chart::grouped("average GB", names(), series)),
    }
}

/// Kinds that no policy of the paper moves.
const KEPT: [usize; 2] = [0, 1];

/// All bytes on the device, averaged over the step. The baseline holds what it allocates all the time, used or not.
pub fn average((cell, plan): (&Cell, &Detail)) -> f64 {
    match cell.document["policy"].as_str() {
        Some("baseline") => most((cell, plan)),
        _ => plan.average.iter().sum(),
    }
}

fn most((cell, _): (&Cell, &Detail)) -> f64 {
    cell.number("peak_bytes").unwrap_or(f64::NAN)
}

/// Figure 12: bytes that leave the device.
pub fn offloaded(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("network", "network (batch)", Show::Plain),
        ("all_bytes", "all GB", Show::Gb),
        ("conv_bytes", "conv GB", Show::Gb),
        ("dyn_bytes", "dyn GB", Show::Gb),
        ("feature_map_bytes", "all feature maps GB", Show::Gb),
    ]);
    let mut bars: [Vec<Option<f64>>; 3] = Default::default();
    for network in NETWORKS {
        let of = |policy| cells[&Wanted::of(network, policy)].number("offload_bytes");
        let found = [of("all-p"), of("conv-p"), of("dyn")];
        let maps = cells[&Wanted::of(network, "all-p")].number("feature_map_bytes");
        let mut row = vec![json!(name(network))];
        row.extend(found.iter().chain([&maps]).map(|bytes| json!(bytes)));
        table.rows.push(row);
        bars.iter_mut().zip(found).for_each(|(bar, bytes)| bar.push(bytes.map(gb)));
    }
    let [all, conv, dynamic] = bars;
    Figure {
        title: "Figure 12: feature maps offloaded in a step".into(),
        text: "The same under (m) and (p). The input batch and the last feature layer's X stay; maps under 1 MiB too."
            .into(),
        table,
        chart: Some(Chart::grouped(
            "GB",
            names(),
            vec![Series::of("all", all), Series::of("conv", conv), Series::of("dyn", dynamic)],
        )),
    }
}

/// Figure 14: speed against the oracle.
pub fn speed(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("network", "network (batch)", Show::Plain),
        ("policy", "policy", Show::Plain),
        ("oracle_ms", "oracle ms", Show::Digits(0)),
        ("predicted_ms", "step ms", Show::Digits(0)),
        ("speed_percent", "speed %", Show::Digits(1)),
        ("joined_ms", "step ms, joined per layer", Show::Digits(0)),
        ("joined_speed_percent", "speed %, joined per layer", Show::Digits(1)),
        ("fits", "in 12 GiB", Show::Plain),
    ]);
    let policies = || ["baseline"].into_iter().chain(MOVING);
    let mut series: Vec<Series> = policies().map(|policy| Series::of(policy, Vec::new())).collect();
    for network in NETWORKS {
        for (policy, series) in policies().zip(&mut series) {
            let (events, joined) =
                (Wanted::of(network, policy), Wanted { per_layer: true, ..Wanted::of(network, policy) });
            let cell = &cells[&events];
            // What is not moved is not waited for.
            let joined = cells.get(&joined).unwrap_or(cell);
            let speed = |cell: &Cell| slowdown(cell).map(|more| 100.0 / (1.0 + more / 100.0));
            series.values.push(speed(joined));
            series.hollow.push(!joined.fits());
            table.rows.push(vec![
                json!(name(network)),
                json!(policy),
                json!(cell.number("oracle_ms")),
                json!(cell.number("predicted_ms")),
                json!(speed(cell)),
                json!(joined.number("predicted_ms")),
                json!(speed(joined)),
                yes(cell.fits()),
            ]);
        }
    }
    Figure {
        title: "Figure 14: speed against an oracle with memory for everything".into(),
        text: "100 % is the time of the fastest kernels alone. The paper joins its two streams at the end of each layer (`--sync per-layer`): \
               that is what the drawing has, hollow where a plan needs more than the card's 12 GiB and could not train; waits by events come \
               beside it in the table."
            .into(),
        table,
        chart: Some(Chart::grouped("speed, % of the oracle's", names(), series)),
    }
}

/// The plans of [`speed`] in which streams are joined at the end of each layer.
pub fn joined(network: Network) -> impl Iterator<Item = Wanted> {
    MOVING.into_iter().map(move |policy| Wanted { per_layer: true, ..Wanted::of(network, policy) })
}

/// Figure 15: ever deeper networks.
pub fn deep(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("network", "network (batch)", Show::Plain),
        ("baseline_bytes", "baseline GB", Show::Gb),
        ("baseline_fits", "baseline in 12 GiB", Show::Plain),
        ("all_m_peak_bytes", "all-m: device GB", Show::Gb),
        ("dyn_peak_bytes", "dyn: device GB", Show::Gb),
        ("dyn_average_bytes", "dyn: average GB", Show::Gb),
        ("dyn_host_bytes", "dyn: host GB", Show::Gb),
        ("dyn_slowdown_percent", "dyn: slowdown %", Show::Digits(1)),
    ]);
    let mut bars: [Vec<Option<f64>>; 3] = Default::default();
    for network in DEEP {
        let of = |policy| &cells[&Wanted::of(network, policy)];
        let (baseline, least, dynamic) = (of("baseline"), of("all-m"), of("dyn"));
        let average = detail(cells, network, "dyn").map(average);
        table.rows.push(vec![
            json!(name(network)),
            json!(baseline.number("peak_bytes")),
            yes(baseline.fits()),
            json!(least.number("peak_bytes")),
            json!(dynamic.number("peak_bytes")),
            json!(average),
            json!(dynamic.number("host_peak_bytes")),
            json!(slowdown(dynamic)),
        ]);
        let drawn = [baseline.number("peak_bytes"), dynamic.number("peak_bytes"), dynamic.number("host_peak_bytes")];
        bars.iter_mut().zip(drawn).for_each(|(bar, bytes)| bar.push(bytes.map(gb)));
    }
    let [baseline, device, host] = bars;
    let groups = DEEP.iter().map(|&network| name(network)).collect();
    let series = [("baseline", baseline), ("dyn: device", device), ("dyn: host", host)];
    Figure {
        title: "Figure 15: VGG, ever deeper".into(),
        text:
            "`dyn` takes the first of its passes whose plan fits the card's 12 GiB, not the plan with the least memory."
                .into(),
        table,
        chart: Some(Chart::grouped("GB", groups, series.map(|(name, bars)| Series::of(name, bars)).into())),
    }
}

fn gb(bytes: f64) -> f64 {
    bytes / 1e9
}

fn yes(is_so: bool) -> Value {
    json!(if is_so { "yes" } else { "no" })
}
