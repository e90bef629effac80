//! Batch normalisation with channels innermost, alone, with ReLU and with a residual.

use super::tensor::{Map, TYPES, assert_near, nhwc, round};
use crate::tensor::{Bytes, PLACES, Place, Tensor, assert_close, normal, run};
use vdnn_cuda::kernels::Operand;
use vdnn_graph::op::{BatchNorm, Op, mask_type};
use vdnn_tensor::DType;

/// Packs and single channels, one tile and several, of one stretch and of several, the last tile narrower, many rows and few; of f32 packs that end within a byte of a mask, and tiles of
/// an odd number of them.
const SHAPES: [[u64; 4]; 8] = [
    [2, 8, 3, 5],
    [3, 13, 4, 4],
    [5, 3, 7, 7],
    [2, 280, 3, 3],
    [4, 40, 34, 34],
    [6, 24, 1, 1],
    [3, 12, 5, 3],
    [2, 136, 3, 3],
];
const EPS: f64 = 1e-5;

struct Case {
    dims: [u64; 4],
    dtype: DType,
    place: Place,
    x: Map,
    values: Vec<f32>,
    /// Mean, variance, gamma, beta as the kernels get them.
    coefficients: [Tensor; 4],
}

impl Case {
    /// `None` without a compiler. Maps lie around 10, where a naive variance loses digits.
    fn new(dims: [u64; 4], dtype: DType, place: Place) -> Option<Self> {
        let count = dims.iter().product();
        let values: Vec<f32> = normal(count, 7).iter().map(|v| round(dtype, 10.0 + v)).collect();
        let x = Map::new(nhwc(&dims, dtype, 0), place, &values);
        let c = &dims[1..2];
        let vector = |stream: u64| Tensor::new(c, Place::Dense, &normal(c[0], stream));
        let zero = || Tensor::filled(c, Place::Dense, 0.0);
        let coefficients = [zero(), zero(), vector(8), vector(9)];
        let statistics = [coefficients[0].operand(), coefficients[1].operand()];
        let case = run(&Op::BatchNormStats, &[x.operand()], &statistics);
        case.then_some(Case { dims, dtype, place, x, values, coefficients })
    }

    fn map(&self, value: f32) -> Map {
        Map::filled(nhwc(&self.dims, self.dtype, 0), self.place, value)
    }

    fn channel(&self, e: usize) -> usize {
        let hw = (self.dims[2] * self.dims[3]) as usize;
        e / hw % self.dims[1] as usize
    }

    /// Mean and variance of each channel in f64.
    fn statistics(&self) -> [Vec<f64>; 2] {
        let (c, count) = (self.dims[1] as usize, (self.dims[0] * self.dims[2] * self.dims[3]) as f64);
        let mut sums = [vec![0.0; c], vec![0.0; c]];
        for (e, &v) in self.values.iter().enumerate() {
            sums[0][self.channel(e)] += f64::from(v) / count;
        }
        for (e, &v) in self.values.iter().enumerate() {
            sums[1][self.channel(e)] += (f64::from(v) - sums[0][self.channel(e)]).powi(2) / count;
        }
        sums
    }

    /// The normalised element with gamma and beta, and without.
    fn normalised(&self, e: usize) -> [f64; 2] {
        let c = self.channel(e);
        let [mean, variance, gamma, beta] = self.coefficients.each_ref().map(|t| f64::from(t.values()[c]));
        let hat = (f64::from(self.values[e]) - mean) / (variance + EPS).sqrt();
        [hat * gamma + beta, hat]
    }

    fn all_normalised(&self) -> (Vec<f64>, Vec<f64>) {
        (0..self.values.len()).map(|e| self.normalised(e)).map(|[y, hat]| (y, hat)).unzip()
    }

