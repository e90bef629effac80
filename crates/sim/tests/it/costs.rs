//! Prices of kernels, worked out by hand.

use vdnn_graph::op::{Adam, Concat, Conv2d, Conv2dDataGrad, Conv2dWeightGrad, Split};
use vdnn_graph::{Graph, InPlace, LayerId, NodeId, Op, Phase, Precision, Program, ValueId};
use vdnn_schedule::Choice;
use vdnn_sim::{CostError, Machine, flops, moves_nothing, oracle_seconds, traffic_bytes};
use vdnn_tensor::{DType, TensorType};

fn toy() -> Machine {
    Machine::named("toy").unwrap()
}

fn titan() -> Machine {
    Machine::named("titan-x").unwrap()
}

fn program(graph: Graph) -> Program {
    Program::linearize(graph, InPlace::Allowed).unwrap()
}

fn choice(algorithm: &str, workspace: u64, seconds: f64) -> Choice {
    Choice { algorithm: algorithm.to_string(), workspace, seconds, deterministic: true }
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-12 * expected.abs(), "expected {expected}, found {found}");
}

/// X `[1, 2, 4, 4]`, W `[3, 2, k, k]` with "same" padding, Y `[1, 3, 4, 4]`, and both gradients.
fn convolution(kernel: u64, dtype: DType) -> Graph {
    let mut graph = Graph::new("one convolution");
    let conv = Conv2d { padding: [kernel / 2; 2], ..Conv2d::default() };
    let x = graph.input("x", TensorType::new([1, 2, 4, 4], dtype)).unwrap();
    let w = graph.parameter("w", TensorType::new([3, 2, kernel, kernel], dtype)).unwrap();
    let y = graph.push("conv", Op::Conv2d(conv), &[x, w]).unwrap()[0];
    let weight = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [kernel; 2] });
    graph.push_at("conv.dw", weight, &[x, y], Phase::Backward, LayerId(0)).unwrap();
    let data = Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [4, 4] });
    graph.push_at("conv.dx", data, &[y, w], Phase::Backward, LayerId(0)).unwrap();
    graph
}

#[test]
fn a_toy_convolution_takes_its_flop_at_a_gigaflop_a_second() {
    // 48 outputs of 18 multiply-adds: 1,728 FLOP. X 128, W 216 and Y 192 bytes: 536 bytes, hidden behind the arithmetic.
    let program = program(convolution(3, DType::F32));
    let table = toy().kernel_table(&program).unwrap();
    let expected = vec![choice("fast", 160, 1.728e-6), choice("slow", 0, 3.456e-6)];
    for node in 0..3 {
        assert_eq!((flops(&program, NodeId(node)), traffic_bytes(&program, NodeId(node))), (1728.0, 536));
        assert_eq!(table.of(NodeId(node)), expected);
    }
    close(oracle_seconds(&program, &table), 3.0 * 1.728e-6);
}

/// The convolution's arithmetic and algorithms, and the statistics' 24 bytes; never in pieces.
#[test]
fn a_convolution_with_statistics_costs_the_convolution() {
    let mut graph = Graph::new("statistics");
    let conv = Conv2d { padding: [1; 2], ..Conv2d::default() };
    let x = graph.input("x", TensorType::new([4, 2, 4, 4], DType::F32)).unwrap();
    let w = graph.parameter("w", TensorType::new([3, 2, 3, 3], DType::F32)).unwrap();
    let y = graph.push("alone", Op::Conv2d(conv), &[x, w]).unwrap()[0];
    graph.push("conv", Op::Conv2dStats(conv), &[x, w]).unwrap();
    graph.read_back(y);
    let program = program(graph);
    let [alone, with] = [NodeId(0), NodeId(1)];
    assert_eq!(flops(&program, with), flops(&program, alone));
    assert_eq!(traffic_bytes(&program, with), traffic_bytes(&program, alone) + 24);
    let table = toy().kernel_table(&program).unwrap();
    assert_eq!(table.of(with), table.of(alone));
    assert!(!table.pieces_of(alone).is_empty() && table.pieces_of(with).is_empty());
}

