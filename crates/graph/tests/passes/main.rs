//! What passes make of small graphs: which nodes, with which names, types and layers, and what they refuse.

mod fusing;

use vdnn_graph::op::{self, BatchNorm, BatchNormUpdate, Conv2d, LocalResponseNorm};
use vdnn_graph::passes::{Passes, fuse, fuse_gradients, fuse_statistics, group, mixed, stem};
use vdnn_graph::{Graph, GraphError, Op, Phase, ValueId};
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

const HALF: DType = DType::BF16;

fn f32s(dims: &[u64]) -> TensorType {
    TensorType::new(dims, DType::F32)
}

struct Bench(Graph);

impl Bench {
    fn new() -> Self {
        Bench(Graph::new("bench"))
    }

    fn image(&mut self, dims: [u64; 4]) -> ValueId {
        self.0.input("image", f32s(&dims)).unwrap()
    }

    fn layer(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
        self.0.begin_layer(name);
        self.0.push(name, op, inputs).unwrap()[0]
    }

    fn conv(&mut self, name: &str, x: ValueId, weight: [u64; 4], groups: u64) -> ValueId {
        let w = self.0.parameter(&format!("{name}.weight"), f32s(&weight)).unwrap();
        self.layer(name, Op::Conv2d(Conv2d { padding: [1, 1], groups, ..Conv2d::default() }), &[x, w])
    }

    /// Batch norm as training has it.
    fn norm(&mut self, name: &str, x: ValueId) -> ValueId {
        let c = self.0.value(x).ty.shape.dim(1);
        let vector =
            |graph: &mut Graph, suffix: &str| graph.parameter(&format!("{name}.{suffix}"), f32s(&[c])).unwrap();
        let (gamma, beta) = (vector(&mut self.0, "weight"), vector(&mut self.0, "bias"));
        let running =
            ["running_mean", "running_var"].map(|s| self.0.state(&format!("{name}.{s}"), f32s(&[c])).unwrap());
        self.0.begin_layer(name);
        let stats = self.0.push(&format!("{name}.stats"), Op::BatchNormStats, &[x]).unwrap();
        let norm = Op::BatchNorm(BatchNorm { eps: 1e-5 });
        let y = self.0.push(name, norm, &[x, stats[0], stats[1], gamma, beta]).unwrap()[0];
        let update = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 8 });
        self.0.push(&format!("{name}.update"), update, &[stats[0], stats[1], running[0], running[1]]).unwrap();
        y
    }

    fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.layer(name, Op::Relu, &[x])
    }
}

fn kinds(graph: &Graph) -> Vec<String> {
    graph.nodes().iter().map(|node| format!("{} {}", node.name, node.op.kind())).collect()
}

fn node<'a>(graph: &'a Graph, name: &str) -> &'a vdnn_graph::Node {
    graph.nodes().iter().find(|node| node.name == name).unwrap_or_else(|| panic!("no {name} in\n{graph}"))
}

fn names(graph: &Graph, ids: &[ValueId]) -> Vec<String> {
    ids.iter().map(|&id| graph.value(id).name.clone()).collect()
}

fn ty(graph: &Graph, name: &str) -> String {
    graph.value(graph.find_value(name).unwrap_or_else(|| panic!("no {name} in\n{graph}"))).ty.to_string()
}