    /// dX, dgamma, dbeta where `dy` is what goes through.
    fn gradient(&self, dy: &[f64], hat: &[f64]) -> [Vec<f64>; 3] {
        let (c, count) = (self.dims[1] as usize, (self.dims[0] * self.dims[2] * self.dims[3]) as f64);
        let (mut dgamma, mut dbeta) = (vec![0.0; c], vec![0.0; c]);
        for (e, &d) in dy.iter().enumerate() {
            dgamma[self.channel(e)] += d * hat[e];
            dbeta[self.channel(e)] += d;
        }
        let (variance, gamma) = (self.coefficients[1].values(), self.coefficients[2].values());
        let dx = |(e, &d): (usize, &f64)| {
            let c = self.channel(e);
            let scale = f64::from(gamma[c]) / (f64::from(variance[c]) + EPS).sqrt();
            scale * (d - dbeta[c] / count - hat[e] * dgamma[c] / count)
        };
        [dy.iter().enumerate().map(dx).collect(), dgamma, dbeta]
    }

    /// Runs a gradient op in place and compares; `through` is what of dY goes through.
    fn check_gradient(&self, op: &Op, mask: Option<&Bytes>, dy: &Map, through: &[f64], hat: &[f64]) {
        let parameters = [0, 1].map(|_| Tensor::filled(&self.dims[1..2], Place::Dense, 0.0));
        let dx = self.map(0.0);
        let mut inputs = vec![self.x.operand(), dy.operand()];
        inputs.extend(mask.map(Bytes::operand));
        let beta = usize::from(matches!(op, Op::BatchNormReluGrad(_)));
        inputs.extend(self.coefficients[..3 + beta].iter().map(Tensor::operand));
        // With a residual dR lies over dY, else dX does.
        let target = if mask.is_some() { &dx } else { dy };
        let mut outputs = vec![target.operand(), parameters[0].operand(), parameters[1].operand()];
        outputs.extend(mask.map(|_| dy.operand()));
        run(op, &inputs, &outputs);
        let [expected, dgamma, dbeta] = self.gradient(through, hat);
        let name = op.kind();
        let scale = |sums: &[f64]| sums.iter().fold(1.0f64, |most, v| most.max(v.abs()));
        assert_close(&format!("{name} dgamma"), &parameters[0].values(), &dgamma, 1e-4 * scale(&dgamma));
        assert_close(&format!("{name} dbeta"), &parameters[1].values(), &dbeta, 1e-5 * scale(&dbeta));
        assert_near(
            &format!("{name} dX {:?} {:?}", self.dims, self.place),
            self.dtype,
            &target.values(),
            &expected,
            1.0,
        );
        if mask.is_some() {
            assert_close("dR", &dy.values(), through, 0.0);
        }
    }
}

fn each_case(check: impl Fn(&Case)) {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (*d, p))) {
        for dtype in TYPES {
            let Some(case) = Case::new(dims, dtype, place) else { return };
            check(&case);
        }
    }
}

#[test]
fn statistics_and_normalisation() {
    each_case(|case| {
        let [mean, variance] = case.statistics();
        assert_close("mean", &case.coefficients[0].values(), &mean, 1e-6);
        assert_close("variance", &case.coefficients[1].values(), &variance, 1e-5);
        let (normalised, _) = case.all_normalised();
        for (op, relu) in
            [(Op::BatchNorm(BatchNorm { eps: EPS }), false), (Op::BatchNormRelu(BatchNorm { eps: EPS }), true)]
        {
            let y = case.map(7.0);
            let inputs: Vec<_> =
                [case.x.operand()].into_iter().chain(case.coefficients.iter().map(Tensor::operand)).collect();
            run(&op, &inputs, &[y.operand()]);
            let expected: Vec<f64> = normalised.iter().map(|&v| if relu { v.max(0.0) } else { v }).collect();
            assert_near(op.kind(), case.dtype, &y.values(), &expected, 0.51);
            // Over X.
            let over = Map::new(case.x.ty.clone(), case.place, &case.values);
            let mut inputs = inputs.clone();
            inputs[0] = over.operand();
            run(&op, &inputs, &[over.operand()]);
            assert_eq!(over.values(), y.values());
        }
    });
}

