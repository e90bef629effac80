//! Convolution with ReLU and its backward against the ops one by one, bit for bit: every algorithm, in pieces, slices, in
//! place.

use crate::golden::{Form, Operand, run, types};
use vdnn_graph::Op;
use vdnn_graph::op::Conv2d;
use vdnn_runtime::cpu::choices_of;
use vdnn_tensor::Philox;

fn normal(shape: &[u64], stream: u64) -> Operand {
    let mut random = Philox::new(19, stream);
    let count = shape.iter().product::<u64>();
    Operand::new(shape, (0..count).map(|_| f64::from(random.normal() as f32)).collect())
}

/// Results by every choice of the op, in every form that it can take.
fn all(op: &Op, inputs: &[Operand]) -> Vec<(String, Form, Vec<Vec<f64>>)> {
    let (ins, outs) = types::<f32>(op, inputs);
    let mut results = Vec::new();
    for choice in choices_of(op, &ins, &outs).unwrap() {
        for form in Form::all(op, inputs.len()) {
            let got = run::<f32>(op, inputs, &choice, &form).unwrap();
            results.push((choice.algorithm.clone(), form, got));
        }
    }
    results
}

fn by(op: &Op, inputs: &[Operand], algorithm: &str) -> Vec<f64> {
    let (ins, outs) = types::<f32>(op, inputs);
    let choice = choices_of(op, &ins, &outs).unwrap().into_iter().find(|choice| choice.algorithm == algorithm).unwrap();
    run::<f32>(op, inputs, &choice, &Form::Plain).unwrap().remove(0)
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn forward_has_the_bits_of_the_two_ops() {
    let convs = [
        (Conv2d { padding: [1, 1], ..Conv2d::default() }, [4, 6, 9, 7], [8, 6, 3, 3]),
        (Conv2d { stride: [2, 1], groups: 2, ..Conv2d::default() }, [2, 4, 8, 8], [6, 2, 2, 3]),
    ];
    for (conv, x, w) in convs {
        for biased in [true, false] {
            let mut inputs = vec![normal(&x, 1), normal(&w, 2)];
            inputs.extend(biased.then(|| normal(&[w[0]], 3)));
            let results = all(&Op::Conv2dRelu(conv), &inputs);
            assert!(results.len() >= 6, "{}", results.len());
            for (algorithm, form, got) in results {
                let z = by(&Op::Conv2d(conv), &inputs, &algorithm);
                assert!(z.iter().any(|z| *z < 0.0) && z.iter().any(|z| *z > 0.0));
                let want: Vec<f64> = z.iter().map(|&z| if z > 0.0 { z } else { 0.0 }).collect();
                assert_eq!(bits(&got[0]), bits(&want), "{conv:?} by {algorithm}, {form:?}");
            }
        }
    }
}

#[test]
fn backward_has_the_bits_of_the_two_ops() {
    for shape in [&[3, 5, 7, 6][..], &[4, 9], &[1, 2, 1, 1]] {
        let (y, dy) = (normal(shape, 4), normal(shape, 5));
        let inputs = [y, dy];
        let dz = by(&Op::ReluGrad, &inputs, "loop");
        let dbias = by(&Op::BiasGrad, &[Operand::new(shape, dz.clone())], "loop");
        for (_, form, got) in all(&Op::ReluBiasGrad, &inputs) {
            assert_eq!(bits(&got[0]), bits(&dz), "{shape:?} {form:?}");
            assert_eq!(bits(&got[1]), bits(&dbias), "{shape:?} {form:?}");
        }
    }
}
