//! Unscaling many gradients at once, and the loss's scale itself.

use crate::half::tensor::{HALVES, Map, nhwc};
use crate::tensor::{Place, Tensor, assert_bits, integers, normal, run};
use std::cell::Cell;
use vdnn_cuda::kernels::Operand;
use vdnn_graph::op::{LossScaleUpdate, MOST_UNSCALED, Op, Unscale};
use vdnn_tensor::{DType, TensorType};

/// Lengths with tails, less than a pack, several blocks, and nothing at all.
fn gradients(count: usize, place: Place) -> Vec<Tensor> {
    let lengths = [1, 4099, 64, 3, 0, 9000, 17, 4096];
    let tensor = |index: usize| {
        let len = lengths[index % lengths.len()];
        Tensor::new(&[1, len], place, &normal(len, index as u64))
    };
    (0..count).map(tensor).collect()
}

/// The guard that comes out; `None` without a compiler.
fn unscale(scale: f32, guard: f32, from: &[Tensor], to: &[Tensor]) -> Option<f32> {
    let one = |value| Tensor::filled(&[1], Place::Dense, value);
    let (scale, guard, found) = (one(scale), one(guard), one(77.0));
    let operands = |first: &[&Tensor], rest: &[Tensor]| -> Vec<Operand<'static>> {
        let all = first.iter().copied().chain(rest);
        all.map(|tensor| Operand { ty: Box::leak(Box::new(tensor.ty.clone())), ..tensor.operand() }).collect()
    };
    let op = Op::Unscale(Unscale { gradients: from.len() as u32 });
    run(&op, &operands(&[&scale, &guard], from), &operands(&[&found], to)).then(|| found.values()[0])
}

#[test]
fn every_gradient_is_divided_in_place_and_elsewhere() {
    for count in [1, 2, 7, MOST_UNSCALED] {
        for place in [Place::Dense, Place::Odd] {
            let (from, to) = (gradients(count, place), gradients(count, place));
            let Some(found) = unscale(1024.0, 0.5, &from, &to) else { return };
            assert_eq!(found, 0.5, "{count} gradients");
            for (from, to) in from.iter().zip(&to) {
                let expected: Vec<f32> = from.values().iter().map(|v| v / 1024.0).collect();
                assert_bits("apart", &to.values(), &expected);
            }
            unscale(1024.0, 0.5, &from, &from);
            for (over, apart) in from.iter().zip(&to) {
                assert_bits("in place", &over.values(), &apart.values());
            }
        }
    }
}

/// Whatever is not finite, wherever it stands, and nothing else.
#[test]
fn one_number_that_is_not_finite_is_found() {
    for (odd, finite) in [(f32::INFINITY, false), (f32::NEG_INFINITY, false), (f32::NAN, false), (f32::MAX, true)] {
        for (tensor, at) in [(0, 0), (1, 4098), (1, 0), (5, 5000), (7, 4095)] {
            let from = gradients(8, Place::Dense);
            let len = from[tensor].values().len();
            let mut values = from[tensor].values();
            values[at] = odd;
            let mut from = from;
            from[tensor] = Tensor::new(&[1, len as u64], Place::Dense, &values);
            let Some(found) = unscale(2.0, 0.25, &from, &gradients(8, Place::Dense)) else { return };
            assert!(if finite { found == 0.25 } else { found.is_nan() }, "{odd} in {tensor} at {at}: {found}");
        }
    }
    // What was found before stays.
    let all = gradients(3, Place::Dense);
    if let Some(found) = unscale(2.0, f32::INFINITY, &all, &all) {
        assert!(!found.is_finite());
    }
}

#[test]
fn the_scale_falls_at_once_and_grows_after_enough_good_steps() {
    let op = LossScaleUpdate { interval: 3, least: 2.0, most: 16.0, ..LossScaleUpdate::default() };
    let one = |value| Tensor::filled(&[1], Place::Dense, value);
    let (count, counter) = (TensorType::new([1], DType::I32), TensorType::new([1], DType::U64));
    let scale = one(8.0);
    let (good, skipped, taken) = ([Cell::new(0i32)], [Cell::new(0i32)], [Cell::new(0u64)]);
    // (guard, scale after, good steps, skipped steps, steps taken before)
    let script = [
        (f32::NAN, 4.0, 0, 1, 0),
        (f32::INFINITY, 2.0, 0, 2, 0),
        (f32::NAN, 2.0, 0, 3, 0),
        (1.0, 2.0, 1, 3, 0),
        (1.0, 2.0, 2, 3, 1),
        (1.0, 4.0, 0, 3, 2),
        (1.0, 4.0, 1, 3, 3),
        (f32::NEG_INFINITY, 2.0, 0, 4, 4),
    ];
    for (iteration, (guard, after, goods, skips, steps)) in script.into_iter().enumerate() {
        let (guard, at) = (one(guard), [iteration as u64]);
        let states = || [scale.operand(), integers(&count, &good), integers(&count, &skipped)];
        let inputs = [&states()[..], &[guard.operand(), integers(&counter, &at)]].concat();
        let outputs = [&states()[..], &[integers(&counter, &taken)]].concat();
        if !run(&Op::LossScaleUpdate(op), &inputs, &outputs) {
            return;
        }
        let found = (scale.values()[0], good[0].get(), skipped[0].get(), taken[0].get());
        assert_eq!(found, (after, goods, skips, steps), "iteration {iteration}");
    }
}

/// As layers made them in half precision, in either order: the numbers of the f32 gradients in NCHW order.
#[test]
fn gradients_in_half_precision_are_widened() {
    let shapes = [[3, 16, 3, 3], [5, 7, 1, 1], [2, 9, 5, 4], [40, 24, 3, 3]];
    for dtype in HALVES {
        let types = shapes.map(|dims| nhwc(&dims, dtype, 0)).into_iter().chain([TensorType::new([70, 33], dtype)]);
        let made: Vec<(Map, Vec<f32>)> = types.zip(1..).map(|(ty, n)| Map::normal(ty, Place::Dense, n)).collect();
        let to: Vec<Tensor> =
            made.iter().map(|(from, _)| Tensor::filled(&dims_of(&from.ty), Place::Dense, 7.0)).collect();
        let (scale, guard) = (Tensor::filled(&[1], Place::Dense, 64.0), Tensor::filled(&[1], Place::Dense, 0.5));
        let found = Tensor::filled(&[1], Place::Dense, 77.0);
        let inputs: Vec<_> =
            [scale.operand(), guard.operand()].into_iter().chain(made.iter().map(|(from, _)| from.operand())).collect();
        let outputs: Vec<_> = std::iter::once(&found).chain(&to).map(Tensor::operand).collect();
        if !run(&Op::Unscale(Unscale { gradients: made.len() as u32 }), &inputs, &outputs) {
            return;
        }
        assert_eq!(found.values()[0], 0.5);
        for ((from, values), to) in made.iter().zip(&to) {
            let expected: Vec<f32> = values.iter().map(|v| v / 64.0).collect();
            assert_bits(&from.ty.to_string(), &to.values(), &expected);
        }
    }
}

fn dims_of(ty: &TensorType) -> Vec<u64> {
    (0..ty.shape.rank()).map(|axis| ty.shape.dim(axis)).collect()
}
