//! Half precision and channels last against the f32 kernels: bit for bit, in place, on one thread and on three. And against
//! PyTorch's bf16.

use crate::golden::{Elements, Operand, cases, overs};
use crate::in_pool;
use half::{bf16, f16};
use vdnn_graph::op::{self, BatchNorm, Conv2d, Conv2dDataGrad, Conv2dWeightGrad, MaxPool2d, Window};
use vdnn_graph::{Graph, Op};
use vdnn_runtime::cpu::{Input, Launch, Output, choices_of, launch, pieces_of};
use vdnn_runtime::{DeviceError, View, ViewMut};
use vdnn_schedule::Choice;
use vdnn_tensor::{DType, Layout, MemoryOrder, Philox, Shape, TensorType};

/// An operand in memory.
#[derive(Clone)]
enum Held {
    F32(Vec<f32>),
    F64(Vec<f64>),
    F16(Vec<f16>),
    BF16(Vec<bf16>),
    U8(Vec<u8>),
    U64(Vec<u64>),
}

impl Held {
    fn input(&self) -> Input<'_> {
        match self {
            Held::F32(x) => Input::F32(View::from_slice(x)),
            Held::F64(x) => Input::F64(View::from_slice(x)),
            Held::F16(x) => Input::F16(View::from_slice(x)),
            Held::BF16(x) => Input::BF16(View::from_slice(x)),
            Held::U8(x) => Input::U8(View::from_slice(x)),
            Held::U64(x) => Input::U64(View::from_slice(x)),
        }
    }

    fn output(&mut self) -> Output<'_> {
        match self {
            Held::F32(y) => Output::F32(ViewMut::from_slice(y)),
            Held::F64(y) => Output::F64(ViewMut::from_slice(y)),
            Held::F16(y) => Output::F16(ViewMut::from_slice(y)),
            Held::BF16(y) => Output::BF16(ViewMut::from_slice(y)),
            Held::U8(y) => Output::U8(ViewMut::from_slice(y)),
            Held::U64(y) => Output::U64(ViewMut::from_slice(y)),
        }
    }
}

/// Where logical element `e` lies. A mask is one of `image`, by its bits.
fn place(ty: &TensorType, e: usize) -> usize {
    match (ty.layout.order, ty.shape.nchw()) {
        (MemoryOrder::Nhwc, Some(dims)) => {
            let [_, c, h, w] = dims.map(|dim| dim as usize);
            let (n, channel, pixel) = (e / (c * h * w), e / (h * w) % c, e % (h * w));
            (n * h * w + pixel) * (c + ty.layout.channel_padding as usize) + channel
        }
        _ => e,
    }
}

fn is_mask(ty: &TensorType) -> bool {
    ty.dtype == DType::U8 && ty.shape.rank() == 2
}

/// Bit of an element in a mask whose samples start at bytes of their own.
fn bit(image: &TensorType, e: usize) -> (usize, usize) {
    let of_sample = image.shape.elements_per_sample() as usize;
    let at = place(image, e) - e / of_sample * of_sample;
    (e / of_sample * of_sample.div_ceil(8) + at / 8, at % 8)
}

/// Logical elements as they lie in memory; of a mask, whether each bit of `image` is set.
fn encode(ty: &TensorType, image: &TensorType, elements: &[f64]) -> Held {
    let stored = ty.stored_elements() as usize;
    let put = |blank: f64| {
        let mut memory = vec![blank; stored];
        elements.iter().enumerate().for_each(|(e, &value)| memory[place(ty, e)] = value);
        memory
    };
    match ty.dtype {
        DType::F32 => Held::F32(put(0.0).iter().map(|&x| x as f32).collect()),
        DType::F64 => Held::F64(put(0.0)),
        DType::F16 => Held::F16(put(0.0).iter().map(|&x| f16::from_f32(x as f32)).collect()),
        DType::BF16 => Held::BF16(put(0.0).iter().map(|&x| bf16::from_f32(x as f32)).collect()),
        DType::U64 => Held::U64(elements.iter().map(|&x| x as u64).collect()),
        _ if is_mask(ty) => {
            let mut bytes = vec![0u8; stored];
            for (e, &set) in elements.iter().enumerate() {
                let (byte, bit) = bit(image, e);
                bytes[byte] |= u8::from(set != 0.0) << bit;
            }
            Held::U8(bytes)
        }
        _ => Held::U8(put(0.0).iter().map(|&x| x as u8).collect()),
    }
}

