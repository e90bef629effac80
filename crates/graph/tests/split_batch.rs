//! Splitting the batch: what runs part by part, where the parts lie, and what is refused.

use vdnn_graph::op::{Axis, Concat, Conv2d, Dropout, MaxPool2d, SoftmaxCrossEntropy, Split, Window};
use vdnn_graph::passes::{Passes, frontiers, split_batch};
use vdnn_graph::{Graph, GraphError, InPlace, Location, Op, Program, ValueId};
use vdnn_tensor::{DType, TensorType};

struct Builder(Graph);

impl Builder {
    /// A network of five images.
    fn new() -> (Self, ValueId) {
        let mut graph = Graph::new("net");
        let image = graph.input("image", TensorType::new([5, 3, 8, 8], DType::F32)).unwrap();
        (Builder(graph), image)
    }

    fn push(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
        self.0.begin_layer(name);
        self.0.push(name, op, inputs).unwrap()[0]
    }

    fn conv(&mut self, name: &str, x: ValueId, channels: u64) -> ValueId {
        let from = self.0.value(x).ty.shape.dim(1);
        let ty = TensorType::new([channels, from, 3, 3], DType::F32);
        let w = self.0.parameter(&format!("{name}.weight"), ty).unwrap();
        self.push(name, Op::Conv2d(Conv2d { padding: [1, 1], ..Conv2d::default() }), &[x, w])
    }

    fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.push(name, Op::Relu, &[x])
    }

    fn pool(&mut self, name: &str, x: ValueId) -> ValueId {
        let window = Window::square(2);
        self.push(name, Op::MaxPool2d(MaxPool2d { window }), &[x])
    }

    fn loss(&mut self, x: ValueId) -> ValueId {
        let flat = self.push("flatten", Op::Flatten, &[x]);
        let label = self.0.input("label", TensorType::new([5], DType::I32)).unwrap();
        let loss = SoftmaxCrossEntropy { label_smoothing: 0.0, ..SoftmaxCrossEntropy::default() };
        self.push("loss", Op::SoftmaxCrossEntropy(loss), &[flat, label])
    }
}

fn names(graph: &Graph) -> Vec<&str> {
    graph.nodes().iter().map(|node| node.name.as_str()).collect()
}

/// image → conv1 → relu1 → pool → conv2 → loss
fn vgg() -> (Graph, ValueId) {
    let (mut b, image) = Builder::new();
    let x = b.conv("conv1", image, 4);
    let x = b.relu("relu1", x);
    let pool = b.pool("pool", x);
    let x = b.conv("conv2", pool, 8);
    b.loss(x);
    (b.0, pool)
}

#[test]
fn a_segment_runs_on_one_part_after_the_other() {
    let (graph, pool) = vgg();
    let split = split_batch(&graph, 2, pool).unwrap();
    let expected = [
        "image.split",
        "conv1.mb0",
        "relu1.mb0",
        "pool.mb0",
        "conv1.mb1",
        "relu1.mb1",
        "pool.mb1",
        "pool",
        "conv2",
        "flatten",
        "loss",
    ];
    assert_eq!(names(&split.graph), expected);
    let ty = |name: &str| split.graph.value(split.graph.find_value(name).unwrap()).ty.to_string();
    assert_eq!([ty("image.mb0"), ty("image.mb1")], ["f32[3, 3, 8, 8]", "f32[2, 3, 8, 8]"]);
    assert_eq!([ty("pool.mb0"), ty("pool")], ["f32[3, 4, 4, 4]", "f32[5, 4, 4, 4]"]);
    assert_eq!(split.value(pool), split.graph.find_value("pool"));
    assert_eq!(split.value(graph.find_value("relu1").unwrap()), None);
    let layers: Vec<&str> = split.graph.layers().iter().map(|layer| layer.name.as_str()).collect();
    let parts = ["split", "conv1.mb0", "relu1.mb0", "pool.mb0", "conv1.mb1", "relu1.mb1", "pool.mb1"];
    assert_eq!(layers, [&parts[..], &["conv2", "flatten", "loss"]].concat());
    assert_eq!(split.graph.persistents().len(), graph.persistents().len());
}

