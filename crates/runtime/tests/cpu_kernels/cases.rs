//! Stated values of cases from the field, empty batches, refusals, and convolutions large enough for several tiles.

use crate::golden::{Elements, Form, Operand, Real, run, types};
use vdnn_graph::Op;
use vdnn_graph::op::{
    Adam, AvgPool2d, AvgPool2dGrad, Axis, BatchNorm, BatchNormUpdate, Concat, Conv2d, Conv2dDataGrad, Conv2dWeightGrad,
    MaxPool2d, Sgd, SoftmaxCrossEntropy, Split, Window,
};
use vdnn_runtime::cpu::{Input, Launch, Output, choices_of, launch, pieces_of};
use vdnn_runtime::{DeviceError, View, ViewMut};
use vdnn_schedule::{Choice, split_pieces};
use vdnn_tensor::{DType, Philox, TensorType};

fn counter(value: u64) -> Operand {
    Operand { shape: [1].into(), elements: Elements::Counter(vec![value]) }
}

fn labels(values: &[i32]) -> Operand {
    Operand { shape: [values.len() as u64].into(), elements: Elements::Labels(values.to_vec()) }
}

fn random(shape: &[u64], stream: u64) -> Operand {
    let mut philox = Philox::new(11, stream);
    let count = shape.iter().product::<u64>();
    Operand::new(shape, (0..count).map(|_| f64::from(philox.normal() as f32)).collect())
}

fn choices<T: Real>(op: &Op, inputs: &[Operand]) -> Vec<Choice> {
    let (inputs, outputs) = types::<T>(op, inputs);
    choices_of(op, &inputs, &outputs).unwrap()
}

fn pieces<T: Real>(op: &Op, inputs: &[Operand]) -> Vec<Choice> {
    let (inputs, outputs) = types::<T>(op, inputs);
    pieces_of(op, &inputs, &outputs).unwrap()
}

/// Outputs of the first choice in `f64`.
fn outputs(op: &Op, inputs: &[Operand]) -> Vec<Vec<f64>> {
    run::<f64>(op, inputs, &choices::<f64>(op, inputs)[0], &Form::Plain).unwrap()
}

fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance, "expected {expected}, found {found}");
    }
}

#[test]
fn b11_biased_variance_in_the_output_unbiased_in_the_running_statistics() {
    let x = Operand::new([4, 1, 1, 1], vec![1.0, 2.0, 3.0, 4.0]);
    let stats = outputs(&Op::BatchNormStats, std::slice::from_ref(&x));
    assert_eq!(stats, [vec![2.5], vec![1.25]]);
    let vector = |value| Operand::new([1], vec![value]);
    let norm = Op::BatchNorm(BatchNorm { eps: 1e-5 });
    let y = outputs(&norm, &[x, vector(2.5), vector(1.25), vector(1.0), vector(0.0)]);
    assert_near(&y[0], &[-1.3416354, -0.4472118, 0.4472118, 1.3416354], 1e-7);
    let update = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 4 });
    let running = outputs(&update, &[vector(2.5), vector(1.25), vector(0.0), vector(1.0)]);
    assert_near(&running.concat(), &[0.25, 1.0666667], 1e-7);
}

#[test]
fn b21_sgd_decay_momentum_and_dampening() {
    let lr = Operand::new([1], vec![0.1]);
    for (momentum, dampening, expected) in [
        (0.0, 0.0, [0.89, 0.7811, 0.673289]),
        (0.9, 0.0, [0.89, 0.6821, 0.388169]),
        (0.9, 0.5, [0.89, 0.73655, 0.54476225]),
    ] {
        let op = Op::Sgd(Sgd { momentum, dampening, weight_decay: 0.1, nesterov: false });
        let mut state = vec![vec![1.0], vec![0.0]];
        for (iteration, expected) in expected.into_iter().enumerate() {
            let mut inputs = vec![Operand::new([1], state[0].clone()), Operand::new([1], vec![1.0])];
            if momentum > 0.0 {
                inputs.push(Operand::new([1], state[1].clone()));
            }
            inputs.extend([lr.clone(), counter(iteration as u64)]);
            state = outputs(&op, &inputs);
            assert_near(&state[0], &[expected], 1e-12);
        }
    }
}

#[test]
fn b23_adam_eps_beside_the_corrected_root() {
    let op = Op::Adam(Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false });
    let scalar = |value| Operand::new([1], vec![value]);
    let inputs = [scalar(0.0), scalar(1e-8), scalar(0.0), scalar(0.0), scalar(1.0), counter(0)];
    for choice in choices::<f32>(&op, &inputs) {
        let updated = run::<f32>(&op, &inputs, &choice, &Form::InPlace(op.updates().to_vec())).unwrap();
        assert_near(&updated[0], &[-0.5], 1e-5);
    }
    assert_near(&outputs(&op, &inputs)[0], &[-0.5], 1e-9);
}

