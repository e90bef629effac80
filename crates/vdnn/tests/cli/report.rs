//! `vdnn report` and `vdnn train --report`: the page holds the plan's figures, its bars are the simulated spans, its memory has
//! the plan's peak, and it is one whole file.

use crate::compare::odd_machine;
use crate::markup::{Element, all, elements};
use crate::{Called, TINY, check_failure, fails, succeeds, vdnn_in};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use vdnn::prelude::*;
use vdnn::schedule::{Action, Timeline, read_schedule};

fn page_in(folder: &Path, arguments: &str) -> (Called, String) {
    let called = vdnn_in(folder, &format!("report {arguments} --html page.html"));
    assert_eq!(called.status, 0, "{arguments}: {}", called.document);
    let html = fs::read_to_string(folder.join("page.html")).unwrap();
    (called, html)
}

fn page(arguments: &str) -> (Called, String) {
    page_in(TempDir::new().unwrap().path(), arguments)
}

/// Balanced, escaped, and nothing in it that would be fetched.
fn is_whole(html: &str) {
    let body = html.strip_prefix("<!doctype html>\n").expect("a document type");
    assert_eq!(elements(body)[0], "html");
    for outside in ["http", "href", "src=", "url(", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(!html.contains("NaN") && !html.contains("inf ms"));
}

/// The document that the page carries.
fn figures(html: &str) -> Value {
    let scripts = all(html, "script");
    let [script] = scripts.as_slice() else { panic!("one script, which is data") };
    assert_eq!(script.attribute("type"), "application/json");
    serde_json::from_str(script.inside).unwrap()
}

/// What is drawn of memory: bytes of each kind, column by column.
fn columns(html: &str) -> Vec<Vec<u64>> {
    let column = |tip: &Element<'_>| -> Vec<u64> {
        let kinds: Vec<u64> = tip.attribute("data-kinds").split(' ').map(|kind| kind.parse().unwrap()).collect();
        assert_eq!(kinds.iter().sum::<u64>().to_string(), tip.attribute("data-live"));
        kinds
    };
    let tips: Vec<Element<'_>> =
        all(html, "rect").into_iter().filter(|rect| rect.find("data-live").is_some()).collect();
    for pair in tips.windows(2) {
        assert_eq!(pair[0].number("x") + pair[0].number("width"), pair[1].number("x"), "columns follow each other");
    }
    tips.iter().map(column).collect()
}

/// The page has the figures of `vdnn plan`, in words and as data; the fullest column is the plan's largest live set.
#[test]
fn figures_are_those_of_the_plan() {
    for arguments in [
        "--model vgg16 -b 64 --policy dyn --budget 4200MB --momentum 0",
        "--model vgg-small --policy none",
        "--model resnet-small --policy hybrid --budget 12MiB --min-offload 1KiB --machine toy",
        "--model vgg-small --policy baseline",
        "--model vgg16 -b 64 --policy all --host-budget 2GiB --disk-budget 64GiB --machine h100",
        "--model vgg-small --policy none --state host --min-offload 0",
    ] {
        let (called, html) = page(arguments);
        is_whole(&html);
        let mut plan = succeeds(&format!("plan {arguments}")).document;
        plan["planning_seconds"] = Value::Null;
        assert_eq!(figures(&html), plan, "{arguments}");
        for key in ["peak_bytes", "live_peak_bytes", "floor_bytes", "offload_bytes"] {
            assert!(html.contains(&format!("({} bytes)", plan[key])), "{key} of {arguments}");
        }
        for key in ["predicted_ms", "oracle_ms", "lower_bound_ms"] {
            assert!(html.contains(&format!("{:.3} ms", plan[key].as_f64().unwrap())), "{key} of {arguments}");
        }
        let most = columns(&html).iter().map(|kinds| kinds.iter().sum::<u64>()).max().unwrap();
        assert_eq!(Value::from(most), plan["live_peak_bytes"], "{arguments}");
        assert!(html.contains(&format!("<span id=\"most-live\">{most}</span>")));
        assert_eq!((called.text("html"), &called.document["peak_bytes"]), ("page.html", &plan["peak_bytes"]));
    }
}

/// Homes of parameters are there all the time, and feature maps of a policy that keeps them are all there at once.
#[test]
fn memory_is_told_by_kind() {
    let (_, html) = page("--model vgg16 -b 64 --policy none --momentum 0");
    let figures = figures(&html);
    let columns = columns(&html);
    let parameters = figures["parameter_bytes"].as_u64().unwrap();
    assert!(columns.iter().all(|kinds| kinds[0] == parameters));
    assert!(columns.iter().all(|kinds| kinds[1] == 0), "no momentum, no states");
    let maps = columns.iter().map(|kinds| kinds[4]).max().unwrap();
    let image = 64 * 3 * 224 * 224 * 4;
    // All feature maps but the image, and the few of the classifier that go before the last one comes.
    let all = figures["feature_map_bytes"].as_u64().unwrap() - image;
    assert!(maps <= all && maps * 100 > all * 99, "{maps} of {all}");
    let (_, html) = page("--model vgg16 -b 64 --policy none");
    assert_eq!(crate::report::columns(&html)[0][1], parameters, "one momentum a parameter");
}

