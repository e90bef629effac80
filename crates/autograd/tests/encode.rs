//! Which gradient rules get masks and indices, and what of the program stays as it was.

use vdnn_autograd::{Options, Root, differentiate, encode};
use vdnn_graph::op::{Concat, Conv2d, Dropout, LocalResponseNorm, MaxPool2d, Window};
use vdnn_graph::{Graph, InPlace, NodeId, Op, Program, ValueId};
use vdnn_tensor::{DType, TensorType};

/// A network under construction, and its newest value.
struct Net {
    graph: Graph,
    x: ValueId,
}

impl Net {
    /// An image `[2, 4, 8, 8]` through a convolution of 3×3.
    fn new() -> Self {
        let mut graph = Graph::new("net");
        let x = graph.input("x", TensorType::new([2, 4, 8, 8], DType::F32)).unwrap();
        let mut net = Net { graph, x };
        net.conv("first");
        net
    }

    fn push(&mut self, name: &str, op: Op) -> ValueId {
        self.x = self.graph.push(name, op, &[self.x]).unwrap()[0];
        self.x
    }

    fn conv(&mut self, name: &str) -> ValueId {
        let channels = self.graph.value(self.x).ty.shape.dim(1);
        let w = self.graph.parameter(&format!("{name}.w"), TensorType::new([4, channels, 3, 3], DType::F32)).unwrap();
        let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
        self.x = self.graph.push(name, Op::Conv2d(conv), &[self.x, w]).unwrap()[0];
        self.x
    }

    fn pool(&mut self, name: &str, window: Window) -> ValueId {
        self.push(name, Op::MaxPool2d(MaxPool2d { window }))
    }

    fn program(self) -> Program {
        let root = Root::Value { value: self.x, seed_name: "seed".to_string() };
        let graph = differentiate(self.graph, &Options::new(root)).unwrap().graph;
        Program::linearize(graph, InPlace::Allowed).unwrap()
    }

    /// Names of encoded nodes, forward and backward.
    fn encoded(self) -> Vec<String> {
        let plain = self.program();
        encode(&plain).unwrap().map_or(Vec::new(), |encoded| differing(&plain, &encoded))
    }
}

fn differing(plain: &Program, encoded: &Program) -> Vec<String> {
    let pairs = plain.graph.nodes().iter().zip(encoded.graph.nodes());
    pairs.filter(|(a, b)| a.op != b.op).map(|(a, _)| a.name.clone()).collect()
}

/// Whether two values share a storage.
fn together(program: &Program, a: &str, b: &str) -> bool {
    let root = |name| program.aliases.root(program.graph.find_value(name).unwrap());
    root(a) == root(b)
}

#[test]
fn ids_names_and_order_stay_and_new_values_come_last() {
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    net.pool("pool", Window::square(2));
    let plain = net.program();
    let encoded = encode(&plain).unwrap().unwrap();
    assert_eq!(encoded.order, plain.order);
    assert_eq!(differing(&plain, &encoded), ["relu", "pool", "pool.data_grad", "relu.data_grad"]);
    let n = plain.graph.values().len();
    assert_eq!(encoded.graph.values()[..n], *plain.graph.values());
    let added: Vec<String> = encoded.graph.values()[n..].iter().map(|v| format!("{} {}", v.name, v.ty)).collect();
    assert_eq!(added, ["relu.mask u8[2, 32]", "pool.indices u8[2, 4, 4, 4]"]);
    let reads = |program: &Program, name: &str| -> Vec<String> {
        let node = program.graph.nodes().iter().find(|node| node.name == name).unwrap();
        node.inputs.iter().map(|&id| program.graph.value(id).name.clone()).collect()
    };
    assert_eq!(reads(&plain, "pool.data_grad")[..2], ["relu", "pool"]);
    assert_eq!(reads(&encoded, "pool.data_grad")[0], "pool.indices");
    assert_eq!(reads(&encoded, "pool.data_grad").len(), 2);
    assert_eq!(reads(&encoded, "relu.data_grad")[0], "relu.mask");
    // In place as before: Y over X, dX over dY.
    for program in [&plain, &encoded] {
        assert!(together(program, "relu", "first") && together(program, "relu.grad", "first.grad"));
    }
}

