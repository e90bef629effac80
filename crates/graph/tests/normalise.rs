//! Images of bytes: what the shape rule takes, and what half precision makes of the op.

use vdnn_graph::op::{Conv2d, Normalise};
use vdnn_graph::passes::mixed;
use vdnn_graph::{Graph, Op};
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

fn op() -> Normalise {
    Normalise { mean: vec![0.5, 0.25, 0.0], std: vec![0.5, 1.0, 2.0], dtype: DType::F32 }
}

fn infer(op: Normalise, ty: TensorType) -> Result<String, String> {
    let mut graph = Graph::new("test");
    let x = graph.input("image", ty).unwrap();
    graph.begin_layer("image.normalised");
    let made = graph.push("image.normalised", Op::Normalise(op), &[x]).map_err(|error| error.to_string())?;
    Ok(graph.value(made[0]).ty.to_string())
}

#[test]
fn bytes_become_numbers_of_the_same_shape() {
    let image = TensorType::new([2, 3, 5, 7], DType::U8);
    assert_eq!(infer(op(), image.clone()).unwrap(), "f32[2, 3, 5, 7]");
    assert_eq!(infer(Normalise { dtype: DType::BF16, ..op() }, image).unwrap(), "bf16[2, 3, 5, 7]");
}

#[test]
fn what_is_no_image_of_bytes_or_has_no_mean_is_refused() {
    let image = |dtype| TensorType::new([2, 3, 5, 7], dtype);
    let nhwc = TensorType { layout: Layout { order: MemoryOrder::Nhwc, channel_padding: 0 }, ..image(DType::U8) };
    let cases = [
        (op(), image(DType::F32), "expected an image of bytes"),
        (op(), nhwc, "expected an image of bytes"),
        (op(), TensorType::new([2, 3], DType::U8), "expected an image [N, C, H, W]"),
        (op(), TensorType::new([2, 1, 5, 7], DType::U8), "expected 1 finite means"),
        (Normalise { mean: vec![0.0, f32::NAN, 0.0], ..op() }, image(DType::U8), "3 finite means"),
        (Normalise { std: vec![1.0], ..op() }, image(DType::U8), "3 finite deviations"),
        (Normalise { std: vec![1.0, 0.0, 1.0], ..op() }, image(DType::U8), "deviations other than 0"),
        (Normalise { dtype: DType::I32, ..op() }, image(DType::U8), "floating-point"),
    ];
    for (op, ty, expected) in cases {
        let refused = infer(op, ty).unwrap_err();
        assert!(refused.contains(expected), "expected {expected:?} in {refused}");
    }
}

#[test]
fn a_level_is_the_formula_rounded_once() {
    assert_eq!(op().level(0, 255), 1.0);
    assert_eq!(op().level(1, 0), -0.25);
    assert_eq!(op().level(2, 51), 0.1);
}

#[test]
fn in_half_precision_bytes_become_halves_in_the_logical_order() {
    let mut graph = Graph::new("test");
    let x = graph.input("image", TensorType::new([2, 3, 8, 8], DType::U8)).unwrap();
    let w = graph.parameter("conv.weight", TensorType::new([4, 3, 3, 3], DType::F32)).unwrap();
    graph.begin_layer("image.normalised");
    let image = graph.push("image.normalised", Op::Normalise(op()), &[x]).unwrap()[0];
    graph.begin_layer("conv");
    graph.push("conv", Op::Conv2d(Conv2d::default()), &[image, w]).unwrap();
    let lowered = mixed(&graph, DType::F16).unwrap().graph;
    let ty = |name: &str| lowered.value(lowered.find_value(name).unwrap()).ty.to_string();
    assert_eq!(ty("image"), "u8[2, 3, 8, 8]");
    assert_eq!(ty("image.normalised"), "f16[2, 3, 8, 8]");
    assert_eq!(ty("image.normalised.nhwc"), "f16[2, 3, 8, 8] nhwc +5c");
}
