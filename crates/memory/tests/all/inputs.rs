//! Inputs that other values lie in: what the host wrote is there when the iteration begins, and still when it ends.

use crate::iteration::{Iteration, State, options};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_autograd::{Options as Differentiation, Root, differentiate};
use vdnn_graph::{Graph, InPlace, Op, Program, op};
use vdnn_memory::MemoryPlan;
use vdnn_runtime::{ChaosDevice, CpuDevice, Device, Executor};
use vdnn_tensor::{DType, TensorType};

/// The gradients of `a [N, 2, 3, 3]` and of `b [N, 1, 3, 3]` behind a ReLU, for a given gradient `dy` of their concatenation,
/// which is the last node: `dy` is an input of the graph, and what is split.
fn gradients_of_a_last_concat(samples: u64, in_place: InPlace) -> Iteration {
    let mut graph = Graph::new("joined");
    let f32s = |dims: [u64; 4]| TensorType::new(dims, DType::F32);
    let a = graph.input("a", f32s([samples, 2, 3, 3])).unwrap();
    let b = graph.input("b", f32s([samples, 1, 3, 3])).unwrap();
    let relu = graph.push("relu", Op::Relu, &[b]).unwrap()[0];
    let y = graph.push("y", Op::Concat(op::Concat::default()), &[a, relu]).unwrap()[0];
    let root = Root::Value { value: y, seed_name: "dy".to_string() };
    let graph =
        differentiate(graph, &Differentiation { keep: vec![a, b], ..Differentiation::new(root) }).unwrap().graph;
    Iteration::of(Program::linearize(graph, in_place).unwrap(), BTreeMap::new())
}

/// Both gradients, and `dy` after the iteration; every input holds 1, −2, 3, −4, …
fn results(iteration: &Iteration, device: Box<dyn Device>) -> State {
    let schedule = iteration.checked(options(), &MemoryPlan::keep_all(&iteration.program));
    let (mut executor, ids) = Executor::with_schedules(device, &[(Arc::clone(&iteration.program), schedule)]).unwrap();
    let number = |i: u64| if i.is_multiple_of(2) { i as f32 + 1.0 } else { -1.0 - i as f32 };
    for value in iteration.program.graph.values().iter().filter(|value| value.producer.is_none()) {
        let bytes: Vec<u8> = (0..value.ty.shape.elements()).flat_map(|i| number(i).to_le_bytes()).collect();
        executor.write(ids[0], &value.name, &bytes).unwrap();
    }
    executor.run(ids[0]).unwrap();
    let read = |name: &str| (name.to_string(), executor.read(ids[0], name).unwrap());
    ["a.grad", "b.grad", "dy"].map(read).to_vec()
}

/// The parts of a split stay in the input that is split: its home is read, written with what is there, and no result.
#[test]
fn an_input_may_be_split_where_it_lies() {
    for samples in 1..=3 {
        let shared = gradients_of_a_last_concat(samples, InPlace::Allowed);
        let (graph, aliases) = (&shared.program.graph, &shared.program.aliases);
        let [dy, part] = ["dy", "relu.grad"].map(|name| graph.find_value(name).unwrap());
        assert_eq!(aliases.root(part), dy);
        let apart = gradients_of_a_last_concat(samples, InPlace::PersistentsOnly);
        let expected = results(&apart, Box::new(CpuDevice::with_threads(1).unwrap()));
        assert_eq!(results(&shared, Box::new(CpuDevice::with_threads(1).unwrap())), expected, "{samples} samples");
        for seed in 0..4 {
            assert_eq!(results(&shared, Box::new(ChaosDevice::new(seed))), expected, "{samples} samples, seed {seed}");
        }
    }
}
