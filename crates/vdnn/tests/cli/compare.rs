//! `vdnn compare`: what cells say and agree with, the table, the CSV and SVG files, and what users get wrong.

use crate::markup::elements;
use crate::{Called, check_failure, fails, succeeds, text_in, vdnn_in};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const SMALL: &str = "compare --models vgg-small --min-offload 1KiB -b 16";

fn cells(called: &Called) -> &Vec<Value> {
    called.document["cells"].as_array().unwrap()
}

fn bytes(cell: &Value, key: &str) -> u64 {
    cell[key].as_u64().unwrap_or_else(|| panic!("{key} is no number of bytes in {cell}"))
}

fn text<'a>(cell: &'a Value, key: &str) -> &'a str {
    cell[key].as_str().unwrap_or_else(|| panic!("{key} is no string in {cell}"))
}

fn succeeds_in(folder: &Path, arguments: &str) -> Called {
    let called = vdnn_in(folder, arguments);
    assert_eq!(called.status, 0, "{arguments}: {}", called.document);
    called
}

/// Shares of a budget run from the least floor to what `none` takes; a cell has a plan exactly when its budget reaches its
/// policy's floor, and keeps it.
#[test]
fn cells_keep_their_budgets() {
    let called =
        succeeds(&format!("{SMALL} --machines toy,titan-x --policies none,conv,dyn --budgets none,0%,50%,100%,1KiB"));
    let cells = cells(&called);
    assert_eq!(cells.len(), 2 * 3 * 5);
    let cases = called.document["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    for (case, cells) in cases.iter().zip(cells.chunks(3 * 5)) {
        let (floor, none) = (bytes(case, "least_floor_bytes"), bytes(case, "none_peak_bytes"));
        assert!(floor < none, "{case}");
        let half = floor + (none - floor).div_ceil(2);
        for (policy, cells) in ["none", "conv", "dyn"].into_iter().zip(cells.chunks(5)) {
            let budgets: Vec<Option<u64>> = cells.iter().map(|cell| cell["budget_bytes"].as_u64()).collect();
            assert_eq!(budgets, [None, Some(floor), Some(half), Some(none), Some(1024)]);
            let shares: Vec<Option<f64>> = cells.iter().map(|cell| cell["budget_percent"].as_f64()).collect();
            assert_eq!(shares, [None, Some(0.0), Some(50.0), Some(100.0), None]);
            for cell in cells {
                assert_eq!((text(cell, "policy"), &cell["machine"]), (policy, &case["machine"]));
                check_cell(case, cell);
            }
        }
        let planned = |cell: &Value| cell["planned"] == true && cell["budget_percent"] == 0.0;
        assert!(cells.iter().any(planned), "some policy plans at the least floor");
        let refused = |cell: &Value| cell["planned"] == false && cell["budget_bytes"] == 1024;
        assert_eq!(cells.iter().filter(|cell| refused(cell)).count(), 3, "none plans in 1 KiB");
    }
}

fn check_cell(case: &Value, cell: &Value) {
    let budget = cell["budget_bytes"].as_u64().unwrap_or(u64::MAX);
    assert_eq!(cell["planned"].as_bool().unwrap(), budget >= bytes(cell, "floor_bytes"), "{cell}");
    assert_eq!(cell["oracle_ms"], case["oracle_ms"]);
    let of_the_plan =
        "peak_bytes host_peak_bytes offload_bytes prefetch_bytes recompute_ms predicted_ms slowdown_percent";
    for key in of_the_plan.split(' ') {
        assert_eq!(cell[key].is_null(), cell["planned"] == false, "{key} of {cell}");
    }
    assert!(cell["planning_seconds"].is_f64());
    if cell["planned"] == true {
        assert!(bytes(cell, "peak_bytes") <= budget && cell["refusal"].is_null());
        let (predicted, oracle) = (cell["predicted_ms"].as_f64().unwrap(), cell["oracle_ms"].as_f64().unwrap());
        assert!(predicted >= oracle * (1.0 - 1e-12));
        let slowdown = (predicted / oracle - 1.0) * 100.0;
        assert!((cell["slowdown_percent"].as_f64().unwrap() - slowdown).abs() < 1e-9);
    } else {
        assert!(text(cell, "refusal").contains("needs at least"), "{cell}");
    }
}

