//! ReLU, add, copies, bias.

use crate::tensor::{PLACES, Place, Tensor, assert_close, normal, run};
use crate::{emulator, tensor};
use vdnn_cuda::kernels;
use vdnn_graph::op::{Axis, Concat, Op, Split, mask_type};

/// Shapes with whole tiles, tails, and several tiles a row.
const SHAPES: [[u64; 4]; 4] = [[2, 3, 5, 7], [3, 8, 4, 4], [1, 1, 1, 1], [2, 5, 45, 45]];

fn count(dims: &[u64]) -> u64 {
    dims.iter().product()
}

#[test]
fn relu_and_its_gradient() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let (x, dy) = (normal(count(dims), 1), normal(count(dims), 2));
        let (a, b) = (Tensor::new(dims, place, &x), Tensor::new(dims, Place::Dense, &dy));
        let (y, dx) = (Tensor::filled(dims, Place::Dense, 0.0), Tensor::filled(dims, place, 0.0));
        if !run(&Op::Relu, &[a.operand()], &[y.operand()]) {
            return;
        }
        let expected: Vec<f64> = x.iter().map(|&v| f64::from(v.max(0.0))).collect();
        assert_close("relu", &y.values(), &expected, 0.0);
        run(&Op::ReluGrad, &[y.operand(), b.operand()], &[dx.operand()]);
        let grad = |(&v, &d): (&f32, &f32)| if v > 0.0 { f64::from(d) } else { 0.0 };
        let expected: Vec<f64> = x.iter().zip(&dy).map(grad).collect();
        assert_close("relu_grad", &dx.values(), &expected, 0.0);
        // In place over dY, as the aliases may put it.
        run(&Op::ReluGrad, &[y.operand(), b.operand()], &[b.operand()]);
        assert_close("relu_grad in place", &b.values(), &expected, 0.0);
    }
}

/// A mask gives the bits that Y gives, over its input as well.
#[test]
fn relu_with_a_mask() {
    for (dims, place) in SHAPES.iter().chain(&[[2, 3, 64, 64]]).flat_map(|d| PLACES.map(|p| (d, p))) {
        let (x, dy) = (tensor::awkward(count(dims), 1), tensor::awkward(count(dims), 2));
        let (a, y) = (Tensor::new(dims, place, &x), Tensor::filled(dims, place, 7.0));
        if !run(&Op::Relu, &[a.operand()], &[y.operand()]) {
            return;
        }
        let mask = tensor::Bytes::new(mask_type(&a.ty));
        let (b, found) = (Tensor::new(dims, Place::Dense, &dy), Tensor::filled(dims, place, 7.0));
        run(&Op::ReluMask, &[a.operand()], &[found.operand(), mask.operand()]);
        tensor::assert_bits("Y", &found.values(), &y.values());
        let bits = mask.values();
        let row = a.ty.shape.elements_per_sample() as usize;
        for (i, v) in y.values().iter().enumerate() {
            let byte = bits[i / row * row.div_ceil(8) + i % row / 8];
            assert_eq!(byte >> (i % row % 8) & 1 == 1, *v > 0.0 || v.is_nan(), "element {i} of {dims:?} {place:?}");
        }
        let last = bits.chunks(row.div_ceil(8)).map(|row| row[row.len() - 1]);
        assert!(row.is_multiple_of(8) || last.into_iter().all(|byte| byte >> (row % 8) == 0));
        let again = tensor::Bytes::new(mask_type(&a.ty));
        run(&Op::ReluMask, &[a.operand()], &[a.operand(), again.operand()]);
        tensor::assert_bits("Y over X", &a.values(), &y.values());
        assert_eq!(again.values(), bits);
        let (dx, plain) = (Tensor::filled(dims, place, 7.0), Tensor::filled(dims, place, 7.0));
        run(&Op::ReluGrad, &[y.operand(), b.operand()], &[plain.operand()]);
        run(&Op::ReluMaskGrad, &[mask.operand(), b.operand()], &[dx.operand()]);
        tensor::assert_bits("dX", &dx.values(), &plain.values());
        run(&Op::ReluMaskGrad, &[mask.operand(), b.operand()], &[b.operand()]);
        tensor::assert_bits("dX over dY", &b.values(), &plain.values());
    }
}

#[test]
fn not_a_number_goes_through_relu() {
    let x = Tensor::new(&[1, 3], Place::Dense, &[f32::NAN, -1.0, 2.0]);
    if run(&Op::Relu, &[x.operand()], &[x.operand()]) {
        assert_close("relu", &x.values(), &[f64::NAN, 0.0, 2.0], 0.0);
    }
}