fn decode(ty: &TensorType, image: &TensorType, held: &Held) -> Vec<f64> {
    let get = |memory: Vec<f64>| -> Vec<f64> {
        if let (Some([_, c, ..]), padding @ 1..) = (ty.shape.nchw(), ty.layout.channel_padding as usize) {
            let pixels = memory.chunks(c as usize + padding);
            pixels.for_each(|pixel| assert!(pixel[c as usize..].iter().all(|&x| x == 0.0), "padding is zero"));
        }
        (0..ty.shape.elements() as usize).map(|e| memory[place(ty, e)]).collect()
    };
    match held {
        Held::F32(x) => get(x.iter().map(|&x| f64::from(x)).collect()),
        Held::F64(x) => get(x.clone()),
        Held::F16(x) => get(x.iter().map(|x| f64::from(x.to_f32())).collect()),
        Held::BF16(x) => get(x.iter().map(|x| f64::from(x.to_f32())).collect()),
        Held::U64(x) => x.iter().map(|&x| x as f64).collect(),
        Held::U8(bytes) if is_mask(ty) => {
            let bits = (0..image.shape.elements() as usize).map(|e| bit(image, e));
            bits.map(|(byte, bit)| f64::from(bytes[byte] >> bit & 1)).collect()
        }
        Held::U8(x) => get(x.iter().map(|&x| f64::from(x)).collect()),
    }
}

pub fn outputs_of(op: &Op, inputs: &[TensorType]) -> Vec<TensorType> {
    let mut graph = Graph::new("types");
    let ids = inputs.iter().enumerate().map(|(i, ty)| graph.input(&format!("in{i}"), ty.clone()).unwrap());
    let ids: Vec<_> = ids.collect();
    let made = graph.push("node", op.clone(), &ids).unwrap_or_else(|error| panic!("{error}"));
    made.iter().map(|&id| graph.value(id).ty.clone()).collect()
}

/// Runs an op on logical elements of these types and returns logical elements. Everything else starts as rubbish.
pub fn run(
    op: &Op,
    types: &[TensorType],
    inputs: &[Vec<f64>],
    choice: &Choice,
    over: &[(usize, usize)],
) -> Result<Vec<Vec<f64>>, DeviceError> {
    let made = outputs_of(op, types);
    let image = types.iter().find(|ty| ty.shape.rank() == 4).unwrap_or(&types[0]);
    let held: Vec<Held> = types.iter().zip(inputs).map(|(ty, elements)| encode(ty, image, elements)).collect();
    let rubbish = |ty: &TensorType| match is_mask(ty) {
        true => Held::U8(vec![0xff; ty.bytes() as usize]),
        false => encode(ty, image, &vec![77.0; ty.shape.elements() as usize]),
    };
    let from = |o: usize| over.iter().find(|pair| pair.1 == o);
    let start = |(o, ty)| from(o).map_or_else(|| rubbish(ty), |&(i, _)| held[i].clone());
    let mut results: Vec<Held> = made.iter().enumerate().map(start).collect();
    let input = |i: usize| match over.iter().find(|pair| pair.0 == i) {
        Some(&(_, to)) => Input::InPlace(to),
        None => held[i].input(),
    };
    let mut workspace = vec![u64::MAX; (choice.workspace as usize).div_ceil(8)];
    launch(Launch {
        node: "node",
        op,
        input_types: types,
        output_types: &made,
        algorithm: &choice.algorithm,
        inputs: (0..held.len()).map(input).collect(),
        outputs: results.iter_mut().map(Held::output).collect(),
        workspace: Some(&mut bytemuck::cast_slice_mut(&mut workspace)[..choice.workspace as usize]),
    })?;
    Ok(made.iter().zip(&results).map(|(ty, held)| decode(ty, image, held)).collect())
}