#[test]
fn mixed_precision_of_a_small_network() {
    let mut b = Bench::new();
    let x = b.image([2, 3, 6, 6]);
    let y = b.conv("conv1", x, [16, 3, 3, 3], 1);
    let y = b.norm("bn", y);
    let y = b.relu("relu", y);
    let y = b.conv("conv2", y, [8, 4, 3, 3], 4);
    let y = b.layer("pool", Op::AdaptiveAvgPool2d(op::AdaptiveAvgPool2d { output: [1, 1] }), &[y]);
    let y = b.layer("flatten", Op::Flatten, &[y]);
    let (w, bias) = (b.0.parameter("fc.weight", f32s(&[5, 8])).unwrap(), b.0.parameter("fc.bias", f32s(&[5])).unwrap());
    let y = b.layer("fc", Op::Linear, &[y, w, bias]);
    let label = b.0.input("label", TensorType::new([2], DType::I32)).unwrap();
    b.layer("loss", Op::SoftmaxCrossEntropy(op::SoftmaxCrossEntropy::default()), &[y, label]);
    let accuracy = b.layer("accuracy", Op::Accuracy, &[y, label]);
    let rewritten = Passes { fuse: true, storage: Some(HALF), ..Passes::NONE }.apply(&b.0).unwrap();
    let graph = &rewritten.graph;
    let expected = [
        ("image", "f32[2, 3, 6, 6]"),
        ("image.unfolded", "bf16[2, 9, 6, 8] nhwc +7c"),
        ("conv1.weight", "f32[16, 3, 3, 3]"),
        ("conv1.weight.unfolded", "bf16[16, 9, 1, 3] nhwc +7c"),
        ("conv1", "bf16[2, 16, 6, 6] nhwc"),
        ("bn.stats.mean", "f32[16]"),
        ("relu", "bf16[2, 16, 6, 6] nhwc"),
        ("conv2.weight.bf16", "bf16[8, 4, 3, 3] nhwc"),
        ("pool", "bf16[2, 8, 1, 1] nhwc"),
        ("pool.nchw", "bf16[2, 8, 1, 1]"),
        ("fc.weight.bf16", "bf16[5, 8]"),
        ("fc", "bf16[2, 5]"),
        ("fc.f32", "f32[2, 5]"),
        ("loss", "f32[1]"),
    ];
    for (name, expected) in expected {
        assert_eq!(ty(graph, name), expected, "{name}");
    }
    assert_eq!(graph.layer(node(graph, "conv1.weight.unfolded").layer).name, "conv1");
    assert_eq!(names(graph, &node(graph, "accuracy").inputs), ["fc.f32", "label"]);
    assert_eq!(graph.value(rewritten.value(accuracy).unwrap()).name, "accuracy");
    assert_eq!(names(graph, graph.metrics()), ["loss", "accuracy"]);
    assert_eq!(graph.layers(), b.0.layers());
}

/// With f32 as the storage type orders change and nothing else: no padding, no unfolded image, no casts where there are no pixels.
#[test]
fn channels_last_in_f32() {
    let mut b = Bench::new();
    let x = b.image([2, 3, 6, 6]);
    let y = b.conv("conv1", x, [16, 3, 3, 3], 1);
    let y = b.relu("relu1", y);
    let y = b.layer("lrn", Op::LocalResponseNorm(LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 2.0 }), &[y]);
    let y = b.conv("conv2", y, [8, 4, 3, 3], 4);
    let y = b.layer("flatten", Op::Flatten, &[y]);
    let (w, bias) =
        (b.0.parameter("fc.weight", f32s(&[5, 288])).unwrap(), b.0.parameter("fc.bias", f32s(&[5])).unwrap());
    let y = b.layer("fc", Op::Linear, &[y, w, bias]);
    let label = b.0.input("label", TensorType::new([2], DType::I32)).unwrap();
    b.layer("loss", Op::SoftmaxCrossEntropy(op::SoftmaxCrossEntropy::default()), &[y, label]);
    let graph = Passes { fuse: true, storage: Some(DType::F32), ..Passes::NONE }.apply(&b.0).unwrap().graph;
    let expected = [
        ("image.nhwc", "f32[2, 3, 6, 6] nhwc"),
        ("conv1.weight", "f32[16, 3, 3, 3]"),
        ("conv1.weight.nhwc", "f32[16, 3, 3, 3] nhwc"),
        ("relu1", "f32[2, 16, 6, 6] nhwc"),
        ("relu1.nchw", "f32[2, 16, 6, 6]"),
        ("lrn", "f32[2, 16, 6, 6]"),
        ("lrn.nhwc", "f32[2, 16, 6, 6] nhwc"),
        ("conv2.weight.nhwc", "f32[8, 4, 3, 3] nhwc"),
        ("conv2", "f32[2, 8, 6, 6] nhwc"),
        ("conv2.nchw", "f32[2, 8, 6, 6]"),
        ("fc", "f32[2, 5]"),
    ];
    for (name, expected) in expected {
        assert_eq!(ty(&graph, name), expected, "{name}");
    }
    assert_eq!(kinds(&graph).iter().filter(|kind| kind.ends_with(" cast")).count(), 6);
    assert_eq!(names(&graph, &node(&graph, "fc").inputs), ["flatten", "fc.weight", "fc.bias"]);
    assert_eq!(names(&graph, &node(&graph, "loss").inputs), ["fc", "label"]);
}