/// X `[4, 64, 32, 32]`, W `[64, 64, 3, 3]`: each piece is priced as a convolution of fewer samples, a weight gradient adds its later
/// pieces to dW, and what no piece makes leaner is not offered.
#[test]
fn pieces_are_priced_as_so_many_kernels() {
    let mut graph = Graph::new("four samples");
    let conv = Conv2d { padding: [1; 2], ..Conv2d::default() };
    let f32s = |dims: [u64; 4]| TensorType::new(dims, DType::F32);
    let (x, w) =
        (graph.input("x", f32s([4, 64, 32, 32])).unwrap(), graph.parameter("w", f32s([64, 64, 3, 3])).unwrap());
    let y = graph.push("conv", Op::Conv2d(conv), &[x, w]).unwrap()[0];
    let weight = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3; 2] });
    graph.push_at("conv.dw", weight, &[x, y], Phase::Backward, LayerId(0)).unwrap();
    graph.push_at("relu", Op::Relu, &[y], Phase::Backward, LayerId(0)).unwrap();
    let program = program(graph);
    let mut machine = titan();
    machine.launch_us = 1.0;
    let table = machine.kernel_table(&program).unwrap();
    let names = |node: u32| table.pieces_of(NodeId(node)).iter().map(|c| c.algorithm.as_str()).collect::<Vec<_>>();
    assert_eq!(names(0), ["winograd/2", "winograd/4"]);
    assert!(names(2).is_empty());
    let rate = 0.75 * 336e9;
    let (maps, kernel) = (4.0 * 128.0 * 1024.0 * 4.0, 64.0 * 64.0 * 9.0 * 4.0);
    let flop = 2.0 * 4.0 * 64.0 * 1024.0 * 576.0;
    for (node, factor) in [(0, 1.0), (1, 0.9)] {
        for (choice, pieces) in table.pieces_of(NodeId(node)).iter().zip([2.0, 4.0]) {
            let one = 1e-6 + f64::max(flop / pieces / (factor * 7e12), (maps / pieces + kernel) / rate);
            let add = if node == 1 { 1e-6 + 3.0 * kernel / rate } else { 0.0 };
            close(choice.seconds, pieces * one + (pieces - 1.0) * add);
            let sum = if node == 1 { kernel as u64 } else { 0 };
            assert_eq!(choice.workspace, (maps / pieces / 2.0) as u64 + sum, "{choice:?}");
            assert!(choice.workspace < table.of(NodeId(node))[0].workspace);
        }
    }
}

#[test]
fn algorithms_apply_where_their_condition_holds() {
    let names = |kernel: u64, node: u32| -> Vec<String> {
        let table = titan().kernel_table(&program(convolution(kernel, DType::F32))).unwrap();
        table.of(NodeId(node)).iter().map(|choice| choice.algorithm.clone()).collect()
    };
    for node in 0..3 {
        assert_eq!(names(1, node), ["implicit_gemm", "implicit_precomp_gemm"], "equal times go by workspace");
        assert!(
            names(3, node).contains(&"winograd".to_string()) && !names(3, node).contains(&"fft_tiling".to_string())
        );
        assert!(
            names(5, node).contains(&"fft_tiling".to_string()) && !names(5, node).contains(&"winograd".to_string())
        );
    }
}

#[test]
fn index_workspace_and_the_weight_gradients_factor() {
    let mut machine = titan();
    machine.launch_us = 0.0;
    machine.dram = 1e18;
    let table = machine.kernel_table(&program(convolution(3, DType::F32))).unwrap();
    // 4 bytes for each of 9 taps of 16 output pixels; Winograd half of X's 128 and Y's 192 bytes.
    let [forward, weight, data] = [0, 1, 2].map(|node| table.of(NodeId(node)));
    assert_eq!(forward.iter().map(|c| c.workspace).collect::<Vec<_>>(), [160, 576, 0]);
    close(forward[1].seconds, 1728.0 / (0.60 * 7e12));
    close(weight[1].seconds, 1728.0 / (0.60 * 0.9 * 7e12));
    assert_eq!(data, forward);
}

#[test]
fn launches_cost_and_memory_bounds_small_arithmetic() {
    // A 1 x 1 convolution: 192 FLOP take less than its 344 bytes at 0.75 · 336 GB/s.
    let program = program(convolution(1, DType::F32));
    let table = titan().kernel_table(&program).unwrap();
    assert_eq!(traffic_bytes(&program, NodeId(0)), 128 + 24 + 192);
    close(table.of(NodeId(0))[0].seconds, 5e-6 + 344.0 / (0.75 * 336e9));
}

#[test]
fn products_use_the_peak_of_their_type() {
    let seconds = |machine: &Machine, dtype: DType, precision: Precision| {
        let mut graph = convolution(3, dtype);
        graph.precision = precision;
        machine.kernel_table(&program(graph)).map(|table| table.of(NodeId(0))[0].seconds)
    };
    let mut h200 = Machine::named("h200").unwrap();
    (h200.launch_us, h200.dram) = (0.0, 1e18);
    let h200 = |dtype, precision| seconds(&h200, dtype, precision).unwrap();
    close(h200(DType::F32, Precision::F32), 1728.0 / (0.75 * 50.6e12));
    close(h200(DType::F32, Precision::Tf32), 1728.0 / (0.75 * 436e12));
    close(h200(DType::BF16, Precision::F32), 1728.0 / (0.75 * 798e12));
    close(h200(DType::F64, Precision::F32), 1728.0 / (0.75 * 25.3e12));

    let refused = seconds(&titan(), DType::BF16, Precision::F32).unwrap_err();
    assert!(matches!(&refused, CostError::NoPeak { arithmetic, node, .. } if arithmetic == "bf16" && node == "conv"));
    let refused = seconds(&titan(), DType::F32, Precision::Tf32).unwrap_err().to_string();
    assert!(refused.starts_with("machine titan-x states no peak_flops.tf32, which conv needs"), "{refused}");
}

