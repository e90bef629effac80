//! Gradients against central differences.
//!
//! For a value Y of a graph and a random dY, the scalar `Σ dY · Y` is differentiated twice: by the backward nodes, and by
//! moving each element of each leaf a little. The backward is run in place and out of place, and with every algorithm.

use crate::interpreter::{Interpreter, noise};
use vdnn_autograd::{Options, Root, differentiate};
use vdnn_graph::{Graph, InPlace, Op, Role, ValueId};
use vdnn_tensor::{DType, TensorType};

const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 2e-7;
/// At most this many elements of a leaf are moved, spread over it.
const ELEMENTS: usize = 60;
/// No node has more algorithms than this.
const ALGORITHMS: usize = 4;

/// A graph under test; its leaves are parameters, images included, so that all have gradients.
pub struct Case {
    pub graph: Graph,
    leaves: Vec<ValueId>,
}

impl Case {
    pub fn new() -> Self {
        Case { graph: Graph::new("case"), leaves: Vec::new() }
    }

    pub fn leaf(&mut self, name: &str, shape: &[u64]) -> ValueId {
        let id = self.graph.parameter(name, TensorType::new(shape, DType::F64)).unwrap();
        self.leaves.push(id);
        id
    }

    pub fn push(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
        self.graph.push(name, op, inputs).unwrap()[0]
    }

    /// Checks the gradients of every leaf with respect to `y`.
    pub fn check(self, y: ValueId) {
        let leaves: Vec<String> = self.leaves.iter().map(|&id| self.graph.value(id).name.clone()).collect();
        check(self.graph, Root::Value { value: y, seed_name: "dy".to_string() }, &leaves, &[]);
    }
}

/// Checks the gradients of the values of these names; `labels` are written where the graph has labels.
pub fn check(graph: Graph, root: Root, leaves: &[String], labels: &[i32]) {
    let keep: Vec<ValueId> = leaves.iter().map(|name| graph.find_value(name).unwrap()).collect();
    let y = graph.value(root.value()).name.clone();
    let forward = prepared(graph.clone(), InPlace::PersistentsOnly, labels);
    let train = differentiate(graph, &Options { keep, ..Options::new(root) }).unwrap();
    let dy = match train.seed {
        Some(seed) => noise("dy", &train.graph.value(seed).ty),
        None => vec![1.0],
    };
    let expected: Vec<Vec<(usize, f64)>> = leaves.iter().map(|leaf| differences(&forward, leaf, &y, &dy)).collect();
    for in_place in [InPlace::PersistentsOnly, InPlace::Allowed] {
        for algorithm in 0..ALGORITHMS {
            let mut backward = prepared(train.graph.clone(), in_place, labels);
            backward.algorithm = algorithm;
            if train.seed.is_some() {
                backward.set("dy", &dy);
            }
            backward.run();
            for (leaf, expected) in leaves.iter().zip(&expected) {
                let gradient = train.gradients[&train.graph.find_value(leaf).unwrap()];
                let found = backward.get(&train.graph.value(gradient).name);
                compare(leaf, &found, expected, &format!("{in_place:?}, algorithm {algorithm}"));
            }
        }
    }
}

/// Leaves filled with noise, variances with ones, everything else at zero.
fn prepared(graph: Graph, in_place: InPlace, labels: &[i32]) -> Interpreter {
    let mut interpreter = Interpreter::new(graph, in_place);
    let given = interpreter.graph().values().iter().filter(|value| value.producer.is_none()).cloned();
    for value in given.collect::<Vec<_>>() {
        let n = value.ty.shape.elements() as usize;
        match value.role {
            _ if !value.ty.dtype.is_float() => {}
            Role::State if value.name.ends_with("var") => interpreter.set(&value.name, &vec![1.0; n]),
            Role::State => interpreter.set(&value.name, &vec![0.0; n]),
            _ => interpreter.set(&value.name, &noise(&value.name, &value.ty)),
        }
    }
    if !labels.is_empty() {
        interpreter.set_labels(labels);
    }
    interpreter
}

fn differences(forward: &Interpreter, leaf: &str, y: &str, dy: &[f64]) -> Vec<(usize, f64)> {
    let start = forward.get(leaf);
    let every = start.len().div_ceil(ELEMENTS).max(1);
    let scalar = |moved: &[f64]| {
        let mut forward = forward.clone();
        forward.set(leaf, moved);
        forward.run();
        forward.get(y).iter().zip(dy).map(|(y, dy)| y * dy).sum::<f64>()
    };
    let slope = |index: usize| {
        let mut moved = start.clone();
        moved[index] = start[index] + STEP;
        let above = scalar(&moved);
        moved[index] = start[index] - STEP;
        (above - scalar(&moved)) / (2.0 * STEP)
    };
    (0..start.len()).step_by(every).map(|index| (index, slope(index))).collect()
}

fn compare(leaf: &str, found: &[f64], expected: &[(usize, f64)], setting: &str) {
    let scale = expected.iter().fold(1.0f64, |scale, (_, slope)| scale.max(slope.abs()));
    for &(index, slope) in expected {
        let error = (found[index] - slope).abs() / scale;
        assert!(error < TOLERANCE, "gradient of {leaf}[{index}]: expected {slope}, found {} ({setting})", found[index]);
    }
}