/// The order and the figures do not depend on how many threads plan.
#[test]
fn threads_change_nothing() {
    let arguments = format!("{SMALL},24 --machines titan-x,h200 --link-scale 0.5,2");
    let without_times = |threads: &str| {
        let called = succeeds(&format!("{arguments} {threads}"));
        let mut cells = cells(&called).clone();
        cells.iter_mut().for_each(|cell| cell["planning_seconds"] = Value::Null);
        cells
    };
    let alone = without_times("--threads 1");
    assert_eq!(alone, without_times("--threads 5"));
    let order: Vec<(u64, &str, f64)> = alone
        .iter()
        .map(|cell| (bytes(cell, "batch_size"), text(cell, "machine"), cell["link_scale"].as_f64().unwrap()))
        .collect();
    let mut cases = order.clone();
    cases.dedup();
    let expected = [16, 24].into_iter().flat_map(|batch| {
        ["titan-x", "h200"].into_iter().flat_map(move |machine| [0.5, 2.0].map(|scale| (batch, machine, scale)))
    });
    assert_eq!(cases, expected.collect::<Vec<_>>());
    let policies: BTreeSet<&str> = alone.iter().map(|cell| text(cell, "policy")).collect();
    let listed = succeeds("policies");
    let listed: BTreeSet<&str> = listed.document.as_array().unwrap().iter().map(|p| text(p, "name")).collect();
    assert_eq!(policies, listed, "every policy unless some are named");
}

/// A cell is what `plan` says for the same question.
#[test]
fn cells_agree_with_plan() {
    let how = "--machine titan-x --policy conv --budget 6MiB --momentum 0 --prefetch paper --sync per-layer \
               --min-offload 1KiB --link-scale 0.5";
    let plan = succeeds(&format!("plan --model vgg-small -b 16 {how}"));
    let compared = succeeds(&format!("compare --model vgg-small -b 16 {how}"));
    let cell = &cells(&compared)[0];
    assert_eq!(cell["planned"], true, "{cell}");
    for key in "policy machine budget_bytes peak_bytes host_peak_bytes floor_bytes offload_bytes prefetch_bytes \
                predicted_ms oracle_ms"
        .split_whitespace()
    {
        assert_eq!(cell[key], plan.document[key], "{key}");
    }
    assert!(bytes(cell, "offload_bytes") > 0);
}

/// Slower links never make a fixed choice of copies faster.
#[test]
fn links_are_swept() {
    let called =
        succeeds(&format!("{SMALL} --policies all --budgets none --link-scale 0.01,0.1,1,10 --sync per-layer"));
    let times: Vec<f64> = cells(&called).iter().map(|cell| cell["predicted_ms"].as_f64().unwrap()).collect();
    assert!(times.is_sorted_by(|slow, fast| slow >= fast), "{times:?}");
    assert!(times[0] > 5.0 * times[2], "{times:?}");
    let plan = |scale: &str| {
        succeeds(&format!("plan --model vgg-small -b 16 --policy all --min-offload 1KiB --sync per-layer {scale}"))
            .number("predicted_ms")
    };
    assert_eq!(plan("--link-scale 0.01"), times[0]);
    assert_eq!(plan(""), times[2]);
}

#[test]
fn host_budgets_hold_too() {
    let called = succeeds(&format!("{SMALL} --policies all,none --budgets none --host-budget 1KiB"));
    let cells = cells(&called);
    assert_eq!(cells[0]["planned"], false);
    assert!(text(&cells[0], "refusal").contains("host budget is 1.00 KiB"), "{}", cells[0]);
    assert_eq!(cells[1]["planned"], true);
    let table = text_in(Path::new("."), &format!("{SMALL} --policies all --budgets none --host-budget 1KiB"));
    assert!(table.contains("host too small"), "{table}");
}

/// Columns are apart by two spaces, and none is empty.
#[test]
fn the_table_is_aligned() {
    let table =
        text_in(Path::new("."), &format!("{SMALL} --machines toy,titan-x --policies none,all --budgets 0%,12GiB"));
    let columns = |line: &str| line.split("  ").filter(|cell| !cell.trim().is_empty()).count();
    let (cells, below): (Vec<&str>, Vec<&str>) =
        table.lines().filter(|line| !line.is_empty()).partition(|line| columns(line) > 1);
    assert_eq!(cells.len(), 1 + 2 * 2 * 2, "{table}");
    assert!(cells.iter().all(|line| columns(line) == 15), "{table}");
    for head in "model batch machine policy budget peak host offloaded predicted oracle slowdown bound gap".split(' ') {
        assert!(cells[0].contains(head), "{head} in {}", cells[0]);
    }
    assert!(table.contains("floor "), "a cell without a plan states its floor: {table}");
    let ends: BTreeSet<usize> = cells.iter().map(|line| line.chars().count()).collect();
    assert_eq!(ends.len(), 1, "the last column is aligned to the right: {table}");
    assert_eq!(below.len(), 2, "{table}");
    assert!(below[0].starts_with("vgg-small, batch 16, toy: 0% is "), "{table}");
}

