//! Batch norm, ReLU and max pooling in one op: the bits of the single ops in both directions.

use super::tensor::{HALVES, Map, nhwc};
use crate::tensor::{Bytes, PLACES, Place, Tensor, normal, run};
use vdnn_cuda::kernels::Operand;
use vdnn_graph::op::{BatchNorm, BatchNormReluMaxPool2d, MaxPool2d, MaxPool2dIndicesGrad, Op, Window};
use vdnn_tensor::{DType, TensorType};

const NORM: BatchNorm = BatchNorm { eps: 1e-5 };

/// Padding of both axes, of one and of none; windows that end past the image.
fn windows() -> Vec<Window> {
    let of = |kernel: u64, padding, ceil_mode| Window { stride: [2; 2], padding, ceil_mode, ..Window::square(kernel) };
    vec![of(3, [1, 1], false), of(3, [0, 1], true), of(2, [0, 0], false), of(2, [1, 0], true)]
}

/// Packs and single channels, sizes of both parities, one window in a row, one tile and several, one stretch of rows and several;
/// walks of one piece and of several, the last one shorter.
const SHAPES: [[u64; 4]; 6] =
    [[2, 16, 8, 7], [3, 13, 5, 6], [1, 16, 11, 2], [2, 32, 19, 18], [1, 272, 4, 4], [2, 16, 70, 66]];

/// Multiples of a part of one, among them −0, so that sums are exact in any order; of halves windows have ties.
fn parts(count: u64, of_one: f32, stream: u64) -> Vec<f32> {
    normal(count, stream).iter().map(|v| (v * of_one).round() / of_one).collect()
}

struct Case {
    op: BatchNormReluMaxPool2d,
    place: Place,
    x: Map,
    /// Mean, variance, gamma, beta.
    coefficients: [Tensor; 4],
    pooled: TensorType,
}

impl Case {
    fn new(dims: [u64; 4], window: Window, dtype: DType, place: Place, values: &[f32]) -> Self {
        let vector = |stream: u64| Tensor::new(&dims[1..2], Place::Dense, &normal(dims[1], stream));
        let variance: Vec<f32> = normal(dims[1], 3).iter().map(|v| v.abs() + 0.5).collect();
        let coefficients = [vector(2), Tensor::new(&dims[1..2], Place::Dense, &variance), vector(4), vector(5)];
        let [oh, ow] = window.output([dims[2], dims[3]]).unwrap();
        let op = BatchNormReluMaxPool2d { norm: NORM, pool: MaxPool2d { window } };
        let pooled = nhwc(&[dims[0], dims[1], oh, ow], dtype, 0);
        Case { op, place, x: Map::new(nhwc(&dims, dtype, 0), place, values), coefficients, pooled }
    }

    fn map(&self, ty: &TensorType) -> Map {
        Map::filled(ty.clone(), self.place, 7.0)
    }

    fn with<'a>(&'a self, first: &[Operand<'a>]) -> Vec<Operand<'a>> {
        first.iter().copied().chain(self.coefficients.iter().map(Tensor::operand)).collect()
    }

    fn places(&self) -> Bytes {
        Bytes::at(TensorType { dtype: DType::U8, ..self.pooled.clone() }, self.place)
    }

    fn what(&self) -> String {
        format!("{} {:?} {:?}", self.x.ty, self.op.pool.window, self.place)
    }

    /// Places of one op, which are those of two, as Y is. `None` without a compiler.
    fn check_forward(&self) -> Option<Bytes> {
        let (between, [apart, fused], [expected, found]) =
            (self.map(&self.x.ty), [0, 1].map(|_| self.map(&self.pooled)), [0, 1].map(|_| self.places()));
        if !run(&Op::BatchNormRelu(NORM), &self.with(&[self.x.operand()]), &[between.operand()]) {
            return None;
        }
        let pool = Op::MaxPool2dIndices(self.op.pool);
        run(&pool, &[between.operand()], &[apart.operand(), expected.operand()]);
        let outputs = [fused.operand(), found.operand()];
        run(&Op::BatchNormReluMaxPool2d(self.op), &self.with(&[self.x.operand()]), &outputs);
        assert_eq!(bits(&fused.values()), bits(&apart.values()), "{}", self.what());
        assert_eq!(found.values(), expected.values(), "{}", self.what());
        Some(found)
    }

    fn check_gradient(&self, places: &Bytes) {
        // Sums of so fine parts are rounded when a pool stores them.
        let dy = Map::new(self.pooled.clone(), self.place, &parts(self.pooled.shape.elements(), 1024.0, 6));
        let [between, apart, fused] = [0, 1, 2].map(|_| self.map(&self.x.ty));
        let parameter = || Tensor::filled(&self.x.ty.shape.dims()[1..2], Place::Dense, -7.0);
        let (expected, found) = ([parameter(), parameter()], [parameter(), parameter()]);
        let input = [self.x.ty.shape.dim(2), self.x.ty.shape.dim(3)];
        let spread = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool: self.op.pool, input });
        run(&spread, &[places.operand(), dy.operand()], &[between.operand()]);
        let reads = self.with(&[self.x.operand(), between.operand()]);
        run(&Op::BatchNormReluGrad(NORM), &reads, &made(&apart, &expected));
        let reads = self.with(&[self.x.operand(), places.operand(), dy.operand()]);
        run(&Op::BatchNormReluMaxPool2dGrad(self.op), &reads, &made(&fused, &found));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(bits(&found.values()), bits(&expected.values()), "{}", self.what());
        }
        assert_eq!(bits(&fused.values()), bits(&apart.values()), "{}", self.what());
    }
}

fn made<'a>(dx: &'a Map, [dgamma, dbeta]: &'a [Tensor; 2]) -> [Operand<'a>; 3] {
    [dx.operand(), dgamma.operand(), dbeta.operand()]
}

/// Any NaN is as good as another.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
}

fn each(values: impl Fn(u64) -> Vec<f32>, check: impl Fn(&Case) -> Option<()>) {
    for (dims, window) in SHAPES.iter().flat_map(|d| windows().into_iter().map(|w| (*d, w))) {
        for (place, dtype) in PLACES.iter().flat_map(|p| HALVES.map(|t| (*p, t))) {
            let case = Case::new(dims, window, dtype, place, &values(dims.iter().product()));
            if check(&case).is_none() {
                return;
            }
        }
    }
}

#[test]
fn a_pooled_norm_has_the_bits_of_single_ops() {
    each(|count| parts(count, 2.0, 1), |case| case.check_forward().map(|places| case.check_gradient(&places)));
}

/// Numbers that differ, among them what is no number: the first of a window wins, in every way to compare.
#[test]
fn what_is_no_number_is_pooled_as_by_single_ops() {
    let values = |count| {
        let mut values = normal(count, 1);
        values.iter_mut().skip(7).step_by(53).for_each(|v| *v = f32::NAN);
        values
    };
    each(values, |case| case.check_forward().map(|_| ()));
}