#[test]
fn a_residual_with_a_mask() {
    each_case(|case| {
        let op = Op::BatchNormAddRelu(BatchNorm { eps: EPS });
        let (r, residual) = Map::normal(nhwc(&case.dims, case.dtype, 0), case.place, 11);
        let (y, mask) = (case.map(7.0), Bytes::new(mask_type(&case.x.ty)));
        let mut inputs = vec![case.x.operand()];
        inputs.extend(case.coefficients.iter().map(Tensor::operand));
        inputs.push(r.operand());
        run(&op, &inputs, &[y.operand(), mask.operand()]);
        let (normalised, hat) = case.all_normalised();
        let sums: Vec<f64> = normalised.iter().zip(&residual).map(|(v, &r)| v + f64::from(r)).collect();
        let expected: Vec<f64> = sums.iter().map(|v| v.max(0.0)).collect();
        assert_near("batch_norm_add_relu", case.dtype, &y.values(), &expected, 0.51);
        // A bit an element, in the order of memory.
        let [_, c, h, w] = case.dims.map(|d| d as usize);
        let (bytes, per) = (mask.values(), (c * h * w).div_ceil(8));
        let bit = |e: usize| {
            let (n, channel, pixel) = (e / (c * h * w), e / (h * w) % c, e % (h * w));
            let place = pixel * c + channel;
            bytes[n * per + place / 8] >> (place % 8) & 1 == 1
        };
        for (e, &sum) in sums.iter().enumerate() {
            assert!(bit(e) == (sum > 0.0) || sum.abs() < 1e-5, "element {e} of {:?}: {sum}", case.dims);
        }
        let (dy, given) = Map::normal(nhwc(&case.dims, case.dtype, 0), case.place, 12);
        let through: Vec<f64> =
            given.iter().enumerate().map(|(e, &d)| if bit(e) { f64::from(d) } else { 0.0 }).collect();
        case.check_gradient(&Op::BatchNormAddReluGrad(BatchNorm { eps: EPS }), Some(&mask), &dy, &through, &hat);
    });
}

/// Both gradients of a map that is read twice: the bits of their sum, of which dR is what goes through. Also dR over the first, and dX over
/// the second.
#[test]
fn two_gradients_are_added_as_they_are_read() {
    each_case(|case| {
        let op = Op::BatchNormAddReluGrad(BatchNorm { eps: EPS });
        let (ty, mask) = (nhwc(&case.dims, case.dtype, 0), Bytes::new(mask_type(&case.x.ty)));
        let (y, sum) = (case.map(0.0), case.map(0.0));
        run(&Op::ReluMask, &[case.x.operand()], &[y.operand(), mask.operand()]);
        let [(first, given), (second, further)] = [14, 15].map(|stream| Map::normal(ty.clone(), case.place, stream));
        run(&Op::Add, &[first.operand(), second.operand()], &[sum.operand()]);
        let gradients = |dy: &Map, more: Option<&Map>, dr: &Map, dx: &Map| {
            let parameters = [0, 1].map(|_| Tensor::filled(&case.dims[1..2], Place::Dense, 0.0));
            let mut inputs = vec![case.x.operand(), dy.operand(), mask.operand()];
            inputs.extend(case.coefficients[..3].iter().map(Tensor::operand));
            inputs.extend(more.map(Map::operand));
            let [dgamma, dbeta] = parameters.each_ref().map(Tensor::operand);
            run(&op, &inputs, &[dx.operand(), dgamma, dbeta, dr.operand()]);
            [dx.values(), parameters[0].values(), parameters[1].values(), dr.values()]
        };
        let (dr, dx) = (case.map(0.0), case.map(0.0));
        let expected = gradients(&sum, None, &dr, &dx);
        assert_eq!(gradients(&first, Some(&second), &dr, &dx), expected, "{:?}", case.dims);
        let over = Map::new(ty.clone(), case.place, &given);
        assert_eq!(gradients(&over, Some(&second), &over, &dx), expected, "{:?} over dY", case.dims);
        let (over, below) = (Map::new(ty.clone(), case.place, &given), Map::new(ty, case.place, &further));
        assert_eq!(gradients(&over, Some(&below), &over, &below), expected, "{:?} over both", case.dims);
    });
}

