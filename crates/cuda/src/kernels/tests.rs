//! Plans without a GPU: workspace, launches, refusals, and that sources define what plans call.

use super::*;
use vdnn_graph::op::{
    AdaptiveAvgPool2d, BatchNorm, BatchNormPair, BatchNormReluMaxPool2d, BatchNormUpdate, Cast, Dropout, Group,
    LocalResponseNorm, LossScaleUpdate, MOST_UNSCALED, MaxPool2d, MaxPool2dIndicesGrad, Normalise, Sgd,
    SoftmaxCrossEntropy, Unscale, Window,
};

fn f32s(dims: &[u64]) -> TensorType {
    TensorType::new(dims, DType::F32)
}

fn nhwc(ty: &TensorType, channel_padding: u32) -> TensorType {
    let layout = Layout { order: MemoryOrder::Nhwc, channel_padding };
    TensorType { layout, dtype: DType::F16, ..ty.clone() }
}

fn at(ty: &TensorType) -> Operand<'_> {
    Operand::contiguous(ty, 1 << 20)
}

/// In f32 and in each half type no two sources define the same function.
#[test]
fn every_source_defines_kernels_once() {
    for ending in [".bf16.cu", ".f16.cu", ""] {
        let half = |name: &str| name.ends_with(".bf16.cu") || name.ends_with(".f16.cu");
        let of_type = |(name, _): &&(&str, &str)| if ending.is_empty() { !half(name) } else { name.ends_with(ending) };
        let mut all: Vec<&str> = ALL.iter().filter(of_type).flat_map(|(_, text)| functions(text)).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() == count && count > 10, "{ending}");
    }
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
    let (h, small, wide, odd) = (nhwc(&x, 0), nhwc(&y, 0), nhwc(&x, 8), nhwc(&f32s(&[4, 3, 5, 5]), 0));
    let (three, odd_mask) = (f32s(&[3]), TensorType::new([4, 10], DType::U8));
    let places = TensorType { dtype: DType::U8, ..small.clone() };
    let dropout = Dropout { p: 0.5, seed: 1, stream: 2 };
    let cast = |to: &TensorType| Op::Cast(Cast { dtype: to.dtype, layout: to.layout });
    let update = BatchNormUpdate { momentum: 0.1, count: 9 };
    let group = |op: Op, members, inputs| Op::Group(Group { op: Box::new(op), members, inputs });
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
        (Op::BatchNormUpdate(update), vec![&c, &c, &c, &c], vec![&c, &c]),
        (group(cast(&h), 2, 1), vec![&x, &x], vec![&h, &h]),
        (Op::Relu, vec![&h], vec![&h]),
        (Op::ReluMaskGrad, vec![&mask, &h], vec![&h]),
        (Op::Dropout(dropout), vec![&h, &counter], vec![&h]),
        (Op::BatchNormStats, vec![&h], vec![&c, &c]),
        (Op::BatchNormRelu(norm), vec![&h, &c, &c, &c, &c], vec![&h]),
        (Op::BatchNormAddRelu(norm), vec![&h, &c, &c, &c, &c, &h], vec![&h, &mask]),
        (Op::BatchNormAddRelu(norm), vec![&odd, &three, &three, &three, &three, &odd], vec![&odd, &odd_mask]),
        (Op::BatchNormGrad(norm), vec![&h, &h, &c, &c, &c], vec![&h, &c, &c]),
        (Op::BatchNormReluGrad(norm), vec![&h, &h, &c, &c, &c, &c], vec![&h, &c, &c]),
        (Op::BatchNormAddReluGrad(norm), vec![&h, &h, &mask, &c, &c, &c], vec![&h, &c, &c, &h]),
        (Op::MaxPool2d(pool), vec![&h], vec![&small]),
        (Op::MaxPool2dGrad(pool), vec![&h, &small, &small], vec![&h]),
        (Op::MaxPool2dIndices(pool), vec![&h], vec![&small, &places]),
        (Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [16, 16] }), vec![&places, &small], vec![&h]),
        (Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { output: [8, 8] }), vec![&h], vec![&small]),
        (Op::BiasGrad, vec![&h], vec![&c]),
        (cast(&h), vec![&x], vec![&h]),
        (cast(&x), vec![&h], vec![&x]),
        (cast(&wide), vec![&x], vec![&wide]),
        (cast(&h), vec![&wide], vec![&h]),
    ];
    arguments_match(calls);
}

