//! What the pass makes of small launches: which nodes go together, where they stand, and what stays alone.

use vdnn_graph::op::{self, BatchNormUpdate, Cast, Sgd};
use vdnn_graph::passes::{GROUP_BYTES, GROUP_MEMBERS, group};
use vdnn_graph::{Graph, InPlace, LayerId, Op, Phase, Program, ValueId};
use vdnn_tensor::{DType, Layout, TensorType};

fn f32s(dims: &[u64]) -> TensorType {
    TensorType::new(dims, DType::F32)
}

fn to(dtype: DType) -> Op {
    Op::Cast(Cast { dtype, layout: Layout::default() })
}

/// Matrices that are cast forward, and whose half-precision gradients are cast back and applied.
struct Bench {
    graph: Graph,
    x: ValueId,
    scalars: [ValueId; 2],
}

impl Bench {
    fn new() -> Self {
        let mut graph = Graph::new("bench");
        let x = graph.input("x", TensorType::new([2, 4], DType::BF16)).unwrap();
        let scalars = [
            graph.input("learning_rate", f32s(&[1])).unwrap(),
            graph.input("iteration", TensorType::new([1], DType::U64)).unwrap(),
        ];
        Bench { graph, x, scalars }
    }

    fn push(&mut self, name: &str, op: Op, inputs: &[ValueId], phase: Phase) -> ValueId {
        self.graph.push_at(name, op, inputs, phase, LayerId(0)).unwrap()[0]
    }

    /// One layer `[2, 4] → [2, 4]` with its weight's gradient and update.
    fn layer(&mut self, name: &str, x: ValueId) -> ValueId {
        self.graph.begin_layer(name);
        let w = self.graph.parameter(&format!("{name}.weight"), f32s(&[4, 4])).unwrap();
        let half = self.push(&format!("{name}.weight.bf16"), to(DType::BF16), &[w], Phase::Forward);
        self.push(name, Op::Linear, &[x, half], Phase::Forward)
    }

    fn update(&mut self, name: &str, dy: ValueId) {
        let dw = self.push(&format!("{name}.weight_grad"), Op::LinearWeightGrad, &[self.x, dy], Phase::Backward);
        let wide = self.push(&format!("{name}.weight_grad.f32"), to(DType::F32), &[dw], Phase::Backward);
        let w = self.graph.find_value(&format!("{name}.weight")).unwrap();
        let sgd = Op::Sgd(Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false });
        let [rate, iteration] = self.scalars;
        self.push(&format!("{name}.update"), sgd, &[w, wide, rate, iteration], Phase::Update);
    }
}

fn nodes(graph: &Graph) -> Vec<String> {
    graph.nodes().iter().map(|node| format!("{} {}", node.name, node.op.kind())).collect()
}

#[test]
fn casts_stand_first_updates_last_and_gradients_stay_in_half_precision() {
    let mut bench = Bench::new();
    let a = bench.layer("a", bench.x);
    let b = bench.layer("b", a);
    bench.update("b", b);
    bench.update("a", a);
    let rewritten = group(&bench.graph).unwrap();
    let expected = [
        "a.weight.bf16+1 cast_group",
        "a linear",
        "b linear",
        "b.weight_grad linear_weight_grad",
        "a.weight_grad linear_weight_grad",
        "b.update+1 sgd_group",
    ];
    assert_eq!(nodes(&rewritten.graph), expected);
    let graph = &rewritten.graph;
    let name = |id: &ValueId| graph.value(*id).name.as_str();
    let update = graph.nodes().last().unwrap();
    assert_eq!(update.inputs.iter().map(name).collect::<Vec<_>>()[..2], ["b.weight", "b.weight_grad"]);
    assert_eq!(update.outputs.iter().map(name).collect::<Vec<_>>(), ["b.weight'", "a.weight'"]);
    assert_eq!(graph.nodes()[0].outputs.iter().map(name).collect::<Vec<_>>(), ["a.weight.bf16", "b.weight.bf16"]);
    for persistent in graph.persistents() {
        assert_eq!(name(&persistent.last), format!("{}'", name(&persistent.initial)));
    }
    let wide = bench.graph.find_value("a.weight_grad.f32").unwrap();
    assert_eq!((rewritten.value(wide), rewritten.value(a)), (None, graph.find_value("a")));
    Program::linearize(rewritten.graph, InPlace::Allowed).unwrap();
}

#[test]
fn a_gradient_that_somebody_else_reads_is_cast_for_both() {
    let mut bench = Bench::new();
    let a = bench.layer("a", bench.x);
    bench.update("a", a);
    let wide = bench.graph.find_value("a.weight_grad.f32").unwrap();
    bench.push("watched", Op::Relu, &[wide], Phase::Backward);
    assert_eq!(nodes(&group(&bench.graph).unwrap().graph), nodes(&bench.graph), "one of a kind stays as it is");
}

#[test]
fn groups_end_at_their_bytes_and_members_and_large_weights_stay_alone() {
    let casts = |weights: &[u64]| {
        let mut bench = Bench::new();
        for (n, &elements) in weights.iter().enumerate() {
            let w = bench.graph.parameter(&format!("w{n}"), f32s(&[elements])).unwrap();
            bench.push(&format!("cast{n}"), to(DType::BF16), &[w], Phase::Forward);
        }
        nodes(&group(&bench.graph).unwrap().graph)
    };
    let quarter = GROUP_BYTES / 16;
    assert_eq!(
        casts(&[quarter, GROUP_BYTES / 4 + 1, quarter, quarter, quarter, quarter, 1]),
        ["cast0+3 cast_group", "cast1 cast", "cast5+1 cast_group"]
    );
    let many = casts(&vec![8; GROUP_MEMBERS + 1]);
    assert_eq!(many, [format!("cast0+{} cast_group", GROUP_MEMBERS - 1), format!("cast{GROUP_MEMBERS} cast")]);
}

/// A layer that is used twice moves its running statistics twice, the second time from where the first left them.
#[test]
fn a_second_update_of_the_same_statistics_is_not_in_the_first_ones_group() {
    let mut bench = Bench::new();
    let update = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 8 });
    let mut vector = |name: &str| bench.graph.state(name, f32s(&[4])).unwrap();
    let (shared, own) = (["mean", "variance"].map(&mut vector), ["own_mean", "own_variance"].map(&mut vector));
    let batch = ["batch_mean", "batch_variance"].map(|name| bench.graph.input(name, f32s(&[4])).unwrap());
    for (name, running) in [("first", shared), ("second", shared), ("third", own)] {
        let latest = running.map(|id| bench.graph.latest(id));
        bench.push(name, update.clone(), &[batch[0], batch[1], latest[0], latest[1]], Phase::Forward);
    }
    let grouped = group(&bench.graph).unwrap().graph;
    assert_eq!(nodes(&grouped), ["first batch_norm_update", "second+1 batch_norm_update_group"]);
    Program::linearize(grouped, InPlace::Allowed).unwrap();
}

#[test]
fn a_group_refuses_inputs_that_are_not_its_members() {
    let mut graph = Graph::new("bench");
    let w = graph.parameter("w", f32s(&[3])).unwrap();
    for (members, inputs, given) in [(2, 1, vec![w]), (0, 1, vec![]), (1, 0, vec![w])] {
        let op = Op::Group(op::Group { op: Box::new(to(DType::BF16)), members, inputs });
        let error = graph.push("cast", op, &given).unwrap_err().to_string();
        let expected = format!("expected {inputs} inputs of each of {members} members, found {}", given.len());
        assert!(error.contains(&expected), "{error}");
    }
}
