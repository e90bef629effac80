//! Images of bytes: the very numbers that the CPU looks up, in f32 and rounded to half precision, at every alignment, of more
//! channels than a launch takes.

use crate::half::tensor::{HALVES, Map, round};
use crate::tensor::{PLACES, Place, Tensor, assert_bits, integers, run};
use vdnn_cuda::kernels::Operand;
use vdnn_graph::op::{Normalise, Op};
use vdnn_tensor::{DType, TensorType};

const SHAPES: [[u64; 4]; 6] =
    [[2, 3, 8, 8], [3, 1, 28, 28], [2, 3, 7, 5], [2, 5, 4, 6], [1, 3, 100, 100], [2, 7, 3, 1]];

fn op(channels: u64, dtype: DType) -> Normalise {
    let numbers = |from: f32, step: f32| (0..channels).map(|c| from + step * c as f32).collect();
    Normalise { mean: numbers(0.485, -0.03), std: numbers(0.229, 0.01), dtype }
}

fn bytes(count: u64) -> Vec<u8> {
    (0..count).map(|at| (at * 151 + at / 256 * 7) as u8).collect()
}

fn expected(op: &Normalise, dims: &[u64; 4], bytes: &[u8]) -> Vec<f32> {
    let plane = (dims[2] * dims[3]) as usize;
    let channel = |at: usize| at / plane % dims[1] as usize;
    bytes.iter().enumerate().map(|(at, &byte)| op.level(channel(at), byte) as f32).collect()
}

#[test]
fn every_byte_is_looked_up() {
    for (dims, place) in SHAPES.iter().flat_map(|dims| PLACES.map(|place| (dims, place))) {
        let count: u64 = dims.iter().product();
        let (image, ty) = (bytes(count + 1), TensorType::new(&dims[..], DType::U8));
        // At any address, and from the second byte on.
        for skip in [0, 1] {
            let x = integers(&ty, &image[skip..]);
            let y = Tensor::filled(dims, place, 7.0);
            let op = op(dims[1], DType::F32);
            if !run(&Op::Normalise(op.clone()), &[x], &[y.operand()]) {
                return;
            }
            assert_bits(
                &format!("{dims:?} {place:?}"),
                &y.values(),
                &expected(&op, dims, &image[skip..skip + count as usize]),
            );
        }
    }
}

#[test]
fn halves_are_what_the_numbers_round_to() {
    for (dims, dtype) in SHAPES.iter().flat_map(|dims| HALVES.map(|dtype| (dims, dtype))) {
        let count: u64 = dims.iter().product();
        let (image, ty) = (bytes(count), TensorType::new(&dims[..], DType::U8));
        let op = op(dims[1], dtype);
        let rounded: Vec<f32> = expected(&op, dims, &image).iter().map(|&v| round(dtype, v)).collect();
        for place in PLACES {
            let y = Map::filled(TensorType::new(&dims[..], dtype), place, 3.0);
            if !run(&Op::Normalise(op.clone()), &[integers(&ty, &image)], &[y.operand()]) {
                return;
            }
            assert_bits(&format!("{dims:?} {dtype} {place:?}"), &y.values(), &rounded);
        }
    }
}

/// Bytes that are a slice of wider samples.
#[test]
fn samples_may_lie_apart() {
    let (dims, ty) = ([3u64, 3, 4, 4], TensorType::new([3, 3, 4, 4], DType::U8));
    for stride in [64u64, 51] {
        let image = bytes(3 * stride);
        let x = Operand { ty: &ty, address: image.as_ptr() as u64, row_stride: stride };
        let y = Tensor::filled(&dims, Place::Dense, 7.0);
        let op = op(3, DType::F32);
        if !run(&Op::Normalise(op.clone()), &[x], &[y.operand()]) {
            return;
        }
        let inside: Vec<u8> = image.chunks(stride as usize).flat_map(|sample| &sample[..48]).copied().collect();
        assert_bits(&format!("{stride} apart"), &y.values(), &expected(&op, &dims, &inside));
    }
}