#[test]
fn linear_layers_use_the_matrix_product_efficiency_in_all_directions() {
    let mut graph = Graph::new("linear");
    let x = graph.input("x", TensorType::new([64, 1000], DType::F32)).unwrap();
    let w = graph.parameter("w", TensorType::new([500, 1000], DType::F32)).unwrap();
    let y = graph.push("fc", Op::Linear, &[x, w]).unwrap()[0];
    graph.push_at("fc.dw", Op::LinearWeightGrad, &[x, y], Phase::Backward, LayerId(0)).unwrap();
    graph.push_at("fc.dx", Op::LinearDataGrad, &[y, w], Phase::Backward, LayerId(0)).unwrap();
    let table = titan().kernel_table(&program(graph)).unwrap();
    for node in 0..3 {
        let [only] = table.of(NodeId(node)) else { panic!("{:?}", table.of(NodeId(node))) };
        assert_eq!((only.algorithm.as_str(), only.workspace), ("default", 0));
        close(only.seconds, 5e-6 + 2.0 * 64.0 * 1000.0 * 500.0 / (0.85 * 7e12));
    }
}

#[test]
fn elementwise_ops_take_the_time_of_their_bytes() {
    let mut graph = Graph::new("elementwise");
    let ty = TensorType::new([2, 3, 4, 4], DType::F32);
    let x = graph.input("x", ty.clone()).unwrap();
    let y = graph.push("relu", Op::Relu, &[x]).unwrap()[0];
    graph.push("add", Op::Add, &[x, y]).unwrap();
    let [w, m, v] = ["w", "m", "v"].map(|name| graph.parameter(name, ty.clone()).unwrap());
    let rate = graph.input("lr", TensorType::new([1], DType::F32)).unwrap();
    let iteration = graph.input("iteration", TensorType::new([1], DType::U64)).unwrap();
    let adam = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
    graph.push_at("adam", Op::Adam(adam), &[w, x, m, v, rate, iteration], Phase::Update, LayerId(0)).unwrap();
    let program = program(graph);
    let bytes = [0, 1, 2].map(|node| traffic_bytes(&program, NodeId(node)));
    assert_eq!(bytes, [2 * 384, 3 * 384, 7 * 384 + 4 + 8]);
    let table = toy().kernel_table(&program).unwrap();
    for (node, bytes) in (0..).zip(bytes) {
        close(table.of(NodeId(node))[0].seconds, bytes as f64 / 1e9);
    }
}

/// Two convolutional branches joined by a concat, flattened; then the gradient side: unflattened and split.
fn branches(shared: bool) -> Graph {
    let mut graph = Graph::new("branches");
    let x = graph.input("x", TensorType::new([2, 2, 4, 4], DType::F32)).unwrap();
    let branch = |graph: &mut Graph, name: &str| -> ValueId {
        let w = graph.parameter(&format!("{name}.w"), TensorType::new([3, 2, 1, 1], DType::F32)).unwrap();
        graph.push(name, Op::Conv2d(Conv2d::default()), &[x, w]).unwrap()[0]
    };
    let a = branch(&mut graph, "a");
    let b = if shared { a } else { branch(&mut graph, "b") };
    let joined = graph.push("join", Op::Concat(Concat::default()), &[a, b]).unwrap()[0];
    graph.push("cut", Op::Split(Split::channels(vec![2, 4])), &[joined]).unwrap();
    graph.push("flat", Op::Flatten, &[joined]).unwrap();
    graph
}

#[test]
fn views_cost_nothing_and_copies_cost_both_ways() {
    let aliased = program(branches(false));
    let table = titan().kernel_table(&aliased).unwrap();
    for node in [2, 3, 4] {
        assert!(moves_nothing(&aliased, NodeId(node)));
        assert_eq!(table.of(NodeId(node)), [choice("default", 0, 0.0)]);
    }
    // Without sharing everything is copied: 2 · 6 · 16 · 4 = 768 bytes read and written.
    let apart = Program::linearize(branches(false), InPlace::PersistentsOnly).unwrap();
    let table = toy().kernel_table(&apart).unwrap();
    for node in [2, 3, 4] {
        assert_eq!(traffic_bytes(&apart, NodeId(node)), 2 * 768);
        close(table.of(NodeId(node))[0].seconds, 1536.0 / 1e9);
    }
}

#[test]
fn a_concat_of_one_value_with_itself_copies_the_second_part() {
    let program = program(branches(true));
    assert_eq!(traffic_bytes(&program, NodeId(1)), 2 * 384);
    assert!(!moves_nothing(&program, NodeId(1)));
}