pub fn noise(count: u64, stream: u64) -> Vec<f64> {
    let mut random = Philox::new(29, stream);
    (0..count).map(|_| f64::from(bf16::from_f32(random.normal() as f32).to_f32())).collect()
}

/// A type with half-precision numbers, channels last where it is an image, as f32 kernels see it.
fn wide(ty: &TensorType) -> TensorType {
    let dtype = if ty.dtype.is_half() { DType::F32 } else { ty.dtype };
    TensorType { shape: ty.shape.clone(), dtype, layout: Layout::default() }
}

pub fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The result is the f32 kernel's on the same numbers, rounded.
fn rounds_the_f32_kernel(op: &Op, types: &[TensorType], inputs: &[Vec<f64>]) {
    let (made, wide_types) = (outputs_of(op, types), types.iter().map(wide).collect::<Vec<_>>());
    let mut choices = choices_of(op, types, &made).unwrap();
    choices.extend(pieces_of(op, types, &made).unwrap());
    let wide_made = outputs_of(op, &wide_types);
    let mut wide_choices = choices_of(op, &wide_types, &wide_made).unwrap();
    wide_choices.extend(pieces_of(op, &wide_types, &wide_made).unwrap());
    assert_eq!(choices.len(), wide_choices.len());
    for (choice, plain) in choices.iter().zip(&wide_choices) {
        // What is done element by element to f32 in any order is done in place.
        let copied = choice.workspace > plain.workspace || types[types.len() - 1].dtype == DType::F32;
        assert!(copied && choice.algorithm == plain.algorithm, "{choice:?} beside {plain:?}");
        let expected = run(op, &wide_types, inputs, plain, &[]).unwrap();
        for (over, threads) in overs(op, types.len()).iter().flat_map(|over| [(over, 1), (over, 3)]) {
            let found = in_pool(threads, || run(op, types, inputs, choice, over).unwrap());
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let rounded: Vec<f64> = expected.iter().map(|&x| round(made[index].dtype, x)).collect();
                let what = format!("{} output {index} by {} over {over:?}", op.kind(), choice.algorithm);
                assert_eq!(bits(found), bits(&rounded), "{what}");
            }
        }
        if choice.workspace > plain.workspace {
            let short = Choice { workspace: choice.workspace - 8, ..choice.clone() };
            assert!(matches!(run(op, types, inputs, &short, &[]), Err(DeviceError::Kernel { .. })), "{short:?}");
        }
    }
}

fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::BF16 => f64::from(bf16::from_f32(x as f32).to_f32()),
        DType::F16 => f64::from(f16::from_f32(x as f32).to_f32()),
        _ => x,
    }
}

pub fn image(dims: [u64; 4], dtype: DType, channel_padding: u32) -> TensorType {
    let layout = Layout { order: MemoryOrder::Nhwc, channel_padding };
    TensorType { shape: Shape::from(dims), dtype, layout }
}

fn vector(n: u64) -> TensorType {
    TensorType::new([n], DType::F32)
}

/// Noise for every operand; variances are positive, masks are bits of the first image, counters are 3.
fn check(op: &Op, types: &[TensorType]) {
    let fill = |(index, ty): (usize, &TensorType)| match ty.dtype {
        DType::U64 => vec![3.0],
        DType::U8 if is_mask(ty) => {
            noise(types[1].shape.elements(), 40).iter().map(|&x| f64::from(u8::from(x > 0.3))).collect()
        }
        DType::U8 => noise(ty.shape.elements(), 41).iter().map(|x| (x.abs() * 2.0).floor().min(3.0)).collect(),
        _ if ty.shape.rank() == 1 => noise(ty.shape.elements(), index as u64).iter().map(|x| x.abs() + 0.1).collect(),
        _ => noise(ty.shape.elements(), index as u64),
    };
    let inputs: Vec<Vec<f64>> = types.iter().enumerate().map(fill).collect();
    rounds_the_f32_kernel(op, types, &inputs);
}

