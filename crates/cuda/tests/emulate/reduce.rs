//! Channel sums: the gradient of a bias, on maps with one and with several stretches a channel.

use crate::tensor::{PLACES, Place, Tensor, assert_close, normal, run};
use vdnn_graph::op::Op;

#[test]
fn bias_gradients_sum_everything_but_channels() {
    let shapes =
        [vec![2, 3, 5, 7], vec![3, 8, 4, 4], vec![4, 70], vec![300, 33], vec![5, 2, 48, 48], vec![3, 2, 63, 65]];
    for (dims, place) in shapes.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let count: u64 = dims.iter().product();
        let values = normal(count, 1);
        let (dy, db) = (Tensor::new(dims, place, &values), Tensor::filled(&dims[1..2], Place::Dense, 0.0));
        if !run(&Op::BiasGrad, &[dy.operand()], &[db.operand()]) {
            return;
        }
        let (c, hw) = (dims[1] as usize, (count / dims[0] / dims[1]) as usize);
        let mut expected = vec![0.0; c];
        for (i, &v) in values.iter().enumerate() {
            expected[i / hw % c] += f64::from(v);
        }
        assert_close(&format!("{dims:?} {place:?}"), &db.values(), &expected, 1e-7);
    }
}

#[test]
fn a_sum_over_no_samples_is_zero() {
    for dims in [vec![0, 3, 4, 4], vec![0, 3]] {
        let (dy, db) = (Tensor::new(&dims, Place::Dense, &[]), Tensor::filled(&[3], Place::Dense, 9.0));
        if run(&Op::BiasGrad, &[dy.operand()], &[db.operand()]) {
            assert_eq!(db.values(), [0.0; 3]);
        }
    }
}