/// Blocks count how many of a tile are done; the last one adds up and leaves the count at 0. So launches of other cuts, one after
/// the other, each give the bits that they gave first, in packs as by single channels.
#[test]
fn sums_begin_anew_at_every_launch() {
    let shapes = [[8, 16, 40, 40], [2, 520, 9, 9], [40, 64, 12, 12], [3, 70, 30, 30], [2, 8, 3, 3]];
    let sums = |op: &Op, x: &Map, further: &[Operand<'_>]| {
        let results = [0, 1].map(|_| Tensor::filled(&x.ty.shape.dims()[1..2], Place::Dense, -7.0));
        let inputs = [&[x.operand()], further].concat();
        let ran = if matches!(op, Op::BatchNormStats) {
            run(op, &inputs, &results.each_ref().map(Tensor::operand))
        } else {
            let dx = Map::filled(x.ty.clone(), Place::Dense, 0.0);
            run(op, &inputs, &[dx.operand(), results[0].operand(), results[1].operand()])
        };
        ran.then(|| results.map(|sums| sums.values().iter().map(|v| v.to_bits()).collect::<Vec<_>>()))
    };
    let (mut first, op) = (Vec::new(), Op::BatchNormGrad(BatchNorm { eps: EPS }));
    for round in 0..3 {
        for (index, (dims, place)) in shapes.iter().flat_map(|d| [Place::Dense, Place::Odd].map(|p| (d, p))).enumerate()
        {
            let (x, _) = Map::normal(nhwc(dims, DType::BF16, 0), place, 20);
            let Some(statistics) = sums(&Op::BatchNormStats, &x, &[]) else { return };
            let ones = Tensor::filled(&dims[1..2], Place::Dense, 1.0);
            let coefficients = [ones.operand(), ones.operand(), ones.operand()];
            let gradient = sums(&op, &x, &[&[x.operand()], &coefficients[..]].concat());
            let found = (statistics, gradient);
            match round {
                0 => first.push(found),
                _ => assert_eq!(found, first[index], "{dims:?} {place:?} in round {round}"),
            }
        }
    }
}

#[test]
fn gradients() {
    each_case(|case| {
        let (normalised, hat) = case.all_normalised();
        let (dy, given) = Map::normal(nhwc(&case.dims, case.dtype, 0), case.place, 10);
        let all: Vec<f64> = given.iter().map(|&d| f64::from(d)).collect();
        case.check_gradient(&Op::BatchNormGrad(BatchNorm { eps: EPS }), None, &dy, &all, &hat);
        let dy = Map::new(nhwc(&case.dims, case.dtype, 0), case.place, &given);
        // What forward let through: numbers at zero may fall either way in f64.
        let y = case.map(0.0);
        let inputs: Vec<_> =
            [case.x.operand()].into_iter().chain(case.coefficients.iter().map(Tensor::operand)).collect();
        run(&Op::BatchNormRelu(BatchNorm { eps: EPS }), &inputs, &[y.operand()]);
        let y = y.values();
        assert!(y.iter().zip(&normalised).all(|(&y, &v)| (y > 0.0) == (v > 0.0) || v.abs() < 1e-5));
        let through: Vec<f64> = all.iter().zip(&y).map(|(&d, &y)| if y > 0.0 { d } else { 0.0 }).collect();
        case.check_gradient(&Op::BatchNormReluGrad(BatchNorm { eps: EPS }), None, &dy, &through, &hat);
    });
}