/// Case B16: every op of a small network takes an empty batch; weight gradients are all zero.
#[test]
fn b16_empty_batch() {
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let pool = Window::square(2);
    let empty = |shape: [u64; 4]| Operand::new(shape, vec![]);
    let (x, y) = (empty([0, 3, 8, 8]), empty([0, 4, 8, 8]));
    let (w, c) = (random(&[4, 3, 3, 3], 0), random(&[4], 1));
    let zero = Operand::new([4], vec![0.0; 4]);
    let avg = AvgPool2d { window: pool, count_include_pad: true };
    let (flat, out) = (Operand::new([0, 6], vec![]), Operand::new([0, 5], vec![]));
    let half = empty([0, 4, 4, 4]);
    let cases = [
        (Op::Conv2d(conv), vec![x.clone(), w.clone(), c.clone()]),
        (Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [8, 8] }), vec![y.clone(), w]),
        (Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] }), vec![x, y.clone()]),
        (Op::BiasGrad, vec![y.clone()]),
        (Op::BatchNormStats, vec![y.clone()]),
        (Op::BatchNorm(BatchNorm { eps: 1e-5 }), vec![y.clone(), zero.clone(), zero.clone(), c.clone(), c.clone()]),
        (Op::BatchNormGrad(BatchNorm { eps: 1e-5 }), vec![y.clone(), y.clone(), zero.clone(), zero, c]),
        (Op::Relu, vec![y.clone()]),
        (Op::ReluGrad, vec![y.clone(), y.clone()]),
        (Op::MaxPool2d(MaxPool2d { window: pool }), vec![y.clone()]),
        (Op::MaxPool2dGrad(MaxPool2d { window: pool }), vec![y.clone(), half.clone(), half.clone()]),
        (Op::AvgPool2d(avg), vec![y.clone()]),
        (Op::AvgPool2dGrad(AvgPool2dGrad { pool: avg, input: [8, 8] }), vec![half]),
        (Op::Add, vec![y.clone(), y.clone()]),
        (Op::Concat(Concat::default()), vec![y.clone(), y.clone()]),
        (Op::Split(Split::channels(vec![1, 3])), vec![y.clone()]),
        (Op::Flatten, vec![y]),
        (Op::Linear, vec![flat.clone(), random(&[5, 6], 2), random(&[5], 3)]),
        (Op::LinearDataGrad, vec![out.clone(), random(&[5, 6], 2)]),
        (Op::LinearWeightGrad, vec![flat, out]),
    ];
    for (op, inputs) in cases {
        for choice in choices::<f32>(&op, &inputs) {
            for form in Form::all(&op, inputs.len()) {
                let found = run::<f32>(&op, &inputs, &choice, &form).unwrap();
                let zero = found.iter().flatten().all(|&value| value == 0.0);
                assert!(zero, "{} by {}: {found:?}", op.kind(), choice.algorithm);
            }
        }
    }
}

/// Shapes with several tiles, several blocks of a product, and maps of every size; each algorithm, whole and in pieces, against
/// the plain loop.
#[test]
fn convolution_algorithms_agree_across_tiles_and_threads() {
    let square = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let strided = Conv2d { stride: [2, 1], padding: [2, 3], dilation: [1, 2], groups: 2 };
    for (n, c, k, [h, w], [kh, kw], conv) in [
        (3, 4, 6, [70, 67], [3, 3], square),
        (9, 24, 130, [17, 16], [3, 3], square),
        (40, 130, 20, [4, 4], [3, 3], square),
        (65, 36, 140, [2, 2], [3, 3], square),
        (2, 4, 6, [90, 81], [5, 3], strided),
        (3, 600, 9, [23, 31], [1, 1], Conv2d::default()),
        (16, 20, 36, [31, 30], [3, 3], square),
        (16, 40, 130, [14, 15], [5, 3], strided),
    ] {
        let (x, weights) = (random(&[n, c, h, w], 1), random(&[k, c / conv.groups, kh, kw], 2));
        let forward = Op::Conv2d(conv);
        let y = types::<f32>(&forward, &[x.clone(), weights.clone()]).1.remove(0);
        let dy = random(y.shape.dims(), 3);
        agree(&forward, &[x.clone(), weights.clone(), random(&[k], 4)]);
        agree(&Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [h, w] }), &[dy.clone(), weights]);
        agree(&Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [kh, kw] }), &[x, dy]);
    }
}

