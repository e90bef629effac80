//! Softmax cross-entropy, its gradient, accuracy.

use crate::tensor::{PLACES, Place, Tensor, assert_bits, assert_close, integers, normal, run};
use vdnn_graph::op::{Op, SoftmaxCrossEntropy};
use vdnn_tensor::{DType, TensorType};

/// (mean loss, dlogits).
fn reference(op: &SoftmaxCrossEntropy, x: &[f32], labels: &[i32]) -> (f64, Vec<f64>) {
    let classes = x.len() / labels.len();
    let counted = labels.iter().filter(|&&l| l != op.ignore_index).count() as f64;
    let (mut loss, mut dx) = (0.0, vec![0.0; x.len()]);
    for (n, &label) in labels.iter().enumerate().filter(|(_, l)| **l != op.ignore_index) {
        let row: Vec<f64> = x[n * classes..][..classes].iter().map(|&v| f64::from(v)).collect();
        let largest = row.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = row.iter().map(|v| (v - largest).exp()).sum();
        for (k, v) in row.iter().enumerate() {
            let own = if k as i32 == label { 1.0 - op.label_smoothing } else { 0.0 };
            let target = own + op.label_smoothing / classes as f64;
            loss -= target * (v - largest - sum.ln()) / counted;
            dx[n * classes + k] = ((v - largest).exp() / sum - target) / counted;
        }
    }
    (loss, dx)
}

#[test]
fn loss_and_gradient_with_smoothing_and_ignored_rows() {
    for (rows, classes) in [(3u64, 10u64), (5, 1000), (300, 3), (2, 1)] {
        for (smoothing, place) in [0.0, 0.1].into_iter().flat_map(|s| PLACES.map(|p| (s, p))) {
            let op = SoftmaxCrossEntropy { label_smoothing: smoothing, ignore_index: -100 };
            let values: Vec<f32> = normal(rows * classes, 1).iter().map(|v| v * 10.0).collect();
            let label = |n: u64| if n % 4 == 1 { -100 } else { (n * 7 % classes) as i32 };
            let labels: Vec<i32> = (0..rows).map(label).collect();
            let ty = TensorType::new([rows], DType::I32);
            let x = Tensor::new(&[rows, classes], place, &values);
            let loss = Tensor::filled(&[1], Place::Dense, 0.0);
            let inputs = [x.operand(), integers(&ty, &labels)];
            if !run(&Op::SoftmaxCrossEntropy(op), &inputs, &[loss.operand()]) {
                return;
            }
            let (mean, dx) = reference(&op, &values, &labels);
            assert_close("loss", &loss.values(), &[mean], 1e-6);
            let (apart, scale) =
                (Tensor::new(&[rows, classes], place, &values), Tensor::filled(&[1], Place::Dense, 1024.0));
            run(&Op::SoftmaxCrossEntropyGrad(op), &[inputs[0], inputs[1], scale.operand()], &[apart.operand()]);
            run(&Op::SoftmaxCrossEntropyGrad(op), &inputs, &[x.operand()]);
            assert_close("dlogits", &x.values(), &dx, 1e-6);
            // A power of two changes no bit but those of the exponent.
            assert_bits("scaled", &apart.values(), &x.values().iter().map(|v| v * 1024.0).collect::<Vec<_>>());
        }
    }
}

#[test]
fn no_row_that_counts_and_labels_out_of_range() {
    let op = SoftmaxCrossEntropy::default();
    let ty = TensorType::new([2], DType::I32);
    for (labels, gradient) in [([-100, -100], vec![0.0; 4]), ([0, 9], vec![])] {
        let x = Tensor::new(&[2, 2], Place::Dense, &[1.0, 2.0, 3.0, 4.0]);
        let (loss, dx) = (Tensor::filled(&[1], Place::Dense, 0.0), Tensor::filled(&[2, 2], Place::Dense, 9.0));
        let inputs = [x.operand(), integers(&ty, &labels)];
        if !run(&Op::SoftmaxCrossEntropy(op), &inputs, &[loss.operand()]) {
            return;
        }
        assert!(loss.values()[0].is_nan());
        run(&Op::SoftmaxCrossEntropyGrad(op), &inputs, &[dx.operand()]);
        assert!(gradient.is_empty() || dx.values() == gradient);
    }
}

#[test]
fn accuracy_counts_the_first_maximum() {
    let values = [1.0, 3.0, 3.0, 2.0, 0.0, 1.0, 5.0, 4.0, 3.0, 0.0, 0.0, 0.0];
    for (labels, expected) in [([1, 0, 0, 0], 4.0), ([2, 0, 1, 1], 1.0), ([-100, 7, 0, 2], 1.0)] {
        let x = Tensor::new(&[4, 3], Place::Odd, &values);
        let ty = TensorType::new([4], DType::I32);
        let count = Tensor::filled(&[1], Place::Dense, 0.0);
        if run(&Op::Accuracy, &[x.operand(), integers(&ty, &labels)], &[count.operand()]) {
            assert_eq!(count.values(), [expected], "{labels:?}");
        }
    }
}
