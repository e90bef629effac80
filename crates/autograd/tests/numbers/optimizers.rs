//! Optimizer steps on one number: parameter 1 unless said otherwise, and a gradient given by the seed.

use crate::interpreter::Interpreter;
use vdnn_autograd::{Optimizer, Options, Root, differentiate};
use vdnn_graph::{Graph, InPlace, Op, Role, op};
use vdnn_tensor::{DType, TensorType};

/// Values of the parameter after each of three steps: y = x · p with x = 1, so that dp is the seed.
fn steps(optimizer: Optimizer, start: f64, gradient: f64, learning_rate: f64) -> [f64; 3] {
    let mut graph = Graph::new("one number");
    let scalar = TensorType::new([1, 1], DType::F64);
    let x = graph.input("x", scalar.clone()).unwrap();
    let p = graph.parameter("p", scalar).unwrap();
    let y = graph.push("y", Op::Linear, &[x, p]).unwrap()[0];
    let root = Root::Value { value: y, seed_name: "dy".to_string() };
    let train = differentiate(graph, &Options { optimizer, ..Options::new(root) }).unwrap();
    let mut interpreter = Interpreter::new(train.graph, InPlace::Allowed);
    let values = interpreter.graph().values().iter();
    let states: Vec<String> =
        values.filter(|v| v.role == Role::State && v.producer.is_none()).map(|v| v.name.clone()).collect();
    for (name, value) in [("x", 1.0), ("p", start), ("dy", gradient), ("learning_rate", learning_rate)] {
        interpreter.set(name, &[value]);
    }
    states.iter().for_each(|name| interpreter.set(name, &[0.0]));
    std::array::from_fn(|iteration| {
        interpreter.set_iteration(iteration as u64);
        interpreter.run();
        interpreter.get("p")[0]
    })
}

fn close(found: &[f64], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "expected {expected}, found {found}");
    }
}

/// Case B21: decay acts without momentum; dampening spares the first step.
#[test]
fn sgd_decay_momentum_and_dampening() {
    let sgd = |momentum, dampening| {
        let sgd = op::Sgd { momentum, dampening, weight_decay: 0.1, nesterov: false };
        steps(Optimizer::Sgd(sgd), 1.0, 1.0, 0.1)
    };
    close(&sgd(0.0, 0.0), &[0.89, 0.7811, 0.673_289]);
    close(&sgd(0.9, 0.0), &[0.89, 0.6821, 0.388_169]);
    close(&sgd(0.9, 0.5), &[0.89, 0.736_55, 0.544_762_25]);
}

/// g = 1, mu = 0.9: M = 1, 1.9, 2.71 and steps of g + mu·M = 1.9, 2.71, 3.439.
#[test]
fn sgd_nesterov() {
    let sgd = op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: true };
    close(&steps(Optimizer::Sgd(sgd), 1.0, 1.0, 0.1), &[1.0 - 0.19, 1.0 - 0.19 - 0.271, 1.0 - 0.19 - 0.271 - 0.3439]);
}

/// Case B23: with a gradient as small as eps, the first step is half the learning rate.
#[test]
fn adam_eps_stands_outside_the_root() {
    let adam = op::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
    let first = steps(Optimizer::Adam(adam), 0.0, 1e-8, 1.0)[0];
    assert!((first + 0.5).abs() < 1e-9, "{first}");
}

/// A constant gradient makes bias-corrected steps of lr; decoupled decay shrinks the weight beside them.
#[test]
fn adam_decay_coupled_and_not() {
    let adam = |weight_decay, decoupled| {
        let adam = op::Adam { beta1: 0.9, beta2: 0.999, eps: 0.0, weight_decay, decoupled };
        steps(Optimizer::Adam(adam), 1.0, 1.0, 0.1)
    };
    close(&adam(0.0, false), &[0.9, 0.8, 0.7]);
    let decoupled: [f64; 3] = [1.0 * 0.95 - 0.1, 0.85 * 0.95 - 0.1, 0.7075 * 0.95 - 0.1];
    close(&adam(0.5, true), &decoupled);
    let coupled = adam(0.5, false);
    assert!((coupled[0] - 0.9).abs() < 1e-12, "the first step is lr whatever the gradient's size");
    assert!((coupled[1] - decoupled[1]).abs() > 1e-3);
}