/// The schedule of a page, simulated without the program under test.
fn simulated(path: &Path, model: &str, batch_size: u64, budget: u64) -> (Schedule, Timeline) {
    let schedule = read_schedule(&fs::read_to_string(path).unwrap()).unwrap();
    let build = |batch_size, mode| {
        vdnn::models::build(model, &ModelOptions { batch_size, mode, ..Default::default() }).map_err(Into::into)
    };
    let net = program::network(&build, batch_size, Mode::Train).unwrap();
    let program = program::training_within(net, &Optimization::sgd(0.9, 5e-4), Some(budget)).unwrap().remove(0);
    let machine = Machine::named("titan-x").unwrap();
    let timeline = simulate(&schedule, &machine.kernel_table(&program).unwrap(), &machine.links()).unwrap();
    (schedule, timeline)
}

/// Bars of a stream follow each other, and stand for all that the stream does: also where thousands of commands share a row.
#[test]
fn bars_are_what_the_streams_do() {
    for (model, batch_size, budget) in [("vgg16", 64, 4_200_000_000), ("vgg-216", 32, 12 << 30)] {
        let folder = TempDir::new().unwrap();
        let options = format!("--model {model} -b {batch_size} --policy dyn --budget {budget} --out plan.json");
        let (_, html) = page_in(folder.path(), &options);
        assert!(html.len() < 2_000_000, "{} bytes", html.len());
        let (schedule, timeline) = simulated(&folder.path().join("plan.json"), model, batch_size, budget);
        let mut expected: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for (span, command) in timeline.commands(&schedule).filter(|(span, _)| span.end > span.start) {
            let stream = format!("{:?}", schedule.streams[command.stream.index()]).to_lowercase();
            let sum = expected.entry(stream).or_default();
            *sum = (sum.0 + 1, sum.1 + span.seconds() * 1e3);
        }
        assert_eq!(expected.len(), 3, "compute, offload, prefetch");
        let rects = all(&html, "rect");
        let end = rects
            .iter()
            .filter(|rect| rect.find("data-stream").is_some())
            .map(|bar| bar.number("x") + bar.number("width"));
        assert!((end.fold(0.0, f64::max) - 1184.0).abs() < 0.02, "the last bar ends where the axis does");
        for (stream, (spans, busy)) in expected {
            let bars: Vec<&Element<'_>> =
                rects.iter().filter(|rect| rect.find("data-stream") == Some(&stream)).collect();
            for pair in bars.windows(2) {
                let end = pair[0].number("x") + pair[0].number("width");
                assert!(end <= pair[1].number("x") + 1e-9, "{stream}: {} {}", pair[0].inside, pair[1].inside);
            }
            assert_eq!(bars.iter().map(|bar| bar.number("data-spans") as usize).sum::<usize>(), spans, "{stream}");
            let drawn: f64 = bars.iter().map(|bar| bar.number("data-busy-ms")).sum();
            assert!((drawn - busy).abs() < 1e-3, "{stream}: {drawn} of {busy}");
            // A bar is as long as what it stands for, idle stretches below a unit aside.
            let unit = timeline.seconds * 1e3 / 1100.0;
            for bar in bars {
                let (length, busy) = (bar.number("width") * unit, bar.number("data-busy-ms"));
                assert!(busy <= length + 0.02 * unit && length <= busy.max(2.0 * unit) + 0.02 * unit, "{}", bar.inside);
            }
        }
    }
}

/// What the plan decided stands in the tables.
#[test]
fn decisions_are_told() {
    let (_, html) = page("--model vgg16 -b 64 --policy conv --momentum 0");
    let offloaded = figures(&html)["offload_bytes"].as_u64().unwrap();
    let row = all(&html, "tr").into_iter().find(|row| row.inside.contains("feature maps</td><td>offloaded"));
    assert!(row.expect("a row of what leaves").inside.contains(&format!("title=\"{offloaded} bytes\"")));
    let told = succeeds("plan --model vgg16 -b 64 --policy conv --momentum 0 --explain features.5").document;
    let gap = told["gaps"].as_array().unwrap().iter().find(|gap| gap["residency"] == "offload").unwrap();
    assert!(html.contains(&format!("away from step {} to {}", gap["release"]["step"], gap["fetch"]["step"])));
    assert!(html.contains(gap["note"].as_str().unwrap()));
    assert!(html.contains("Not listed"));
    let (_, html) = page("--model resnet-small --policy checkpoint --budget 22MiB --machine toy");
    assert!(html.contains("<td>made again</td>") && html.contains("class=\"again\""));
}

