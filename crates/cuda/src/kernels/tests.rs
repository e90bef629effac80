//! Plans without a GPU: workspace, launches, refusals, and that sources define what plans call.

use super::*;
use vdnn_graph::op::{BatchNorm, LocalResponseNorm, MaxPool2d, MaxPool2dIndicesGrad, Sgd, SoftmaxCrossEntropy, Window};

fn f32s(dims: &[u64]) -> TensorType {
    TensorType::new(dims, DType::F32)
}

fn at(ty: &TensorType) -> Operand<'_> {
    Operand::contiguous(ty, 1 << 20)
}

#[test]
fn every_source_defines_kernels_once() {
    let mut all: Vec<&str> = ALL.iter().flat_map(|(_, text)| functions(text)).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(ALL.iter().all(|(_, text)| functions(text).count() > 0));
}

#[test]
fn workspace_holds_two_doubles_a_stretch() {
    let large = f32s(&[256, 64, 112, 112]);
    assert_eq!(workspace(&Op::BatchNormStats, &[&large]), 64 * 33 * 2 * 8);
    assert_eq!(workspace(&Op::BiasGrad, &[&large]), 64 * 33 * 8);
    assert_eq!(workspace(&Op::BatchNormStats, &[&f32s(&[2, 4096, 3, 3])]), 0);
    assert_eq!(workspace(&Op::BiasGrad, &[&f32s(&[256, 1000])]), 0);
    assert_eq!(workspace(&Op::Relu, &[&large]), 0);
}

#[test]
fn statistics_finish_in_a_second_launch_only_when_split() {
    let names = |dims: &[u64]| -> Vec<&str> {
        let (x, c) = (f32s(dims), f32s(&dims[1..2]));
        let plan = prepare(&Op::BatchNormStats, &[at(&x)], &[at(&c), at(&c)], 4096).unwrap();
        plan.launches.iter().map(|l| l.function).collect()
    };
    assert_eq!(names(&[256, 64, 56, 56]), ["batch_norm_stats_v4", "batch_norm_stats_finish"]);
    assert_eq!(names(&[256, 512, 7, 7]), ["batch_norm_stats_v1", "batch_norm_stats_finish"]);
    assert_eq!(names(&[4, 512, 4, 4]), ["batch_norm_stats_v4"]);
}

/// A launch is as many arguments as the source declares.
#[test]
fn arguments_match_the_source() {
    let window = Window { kernel: [3; 2], stride: [2; 2], padding: [1; 2], dilation: [1; 2], ceil_mode: false };
    let (x, y, c, one) = (f32s(&[4, 8, 16, 16]), f32s(&[4, 8, 8, 8]), f32s(&[8]), f32s(&[1]));
    let (logits, labels) = (f32s(&[4, 10]), TensorType::new([4], DType::I32));
    let (counter, sgd) =
        (TensorType::new([1], DType::U64), Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false });
    let (pool, mask) = (MaxPool2d { window }, TensorType::new([4, 256], DType::U8));
    let indices = TensorType::new([4, 8, 8, 8], DType::U8);
    let norm = BatchNorm { eps: 1e-5 };
    let lrn = LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 2.0 };
    let loss = SoftmaxCrossEntropy::default();
    let calls: Vec<(Op, Vec<&TensorType>, Vec<&TensorType>)> = vec![
        (Op::Relu, vec![&x], vec![&x]),
        (Op::ReluMask, vec![&x], vec![&x, &mask]),
        (Op::ReluMaskGrad, vec![&mask, &x], vec![&x]),
        (Op::MaxPool2dIndices(pool), vec![&x], vec![&y, &indices]),
        (Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [16, 16] }), vec![&indices, &y], vec![&x]),
        (Op::MaxPool2dGrad(MaxPool2d { window }), vec![&x, &y, &y], vec![&x]),
        (Op::BatchNorm(norm), vec![&x, &c, &c, &c, &c], vec![&x]),
        (Op::BatchNormGrad(norm), vec![&x, &x, &c, &c, &c], vec![&x, &c, &c]),
        (Op::LocalResponseNormGrad(lrn), vec![&x, &x], vec![&x]),
        (Op::SoftmaxCrossEntropyGrad(loss), vec![&logits, &labels], vec![&logits]),
        (Op::Sgd(sgd), vec![&x, &x, &x, &one, &counter], vec![&x, &x]),
    ];
    for (op, inputs, outputs) in calls {
        let operands = |types: &[&'static TensorType]| types.iter().map(|ty| at(ty)).collect::<Vec<_>>();
        let leak = |types: Vec<&TensorType>| -> Vec<&'static TensorType> {
            types.into_iter().map(|ty| &*Box::leak(Box::new(ty.clone()))).collect()
        };
        let plan = prepare(&op, &operands(&leak(inputs)), &operands(&leak(outputs)), 8).unwrap();
        for launch in &plan.launches {
            assert_eq!(declared(launch), launch.args.len(), "{}", launch.function);
        }
    }
}

/// Parameters of a kernel in its source, macros for parameter lists counted out.
fn declared(launch: &KernelLaunch) -> usize {
    let text = source(launch.file).unwrap();
    let start = text.find(&format!("KERNEL {}(", launch.function)).unwrap();
    let list = text[start..].split(')').next().unwrap();
    let (window, backward) = (12, 12 + 12);
    match () {
        () if list.ends_with("(MASK_FORWARD") || list.ends_with("(MASK_BACKWARD") => 8,
        () if list.ends_with("(INDICES_FORWARD") || list.ends_with("(INDICES_BACKWARD") => 10 + window,
        () if list.ends_with("(BACKWARD") => backward,
        () if list.ends_with("(FORWARD") => 8 + window,
        () => list.matches(',').count() + 1 + if list.contains("WINDOW_PARAMS") { window - 1 } else { 0 },
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let (x, half) = (f32s(&[2, 3, 4, 4]), TensorType::new([2, 3, 4, 4], DType::F16));
    let refuse = |inputs: &[Operand<'_>]| prepare(&Op::Relu, inputs, &[at(&x)], 0).unwrap_err().to_string();
    assert!(refuse(&[at(&half)]).contains("operand 0 as unpadded f32"));
    assert!(refuse(&[]).contains("expected 1 operands, found 0"));
    assert!(refuse(&[Operand::contiguous(&x, 2)]).contains("not aligned to 4 bytes"));
    assert!(matches!(prepare(&Op::Linear, &[], &[], 0), Err(KernelError::NotHere { op: "linear" })));
    let wide = LocalResponseNorm { size: 1000, alpha: 1.0, beta: 0.75, k: 1.0 };
    let error = prepare(&Op::LocalResponseNormGrad(wide), &[at(&x), at(&x)], &[at(&x)], 0).unwrap_err();
    assert!(error.to_string().contains("its window is 1000, more than the 192"), "{error}");
}

#[test]
fn nothing_to_do_is_no_launch() {
    let (empty, c) = (f32s(&[0, 3, 8, 8]), f32s(&[3]));
    assert!(prepare(&Op::Relu, &[at(&empty)], &[at(&empty)], 0).unwrap().launches.is_empty());
    // The gradient of a bias over no samples is zero, and has to be written.
    assert_eq!(prepare(&Op::BiasGrad, &[at(&empty)], &[at(&c)], 0).unwrap().launches.len(), 1);
}