/// The same of batch norms that take in a second one, or a pool.
#[test]
fn arguments_of_fused_norms_match_the_source() {
    let (x, c, three) = (f32s(&[4, 8, 16, 16]), f32s(&[8]), f32s(&[3]));
    let (h, small, odd) = (nhwc(&x, 0), nhwc(&f32s(&[4, 8, 8, 8]), 0), nhwc(&f32s(&[4, 3, 5, 5]), 0));
    let [mask, odd_mask] = [256, 10].map(|bytes| TensorType::new([4, bytes], DType::U8));
    let places = TensorType { dtype: DType::U8, ..small.clone() };
    let pair = BatchNormPair { eps: [1e-5, 1e-3] };
    let window = Window { padding: [1; 2], stride: [2; 2], ..Window::square(3) };
    let stem = BatchNormReluMaxPool2d { norm: BatchNorm { eps: 1e-5 }, pool: MaxPool2d { window } };
    arguments_match(vec![
        (Op::BatchNormPairRelu(pair), vec![&h, &c, &c, &c, &c, &h, &c, &c, &c, &c], vec![&h, &mask]),
        (
            Op::BatchNormPairRelu(pair),
            vec![&odd, &three, &three, &three, &three, &odd, &three, &three, &three, &three],
            vec![&odd, &odd_mask],
        ),
        (
            Op::BatchNormPairReluGrad(pair),
            vec![&h, &h, &mask, &c, &c, &c, &h, &c, &c, &c],
            vec![&h, &c, &c, &h, &c, &c],
        ),
        (
            Op::BatchNormPairReluGrad(pair),
            vec![&h, &h, &mask, &c, &c, &c, &h, &c, &c, &c, &h],
            vec![&h, &c, &c, &h, &c, &c],
        ),
        (Op::BatchNormReluMaxPool2d(stem), vec![&h, &c, &c, &c, &c], vec![&small, &places]),
        (Op::BatchNormReluMaxPool2dGrad(stem), vec![&h, &places, &small, &c, &c, &c, &c], vec![&h, &c, &c]),
    ]);
}

/// The same where a table comes first; three channels a launch, within the 4 KiB that arguments may take.
#[test]
fn arguments_of_images_match_the_source() {
    let [mean, std] = [0.5, 0.25].map(|number| vec![number; 8]);
    let (x, y) = (TensorType { dtype: DType::U8, ..f32s(&[4, 8, 16, 16]) }, f32s(&[4, 8, 16, 16]));
    let half = TensorType { dtype: DType::BF16, ..y.clone() };
    let op = |dtype| Op::Normalise(Normalise { mean: mean.clone(), std: std.clone(), dtype });
    let plan = prepare(&op(DType::F32), &[at(&x)], &[at(&y)], 0).unwrap();
    assert_eq!(plan.launches.iter().map(|launch| launch.grid[0]).collect::<Vec<_>>(), [12, 12, 8]);
    assert!(plan.launches.iter().all(|launch| launch.args.len() * 8 <= 4096 && launch.function == "normalise_packed"));
    arguments_match(vec![(op(DType::F32), vec![&x], vec![&y]), (op(DType::BF16), vec![&x], vec![&half])]);
}

/// The same where the last argument is a table, and where a scale comes in.
#[test]
fn arguments_of_loss_scaling_match_the_source() {
    let (x, c, one, logits) = (f32s(&[4, 8, 16, 16]), f32s(&[8]), f32s(&[1]), f32s(&[4, 10]));
    let [labels, count] = [4, 1].map(|len| TensorType::new([len], DType::I32));
    let counter = TensorType::new([1], DType::U64);
    let many = [&[&one, &one][..], &[&x; MOST_UNSCALED]].concat();
    let loss = SoftmaxCrossEntropy::default();
    arguments_match(vec![
        (Op::SoftmaxCrossEntropyGrad(loss), vec![&logits, &labels, &one], vec![&logits]),
        (Op::Unscale(Unscale { gradients: 2 }), vec![&one, &one, &x, &c], vec![&one, &x, &c]),
        (
            Op::LossScaleUpdate(LossScaleUpdate::default()),
            vec![&one, &count, &count, &one, &counter],
            vec![&one, &count, &count, &counter],
        ),
        (Op::Unscale(Unscale { gradients: MOST_UNSCALED as u32 }), many.clone(), many[1..].to_vec()),
    ]);
}

