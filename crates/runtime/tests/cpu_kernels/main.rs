//! Every CPU kernel against PyTorch's values, in f32 and f64, by every algorithm, sliced and in place, on one thread and
//! on three.

mod batch_norm_pair_relu;
mod batch_norm_relu_max_pool2d;
mod cases;
mod conv2d_relu;
mod conv2d_stats;
mod encodings;
mod fused;
mod golden;
mod half;
mod loss_scaling;
mod normalise;

use golden::{Case, Form, Real, cases, run, types};
use vdnn_graph::Op;
use vdnn_graph::op::{Unfold, UnfoldGrad};
use vdnn_runtime::cpu::{choices_of, pieces_of};
use vdnn_tensor::DType;

/// Runs all cases of a file whose names start with `prefix`.
fn check(file: &str, prefix: &str) {
    for case in cases(file, prefix) {
        check_case::<f64>(
            &case,
            if matches!(case.op, Op::BatchNormGrad(_) | Op::BatchNormReluGrad(_)) { 1e-6 } else { 1e-9 },
        );
        check_case::<f32>(&case, 2e-5);
    }
}

/// The op with outputs of a type, where it names one.
fn in_type(op: &Op, dtype: DType) -> Op {
    match op {
        Op::Unfold(op) => Op::Unfold(Unfold { dtype, ..*op }),
        Op::UnfoldGrad(op) => Op::UnfoldGrad(UnfoldGrad { dtype, unfold: Unfold { dtype, ..op.unfold }, ..*op }),
        other => other.clone(),
    }
}

fn check_case<T: Real>(case: &Case, tolerance: f64) {
    let case = &Case { op: in_type(&case.op, T::DTYPE), ..case.clone() };
    let (inputs, outputs) = types::<T>(&case.op, &case.inputs);
    let mut choices = choices_of(&case.op, &inputs, &outputs).unwrap();
    choices.extend(pieces_of(&case.op, &inputs, &outputs).unwrap());
    assert_eq!(outputs.len(), case.outputs.len(), "{}", case.name);
    for choice in &choices {
        let plain = in_pool(1, || run::<T>(&case.op, &case.inputs, choice, &Form::Plain).unwrap());
        for (output, (found, expected)) in plain.iter().zip(&case.outputs).enumerate() {
            let what = format!("{} {} output {output} by {}", case.name, T::DTYPE, choice.algorithm);
            assert_close(&what, found, expected, tolerance * rounding(&choice.algorithm));
        }
        for form in Form::all(&case.op, case.inputs.len()) {
            let again = in_pool(3, || run::<T>(&case.op, &case.inputs, choice, &form).unwrap());
            assert_eq!(bits(&plain), bits(&again), "{} by {} as {form:?}", case.name, choice.algorithm);
        }
    }
}

/// F(4×4, 3×3) multiplies by up to 64 on the way and rounds accordingly.
fn rounding(algorithm: &str) -> f64 {
    if algorithm.starts_with("winograd4") { 5.0 } else { 1.0 }
}

fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(f)
}

fn bits(outputs: &[Vec<f64>]) -> Vec<Vec<u64>> {
    outputs.iter().map(|output| output.iter().map(|value| value.to_bits()).collect()).collect()
}

fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= tolerance * scale;
        assert!(close, "{what}: element {index} expected {expected}, found {found}");
    }
}

macro_rules! golden {
    ($($test:ident: $file:literal, $prefix:literal;)*) => {$(
        #[test]
        fn $test() {
            check($file, $prefix);
        }
    )*};
}

golden! {
    conv2d: "conv2d", "";
    b01_stride_of_the_kernel: "conv2d", "b01_";
    b02_tail_no_window_reaches: "conv2d", "b02_";
    b03_stride_and_dilation_by_axis: "conv2d", "b03_";
    batch_norm: "batch_norm", "";
    batch_norm_relu: "batch_norm_relu", "";
    b11_biased_output_unbiased_running: "batch_norm", "b11_";
    max_pool2d: "max_pool2d", "";
    b06_ceil_mode: "max_pool2d", "b06_";
    b09_overlap_and_all_negative: "max_pool2d", "b09_";
    avg_pool2d: "avg_pool2d", "";
    unfold: "unfold", "";
    local_response_norm: "local_response_norm", "";
    linear: "linear", "";
    elementwise: "elementwise", "";
    b29_dropout_by_counter: "dropout", "";
    softmax_cross_entropy_and_accuracy: "softmax_cross_entropy", "";
    b21_sgd: "optimizers", "sgd.";
    adam: "optimizers", "adam.";
}