#[test]
fn equal_plans_make_equal_files_and_names_are_escaped() {
    let folder = TempDir::new().unwrap();
    odd_machine(folder.path());
    let arguments = "--model vgg-small --policy all --min-offload 1KiB --machine odd.json";
    let (_, html) = page_in(folder.path(), arguments);
    is_whole(&html);
    assert!(html.contains("mine, &lt;&quot;new&quot;&gt; &amp; best"));
    assert_eq!(figures(&html)["machine"], "mine, <\"new\"> & best");
    assert_eq!(html, page_in(folder.path(), arguments).1);
}

/// A run's page: the schedule it ran, with what one step took beside what was predicted.
#[test]
fn a_run_has_a_page_too() {
    let folder = TempDir::new().unwrap();
    let run_on = |images: &str, more: &str| {
        let tiny = TINY.replace("--samples 80", images);
        let arguments = format!("{tiny} --model vgg-small --policy all --min-offload 1KiB {more}");
        let called = vdnn_in(folder.path(), &arguments);
        assert_eq!(called.status, 0, "{}", called.document);
        called
    };
    let run = |more: &str| run_on("--samples 80", more);
    let with = run("--max-steps 4 --report run.html --out run.json");
    let html = fs::read_to_string(folder.path().join("run.html")).unwrap();
    is_whole(&html);
    assert_eq!(figures(&html), with.document);
    assert_eq!(with.text("weights_sha256"), run("--max-steps 4").text("weights_sha256"), "timing changes no number");
    for part in ["streams-measured", "streams-predicted", "measured ms", "predicted", "timed step"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.contains("<th>floor of the policy</th><td>not known</td>"));
    assert!(html.contains("(kernels alone)"), "the bound without a budget");
    let schedule = read_schedule(&fs::read_to_string(folder.path().join("run.json")).unwrap()).unwrap();
    let live = vdnn::schedule::stats(&schedule).live_peak.bytes;
    assert_eq!(columns(&html).iter().map(|kinds| kinds.iter().sum::<u64>()).max(), Some(live));
    let timed =
        schedule.commands.iter().filter(|c| matches!(c.action, Action::Launch { .. } | Action::Transfer { .. }));
    let measured = &html[html.find("streams-measured").unwrap()..html.find("streams-predicted").unwrap()];
    let spans: f64 = all(measured, "rect").iter().map(|bar| bar.number("data-spans")).sum();
    let timed = timed.count();
    // A kernel that does nothing may take no time.
    assert!(spans as usize <= timed && spans as usize * 10 >= timed * 9, "{spans} of {timed}");
    // Within a budget the page states the floor that a budget of nothing is refused with.
    run("--max-steps 1 --budget 8MiB --report limited.html");
    let refused = vdnn_in(
        folder.path(),
        &format!("{TINY} --model vgg-small --policy all --min-offload 1KiB --max-steps 1 --budget 1"),
    );
    let floor = refused.document["floor_bytes"].as_u64().unwrap();
    let limited = fs::read_to_string(folder.path().join("limited.html")).unwrap();
    assert!(
        limited.contains("<th>floor of the policy</th>") && limited.contains(&format!("({floor} bytes)</td>")),
        "{floor}"
    );
    // Five full batches and a partial one: a run that goes on with that times nothing, and says so.
    run_on("--samples 84", "--max-steps 5 --epochs 1 --output saved --report first.html");
    run_on("--samples 84", "--epochs 1 --resume saved --report rest.html");
    let rest = fs::read_to_string(folder.path().join("rest.html")).unwrap();
    is_whole(&rest);
    assert!(rest.contains("no step of a full batch was timed") && !rest.contains("streams-measured"));
}

#[test]
fn what_users_get_wrong() {
    assert!(fails(2, "report", &["required arguments"]).errors.contains("--html"));
    fails(1, "report --html nowhere/page.html", &["nowhere/page.html", "create nowhere first"]);
    fails(1, "train --device cpu --report nowhere/page.html", &["nowhere/page.html", "create nowhere first"]);
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("taken")).unwrap();
    let arguments = "report --html taken";
    check_failure(vdnn_in(folder.path(), arguments), 1, arguments, &["cannot write taken"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    let options = "--model vgg16 -b 64 --policy all --budget 1GiB";
    let plan = fails(1, &format!("plan {options}"), &["budget"]);
    let report = fails(1, &format!("report {options} --html page.html"), &["budget"]);
    assert_eq!(report.document, plan.document, "below the floor both say the same");
}