/// The image is cut and the frontier joined where they lie.
#[test]
fn parts_are_samples_of_the_whole() {
    let (graph, pool) = vgg();
    let program = Program::linearize(split_batch(&graph, 2, pool).unwrap().graph, InPlace::Allowed).unwrap();
    let id = |name: &str| program.graph.find_value(name).unwrap();
    let at = |name: &str| program.aliases.location(id(name));
    let piece =
        |root: &str, offset, bytes| Location { root: id(root), offset, rows: 1, row_bytes: bytes, row_stride: bytes };
    let (image, pooled) = (3 * 64 * 4, 4 * 16 * 4);
    assert_eq!(at("image.mb0"), piece("image", 0, 3 * image));
    assert_eq!(at("image.mb1"), piece("image", 3 * image, 2 * image));
    assert_eq!(at("pool.mb0"), piece("pool", 0, 3 * pooled));
    assert_eq!(at("pool.mb1"), piece("pool", 3 * pooled, 2 * pooled));
    assert_eq!(program.aliases.root(id("relu1.mb1")), id("conv1.mb1"));
    assert_eq!(program.part_offsets(id("pool"), &[id("pool.mb0"), id("pool.mb1")], Axis::Batch), [0, 3 * pooled]);
}

/// Branches joined along the channels lie in slices of some of the rows; where they meet others read them whole as well.
#[test]
fn branches_lie_in_slices_of_their_samples() {
    let (mut b, image) = Builder::new();
    let x = b.conv("stem", image, 4);
    let (left, right) = (b.conv("left", x, 2), b.conv("right", x, 6));
    let joined = b.push("joined", Op::Concat(Concat::default()), &[left, right]);
    b.loss(joined);
    let found: Vec<&str> = frontiers(&b.0).values.into_iter().map(|id| b.0.value(id).name.as_str()).collect();
    assert_eq!(
        found,
        ["stem", "flatten"],
        "a branch is no frontier, and what is as large as the next one only adds nothing"
    );
    let program = Program::linearize(split_batch(&b.0, 2, joined).unwrap().graph, InPlace::Allowed).unwrap();
    let id = |name: &str| program.graph.find_value(name).unwrap();
    let (channel, row_stride) = (64 * 4, 8 * 64 * 4);
    let expected = Location {
        root: id("joined"),
        offset: 3 * row_stride + 2 * channel,
        rows: 2,
        row_bytes: 6 * channel,
        row_stride,
    };
    assert_eq!(program.aliases.location(id("right.mb1")), expected);
    // A cut inside the module joins what the rest reads of it.
    let apart = split_batch(&b.0, 2, right).unwrap().graph;
    let joins = |node: &&vdnn_graph::Node| node.op == Op::Concat(Concat::along(Axis::Batch));
    let joins: Vec<&str> = apart.nodes().iter().filter(joins).map(|node| node.name.as_str()).collect();
    assert_eq!(joins, ["stem", "right"]);
}

/// An output is written over a part only when nobody reads those samples any more; other parts do not matter.
#[test]
fn a_part_may_be_overwritten_while_others_are_read() {
    let (mut b, image) = Builder::new();
    let x = b.conv("x", image, 4);
    let split = Op::Split(Split { sections: vec![2, 3], axis: Axis::Batch });
    b.0.begin_layer("split");
    let parts = b.0.push("split", split, &[x]).unwrap();
    let first = b.relu("first", parts[0]);
    let late = b.conv("late", parts[1], 4);
    let second = b.relu("second", parts[1]);
    let program = Program::linearize(b.0, InPlace::Allowed).unwrap();
    assert_eq!(program.aliases.location(first), program.aliases.location(parts[0]));
    assert_eq!(program.aliases.location(second), program.aliases.location(parts[1]));
    assert_eq!(program.aliases.root(late), late);
    // With the whole read afterwards neither is.
    let (mut b, image) = Builder::new();
    let x = b.conv("x", image, 4);
    b.0.begin_layer("split");
    let parts = b.0.push("split", Op::Split(Split { sections: vec![2, 3], axis: Axis::Batch }), &[x]).unwrap();
    let y = b.relu("relu", parts[0]);
    b.conv("late", x, 4);
    let program = Program::linearize(b.0, InPlace::Allowed).unwrap();
    assert_eq!(program.aliases.root(y), y);
}