/// One cast for a weight that two convolutions read; f32 in the usual order around what has no kernel otherwise; names that
/// are taken get a number.
#[test]
fn casts_are_shared_and_named_apart() {
    let mut b = Bench::new();
    let x = b.image([2, 8, 4, 4]);
    b.0.input("image.bf16", f32s(&[1])).unwrap();
    let w = b.0.parameter("w", f32s(&[8, 8, 3, 3])).unwrap();
    let conv = Op::Conv2d(Conv2d { padding: [1, 1], ..Conv2d::default() });
    let y = b.layer("one", conv.clone(), &[x, w]);
    let norm = LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 2.0 };
    let y = b.layer("lrn", Op::LocalResponseNorm(norm), &[y]);
    b.layer("two", conv, &[y, w]);
    let graph = mixed(&b.0, DType::F16).unwrap().graph;
    let casts = kinds(&graph).into_iter().filter(|kind| kind.ends_with(" cast")).collect::<Vec<_>>();
    assert_eq!(casts, ["image.f16 cast", "w.f16 cast", "one.f32 cast", "lrn.f16 cast"]);
    assert_eq!((ty(&graph, "lrn"), ty(&graph, "two")), ("f32[2, 8, 4, 4]".into(), "f16[2, 8, 4, 4] nhwc".into()));
    let graph = mixed(&b.0, HALF).unwrap().graph;
    assert_eq!(names(&graph, &node(&graph, "one").inputs), ["image.bf16.2", "w.bf16"]);
}

#[test]
fn refusals_name_the_place() {
    let refused = |result: Result<_, GraphError>| match result {
        Err(GraphError::Pass { place, reason, .. }) => (place, reason),
        other => panic!("expected a refusal, found {other:?}"),
    };
    let mut b = Bench::new();
    let x = b.image([1, 2, 3, 3]);
    b.relu("relu", x);
    assert!(refused(mixed(&b.0, DType::F64)).1.contains("bf16, f16 or f32, found f64"));
    let layer = b.0.node(vdnn_graph::NodeId(0)).layer;
    b.0.push_at("relu.grad", Op::ReluGrad, &[x, x], Phase::Backward, layer).unwrap();
    assert_eq!(refused(fuse(&b.0, false)).0, "relu.grad");
    assert_eq!(refused(mixed(&b.0, HALF)).0, "relu.grad");
    let mut b = Bench::new();
    let x = b.0.input("wide", TensorType::new([1, 2, 3, 3], DType::F64)).unwrap();
    b.relu("relu", x);
    let (place, reason) = refused(Passes { fuse: true, storage: Some(HALF), ..Passes::NONE }.apply(&b.0));
    assert!(
        place == "wide" && reason.contains("expected an f32 network") && reason.contains("f64[1, 2, 3, 3]"),
        "{reason}"
    );
    let mut b = Bench::new();
    let x = b.image([1, 2, 3, 3]);
    b.layer("grad", Op::ReluGrad, &[x, x]);
    assert!(refused(mixed(&b.0, HALF)).1.contains("relu_grad has no rule"));
}