/// A machine whose name needs quoting everywhere.
pub fn odd_machine(folder: &Path) {
    let toy = include_str!("../../../sim/machines/toy.json");
    let odd = toy.replacen("\"name\": \"toy\"", "\"name\": \"mine, <\\\"new\\\"> & best\"", 1);
    assert_ne!(odd, toy);
    fs::write(folder.join("odd.json"), odd).unwrap();
}

/// Fields of one line of a CSV file.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = fields.last_mut().unwrap();
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => last.push(letters.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => last.push(other),
        }
    }
    assert!(!quoted, "an open quote in {line}");
    fields
}

/// The CSV file holds what the document holds.
#[test]
fn csv_reads_back() {
    let folder = TempDir::new().unwrap();
    odd_machine(folder.path());
    let called =
        succeeds_in(folder.path(), &format!("{SMALL} --machines odd.json --budgets none,50%,0% --csv out.csv"));
    let file = fs::read_to_string(folder.path().join("out.csv")).unwrap();
    let mut lines = file.lines();
    let keys = fields(lines.next().unwrap());
    let cells = cells(&called);
    let of_the_document: BTreeSet<&String> = cells[0].as_object().unwrap().keys().collect();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>(), of_the_document);
    for cell in cells {
        let line = fields(lines.next().expect("a line for each cell"));
        assert_eq!(line.len(), keys.len());
        for (key, field) in keys.iter().zip(&line) {
            let expected = match &cell[key] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                // Reading a fraction back may cost its last digit.
                Value::Number(number) if number.is_f64() => {
                    let (found, expected) = (field.parse::<f64>().unwrap(), number.as_f64().unwrap());
                    assert!((found - expected).abs() <= 1e-14 * expected.abs(), "{key}: {found} {expected}");
                    continue;
                }
                other => other.to_string(),
            };
            assert_eq!(*field, expected, "{key}");
        }
    }
    assert_eq!(lines.next(), None);
    let left: BTreeSet<String> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, ["odd.json".to_string(), "out.csv".to_string()].into(), "no temporary file stays");
}

