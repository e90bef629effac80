//! `--dtype bf16`, `f16` and `tf32`, and `--fuse`: what they plan and train, what they refuse, and that files stay f32.

use crate::{TINY, fails, succeeds, vdnn_in};
use tempfile::TempDir;

#[test]
fn bf16_trains_and_resumes_and_its_checkpoint_is_of_f32() {
    let folder = TempDir::new().unwrap();
    let train = |more: &str| {
        let called = vdnn_in(folder.path(), &format!("{TINY} --model resnet-small --dtype bf16 {more}"));
        assert_eq!(called.status, 0, "{}", called.document);
        called
    };
    let whole = train("--max-steps 4");
    train("--max-steps 2 --output saved");
    let resumed = train("--max-steps 2 --resume saved");
    assert_eq!(whole.text("weights_sha256"), resumed.text("weights_sha256"));
    let tight = train("--max-steps 4 --policy all --min-offload 0");
    assert!(tight.number("offload_bytes_per_step") > 0.0);
    assert_eq!(whole.losses(), tight.losses());
    // What bf16 left behind is read by every arithmetic.
    let data = "--device cpu --data synthetic --samples 80 --classes 10 --image-size 28";
    let losses = ["f32", "bf16", "f16"].map(|dtype| {
        let evaluated = vdnn_in(folder.path(), &format!("eval saved {data} --dtype {dtype}"));
        assert_eq!(evaluated.status, 0, "{}", evaluated.document);
        evaluated.number("test_loss")
    });
    assert!(losses.iter().all(|loss| (loss / losses[0] - 1.0).abs() < 0.02), "{losses:?}");
}

/// The scale and what was skipped are printed and kept in the checkpoint; a run in f16 goes on to the same weights, also in
/// another arithmetic and from a checkpoint of one.
#[test]
fn f16_trains_with_a_loss_scale_that_is_saved() {
    let folder = TempDir::new().unwrap();
    let train = |more: &str| {
        let called = vdnn_in(folder.path(), &format!("{TINY} --model resnet-small {more}"));
        assert_eq!(called.status, 0, "{}", called.document);
        called
    };
    let whole = train("--dtype f16 --max-steps 4");
    assert!(whole.number("loss_scale") >= 1.0 && whole.document["steps"][0]["skipped"].is_boolean());
    train("--dtype f16 --max-steps 2 --output saved");
    let resumed = train("--dtype f16 --max-steps 2 --resume saved");
    assert_eq!(whole.text("weights_sha256"), resumed.text("weights_sha256"));
    for number in ["loss_scale", "skipped_steps"] {
        assert_eq!(whole.number(number), resumed.number(number));
    }
    let tight = train("--dtype f16 --max-steps 4 --policy all --min-offload 0");
    assert!(tight.number("offload_bytes_per_step") > 0.0);
    assert_eq!(whole.text("weights_sha256"), tight.text("weights_sha256"));
    let other = train("--dtype bf16 --max-steps 2 --resume saved --output other");
    assert!(other.document["loss_scale"].is_null());
    train("--dtype f16 --max-steps 1 --resume other");
    let data = "--device cpu --data synthetic --samples 80 --classes 10 --image-size 28";
    let evaluated = vdnn_in(folder.path(), &format!("eval saved {data} --dtype f16"));
    assert_eq!(evaluated.status, 0, "{}", evaluated.document);
}

#[test]
fn half_precision_halves_feature_maps() {
    let plan = |more: &str| succeeds(&format!("plan --model resnet50 -b 32 --machine h200 {more}"));
    let (f32s, bf16, apart, f16) =
        (plan(""), plan("--dtype bf16"), plan("--dtype bf16 --fuse never"), plan("--dtype f16"));
    let maps = |called: &crate::Called| called.number("feature_map_bytes");
    assert!(maps(&bf16) < 0.55 * maps(&f32s) && maps(&bf16) < maps(&apart));
    assert_eq!(maps(&bf16), maps(&f16));
    assert_eq!(f32s.number("parameter_bytes"), bf16.number("parameter_bytes"));
    assert!(bf16.number("predicted_ms") < apart.number("predicted_ms"));
    assert!(apart.number("predicted_ms") < f32s.number("predicted_ms"));
    assert_eq!(bf16.document["violations"].as_array().map(Vec::len), Some(0));
    let fused = plan("--fuse always");
    assert!(fused.number("n_steps") < f32s.number("n_steps"));
}

/// tf32 changes the order of maps as it fuses layers, and not the bytes of a number; without fusion the network is the f32 one.
#[test]
fn tf32_is_fused_and_channels_last() {
    let plan = |more: &str| succeeds(&format!("plan --model vgg-small --batch-size 8 --machine h200 {more}"));
    let (f32s, tf32, never) = (plan(""), plan("--dtype tf32"), plan("--dtype tf32 --fuse never"));
    assert_eq!(never.number("n_steps"), f32s.number("n_steps"));
    assert_ne!(tf32.number("n_steps"), never.number("n_steps"));
    assert!(tf32.number("peak_bytes") > plan("--dtype bf16").number("peak_bytes"));
    let folder = TempDir::new().unwrap();
    let kept = |more: &str| {
        let called =
            vdnn_in(folder.path(), &format!("plan --model vgg-small --machine h200 --dtype tf32 --out s.txt {more}"));
        assert_eq!(called.status, 0, "{}", called.document);
        std::fs::read_to_string(folder.path().join("s.txt")).unwrap()
    };
    assert!(kept("").contains("image.nhwc") && !kept("--fuse never").contains("nhwc"));
}

/// Every policy on a network with weights of all kinds; plans are checked on the way.
#[test]
fn every_policy_plans_bf16() {
    for policy in ["none", "baseline", "all", "all-m", "conv-p", "dyn", "checkpoint", "hybrid"] {
        for (model, budget) in [("resnet-small", "18MiB"), ("alexnet-lrn", "none")] {
            let budget = if matches!(policy, "dyn" | "checkpoint" | "hybrid") { budget } else { "none" };
            succeeds(&format!("plan --model {model} --dtype bf16 --machine h200 --policy {policy} --budget {budget}"));
        }
    }
}

#[test]
fn what_half_precision_cannot_do() {
    fails(1, "plan --model vgg16 --dtype bf16 --machine titan-x", &["titan-x", "peak_flops.bf16", "another dtype"]);
    fails(1, "plan --model vgg16 --dtype f16 --machine toy", &["toy", "peak_flops.f16"]);
    fails(2, "plan --fuse sometimes", &["--fuse", "expected auto, never or always, found sometimes"]);
    fails(2, "plan --dtype bf17", &["--dtype", "bf17"]);
    fails(2, "compare --fuse 1", &["--fuse"]);
}
