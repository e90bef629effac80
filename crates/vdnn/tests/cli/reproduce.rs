//! `vdnn reproduce`: its figures are those of `vdnn plan`, its layers those of closed formulas, its files agree with each other.

use crate::markup::{all, elements};
use crate::{check_failure, fails, succeeds, vdnn_in};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn reproduced(folder: &Path, only: &str) -> Value {
    let called = vdnn_in(folder, &format!("reproduce --only {only} --out here"));
    assert_eq!(called.status, 0, "{only}: {}", called.document);
    called.document
}

fn rows<'a>(document: &'a Value, figure: &str) -> &'a Vec<Value> {
    document["figures"][figure]["rows"].as_array().unwrap_or_else(|| panic!("no {figure} in {document}"))
}

fn row<'a>(rows: &'a [Value], network: &str) -> &'a Value {
    rows.iter().find(|row| row["network"] == network).unwrap_or_else(|| panic!("no {network}"))
}

/// Every plan is what its command prints; figures are taken from there.
#[test]
fn figures_are_those_of_the_plans() {
    let folder = TempDir::new().unwrap();
    let document = reproduced(folder.path(), "fig1,fig15");
    let plans = document["plans"].as_array().unwrap();
    // Ten baselines, and of the five deep networks three policies, four of their baselines among the ten.
    assert_eq!(plans.len(), 10 + 15 - 4);
    let find = |model: &str, batch: u64, policy: &str| {
        let is_it = |plan: &&Value| plan["model"] == model && plan["batch"] == batch && plan["policy"] == policy;
        plans.iter().find(is_it).unwrap_or_else(|| panic!("{model} {batch} {policy}"))
    };
    for (model, batch, policy) in [("alexnet", 128, "baseline"), ("vgg16", 32, "dyn"), ("vgg-116", 32, "dyn")] {
        let plan = find(model, batch, policy);
        let printed = succeeds(plan["command"].as_str().unwrap().strip_prefix("vdnn ").unwrap()).document;
        for (key, value) in printed.as_object().unwrap().iter().filter(|(key, _)| *key != "planning_seconds") {
            assert_eq!(&plan[key], value, "{key} of {model} under {policy}");
        }
    }
    let (fig1, fig15) = (rows(&document, "fig1"), rows(&document, "fig15"));
    assert_eq!(
        row(fig1, "alexnet (128)")["baseline_bytes"].as_f64(),
        find("alexnet", 128, "baseline")["peak_bytes"].as_f64()
    );
    let (deep, dynamic) = (row(fig15, "vgg-116 (32)"), find("vgg-116", 32, "dyn"));
    assert_eq!(deep["dyn_host_bytes"].as_f64(), dynamic["host_peak_bytes"].as_f64());
    let slowdown = (dynamic["predicted_ms"].as_f64().unwrap() / dynamic["oracle_ms"].as_f64().unwrap() - 1.0) * 100.0;
    assert!((deep["dyn_slowdown_percent"].as_f64().unwrap() - slowdown).abs() < 1e-9);
    // No kernel touches more than a convolution of the first group: X, dY, dX and its workspace (of VGG-16 two maps of it).
    let map = 32.0 * 64.0 * 224.0 * 224.0 * 4.0;
    let largest = row(fig1, "vgg-416 (32)")["largest_kernel_bytes"].as_f64().unwrap();
    assert!(largest >= 2.0 * map && largest <= 4.0 * map, "{largest}");
    assert!(deep["dyn_average_bytes"].as_f64() < deep["dyn_peak_bytes"].as_f64());
}

/// What the baseline's memory is for adds up to what it allocates.
#[test]
fn kinds_add_up() {
    let document = reproduced(TempDir::new().unwrap().path(), "fig4");
    for row in rows(&document, "fig4") {
        let of = |key: &str| row[key].as_f64().unwrap();
        let parts = ["parameter_bytes", "workspace_bytes", "feature_map_bytes", "gradient_map_bytes"].map(of);
        let plans = document["plans"].as_array().unwrap().iter();
        let name = |plan: &Value| format!("{} ({})", plan["model"].as_str().unwrap(), plan["batch"]);
        let plan = plans.into_iter().find(|plan| row["network"] == name(plan)).unwrap();
        assert_eq!(Some(parts.iter().sum::<f64>()), plan["live_peak_bytes"].as_f64(), "{row}");
        assert!((of("feature_maps_percent") - parts[2] / parts.iter().sum::<f64>() * 100.0).abs() < 1e-9);
    }
    // 123.6 million weights and their gradients, and the classifier's maps: 512·7·7, 4096 (before and after dropout) twice, 1000.
    let vgg = row(rows(&document, "fig4"), "vgg16 (256)");
    let weights = (25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000) as f64 * 4.0 * 2.0;
    let whole = 256.0 * 4.0;
    let classifier = |share: f64| {
        let all: f64 = ["parameter_bytes", "workspace_bytes", "feature_map_bytes", "gradient_map_bytes"]
            .map(|key| vgg[key].as_f64().unwrap())
            .iter()
            .sum();
        (1.0 - share / 100.0) * all
    };
    let found = classifier(vgg["feature_extraction_percent"].as_f64().unwrap());
    let maps = found - weights;
    assert!(maps >= whole * (2.0 * 4096.0 + 1000.0) - 1.0 && maps <= whole * (4.0 * 4096.0 + 3.0 * 1000.0), "{maps}");
}