#[test]
fn addition_over_either_operand() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let (x, z) = (normal(count(dims), 3), normal(count(dims), 4));
        let expected: Vec<f64> = x.iter().zip(&z).map(|(a, b)| f64::from(a + b)).collect();
        for over in [0, 1] {
            let operands = [Tensor::new(dims, place, &x), Tensor::new(dims, Place::Odd, &z)];
            let [a, b] = &operands;
            if !run(&Op::Add, &[a.operand(), b.operand()], &[operands[over].operand()]) {
                return;
            }
            assert_close("add", &operands[over].values(), &expected, 0.0);
        }
    }
}

#[test]
fn concat_and_split_place_channels() {
    for place in PLACES {
        let parts: Vec<(u64, Vec<f32>)> = [2, 3, 1].map(|c| (c, normal(2 * c * 35, c))).into();
        let inputs: Vec<Tensor> = parts.iter().map(|(c, v)| Tensor::new(&[2, *c, 5, 7], place, v)).collect();
        let operands: Vec<_> = inputs.iter().map(Tensor::operand).collect();
        let whole = Tensor::filled(&[2, 6, 5, 7], place, 0.0);
        if !run(&Op::Concat(Concat::default()), &operands, &[whole.operand()]) {
            return;
        }
        let sample =
            |n: usize| parts.iter().flat_map(move |(c, v)| v[n * *c as usize * 35..][..*c as usize * 35].iter());
        let expected: Vec<f64> = (0..2).flat_map(sample).map(|&v| f64::from(v)).collect();
        assert_close("concat", &whole.values(), &expected, 0.0);
        let back: Vec<Tensor> = parts.iter().map(|(c, _)| Tensor::filled(&[2, *c, 5, 7], place, 0.0)).collect();
        let outputs: Vec<_> = back.iter().map(Tensor::operand).collect();
        run(&Op::Split(Split::channels(vec![2, 3, 1])), &[whole.operand()], &outputs);
        for (part, (_, values)) in back.iter().zip(&parts) {
            assert_eq!(&part.values(), values);
        }
    }
}

#[test]
fn concat_and_split_place_samples() {
    for place in PLACES {
        let parts: Vec<(u64, Vec<f32>)> = [2, 1].map(|n| (n, normal(n * 3 * 35, n))).into();
        let inputs: Vec<Tensor> = parts.iter().map(|(n, v)| Tensor::new(&[*n, 3, 5, 7], place, v)).collect();
        let operands: Vec<_> = inputs.iter().map(Tensor::operand).collect();
        let whole = Tensor::filled(&[3, 3, 5, 7], place, 0.0);
        if !run(&Op::Concat(Concat::along(Axis::Batch)), &operands, &[whole.operand()]) {
            return;
        }
        let expected: Vec<f64> = parts.iter().flat_map(|(_, v)| v).map(|&v| f64::from(v)).collect();
        assert_close("concat", &whole.values(), &expected, 0.0);
        let back: Vec<Tensor> = parts.iter().map(|(n, _)| Tensor::filled(&[*n, 3, 5, 7], place, 0.0)).collect();
        let outputs: Vec<_> = back.iter().map(Tensor::operand).collect();
        let op = Op::Split(Split { sections: vec![2, 1], axis: Axis::Batch });
        run(&op, &[whole.operand()], &outputs);
        for (part, (_, values)) in back.iter().zip(&parts) {
            assert_eq!(&part.values(), values);
        }
    }
}

#[test]
fn flatten_of_a_slice_is_a_copy() {
    let x = normal(2 * 12, 9);
    let (from, to) = (Tensor::new(&[2, 3, 2, 2], Place::Odd, &x), Tensor::filled(&[2, 12], Place::Dense, 0.0));
    if run(&Op::Flatten, &[from.operand()], &[to.operand()]) {
        assert_eq!(to.values(), x);
    }
}

#[test]
fn bias_is_added_to_channels() {
    for (dims, place) in [vec![2, 3, 5, 7], vec![3, 8, 4, 4], vec![4, 1000], vec![2, 70, 6, 6], vec![1, 3, 1, 2]]
        .iter()
        .flat_map(|d| PLACES.map(|p| (d, p)))
    {
        let (x, bias) = (normal(count(dims), 5), normal(dims[1], 6));
        let (y, b) = (Tensor::new(dims, place, &x), Tensor::new(&dims[1..2], Place::Dense, &bias));
        let plan = kernels::bias_add(y.operand(), b.operand()).unwrap();
        if !emulator::run(&plan) {
            return;
        }
        let hw = (count(dims) / dims[0] / dims[1]) as usize;
        let value = |(i, &v): (usize, &f32)| f64::from(v + bias[i / hw % bias.len()]);
        let expected: Vec<f64> = x.iter().enumerate().map(value).collect();
        tensor::assert_close("bias_add", &y.values(), &expected, 0.0);
    }
}