#[test]
fn convolutions_with_and_without_padded_channels() {
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let cases = [(DType::BF16, 3, 5, 1), (DType::F16, 8, 0, 1), (DType::BF16, 6, 0, 3), (DType::F32, 3, 0, 1)];
    for (dtype, c, padding, groups) in cases {
        let conv = Conv2d { groups, ..conv };
        let (x, w) = (image([4, c, 6, 5], dtype, padding), image([12, c / groups, 3, 3], dtype, padding));
        let dy = image([4, 12, 6, 5], dtype, 0);
        check(&Op::Conv2d(conv), &[x.clone(), w.clone(), vector(12)]);
        check(&Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [6, 5] }), &[dy.clone(), w]);
        check(&Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] }), &[x, dy.clone()]);
        check(&Op::BiasGrad, &[dy]);
    }
}

#[test]
fn batch_norms() {
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let (x, c, norm) = (image([3, 5, 3, 7], dtype, 0), vector(5), BatchNorm { eps: 1e-5 });
        let with = |more: &[&TensorType]| more.iter().map(|&ty| ty.clone()).collect::<Vec<_>>();
        check(&Op::BatchNormStats, &with(&[&x]));
        check(&Op::BatchNorm(norm), &with(&[&x, &c, &c, &c, &c]));
        check(&Op::BatchNormGrad(norm), &with(&[&x, &x, &c, &c, &c]));
        check(&Op::BatchNormRelu(norm), &with(&[&x, &c, &c, &c, &c]));
        check(&Op::BatchNormReluGrad(norm), &with(&[&x, &x, &c, &c, &c, &c]));
        check(&Op::BatchNormAddRelu(norm), &with(&[&x, &c, &c, &c, &c, &x]));
        let mask = op::mask_type(&x);
        check(&Op::BatchNormAddReluGrad(norm), &with(&[&x, &x, &mask, &c, &c, &c]));
        check(&Op::BatchNormAddReluGrad(norm), &with(&[&x, &x, &mask, &c, &c, &c, &x]));
    }
}

#[test]
fn everything_between() {
    let window = Window { stride: [2, 2], ..Window::square(2) };
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let (x, y) = (image([2, 5, 6, 4], dtype, 0), image([2, 5, 3, 2], dtype, 0));
        let with = |more: &[&TensorType]| more.iter().map(|&ty| ty.clone()).collect::<Vec<_>>();
        check(&Op::Relu, &with(&[&x]));
        check(&Op::ReluGrad, &with(&[&x, &x]));
        check(&Op::ReluMask, &with(&[&x]));
        check(&Op::ReluMaskGrad, &with(&[&op::mask_type(&x), &x]));
        check(&Op::Add, &with(&[&x, &x]));
        let pool = MaxPool2d { window };
        check(&Op::MaxPool2d(pool), &with(&[&x]));
        check(&Op::MaxPool2dIndices(pool), &with(&[&x]));
        let indices = TensorType { dtype: DType::U8, ..y.clone() };
        let grad = op::MaxPool2dIndicesGrad { pool, input: [6, 4] };
        check(&Op::MaxPool2dIndicesGrad(grad), &with(&[&indices, &y]));
        let stem = op::BatchNormReluMaxPool2d { norm: BatchNorm { eps: 1e-5 }, pool };
        let c = vector(5);
        check(&Op::BatchNormReluMaxPool2d(stem), &with(&[&x, &c, &c, &c, &c]));
        check(&Op::BatchNormReluMaxPool2dGrad(stem), &with(&[&x, &indices, &y, &c, &c, &c, &c]));
        check(&Op::AdaptiveAvgPool2d(op::AdaptiveAvgPool2d { output: [1, 1] }), &with(&[&x]));
        check(&Op::Concat(op::Concat::default()), &with(&[&x, &image([2, 3, 6, 4], dtype, 0)]));
        check(&Op::Split(op::Split::channels(vec![2, 3])), &with(&[&x]));
        if dtype == DType::F32 {
            continue;
        }
        let matrix = |dims: [u64; 2]| TensorType::new(dims, dtype);
        check(&Op::Linear, &[matrix([4, 6]), matrix([3, 6]), vector(3)]);
        check(&Op::LinearDataGrad, &[matrix([4, 3]), matrix([3, 6])]);
        check(&Op::LinearWeightGrad, &[matrix([4, 6]), matrix([4, 3])]);
    }
}