#[test]
fn a_stem_reads_the_unfolded_image() {
    let mut b = Bench::new();
    let image = b.image([2, 3, 32, 32]);
    let (x, w) = (image, b.0.parameter("conv1.weight", f32s(&[8, 3, 7, 7])).unwrap());
    let conv = Conv2d { stride: [2, 2], padding: [3, 3], ..Conv2d::default() };
    let y = b.layer("conv1", Op::Conv2d(conv), &[x, w]);
    let z = b.conv("conv2", y, [4, 8, 3, 3], 1);
    b.0.read_back(z);
    let done = Passes { fuse: false, storage: Some(HALF), ..Passes::NONE }.apply(&b.0).unwrap().graph;
    assert_eq!(kinds(&done)[..3], ["image.unfolded unfold", "conv1.weight.unfolded unfold", "conv1 conv2d"], "{done}");
    // Windows 7 rows high and 2 columns wide: 42 channels, of which a filter reads four neighbours in width.
    assert_eq!(ty(&done, "image.unfolded"), "bf16[2, 42, 16, 19] nhwc +6c");
    assert_eq!(ty(&done, "conv1.weight.unfolded"), "bf16[8, 42, 1, 4] nhwc +6c");
    assert_eq!(ty(&done, "conv1"), "bf16[2, 8, 16, 16] nhwc");
    // By the stride alone where that makes enough channels; not at all for images of many, for maps that are trained, for groups.
    let unfolded = |dims: [u64; 4], weight: [u64; 4], conv: Conv2d, trained: bool| {
        let mut b = Bench::new();
        let mut x = b.image(dims);
        if trained {
            let p = b.0.parameter("p", f32s(&dims)).unwrap();
            x = b.layer("sum", Op::Add, &[x, p]);
        }
        let w = b.0.parameter("w", f32s(&weight)).unwrap();
        let y = b.layer("conv", Op::Conv2d(conv), &[x, w]);
        let done = stem(&b.0).unwrap();
        let y = done.graph.value(done.value(y).unwrap()).ty.clone();
        let names: Vec<String> =
            done.graph.values().iter().map(|value| format!("{} {}", value.name, value.ty)).collect();
        (y.shape.to_string(), names.into_iter().find(|name| name.contains("image.unfolded")))
    };
    let alexnet = Conv2d { stride: [4, 4], padding: [2, 2], ..Conv2d::default() };
    let (y, image) = unfolded([1, 3, 224, 224], [64, 3, 11, 11], alexnet, false);
    assert_eq!((&y[..], image.as_deref()), ("[1, 64, 55, 55]", Some("image.unfolded f32[1, 48, 57, 57]")));
    let same = Conv2d { padding: [1, 1], ..Conv2d::default() };
    assert_eq!(unfolded([1, 3, 8, 8], [4, 3, 3, 3], same, false).1.as_deref(), Some("image.unfolded f32[1, 9, 8, 10]"));
    assert_eq!(unfolded([1, 8, 8, 8], [4, 8, 3, 3], same, false).1, None);
    assert_eq!(unfolded([1, 3, 8, 8], [4, 3, 3, 3], same, true).1, None);
    assert_eq!(unfolded([1, 3, 8, 8], [3, 1, 3, 3], Conv2d { groups: 3, ..same }, false).1, None);
}

