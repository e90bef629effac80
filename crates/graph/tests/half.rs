//! Shape rules of half precision, channels-last order and fused ops.

use vdnn_graph::op::{BatchNorm, Cast, Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_graph::{Graph, GraphError, InPlace, Op, Program, ValueId, op};
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

fn nhwc(dims: [u64; 4], channel_padding: u32) -> TensorType {
    let layout = Layout { order: MemoryOrder::Nhwc, channel_padding };
    TensorType { layout, ..TensorType::new(dims, DType::BF16) }
}

fn f32s<const N: usize>(dims: [u64; N]) -> TensorType {
    TensorType::new(dims, DType::F32)
}

struct Bench {
    graph: Graph,
    count: usize,
}

impl Bench {
    fn new() -> Self {
        Bench { graph: Graph::new("half"), count: 0 }
    }

    fn input(&mut self, ty: TensorType) -> ValueId {
        self.count += 1;
        self.graph.input(&format!("x{}", self.count), ty).unwrap()
    }

    fn push(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        self.count += 1;
        self.graph.push(&format!("n{}", self.count), op, inputs)
    }

    fn types(&mut self, op: Op, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let inputs: Vec<ValueId> = inputs.iter().map(|ty| self.input(ty.clone())).collect();
        let outputs = self.push(op, &inputs).map_err(|error| error.to_string())?;
        Ok(outputs.iter().map(|&id| self.graph.value(id).ty.clone()).collect())
    }
}

#[test]
fn a_padded_stem_has_padded_weights_and_an_unpadded_result() {
    let mut b = Bench::new();
    let conv = Conv2d { stride: [2, 2], padding: [3, 3], ..Conv2d::default() };
    let (x, w, y) = (nhwc([8, 3, 224, 224], 5), nhwc([64, 3, 7, 7], 5), nhwc([8, 64, 112, 112], 0));
    assert_eq!(b.types(Op::Conv2d(conv), &[x.clone(), w.clone()]).unwrap(), std::slice::from_ref(&y));
    let weight = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [7, 7] });
    assert_eq!(b.types(weight, &[x.clone(), y.clone()]).unwrap(), std::slice::from_ref(&w));
    let data = Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [224, 224] });
    assert_eq!(b.types(data, &[y, w.clone()]).unwrap(), std::slice::from_ref(&x));
    let plain = TensorType { layout: Layout::default(), ..w };
    assert!(b.types(Op::Conv2d(conv), &[x.clone(), plain]).unwrap_err().contains("one layout"));
    let grouped = Conv2d { groups: 3, ..conv };
    let w = nhwc([63, 1, 7, 7], 5);
    assert!(b.types(Op::Conv2d(grouped), &[x, w]).unwrap_err().contains("one group"));
}

