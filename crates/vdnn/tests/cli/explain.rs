//! `vdnn plan --explain VALUE`: what it says of values that stay, leave and have homes, and of names that are none.

use crate::{Called, fails, succeeds, text_in};
use serde_json::Value;
use std::path::Path;

const PLAN: &str = "plan --model vgg16 -b 64 --machine titan-x --policy conv";

fn explained(more: &str) -> Called {
    succeeds(&format!("{PLAN} {more}"))
}

fn list<'a>(document: &'a Value, key: &str) -> &'a Vec<Value> {
    document[key].as_array().unwrap_or_else(|| panic!("{key} is no list in {document}"))
}

fn step(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no step in {value}"))
}

/// A convolution's output, overwritten in place, that leaves between forward and backward.
#[test]
fn a_value_that_leaves() {
    let called = explained("--explain features.5");
    let document = &called.document;
    assert_eq!((called.text("value"), called.text("producer")), ("features.5", "features.5"));
    assert_eq!((called.text("role"), called.text("policy")), ("feature_map", "conv"));
    let bytes = 64.0 * 128.0 * 112.0 * 112.0 * 4.0;
    assert_eq!(called.number("bytes"), bytes);
    assert_eq!(document["storage"]["values"], serde_json::json!(["features.5", "features.6"]));
    let uses = list(document, "uses");
    assert!(uses.is_sorted_by_key(|used| step(used, "step")));
    assert_eq!(uses[0]["writes"][0], "features.5");
    assert_eq!(uses.last().unwrap()["phase"], "backward");
    let gaps = list(document, "gaps");
    assert_eq!(gaps.len(), uses.len() - 1);
    for (gap, pair) in gaps.iter().zip(uses.windows(2)) {
        assert_eq!((&gap["from_step"], &gap["to_step"]), (&pair[0]["step"], &pair[1]["step"]));
        assert_eq!(step(gap, "idle_steps"), step(gap, "to_step") - step(gap, "from_step") - 1);
        assert!(gap["simulated_ms"].as_f64().unwrap() >= gap["compute_ms"].as_f64().unwrap() - 1e-6, "{gap}");
    }
    let away: Vec<&Value> = gaps.iter().filter(|gap| gap["residency"] == "offload").collect();
    let [away] = away.as_slice() else { panic!("one gap away: {document}") };
    let (release, fetch) = (step(&away["release"], "step"), step(&away["fetch"], "step"));
    assert!(step(away, "from_step") < release && release <= fetch && fetch <= step(away, "to_step"), "{away}");
    // 12.8 GB/s after 10 µs.
    assert!((away["offload_ms"].as_f64().unwrap() - (bytes / 12.8e9 * 1e3 + 0.01)).abs() < 1e-9);
    assert!(away["recompute_ms"].as_f64().unwrap() > 0.0);
    let lies = list(document, "lies");
    let spaces: Vec<&str> = lies.iter().map(|lies| lies["space"].as_str().unwrap()).collect();
    assert_eq!(spaces, ["device", "device", "host"]);
    assert_eq!(step(&lies[0], "from_step"), step(&uses[0], "step"));
    assert_eq!((step(&lies[0], "until_step"), step(&lies[1], "from_step")), (release - 1, fetch));
    assert_eq!(step(&lies[1], "until_step"), step(uses.last().unwrap(), "step"));
    let peak = succeeds(PLAN).number("peak_bytes");
    assert!(lies[..2].iter().all(|lies| (step(lies, "offset") + step(lies, "bytes")) as f64 <= peak));
}

/// The same value under a policy that keeps it, on a slower link: nothing leaves, and leaving would cost more.
#[test]
fn a_value_that_stays() {
    let called = succeeds("plan --model vgg16 -b 64 --policy none --link-scale 0.5 --explain %features.5");
    let gaps = list(&called.document, "gaps");
    assert!(gaps.iter().all(|gap| gap["residency"] == "keep" && gap["release"].is_null()));
    let longest = gaps.iter().max_by_key(|gap| step(gap, "idle_steps")).unwrap();
    assert!(longest["note"].as_str().unwrap().contains("policy none keeps it"), "{longest}");
    let bytes = called.number("bytes");
    assert!((longest["offload_ms"].as_f64().unwrap() - (bytes / 6.4e9 * 1e3 + 0.01)).abs() < 1e-9);
    assert_eq!(list(&called.document, "lies").len(), 1);
}

/// A weight lives at home, with a gap around the iteration; its update cannot be run again.
#[test]
fn a_value_at_home() {
    let called = explained("--explain features.0.weight");
    assert_eq!(called.text("role"), "parameter");
    assert!(called.document["producer"].is_null());
    let gaps = list(&called.document, "gaps");
    assert_eq!(gaps.iter().filter(|gap| gap["wraps"] == true).count(), 1);
    assert!(gaps.iter().all(|gap| gap["recompute_ms"].is_null()));
    let n_steps = succeeds(PLAN).number("n_steps") as u64;
    let [inside, around] = gaps.as_slice() else { panic!("two gaps: {gaps:?}") };
    assert_eq!(step(inside, "idle_steps") + step(around, "idle_steps") + 2, n_steps);
    let lies = list(&called.document, "lies");
    assert_eq!((lies.len(), &lies[0]["kind"], &lies[0]["from_step"]), (1, &Value::from("home"), &Value::Null));
}

/// The same weight at home in host memory: fetched for forward and for backward, copied home once, after its update.
#[test]
fn a_value_that_streams() {
    let called = explained("--state host --min-offload 0 --explain features.5.weight");
    let gaps = list(&called.document, "gaps");
    let away: Vec<&Value> = gaps.iter().filter(|gap| gap["residency"] == "offload").collect();
    let [inside, around] = away.as_slice() else { panic!("away twice: {gaps:?}") };
    assert_eq!((&inside["wraps"], &inside["copied_down"]), (&Value::Bool(false), &Value::Bool(false)));
    assert_eq!((&around["wraps"], &around["copied_down"]), (&Value::Bool(true), &Value::Bool(true)));
    assert!(inside["note"].as_str().unwrap().contains("still valid"), "{inside}");
    let lies = list(&called.document, "lies");
    assert_eq!((&lies[0]["kind"], &lies[0]["space"]), (&Value::from("home"), &Value::from("host")));
    assert_eq!(lies.iter().filter(|lies| lies["space"] == "device").count(), 2);
    let plan = succeeds(&format!("{PLAN} --state host"));
    assert!(plan.number("streamed_bytes") > plan.number("parameter_bytes"));
    assert_eq!(succeeds(PLAN).number("streamed_bytes"), 0.0);
}

#[test]
fn the_text_says_it_too() {
    let text = text_in(Path::new("."), &format!("{PLAN} --explain features.5"));
    for part in [
        "features.5: f32[64, 128, 112, 112], 392 MiB",
        "writes features.5",
        "reads features.6",
        "offload to host, released at step",
        "ms down",
        "made again in",
        "device[0x",
        "host[0x",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn names_that_are_none() {
    fails(1, &format!("{PLAN} --explain features.5.y"), &["unknown value", "features.5.y", "nearest", "features.5"]);
    fails(1, &format!("{PLAN} --explain %imgae"), &["unknown value \"imgae\"", "image"]);
    fails(1, &format!("{PLAN} --state host --host-budget 1MiB"), &["in host memory", "the host budget is", "stream"]);
    fails(2, &format!("{PLAN} --state here"), &["--state", "device, auto or host", "here"]);
    fails(2, &format!("{PLAN} --explain"), &["--explain"]);
    fails(2, &format!("{PLAN} --print --explain features.5"), &["--print", "--explain"]);
}