#[test]
fn a_relu_whose_map_another_rule_reads_keeps_it() {
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    net.conv("second");
    assert_eq!(net.encoded(), [""; 0]);
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    net.push("lrn", Op::LocalResponseNorm(LocalResponseNorm { size: 3, alpha: 1e-4, beta: 0.75, k: 2.0 }));
    assert_eq!(net.encoded(), [""; 0]);
}

/// What lies in a concatenation that a convolution reads, or under another shape, lasts as well.
#[test]
fn a_map_that_lasts_by_another_name_needs_no_mask() {
    let mut net = Net::new();
    let start = net.x;
    let a = net.push("relu_a", Op::Relu);
    net.x = start;
    let b = net.conv("branch");
    net.x = net.graph.push("join", Op::Concat(Concat::default()), &[a, b]).unwrap()[0];
    net.conv("second");
    assert_eq!(net.encoded(), [""; 0]);
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    net.push("flat", Op::Flatten);
    let w = net.graph.parameter("w", TensorType::new([3, 256], DType::F32)).unwrap();
    net.x = net.graph.push("linear", Op::Linear, &[net.x, w]).unwrap()[0];
    assert_eq!(net.encoded(), [""; 0]);
}

/// With a mask, dropout may write over Y.
#[test]
fn a_relu_before_dropout_lets_go_of_its_map() {
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    let iteration = net.graph.input("iteration", TensorType::new([1], DType::U64)).unwrap();
    let dropout = Op::Dropout(Dropout { p: 0.5, seed: 1, stream: 0 });
    net.x = net.graph.push("dropout", dropout, &[net.x, iteration]).unwrap()[0];
    net.conv("second");
    let plain = net.program();
    let encoded = encode(&plain).unwrap().unwrap();
    assert_eq!(differing(&plain, &encoded), ["relu", "relu.data_grad"]);
    assert!(!together(&plain, "dropout", "relu") && together(&encoded, "dropout", "relu"));
}

#[test]
fn a_pool_is_encoded_unless_both_of_its_maps_last() {
    let mut net = Net::new();
    net.pool("pool", Window::square(2));
    net.conv("second");
    assert_eq!(net.encoded(), ["pool", "pool.data_grad"], "nothing else reads the first convolution's map");
    let mut net = Net::new();
    let start = net.push("relu", Op::Relu);
    let a = net.conv("left");
    net.x = start;
    let same = Window { kernel: [3; 2], stride: [1; 2], padding: [1; 2], dilation: [1; 2], ceil_mode: false };
    net.pool("pool", same);
    let b = net.conv("right");
    net.x = net.graph.push("sum", Op::Add, &[a, b]).unwrap()[0];
    assert_eq!(net.encoded(), [""; 0], "X and Y are there for the convolutions");
}

#[test]
fn a_window_of_too_many_places_keeps_what_it_reads() {
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    let large = Window { kernel: [16; 2], stride: [16; 2], padding: [8; 2], dilation: [1; 2], ceil_mode: false };
    net.pool("pool", large);
    assert_eq!(net.encoded(), [""; 0]);
}

#[test]
fn forward_alone_has_nothing_to_encode() {
    let mut net = Net::new();
    net.push("relu", Op::Relu);
    net.pool("pool", Window::square(2));
    let program = Program::linearize(net.graph, InPlace::Allowed).unwrap();
    assert!(encode(&program).unwrap().is_none());
}

#[test]
fn rewriting_refuses_what_would_change_the_program() {
    let mut graph = Graph::new("net");
    let x = graph.input("x", TensorType::new([1, 1, 4, 4], DType::F32)).unwrap();
    graph.push("relu", Op::Relu, &[x]).unwrap();
    let later = graph.push("later", Op::Relu, &[x]).unwrap()[0];
    let before = graph.clone();
    let mut refused = |op, inputs: &[ValueId]| graph.rewrite(NodeId(0), op, inputs).unwrap_err().to_string();
    assert!(refused(Op::Relu, &[later]).contains("before its input later exists"));
    let pool = Op::MaxPool2d(MaxPool2d { window: Window::square(2) });
    assert!(refused(pool, &[x]).contains("expected outputs of the types that the node has"));
    assert!(refused(Op::Add, &[x]).contains("expected 2 to 2 inputs"));
    assert_eq!(graph, before);
    graph.rewrite(NodeId(0), Op::ReluMask, &[x]).unwrap();
    assert_eq!(graph.value(graph.node(NodeId(0)).outputs[1]).name, "relu.mask");
}