fn agree(op: &Op, inputs: &[Operand]) {
    let on = |threads: usize, choice: &Choice, form: Form| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run::<f32>(op, inputs, choice, &form).unwrap().remove(0))
    };
    let mut all = choices::<f32>(op, inputs);
    all.extend(pieces::<f32>(op, inputs));
    let direct = all.iter().find(|choice| choice.algorithm == "direct").expect("the plain loop is always offered");
    assert!(all.iter().any(|choice| choice.workspace > 0) && direct.workspace == 0);
    let expected = on(2, direct, Form::Plain);
    let scale = expected.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    for choice in &all {
        let found = on(1, choice, Form::Plain);
        let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(
            worst <= 2e-5 * scale * crate::rounding(&choice.algorithm),
            "{} by {}: off by {worst} of {scale}",
            op.kind(),
            choice.algorithm
        );
        assert_eq!(found, on(3, choice, Form::Sliced), "{} by {}", op.kind(), choice.algorithm);
    }
}

/// What is made for each sample by itself has the same bits in any number of pieces; a weight gradient in pieces is the plain
/// loops' to the last digits of `f64`. Less scratch memory is needed, and less is refused.
#[test]
fn pieces_of_the_batch_are_the_batch() {
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    for (n, c, k, [h, w]) in [(8, 5, 7, [12, 11]), (16, 17, 20, [6, 5]), (16, 33, 40, [20, 19]), (64, 8, 16, [7, 7])] {
        let (x, weights, bias) = (random(&[n, c, h, w], 1), random(&[k, c, 3, 3], 2), random(&[k], 4));
        let dy = random(&[n, k, h, w], 3);
        let forward = [x.clone(), weights.clone(), bias];
        same_bits_in_pieces(&Op::Conv2d(conv), &forward);
        same_bits_in_pieces(&Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [h, w] }), &[dy.clone(), weights]);
        let (op, inputs) = (Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] }), [x, dy]);
        let direct = choices::<f64>(&op, &inputs).into_iter().find(|choice| choice.algorithm == "direct").unwrap();
        let expected = run::<f64>(&op, &inputs, &direct, &Form::Plain).unwrap().remove(0);
        for choice in pieces::<f64>(&op, &inputs) {
            let found = run::<f64>(&op, &inputs, &choice, &Form::Sliced).unwrap().remove(0);
            assert_near(&found, &expected, 1e-9);
        }
    }
}

fn same_bits_in_pieces(op: &Op, inputs: &[Operand]) {
    let (whole, pieces) = (choices::<f32>(op, inputs), pieces::<f32>(op, inputs));
    assert!(pieces.len() >= 3 * (whole.len() - 1), "in 2, 4 and 8 pieces at least");
    for choice in &pieces {
        let (name, count) = split_pieces(&choice.algorithm);
        let one = whole.iter().find(|whole| whole.algorithm == name).unwrap();
        assert!(choice.workspace <= one.workspace && choice.seconds > one.seconds, "{choice:?} beside {one:?}");
        if name == "im2col" {
            assert!(choice.workspace < one.workspace * 2 / count, "{choice:?} beside {one:?}");
        }
        let of = |choice: &Choice, form: Form| run::<f32>(op, inputs, choice, &form);
        let expected = of(one, Form::Plain).unwrap();
        assert_eq!(expected, of(choice, Form::Plain).unwrap(), "{} by {}", op.kind(), choice.algorithm);
        assert_eq!(expected, of(choice, Form::Sliced).unwrap(), "{} by {}", op.kind(), choice.algorithm);
        let lacking = Choice { workspace: choice.workspace - 8, ..choice.clone() };
        assert!(matches!(of(&lacking, Form::Plain), Err(DeviceError::Kernel { .. })), "{}", choice.algorithm);
    }
    for refused in ["direct/2", "im2col/3", "im2col/1", "nothing/2"] {
        let choice = Choice { algorithm: refused.to_string(), ..whole[0].clone() };
        let refusal = run::<f32>(op, inputs, &choice, &Form::Plain);
        assert!(matches!(refusal, Err(DeviceError::Kernel { .. })), "{refused}: {refusal:?}");
    }
}

/// Parts of a concat and of a split that already lie in place are left alone.
#[test]
fn concat_and_split_move_only_what_must_move() {
    let part = |channels| TensorType::new([2, channels, 2], DType::F32);
    let (types, whole) = ([part(1), part(2)], [part(3)]);
    let b: Vec<f32> = (0..8).map(|i| i as f32).collect();
    let mut z = [-1.0f32; 12];
    let op = Op::Concat(Concat::default());
    let call = Launch {
        node: "join",
        op: &op,
        input_types: &types,
        output_types: &whole,
        algorithm: "loop",
        inputs: vec![Input::InPlace(0), Input::F32(View::from_slice(&b))],
        outputs: vec![Output::F32(ViewMut::from_slice(&mut z))],
        workspace: None,
    };
    launch(call).unwrap();
    assert_eq!(z, [-1.0, -1.0, 0.0, 1.0, 2.0, 3.0, -1.0, -1.0, 4.0, 5.0, 6.0, 7.0]);
    let op = Op::Split(Split::channels(vec![1, 2]));
    let mut moved = [0.0f32; 8];
    let call = Launch {
        node: "cut",
        op: &op,
        input_types: &whole,
        output_types: &types,
        algorithm: "loop",
        inputs: vec![Input::F32(View::from_slice(&z))],
        outputs: vec![Output::InPlace(0), Output::F32(ViewMut::from_slice(&mut moved))],
        workspace: None,
    };
    launch(call).unwrap();
    assert_eq!(moved.as_slice(), b);
}