fn arguments_match(calls: Vec<(Op, Vec<&TensorType>, Vec<&TensorType>)>) {
    for (op, inputs, outputs) in calls {
        let operands = |types: &[&'static TensorType]| types.iter().map(|ty| at(ty)).collect::<Vec<_>>();
        let leak = |types: Vec<&TensorType>| -> Vec<&'static TensorType> {
            types.into_iter().map(|ty| &*Box::leak(Box::new(ty.clone()))).collect()
        };
        let plan = prepare(&op, &operands(&leak(inputs)), &operands(&leak(outputs)), 8).unwrap();
        for launch in &plan.launches {
            let given = launch.args.iter().filter(|arg| !matches!(arg, KernelArg::Word(_))).count();
            assert_eq!(declared(launch), given, "{}", launch.function);
            assert!(8 * launch.args.len() <= 4096, "{}", launch.function);
        }
    }
}

/// Parameters of a kernel in its source, macros for parameter lists counted out.
fn declared(launch: &KernelLaunch) -> usize {
    let text = source(launch.file).unwrap();
    let start = text.find(&format!("KERNEL {}(", launch.function)).unwrap();
    let list = text[start..].split_once('(').unwrap().1.split(')').next().unwrap();
    parameters(text, list)
}

/// Macros stand for the parameters of their definition in the same text.
fn parameters(text: &str, list: &str) -> usize {
    let count = |parameter: &str| {
        let name = parameter.trim();
        match text.find(&format!("#define {name} ")) {
            Some(at) if !name.contains(' ') => {
                let definition = text[at..].replace("\\\n", " ");
                let line = definition.lines().next().unwrap();
                parameters(text, line.trim_start_matches(&format!("#define {name} ")))
            }
            _ => 1,
        }
    };
    list.split(',').map(count).sum()
}

/// Kernels count inside two rows of an image in 32 bits.
#[test]
fn rows_of_pixels_far_apart_are_refused() {
    let (x, c) = (nhwc(&f32s(&[1, 8, 16, 16]), 0), f32s(&[8]));
    let small = nhwc(&f32s(&[1, 8, 8, 8]), 0);
    let places = TensorType { dtype: DType::U8, ..small.clone() };
    let window = Window { padding: [1; 2], stride: [2; 2], ..Window::square(3) };
    let op = BatchNormReluMaxPool2d { norm: BatchNorm { eps: 1e-5 }, pool: MaxPool2d { window } };
    let prepared = |row_stride| {
        let inputs = [Operand { row_stride, ..at(&x) }, at(&places), at(&small), at(&c), at(&c), at(&c), at(&c)];
        prepare(&Op::BatchNormReluMaxPool2dGrad(op), &inputs, &[at(&x), at(&c), at(&c)], 8)
    };
    assert!(prepared((1 << 26) - 8).is_ok());
    let refusal = prepared(1 << 26).unwrap_err().to_string();
    assert!(
        refusal.contains("from a row of pixels to the next but one") && refusal.contains("2147483648"),
        "{refusal}"
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let (x, half) = (f32s(&[2, 3, 4, 4]), TensorType::new([2, 3, 4, 4], DType::F16));
    let refuse = |inputs: &[Operand<'_>]| prepare(&Op::Relu, inputs, &[at(&x)], 0).unwrap_err().to_string();
    let double = TensorType::new([2, 3, 4, 4], DType::F64);
    assert!(refuse(&[at(&double)]).contains("operand 0 as f32, f16 or bf16 without padding"));
    let error = prepare(&Op::BatchNormStats, &[at(&half)], &[], 0).unwrap_err().to_string();
    assert!(error.contains("or f16 or bf16 in NHWC order, found f16[2, 3, 4, 4]"), "{error}");
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