#[test]
fn statistics_and_parameters_beside_half_precision_are_wide() {
    let mut b = Bench::new();
    let (x, c) = (nhwc([4, 16, 5, 5], 0), f32s([16]));
    assert_eq!(b.types(Op::BatchNormStats, std::slice::from_ref(&x)).unwrap(), [c.clone(), c.clone()]);
    let norm = BatchNorm { eps: 1e-5 };
    let with = |more: &[&TensorType]| more.iter().map(|&ty| ty.clone()).collect::<Vec<_>>();
    assert_eq!(b.types(Op::BatchNormRelu(norm), &with(&[&x, &c, &c, &c, &c])).unwrap(), std::slice::from_ref(&x));
    let grads = b.types(Op::BatchNormReluGrad(norm), &with(&[&x, &x, &c, &c, &c, &c])).unwrap();
    assert_eq!(grads, with(&[&x, &c, &c]));
    let mask = TensorType::new([4, 50], DType::U8);
    assert_eq!(b.types(Op::BatchNormAddRelu(norm), &with(&[&x, &c, &c, &c, &c, &x])).unwrap(), with(&[&x, &mask]));
    let grads = b.types(Op::BatchNormAddReluGrad(norm), &with(&[&x, &x, &mask, &c, &c, &c])).unwrap();
    assert_eq!(grads, with(&[&x, &c, &c, &x]));
    let pair = op::BatchNormPair { eps: [1e-5; 2] };
    let both = [&x, &c, &c, &c, &c, &x, &c, &c, &c, &c];
    assert_eq!(b.types(Op::BatchNormPairRelu(pair), &with(&both)).unwrap(), with(&[&x, &mask]));
    for n_inputs in [10, 11] {
        let reads = [&x, &x, &mask, &c, &c, &c, &x, &c, &c, &c, &x];
        let grads = b.types(Op::BatchNormPairReluGrad(pair), &with(&reads[..n_inputs])).unwrap();
        assert_eq!(grads, with(&[&x, &c, &c, &x, &c, &c]));
    }
    let window = op::Window { stride: [2, 2], padding: [1, 1], ..op::Window::square(3) };
    let stem = |window| op::BatchNormReluMaxPool2d { norm, pool: op::MaxPool2d { window } };
    let (y, places) = (nhwc([4, 16, 3, 3], 0), TensorType { dtype: DType::U8, ..nhwc([4, 16, 3, 3], 0) });
    let forward = with(&[&x, &c, &c, &c, &c]);
    assert_eq!(b.types(Op::BatchNormReluMaxPool2d(stem(window)), &forward).unwrap(), with(&[&y, &places]));
    let grads =
        b.types(Op::BatchNormReluMaxPool2dGrad(stem(window)), &with(&[&x, &places, &y, &c, &c, &c, &c])).unwrap();
    assert_eq!(grads, with(&[&x, &c, &c]));
    let wide = op::Window { kernel: [5, 5], ..window };
    let refusal = b.types(Op::BatchNormReluMaxPool2d(stem(wide)), &forward).unwrap_err();
    assert!(refusal.contains("2x2 or 3x3 at a stride of 2"), "{refusal}");
    let other = nhwc([4, 16, 5, 4], 0);
    let refusal =
        b.types(Op::BatchNormPairRelu(pair), &with(&[&x, &c, &c, &c, &c, &other, &c, &c, &c, &c])).unwrap_err();
    assert!(refusal.contains("expected B of type"), "{refusal}");
    assert_eq!(b.types(Op::BiasGrad, std::slice::from_ref(&x)).unwrap(), std::slice::from_ref(&c));
    let narrow = TensorType::new([16], DType::BF16);
    assert!(b.types(Op::BatchNormRelu(norm), &with(&[&x, &narrow, &c, &c, &c])).unwrap_err().contains("mean"));
}

#[test]
fn casts_change_type_and_order_of_floats_only() {
    let mut b = Bench::new();
    let to = nhwc([2, 3, 4, 4], 5);
    let cast = Op::Cast(Cast { dtype: to.dtype, layout: to.layout });
    assert_eq!(b.types(cast.clone(), &[f32s([2, 3, 4, 4])]).unwrap(), std::slice::from_ref(&to));
    assert!(b.types(cast.clone(), &[f32s([2, 3])]).unwrap_err().contains("expected an image"));
    assert!(b.types(cast, &[TensorType::new([2, 3, 4, 4], DType::I32)]).unwrap_err().contains("floating-point"));
    let order = to.layout.order;
    assert!(b.types(Op::Flatten, &[nhwc([2, 3, 4, 4], 0)]).unwrap_err().contains("cast it first"), "{order:?}");
}

#[test]
fn a_slice_of_channels_innermost_has_a_row_a_pixel() {
    let mut b = Bench::new();
    let (x, y) = (b.input(nhwc([2, 3, 4, 5], 0)), b.input(nhwc([2, 5, 4, 5], 0)));
    let (x, y) = (b.push(Op::Relu, &[x]).unwrap()[0], b.push(Op::Relu, &[y]).unwrap()[0]);
    let whole = b.push(Op::Concat(op::Concat::default()), &[x, y]).unwrap()[0];
    let end = b.push(Op::Relu, &[whole]).unwrap()[0];
    b.graph.read_back(end);
    let program = Program::linearize(b.graph, InPlace::Allowed).unwrap();
    let at = program.aliases.location(y);
    assert_eq!((at.rows, at.row_bytes, at.row_stride, at.offset), (40, 10, 16, 6));
    assert_eq!(at.root, program.aliases.location(x).root);
}