/// The same for samples, of numbers and of images that come as bytes.
#[test]
fn samples_are_joined_and_cut() {
    let part = |n, dtype| TensorType::new([n, 2], dtype);
    let (types, whole) = ([part(1, DType::F32), part(2, DType::F32)], [part(3, DType::F32)]);
    let (a, b, mut z) = ([1.0f32, 2.0], [3.0f32, 4.0, 5.0, 6.0], [0.0f32; 6]);
    let op = Op::Concat(Concat::along(Axis::Batch));
    let call = Launch {
        node: "join",
        op: &op,
        input_types: &types,
        output_types: &whole,
        algorithm: "loop",
        inputs: vec![Input::F32(View::from_slice(&a)), Input::F32(View::from_slice(&b))],
        outputs: vec![Output::F32(ViewMut::from_slice(&mut z))],
        workspace: None,
    };
    launch(call).unwrap();
    assert_eq!(z, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let op = Op::Split(Split { sections: vec![1, 2], axis: Axis::Batch });
    let (types, whole) = ([part(1, DType::U8), part(2, DType::U8)], [part(3, DType::U8)]);
    let (image, mut rest) = ([1u8, 2, 3, 4, 5, 6], [0u8; 4]);
    let call = Launch {
        node: "cut",
        op: &op,
        input_types: &whole,
        output_types: &types,
        algorithm: "loop",
        inputs: vec![Input::U8(View::from_slice(&image))],
        outputs: vec![Output::InPlace(0), Output::U8(ViewMut::from_slice(&mut rest))],
        workspace: None,
    };
    launch(call).unwrap();
    assert_eq!(rest, [3, 4, 5, 6]);
}

#[test]
fn refusals_say_what_was_expected_and_found() {
    let loss = Op::SoftmaxCrossEntropy(SoftmaxCrossEntropy::default());
    let logits = random(&[2, 3], 5);
    let refuse = |op: &Op, inputs: &[Operand], choice: &Choice| match run::<f32>(op, inputs, choice, &Form::Plain) {
        Err(DeviceError::Kernel { reason, .. }) => reason,
        other => panic!("expected a refusal, found {other:?}"),
    };
    let inputs = [logits.clone(), labels(&[0, 7])];
    let choice = &choices::<f32>(&loss, &inputs)[0];
    assert!(refuse(&loss, &inputs, choice).contains("found 7 in row 1"));
    assert!(refuse(&loss, &[logits.clone(), labels(&[-1, 0])], choice).contains("found -1 in row 0"));
    assert!(refuse(&loss, &[logits, labels(&[-100, -100])], choice).contains("mean over no rows"));

    let op = Op::Conv2d(Conv2d::default());
    let inputs = [random(&[1, 2, 5, 5], 6), random(&[2, 2, 3, 3], 7)];
    let tiles = choices::<f32>(&op, &inputs).into_iter().find(|choice| choice.algorithm == "tiles").unwrap();
    let short = Choice { workspace: tiles.workspace - 4, ..tiles.clone() };
    assert!(refuse(&op, &inputs, &short).contains("expected a workspace of"));
    let unknown = Choice { algorithm: "fft".to_string(), ..tiles };
    assert!(refuse(&op, &inputs, &unknown).contains("expected direct"));

    let counter = TensorType::new([1, 2], DType::U64);
    let refused = choices_of(&Op::Relu, std::slice::from_ref(&counter), std::slice::from_ref(&counter));
    assert!(matches!(refused, Err(DeviceError::Unsupported { .. })));
}

/// A diverged run must show: not-a-numbers pass through ReLU and max pooling, as in PyTorch.
#[test]
fn not_a_number_passes_through() {
    let x = Operand::new([1, 1, 2, 2], vec![1.0, f64::NAN, 3.0, -1.0]);
    assert!(outputs(&Op::Relu, std::slice::from_ref(&x))[0][1].is_nan());
    let pool = Op::MaxPool2d(MaxPool2d { window: Window::square(2) });
    assert!(outputs(&pool, &[x])[0][0].is_nan());
}