/// A convolution with statistics rounds Y first: the bits of the two ops, each by way of f32.
/// Case B16 in half precision: copies without bytes lie nowhere in particular, as does a workspace without any.
#[test]
fn b16_empty_batches() {
    for dtype in [DType::BF16, DType::F16] {
        let types = [image([0, 8, 4, 4], dtype, 0)];
        let [x, mut y] = [0, 1].map(|_| encode(&types[0], &types[0], &[]));
        let (inputs, outputs) = (vec![x.input()], vec![y.output()]);
        let op = Op::Relu;
        launch(Launch {
            node: "node",
            op: &op,
            input_types: &types,
            output_types: &types,
            algorithm: &choices_of(&op, &types, &types).unwrap()[0].algorithm,
            inputs,
            outputs,
            workspace: None,
        })
        .unwrap();
    }
}

#[test]
fn statistics_are_of_the_rounded_output() {
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    for dtype in [DType::BF16, DType::F16] {
        let types = [image([4, 3, 6, 5], dtype, 5), image([12, 3, 3, 3], dtype, 5)];
        let inputs = types.clone().map(|ty| noise(ty.shape.elements(), ty.shape.dim(0)));
        let op = Op::Conv2dStats(conv);
        let made = outputs_of(&op, &types);
        let statistics = choices_of(&Op::BatchNormStats, &made[..1], &made[1..]).unwrap().remove(0);
        for choice in choices_of(&op, &types, &made).unwrap() {
            let y = run(&Op::Conv2d(conv), &types, &inputs, &choice, &[]).unwrap();
            let expected = [&y[..], &run(&Op::BatchNormStats, &made[..1], &y, &statistics, &[]).unwrap()[..]].concat();
            let found = in_pool(3, || run(&op, &types, &inputs, &choice, &[]).unwrap());
            let all = |values: &[Vec<f64>]| values.iter().map(|v| bits(v)).collect::<Vec<_>>();
            assert_eq!(all(&found), all(&expected), "{dtype} by {}", choice.algorithm);
            let short = Choice { workspace: choice.workspace - 8, ..choice.clone() };
            assert!(matches!(run(&op, &types, &inputs, &short, &[]), Err(DeviceError::Kernel { .. })), "{short:?}");
        }
    }
}

/// Casts between all types and orders: what both have stays, the rest rounds to nearest.
#[test]
fn casts() {
    let dims = [2, 3, 3, 5];
    let plain = |dtype| TensorType::new(dims, dtype);
    let types = [
        plain(DType::F32),
        plain(DType::F64),
        plain(DType::BF16),
        image(dims, DType::BF16, 0),
        image(dims, DType::BF16, 5),
        image(dims, DType::F16, 1),
        image(dims, DType::F32, 0),
    ];
    let x = noise(90, 7);
    for (from, to) in types.iter().flat_map(|from| types.iter().map(move |to| (from, to))) {
        let op = Op::Cast(op::Cast { dtype: to.dtype, layout: to.layout });
        let choice = choices_of(&op, std::slice::from_ref(from), std::slice::from_ref(to)).unwrap().remove(0);
        let given: Vec<f64> = x.iter().map(|&x| round(from.dtype, x + 1e-3)).collect();
        let found = in_pool(3, || run(&op, std::slice::from_ref(from), std::slice::from_ref(&given), &choice, &[]));
        let rounded = |&x: &f64| if to.dtype == DType::F32 { f64::from(x as f32) } else { round(to.dtype, x) };
        let given: Vec<f64> = match from.dtype {
            DType::F32 => given.iter().map(|&x| f64::from(x as f32)).collect(),
            _ => given,
        };
        assert_eq!(bits(&found.unwrap()[0]), bits(&given.iter().map(rounded).collect::<Vec<_>>()), "{from} to {to}");
    }
    let odd = TensorType { layout: Layout { order: MemoryOrder::Nchw, channel_padding: 2 }, ..plain(DType::F32) };
    let op = Op::Cast(op::Cast { dtype: odd.dtype, layout: odd.layout });
    assert!(matches!(choices_of(&op, &[plain(DType::F32)], &[odd]), Err(DeviceError::Unsupported { .. })));
}

