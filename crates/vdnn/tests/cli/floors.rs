//! Planning between the floor and what keeping everything takes: ResNet-50 in bf16 with the recorded times of an H200, where a few
//! maps of the first stage fill the device, and a deep VGG.

use crate::succeeds;

const PROFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/profiles/h200-bf16-resnet50.json");

/// By budget in MiB: how many times the bound a plan may take. Three maps of the first stage are 1,176 MiB, and the images 147.
/// In 1,792 a sum is made again over a map that it reads; with three maps there the plan is 1.69 times the bound. The search is rugged
/// there: by profiles of different days the same program took 1.11 to 1.18 times its bound.
const BUDGETS: [(u64, f64); 3] = [(1792, 1.2), (2200, 1.12), (3000, 1.06)];

#[test]
fn plans_near_the_floor_stay_near_the_bound_and_rise_with_no_budget() {
    let mut before = f64::INFINITY;
    for (budget, most) in BUDGETS {
        let planned = succeeds(&format!(
            "plan --policy hybrid --profile {PROFILE} --machine h200 --model resnet50 --batch-size 256 --dtype bf16 --budget {budget}MiB"
        ));
        let (predicted, bound) = (planned.number("predicted_ms"), planned.number("lower_bound_ms"));
        assert!(planned.number("peak_bytes") <= (budget << 20) as f64);
        assert_eq!(planned.document["violations"].as_array().map(Vec::len), Some(0));
        assert!(predicted <= bound * most, "{budget} MiB: {predicted} ms, the bound is {bound}");
        assert!(predicted < before, "{budget} MiB: {predicted} ms, with fewer bytes {before}");
        before = predicted;
    }
}

/// With images as bytes 1,850 MiB hold four maps. A block's input is made again with its downsampled branch first, or what is copied twice stays
/// away only where its next use is far; else the plan is 1.37 times the bound.
#[test]
fn four_maps_are_enough() {
    let asked = "--model resnet50 --batch-size 256 --dtype bf16 --budget 1850MiB --bytes";
    let planned = succeeds(&format!("plan --policy hybrid --profile {PROFILE} --machine h200 {asked}"));
    let (predicted, bound) = (planned.number("predicted_ms"), planned.number("lower_bound_ms"));
    assert!(planned.number("peak_bytes") <= (1850u64 << 20) as f64);
    assert_eq!(planned.document["violations"].as_array().map(Vec::len), Some(0));
    assert!(predicted <= bound * 1.25, "{predicted} ms, the bound is {bound}");
}

/// dX of a fused gradient lies over the second part of dY: the largest step holds three maps of 392 MiB, not four. Images as bytes
/// are a quarter of their 147 MiB.
#[test]
fn the_floor_of_a_bottleneck_network_is_three_maps() {
    let floor = |more: &str| {
        let asked = "--model resnet50 --batch-size 256 --dtype bf16 --budget 1MiB";
        let refused = crate::vdnn(&format!("plan --policy hybrid --profile {PROFILE} --machine h200 {asked} {more}"));
        refused.number("floor_bytes")
    };
    let images = (256 * 3 * 224 * 224 * 4) as f64;
    let whole = floor("");
    assert!(whole < (1400u64 << 20) as f64, "{whole}");
    let with_bytes = floor("--bytes");
    assert!(with_bytes <= whole - 0.7 * images, "{with_bytes} with bytes, {whole} without");
}

/// Most bytes of a deep VGG are made at its beginning, faster than a link carries them. What keeps the link busy and makes again no more
/// than the room then demands is this near the bound; without, plans were 0.5 to 2.9 % above it.
#[test]
fn a_deep_network_fills_room_and_link() {
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/profiles/h200-f32-vgg416.json");
    let recorded = format!("--machine h200 --dtype f32 --profile {profile}");
    for (machine, budget, most) in
        [("--machine titan-x", 4608u64, 1.0045), (&recorded, 24 << 10, 1.012), (&recorded, 4608, 1.023)]
    {
        let asked = format!("plan {machine} --model vgg-416 --batch-size 32 --policy hybrid --budget {budget}MiB");
        let planned = succeeds(&asked);
        let (predicted, bound) = (planned.number("predicted_ms"), planned.number("lower_bound_ms"));
        assert!(planned.number("peak_bytes") <= (budget << 20) as f64);
        assert_eq!(planned.document["violations"].as_array().map(Vec::len), Some(0));
        assert!(predicted <= bound * most, "{asked}: {predicted} ms, the bound is {bound}");
    }
}
