//! Two batch norms under a ReLU: the bits of the norm of one and the op with a residual of the other, forward and backward.

use super::tensor::{Map, TYPES, nhwc};
use crate::tensor::{Bytes, PLACES, Place, Tensor, normal, run};
use vdnn_cuda::kernels::Operand;
use vdnn_graph::op::{BatchNorm, BatchNormPair, Op, mask_type};
use vdnn_tensor::DType;

/// Packs and single channels, one tile and several, many rows and few.
const SHAPES: [[u64; 4]; 6] =
    [[2, 8, 3, 5], [3, 13, 4, 4], [5, 3, 7, 7], [2, 280, 3, 3], [4, 16, 40, 40], [6, 24, 1, 1]];
const A: BatchNorm = BatchNorm { eps: 1e-5 };
const B: BatchNorm = BatchNorm { eps: 1e-3 };
const PAIR: BatchNormPair = BatchNormPair { eps: [1e-5, 1e-3] };

struct Case {
    dims: [u64; 4],
    dtype: DType,
    place: Place,
    /// A, B and two gradients.
    maps: [Map; 4],
    /// Mean, variance, gamma, beta of A and of B.
    coefficients: [[Tensor; 4]; 2],
}

impl Case {
    /// `None` without a compiler.
    fn new(dims: [u64; 4], dtype: DType, place: Place) -> Option<Self> {
        let vector = |stream: u64| Tensor::new(&dims[1..2], Place::Dense, &normal(dims[1], stream));
        let maps = [1, 2, 3, 4].map(|stream| Map::normal(nhwc(&dims, dtype, 0), place, stream).0);
        let coefficients = [10, 20].map(|from| [from, from + 1, from + 2, from + 3].map(vector));
        let case = Case { dims, dtype, place, maps, coefficients };
        for (map, of) in case.maps.iter().zip(&case.coefficients) {
            if !run(&Op::BatchNormStats, &[map.operand()], &[of[0].operand(), of[1].operand()]) {
                return None;
            }
        }
        Some(case)
    }

    fn map(&self) -> Map {
        Map::filled(nhwc(&self.dims, self.dtype, 0), self.place, 7.0)
    }

    fn parameters(&self) -> [Tensor; 2] {
        [0, 1].map(|_| Tensor::filled(&self.dims[1..2], Place::Dense, -7.0))
    }

    /// Map `index` and so many of its coefficients.
    fn of(&self, index: usize, coefficients: usize) -> Vec<Operand<'_>> {
        let of = self.coefficients[index][..coefficients].iter().map(Tensor::operand);
        [self.maps[index].operand()].into_iter().chain(of).collect()
    }

    fn check_forward(&self) -> Bytes {
        let [residual, apart] = [self.map(), self.map()];
        let [mask, again, over_b] = [0, 1, 2].map(|_| Bytes::new(mask_type(&residual.ty)));
        run(&Op::BatchNorm(B), &self.of(1, 4), &[residual.operand()]);
        let inputs = [self.of(0, 4), vec![residual.operand()]].concat();
        run(&Op::BatchNormAddRelu(A), &inputs, &[apart.operand(), mask.operand()]);
        let (fused, both) = (self.map(), [self.of(0, 4), self.of(1, 4)].concat());
        run(&Op::BatchNormPairRelu(PAIR), &both, &[fused.operand(), again.operand()]);
        assert_eq!(bits(&fused), bits(&apart), "{:?} {:?} {}", self.dims, self.place, self.dtype);
        assert_eq!(again.values(), mask.values(), "{:?} {:?} {}", self.dims, self.place, self.dtype);
        // Over B.
        let mut inputs = both.clone();
        let over = Map::new(residual.ty.clone(), self.place, &self.maps[1].values());
        inputs[5] = over.operand();
        run(&Op::BatchNormPairRelu(PAIR), &inputs, &[over.operand(), over_b.operand()]);
        assert_eq!((bits(&over), over_b.values()), (bits(&apart), mask.values()));
        mask
    }

    /// dA, dB, and dgamma and dbeta of both, by one op; dA or dB over dY.
    fn by_one(&self, mask: &Bytes, second: &[Operand<'_>], over: Option<usize>) -> [Vec<u32>; 6] {
        let (outputs, parameters) = ([self.map(), self.map()], [self.parameters(), self.parameters()]);
        let dy = Map::new(outputs[0].ty.clone(), self.place, &self.maps[2].values());
        let at = |index: usize| if over == Some(index) { &dy } else { &outputs[index] };
        let reads = [&self.of(0, 3)[..1], &[dy.operand(), mask.operand()], &self.of(0, 3)[1..], &self.of(1, 3)];
        let made = [0, 1].map(|index| {
            let [dgamma, dbeta] = parameters[index].each_ref().map(Tensor::operand);
            [at(index).operand(), dgamma, dbeta]
        });
        run(&Op::BatchNormPairReluGrad(PAIR), &[&reads.concat()[..], second].concat(), &made.concat());
        let [of_a, of_b] = parameters.each_ref().map(|of| of.each_ref().map(floats));
        let ([dgamma_a, dbeta_a], [dgamma_b, dbeta_b]) = (of_a, of_b);
        [bits(at(0)), dgamma_a, dbeta_a, bits(at(1)), dgamma_b, dbeta_b]
    }

    /// The same by the gradient with a residual and that of the residual's norm.
    fn by_two(&self, mask: &Bytes, second: &[Operand<'_>]) -> [Vec<u32>; 6] {
        let ([da, dr, db], parameters) = ([self.map(), self.map(), self.map()], [self.parameters(), self.parameters()]);
        let [of_a, of_b] = [0, 1].map(|index| self.of(index, 3));
        let reads = [&of_a[..1], &[self.maps[2].operand(), mask.operand()], &of_a[1..], second].concat();
        let [operands_a, operands_b] = parameters.each_ref().map(|of| of.each_ref().map(Tensor::operand));
        let made = [&[da.operand()], &operands_a[..], &[dr.operand()]].concat();
        run(&Op::BatchNormAddReluGrad(A), &reads, &made);
        let reads = [&of_b[..1], &[dr.operand()], &of_b[1..]].concat();
        run(&Op::BatchNormGrad(B), &reads, &[&[db.operand()], &operands_b[..]].concat());
        let [of_a, of_b] = parameters.each_ref().map(|of| of.each_ref().map(floats));
        let ([dgamma_a, dbeta_a], [dgamma_b, dbeta_b]) = (of_a, of_b);
        [bits(&da), dgamma_a, dbeta_a, bits(&db), dgamma_b, dbeta_b]
    }
}

/// A map's values as bits, after checking what lies around them.
fn bits(map: &Map) -> Vec<u32> {
    map.values().iter().map(|v| v.to_bits()).collect()
}

fn floats(tensor: &Tensor) -> Vec<u32> {
    tensor.values().iter().map(|v| v.to_bits()).collect()
}

#[test]
fn two_norms_have_the_bits_of_one_after_the_other() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (*d, p))) {
        for dtype in TYPES {
            let Some(case) = Case::new(dims, dtype, place) else { return };
            let mask = case.check_forward();
            let more = [case.maps[3].operand()];
            for second in [&[][..], &more] {
                let expected = case.by_two(&mask, second);
                for over in [None, Some(0), Some(1)] {
                    let what = format!("{dims:?} {place:?} {dtype}, {} gradients, over {over:?}", 1 + second.len());
                    assert_eq!(case.by_one(&mask, second, over), expected, "{what}");
                }
            }
        }
    }
}