/// Sizes of VGG-16's layers by formula, times of X by what `vdnn plan --explain` says.
#[test]
fn layers_are_those_of_the_network() {
    let document = reproduced(TempDir::new().unwrap().path(), "fig5,fig6");
    let layer = |figure: &str, name: &str| {
        rows(&document, figure).iter().find(|row| row["layer"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    assert_eq!(rows(&document, "fig5").len(), 16, "thirteen convolutions, three fully connected layers");
    let second = layer("fig5", "features.5");
    assert_eq!(second["x_bytes"], 256u64 * 64 * 112 * 112 * 4);
    assert_eq!(second["y_bytes"], 256u64 * 128 * 112 * 112 * 4);
    assert_eq!(second["weight_bytes"], (128 * 64 * 9 + 128) * 4);
    let plan = "plan --model vgg16 -b 256 --machine titan-x --momentum 0 --policy none";
    let told = succeeds(&format!("{plan} --explain features.4")).document;
    let longest = told["gaps"].as_array().unwrap().iter().map(|gap| gap["simulated_ms"].as_f64().unwrap());
    let times = layer("fig6", "features.5");
    assert_eq!(times["reuse_ms"].as_f64(), longest.reduce(f64::max));
    let backward = times["backward_ms"].as_f64().unwrap() / times["forward_ms"].as_f64().unwrap();
    assert!((1.9..2.5).contains(&backward), "two products, and the update: {backward}");
    assert_eq!(document["plans"].as_array().map(Vec::len), Some(0));
}

/// Claims count as they say, and the files hold what the document holds.
#[test]
fn files_agree_with_the_document() {
    let folder = TempDir::new().unwrap();
    let document = reproduced(folder.path(), "claims,fig12");
    let here = folder.path().join("here");
    let read = |name: &str| fs::read_to_string(here.join(name)).unwrap();
    let files: BTreeSet<String> =
        fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let expected = ["claims.csv", "fig12.csv", "fig12.svg", "paper.md", "plans.json"].map(String::from);
    assert_eq!(files, expected.into());
    for claim in rows(&document, "claims") {
        let of = |key: &str| claim[key].as_f64().unwrap_or_else(|| panic!("{key} of {claim}"));
        let difference =
            if claim["in"] == "%" { (of("here") / of("paper") - 1.0) * 100.0 } else { of("here") - of("paper") };
        assert!((of("difference") - difference).abs() < 1e-9, "{claim}");
    }
    let csv = read("fig12.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "network,all_bytes,conv_bytes,dyn_bytes,feature_map_bytes");
    for (line, row) in lines[1..].iter().zip(rows(&document, "fig12")) {
        let fields: Vec<f64> = line.split(',').skip(1).map(|field| field.parse().unwrap()).collect();
        let keys = ["all_bytes", "conv_bytes", "dyn_bytes", "feature_map_bytes"];
        assert_eq!(fields, keys.map(|key| row[key].as_f64().unwrap()), "{line}");
        assert!(fields[0] >= fields[1] && fields[0] <= fields[3]);
    }
    assert_eq!(lines.len(), 11);
    let svg = read("fig12.svg");
    assert_eq!(elements(&svg)[0], "svg");
    assert!(!svg.contains("NaN") && svg.matches("http").count() == 1);
    let bars = all(&svg, "rect").iter().filter(|bar| bar.inside.starts_with("<title>")).count();
    assert_eq!(bars, 30, "three a network");
    let markdown = read("paper.md");
    assert!(markdown.contains("](fig12.svg)") && markdown.contains("## Not reproduced"));
    // VGG-16 (256): the paper's table less the image and the last feature layer.
    assert!(markdown.contains("| vgg16 (256) | 15.31 | 9.15 |"), "{markdown}");
    let plans: Value = serde_json::from_str(&read("plans.json")).unwrap();
    assert_eq!(plans, document["plans"]);
    assert!(plans.as_array().unwrap().iter().all(|plan| plan["planning_seconds"].is_null()));
}

#[test]
fn what_users_get_wrong() {
    fails(2, "reproduce --only fig2", &["fig2", "--only"]);
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("taken"), "").unwrap();
    let arguments = "reproduce --only fig5 --out taken";
    check_failure(vdnn_in(folder.path(), arguments), 1, arguments, &["cannot make the folder taken"]);
}