/// SGD that reads gradients in half precision or another order, alone and in a group, against casts and SGD of each.
#[test]
fn sgd_reads_gradients_as_casts_would() {
    let (dims, one, counter) = ([4, 3, 3, 2], TensorType::new([1], DType::F32), TensorType::new([1], DType::U64));
    let plain = TensorType::new(dims, DType::F32);
    let op = Op::Sgd(op::Sgd { momentum: 0.9, dampening: 0.5, weight_decay: 0.1, nesterov: true });
    let noise = |stream| noise(72, stream).iter().map(|&x| f64::from(x as f32)).collect::<Vec<_>>();
    let updated = |op: &Op, types: &[TensorType], values: &[Vec<f64>]| {
        let choice = choices_of(op, types, &outputs_of(op, types)).unwrap().remove(0);
        in_pool(3, || run(op, types, values, &choice, &[])).unwrap()
    };
    for half in [image(dims, DType::BF16, 0), TensorType::new(dims, DType::F16), image(dims, DType::F32, 0)] {
        let member = |stream: u64, ty: &TensorType| {
            let gradient = noise(stream + 1).iter().map(|&x| round(half.dtype, x)).collect();
            let types = vec![plain.clone(), ty.clone(), plain.clone(), one.clone(), counter.clone()];
            (types, vec![noise(stream), gradient, noise(stream + 2), vec![0.1], vec![2.0]])
        };
        let alone = [3, 11].map(|stream| {
            let (types, values) = member(stream, &plain);
            updated(&op, &types, &values)
        });
        let ((types, values), (more_types, more_values)) = (member(3, &half), member(11, &half));
        let direct = updated(&op, &types, &values);
        let group = Op::Group(op::Group { op: Box::new(op.clone()), members: 2, inputs: 5 });
        let together = updated(&group, &[types, more_types].concat(), &[values, more_values].concat());
        let all = |values: &[Vec<f64>]| values.iter().map(|v| bits(v)).collect::<Vec<_>>();
        assert_eq!(all(&direct), all(&alone[0]), "{half}");
        assert_eq!(all(&together), all(&alone.concat()), "{half}");
    }
}

/// Against PyTorch in bf16 on a CPU. Both sum in f32 or wider and round once, so two results are the same or neighbours: one
/// unit of the last of 8 bits, at most 2⁻⁷ of the number, beside what f32 sums in another order differ by. Statistics and
/// parameters' gradients are f32: of them only the latter remains.
#[test]
fn pytorch_in_bf16() {
    for case in cases("half", "") {
        let ty = |operand: &Operand| match operand.shape.rank() {
            1 => TensorType::new(operand.shape.clone(), DType::F32),
            4 => TensorType { shape: operand.shape.clone(), ..image([1; 4], DType::BF16, 0) },
            _ => TensorType::new(operand.shape.clone(), DType::BF16),
        };
        let types: Vec<TensorType> = case.inputs.iter().map(ty).collect();
        let real = |operand: &Operand| match &operand.elements {
            Elements::Real(elements) => elements.clone(),
            _ => panic!("real operands only"),
        };
        let inputs: Vec<Vec<f64>> = case.inputs.iter().map(real).collect();
        let made = outputs_of(&case.op, &types);
        for choice in choices_of(&case.op, &types, &made).unwrap() {
            let found = run(&case.op, &types, &inputs, &choice, &[]).unwrap();
            for (index, (found, expected)) in found.iter().zip(&case.outputs).enumerate() {
                let scale = expected.iter().fold(0.0f64, |scale, x| scale.max(x.abs()));
                let unit = if made[index].dtype == DType::BF16 { f64::exp2(-7.0) } else { 0.0 };
                for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                    let allowed = unit * expected.abs() + 2e-5 * scale;
                    let what = format!("{} output {index} by {} at {at}", case.name, choice.algorithm);
                    assert!((found - expected).abs() <= allowed, "{what}: expected {expected}, found {found}");
                }
            }
        }
    }
}
