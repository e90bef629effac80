//! VGG-16 at batch 256 on the paper's card: forward by FLOP, and the copies beside it.

use vdnn_graph::op::{Conv2d, MaxPool2d, Window};
use vdnn_graph::{Graph, InPlace, NodeId, Op, Program, ValueId};
use vdnn_sim::{Machine, flops, oracle_seconds};
use vdnn_tensor::{DType, TensorType};

/// The 13 convolutions (ReLU fused away) and 5 pools of the feature layers.
fn features(batch: u64) -> Program {
    let mut graph = Graph::new("vgg16 features");
    let mut x = graph.input("images", TensorType::new([batch, 3, 224, 224], DType::F32)).unwrap();
    let mut channels = 3;
    for (group, (convolutions, width)) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)].into_iter().enumerate() {
        for index in 0..convolutions {
            let name = format!("conv{}_{}", group + 1, index + 1);
            x = convolution(&mut graph, &name, x, channels, width);
            channels = width;
        }
        let pool = Op::MaxPool2d(MaxPool2d { window: Window::square(2) });
        x = graph.push(&format!("pool{}", group + 1), pool, &[x]).unwrap()[0];
    }
    Program::linearize(graph, InPlace::Allowed).unwrap()
}

fn convolution(graph: &mut Graph, name: &str, x: ValueId, from: u64, to: u64) -> ValueId {
    let w = graph.parameter(&format!("{name}.w"), TensorType::new([to, from, 3, 3], DType::F32)).unwrap();
    let conv = Conv2d { padding: [1; 2], ..Conv2d::default() };
    graph.push(name, Op::Conv2d(conv), &[x, w]).unwrap()[0]
}

/// The paper's card at its peaks: Winograd's efficiency is 1, memory at 336 GB/s, launches free.
fn peak_titan() -> Machine {
    Machine { dram_efficiency: 1.0, launch_us: 0.0, ..Machine::named("titan-x").unwrap() }
}

/// Time of each node, convolutions by arithmetic alone as the published estimate has them, pools by memory.
fn by_flop(program: &Program) -> Vec<f64> {
    let unbounded = Machine { dram: 1e30, ..peak_titan() }.kernel_table(program).unwrap();
    let bounded = peak_titan().kernel_table(program).unwrap();
    let table = |id: NodeId| if flops(program, id) > 0.0 { &unbounded } else { &bounded };
    program.graph.node_ids().map(|id| table(id).of(id)[0].seconds).collect()
}

#[test]
fn forward_takes_1146_ms_at_7_teraflops() {
    let program = features(256);
    let milliseconds = by_flop(&program).iter().sum::<f64>() * 1e3;
    assert!((milliseconds - 1146.0).abs() < 1.0, "{milliseconds} ms");
    let total: f64 = program.order.iter().map(|&node| flops(&program, node)).sum();
    assert_eq!((total / 2.0 / 256.0 / 1e7).round(), 1535.0, "15.35 GMAC an image without the classifier");
}

#[test]
fn only_the_first_convolution_is_bound_by_memory() {
    // conv1_1 has 3 input channels: 3.44 GB at 336 GB/s take 10.24 ms, its arithmetic 6.34 ms.
    let program = features(256);
    let oracle = oracle_seconds(&program, &peak_titan().kernel_table(&program).unwrap());
    let waiting = (oracle - by_flop(&program).iter().sum::<f64>()) * 1e3;
    assert!((waiting - (10.24 - 6.34)).abs() < 0.01, "{waiting} ms");
}

/// Sum over layers of how much the copy of X outlasts the layer's own forward, in milliseconds.
fn exposed(program: &Program, layer: impl Fn(&Op) -> bool) -> f64 {
    let link = peak_titan().link;
    let stall = |(&id, seconds): (&NodeId, f64)| {
        let node = program.graph.node(id);
        let bytes = program.graph.value(node.inputs[0]).ty.bytes();
        if layer(&node.op) { (bytes as f64 / link.d2h - seconds).max(0.0) } else { 0.0 }
    };
    program.order.iter().zip(by_flop(program)).map(stall).sum::<f64>() * 1e3
}

#[test]
fn joined_per_layer_copies_expose_594_ms_under_all_and_127_ms_under_conv() {
    let program = features(256);
    let all = exposed(&program, |_| true);
    let conv = exposed(&program, |op| matches!(op, Op::Conv2d(_)));
    assert!((all - 594.0).abs() < 1.0, "{all} ms");
    assert!((conv - 127.0).abs() < 1.0, "{conv} ms");
}

#[test]
fn memory_optimal_takes_about_twice_the_time_of_performance_optimal() {
    let program = features(256);
    let table = Machine::named("titan-x").unwrap().kernel_table(&program).unwrap();
    let (mut fastest, mut least) = (0.0, 0.0);
    for &id in program.order.iter().filter(|&&id| matches!(program.graph.node(id).op, Op::Conv2d(_))) {
        let memory_optimal = table.find(id, "implicit_gemm").unwrap();
        assert_eq!(memory_optimal.workspace, 0);
        fastest += table.of(id)[0].seconds;
        least += memory_optimal.seconds;
    }
    assert!((2.0..2.3).contains(&(least / fastest)), "{}", least / fastest);
}