#[test]
fn frontiers_end_where_samples_are_mixed() {
    let (mut b, image) = Builder::new();
    let iteration = b.0.input("iteration", TensorType::new([1], DType::U64)).unwrap();
    let x = b.conv("conv1", image, 4);
    let x = b.pool("pool1", x);
    let x = b.conv("conv2", x, 8);
    let y = b.relu("relu2", x);
    let dropout = Op::Dropout(Dropout { p: 0.5, seed: 1, stream: 2 });
    let x = b.push("drop", dropout, &[y, iteration]);
    b.loss(x);
    let found = frontiers(&b.0);
    let kept: Vec<&str> = found.values.iter().map(|&id| b.0.value(id).name.as_str()).collect();
    assert_eq!(kept, ["conv1", "pool1", "relu2"]);
    assert_eq!(found.stop.map(|id| b.0.node(id).name.as_str()), Some("drop"));
}

#[test]
fn one_part_is_the_graph_itself() {
    let (graph, pool) = vgg();
    assert_eq!(split_batch(&graph, 1, pool).unwrap().graph, graph);
}

fn refused(result: Result<vdnn_graph::passes::Rewritten, GraphError>) -> (String, String) {
    match result {
        Err(GraphError::Pass { place, reason, .. }) => (place, reason),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let (graph, pool) = vgg();
    for parts in [0, 6] {
        let (place, reason) = refused(split_batch(&graph, parts, pool));
        assert_eq!((place.as_str(), reason), ("pool", format!("expected 1 to 5 parts of a batch of 5, found {parts}")));
    }
    let of = |name: &str| graph.find_value(name).unwrap();
    let (place, reason) = refused(split_batch(&graph, 2, of("conv1.weight")));
    assert_eq!((place.as_str(), reason.as_str()), ("conv1.weight", "expected a value that a node makes of the images"));
    let (place, reason) = refused(split_batch(&graph, 2, of("image")));
    assert_eq!((place.as_str(), reason.as_str()), ("image", "expected a value that a node makes of the images"));
    let (mut b, image) = Builder::new();
    let iteration = b.0.input("iteration", TensorType::new([1], DType::U64)).unwrap();
    let x = b.push("drop", Op::Dropout(Dropout { p: 0.5, seed: 1, stream: 2 }), &[image, iteration]);
    let x = b.conv("conv", x, 4);
    assert!(frontiers(&b.0).values.is_empty());
    let (place, reason) = refused(split_batch(&b.0, 2, x));
    assert_eq!(place, "conv");
    assert!(
        reason.contains("in front of drop (dropout), whose mask is a function of the place in the whole batch"),
        "{reason}"
    );
}

/// Half-precision copies of weights are made for each part, so that gradients are summed in f32.
#[test]
fn casts_of_weights_are_made_for_each_part() {
    let (graph, _) = vgg();
    let graph = Passes { fuse: false, storage: Some(DType::BF16), ..Passes::NONE }.apply(&graph).unwrap().graph;
    let pool = graph.find_value("pool").unwrap();
    let split = split_batch(&graph, 2, pool).unwrap().graph;
    let unfolded = |graph: &Graph| {
        let of_weight = |node: &&vdnn_graph::Node| {
            matches!(node.op, Op::Unfold(_)) && graph.value(node.inputs[0]).name == "conv1.weight"
        };
        graph.nodes().iter().filter(of_weight).count()
    };
    assert_eq!((unfolded(&graph), unfolded(&split)), (1, 2));
    Program::linearize(split, InPlace::Allowed).unwrap();
}