/// In f16 a convolution makes its statistics, which keep their names; of two nodes that take them the second stays. In other types,
/// with a bias, and of what no convolution makes, both nodes stay.
#[test]
fn convolutions_make_their_statistics_in_f16_alone() {
    for dtype in [None, Some(DType::BF16), Some(DType::F16)] {
        let mut b = Bench::new();
        let x = b.image([2, 4, 6, 6]);
        let first = b.norm("image.bn", x);
        let y = b.conv("conv", first, [8, 4, 3, 3], 1);
        let (one, two) = (b.norm("one", y), b.norm("two", y));
        let sum = b.layer("add", Op::Add, &[one, two]);
        let w = b.0.parameter("biased.weight", f32s(&[8, 8, 1, 1])).unwrap();
        let c = b.0.parameter("biased.bias", f32s(&[8])).unwrap();
        let z = b.layer("biased", Op::Conv2d(Conv2d::default()), &[sum, w, c]);
        b.norm("last", z);
        let before = dtype.map_or_else(|| b.0.clone(), |dtype| mixed(&b.0, dtype).unwrap().graph);
        let rewritten = fuse_statistics(&before).unwrap();
        let graph = &rewritten.graph;
        if dtype != Some(DType::F16) {
            assert_eq!(kinds(graph), kinds(&before));
            continue;
        }
        let without: Vec<String> =
            kinds(&before).into_iter().filter(|kind| kind != "one.stats batch_norm_stats").collect();
        let merged = without.iter().map(|kind| kind.replace("conv conv2d", "conv conv2d_stats"));
        assert_eq!(kinds(graph), merged.collect::<Vec<_>>());
        let conv = node(graph, "conv");
        assert_eq!(names(graph, &conv.outputs), ["conv", "one.stats.mean", "one.stats.variance"]);
        assert_eq!((graph.layers(), conv.layer), (before.layers(), node(&before, "conv").layer));
        assert_eq!(names(graph, &node(graph, "one.update").inputs[..2]), ["one.stats.mean", "one.stats.variance"]);
        for before_id in before.value_ids() {
            let (old, new) = (before.value(before_id), graph.value(rewritten.value(before_id).unwrap()));
            assert_eq!((&old.name, &old.ty, old.role), (&new.name, &new.ty, new.role));
        }
    }
}

#[test]
fn a_convolution_with_statistics_has_no_bias_and_several_values_a_channel() {
    let push = |dims: [u64; 4], bias: bool| {
        let mut b = Bench::new();
        let x = b.image(dims);
        let w = b.0.parameter("w", f32s(&[6, 4, 1, 1])).unwrap();
        let c = b.0.parameter("c", f32s(&[6])).unwrap();
        b.0.begin_layer("conv");
        let inputs = if bias { vec![x, w, c] } else { vec![x, w] };
        let made = b.0.push("conv", Op::Conv2dStats(Conv2d::default()), &inputs);
        made.map(|ids| ids.iter().map(|&id| b.0.value(id).ty.to_string()).collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    };
    assert_eq!(push([2, 4, 3, 3], false).unwrap(), ["f32[2, 6, 3, 3]", "f32[6]", "f32[6]"]);
    assert!(push([2, 4, 3, 3], true).unwrap_err().contains("expected 2 to 2 inputs, found 3"));
    assert!(push([1, 4, 1, 1], false).unwrap_err().contains("more than one value per channel"));
}

/// A gradient that only unscaling reads is not cast before it; one that is padded, or that the host reads as well, is.
#[test]
fn unscaling_reads_gradients_in_half_precision() {
    let mut b = Bench::new();
    let layout = |channel_padding| Layout { order: MemoryOrder::Nhwc, channel_padding };
    let half = |dims: &[u64], padding| TensorType { layout: layout(padding), ..TensorType::new(dims, HALF) };
    let (scale, guard) = (b.0.input("scale", f32s(&[1])).unwrap(), b.0.input("guard", f32s(&[1])).unwrap());
    let wide = Op::Cast(op::Cast { dtype: DType::F32, layout: Layout::default() });
    let mut gradients = Vec::new();
    for (name, padding) in [("plain", 0), ("padded", 5), ("read", 0)] {
        let made = b.0.input(name, half(&[4, 3, 2, 2], padding)).unwrap();
        gradients.push(b.layer(&format!("{name}.cast"), wide.clone(), &[made]));
    }
    b.0.read_back(gradients[2]);
    let inputs = [&[scale, guard], &gradients[..]].concat();
    b.layer("unscale", Op::Unscale(op::Unscale { gradients: 3 }), &inputs);
    let done = group(&b.0).unwrap().graph;
    let unscale = node(&done, "unscale");
    assert_eq!(names(&done, &unscale.inputs), ["scale", "guard", "plain", "padded.cast", "read.cast"]);
    let made: Vec<String> = unscale.outputs.iter().map(|&id| done.value(id).ty.to_string()).collect();
    assert_eq!(made, ["f32[1]", "f32[4, 3, 2, 2]", "f32[4, 3, 2, 2]", "f32[4, 3, 2, 2]"]);
    assert!(done.nodes().iter().all(|node| node.name != "plain.cast"));
}