#[test]
fn svg_is_whole_and_needs_nothing_else() {
    for axes in ["", "--svg-x budget --svg-y ms", "--svg-log"] {
        let folder = TempDir::new().unwrap();
        odd_machine(folder.path());
        let arguments = format!(
            "{SMALL},24 --machines odd.json,titan-x --policies none,conv,dyn --budgets 0%,50%,100% --svg out.svg"
        );
        let called = succeeds_in(folder.path(), &format!("{arguments} {axes}"));
        let svg = fs::read_to_string(folder.path().join("out.svg")).unwrap();
        let elements = elements(&svg);
        assert_eq!(elements[0], "svg");
        assert_eq!(elements.iter().filter(|&&name| name == "g").count(), 4, "a panel for each case");
        assert!(!svg.contains("href") && !svg.contains("url(") && svg.matches("http").count() == 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let labels = if !axes.contains("budget") {
            ["peak device memory, MiB", "slowdown over the fastest kernels, %"]
        } else {
            ["budget of device memory, MiB", "predicted step, ms"]
        };
        assert!(labels.iter().all(|label| svg.matches(&format!(">{label}<")).count() == 4), "{svg}");
        assert!(["none", "conv", "dyn"].iter().all(|policy| svg.contains(&format!(">{policy}</text>"))));
        assert!(svg.contains("vgg-small, batch 16, mine, &lt;&quot;new&quot;&gt; &amp; best"));
        // One marker for each different point, with its figures.
        let x = if !axes.contains("budget") { "peak_bytes" } else { "budget_bytes" };
        let planned = cells(&called).iter().filter(|cell| cell["planned"] == true);
        let points: BTreeSet<String> = planned
            .map(|c| format!("{} {} {} {} {}", c["batch_size"], c["machine"], c["policy"], c[x], c["predicted_ms"]))
            .collect();
        let markers = svg.matches("<title>").count() - svg.matches("<title>no plan is below").count() - 1;
        assert_eq!(markers, points.len());
    }
}

/// A budget that no policy keeps is still a drawing.
#[test]
fn an_empty_panel_says_so() {
    let folder = TempDir::new().unwrap();
    succeeds_in(folder.path(), &format!("{SMALL} --budgets 1 --svg out.svg"));
    let svg = fs::read_to_string(folder.path().join("out.svg")).unwrap();
    elements(&svg);
    assert!(svg.contains("no plan within these budgets") && !svg.contains("NaN"));
}

#[test]
fn what_users_get_wrong() {
    fails(2, "compare --budgets 101%", &["--budgets", "0% to 100%", "101%"]);
    fails(2, "compare --budgets 50%,nan%", &["0% to 100%", "nan%"]);
    fails(2, "compare --budgets=-5%", &["0% to 100%", "-5%"]);
    fails(2, "compare --budgets 12Gx", &["12Gx", "12GiB"]);
    fails(2, "compare --link-scale 0", &["--link-scale", "above 0"]);
    fails(2, "plan --link-scale inf", &["--link-scale", "above 0", "inf"]);
    fails(2, "compare --fallback h200", &["required arguments"]);
    fails(1, "compare --policies none,conf", &["conf", "conv"]);
    fails(1, "compare --policies dyn,none,dyn", &["each policy once", "dyn"]);
    fails(1, "compare --machines titan", &["titan-x"]);
    fails(1, "compare --machines nowhere/x.json", &["nowhere/x.json"]);
    fails(1, "compare --models resnet-51", &["resnet-51", "resnet"]);
    fails(1, "compare -b 64,0", &["at least 1", "found 0"]);
    fails(1, "compare --threads 0", &["--threads", "expected 1 to"]);
    fails(1, "compare --profile nowhere.json", &["nowhere.json"]);
    fails(1, "compare --svg nowhere/out.svg", &["nowhere/out.svg", "folder"]);
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("taken")).unwrap();
    let arguments = format!("{SMALL} --csv taken");
    check_failure(vdnn_in(folder.path(), &arguments), 1, &arguments, &["cannot write taken"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
}

/// A profile of another device, or of other networks, is refused by what it lacks, and completed only on request.
#[test]
fn profiles_of_other_kernels() {
    let folder = TempDir::new().unwrap();
    let profile = r#"{ "format": 1, "device": "Other Card", "made": "by hand", "d2h": 1e9, "h2d": 1e9, "duplex_each": 1e9,
        "kernels": [] }"#;
    fs::write(folder.path().join("other.json"), profile).unwrap();
    fs::write(folder.path().join("new.json"), profile.replacen("1,", "99,", 1)).unwrap();
    let refused = |arguments: &str, words: &[&str]| {
        check_failure(vdnn_in(folder.path(), arguments), 1, arguments, words);
    };
    refused(&format!("{SMALL} --profile new.json"), &["new.json", "expected format 1, found 99"]);
    let strict = format!("{SMALL} --policies none --budgets none --profile other.json");
    refused(&strict, &["kernels are not in the profile", "Other Card", "vdnn profile"]);
    refused(&format!("{strict} --fallback h20"), &["h20", "h200"]);
    let called = succeeds_in(folder.path(), &format!("{strict} --fallback titan-x --machines titan-x"));
    let [modelled, profiled] = called.document["cases"].as_array().unwrap().as_slice() else { panic!("two cases") };
    assert_eq!((text(modelled, "machine"), text(profiled, "machine")), ("titan-x", "Other Card"));
    assert_eq!(profiled["measured_kernels"], 0);
    assert!(bytes(profiled, "modelled_kernels") > 0);
    assert_eq!(profiled["oracle_ms"], modelled["oracle_ms"]);
}

/// Where layers are fused, `plan` tries norms of residuals apart within a budget, and a cell is the same plan; its floor is the least
/// budget at which there is one.
#[test]
fn cells_near_the_floor_are_plans_with_norms_apart() {
    let network = "-b 16 --dtype bf16 --policy hybrid";
    let how = format!("--machine h200 {network}");
    let compared = succeeds(&format!("compare --model resnet50 {how} --budgets 0%,200MiB,none"));
    let cells = cells(&compared);
    for cell in &cells[..2] {
        let budget = bytes(cell, "budget_bytes");
        let plan = succeeds(&format!("plan --model resnet50 {how} --budget {budget}"));
        for key in ["predicted_ms", "peak_bytes", "offload_bytes", "recompute_ms", "encoded_nodes"] {
            assert_eq!(cell[key], plan.document[key], "{key} in {budget} bytes");
        }
    }
    let floor = bytes(&cells[0], "floor_bytes");
    assert_eq!(bytes(&cells[0], "budget_bytes"), floor);
    let fused = succeeds(&format!("plan --model resnet50 {how}"));
    assert!(floor < bytes(&fused.document, "floor_bytes"), "norms apart lower the floor: {floor}, {}", fused.document);
    assert_eq!(cells[2]["predicted_ms"], fused.document["predicted_ms"], "without a budget norms stay fused");
}
