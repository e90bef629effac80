//! Casts, ReLU, add, copies, dropout, bias.

use super::tensor::{HALVES, Map, TYPES, assert_near, nhwc, round};
use crate::emulator;
use crate::tensor::{Bytes, PLACES, Place, Tensor, assert_close, integers, normal, run};
use vdnn_cuda::kernels::{self, Operand};
use vdnn_graph::op::{Cast, Concat, Dropout, Op, Split, mask_type};
use vdnn_tensor::{DType, TensorType};

const SHAPES: [[u64; 4]; 5] = [[2, 8, 3, 5], [3, 5, 7, 3], [2, 3, 20, 20], [1, 1, 1, 1], [2, 40, 9, 9]];

fn count(dims: &[u64]) -> u64 {
    dims.iter().product()
}

fn cast(to: &TensorType) -> Op {
    Op::Cast(Cast { dtype: to.dtype, layout: to.layout })
}

#[test]
fn casts_keep_numbers_and_pad_with_zeros() {
    for (dims, place) in SHAPES.iter().chain(&[[3, 70, 3, 3], [5, 33, 1, 1]]).flat_map(|d| PLACES.map(|p| (d, p))) {
        for dtype in TYPES {
            let values = normal(count(dims), 1);
            let rounded: Vec<f64> = values.iter().map(|&v| f64::from(round(dtype, v))).collect();
            let x = Tensor::new(dims, place, &values);
            let pad = (8 - dims[1] % 8) as u32;
            for ty in
                [nhwc(dims, dtype, 0), nhwc(dims, dtype, pad), nhwc(dims, dtype, 1), TensorType::new(&dims[..], dtype)]
            {
                let half = Map::filled(ty.clone(), place, 3.0);
                if !run(&cast(&ty), &[x.operand()], &[half.operand()]) {
                    return;
                }
                assert_close(&format!("to {ty} {place:?}"), &half.values(), &rounded, 0.0);
                let back = Tensor::filled(dims, place, 9.0);
                run(&cast(&back.ty), &[half.operand()], &[back.operand()]);
                assert_close(&format!("from {ty} {place:?}"), &back.values(), &rounded, 0.0);
                for other in [TensorType::new(&dims[..], dtype), nhwc(dims, dtype, 0), nhwc(dims, dtype, 4)] {
                    let moved = Map::filled(other.clone(), place, 3.0);
                    if half.ty.layout.order == other.layout.order || other.layout.channel_padding == 0 {
                        run(&cast(&other), &[half.operand()], &[moved.operand()]);
                        assert_close(&format!("{ty} to {other} {place:?}"), &moved.values(), &rounded, 0.0);
                    }
                }
            }
        }
    }
}

/// Halfway cases, overflow, subnormals, infinities: the CPU's conversions in the shim are right, so that the rest is.
#[test]
fn rounding_is_to_nearest_even() {
    let values =
        [1.0 + 1.0 / 512.0, 1.0 + 3.0 / 512.0, 65519.0, 65520.0, 3.0e-8, 1e-7, 6.1e-5, -0.0, f32::INFINITY, 1e-40];
    for dtype in HALVES {
        let x = Tensor::new(&[2, 5], Place::Dense, &values);
        let y = Map::filled(TensorType::new([2, 5], dtype), Place::Dense, 3.0);
        if !run(&cast(&y.ty), &[x.operand()], &[y.operand()]) {
            return;
        }
        let expected: Vec<f32> = values.iter().map(|&v| round(dtype, v)).collect();
        crate::tensor::assert_bits("rounded", &y.values(), &expected);
    }
}

#[test]
fn relu_and_its_gradients() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        for ty in TYPES.iter().flat_map(|&dtype| [nhwc(dims, dtype, 0), TensorType::new(&dims[..], dtype)]) {
            let ((x, values), (dy, given)) = (Map::normal(ty.clone(), place, 1), Map::normal(ty.clone(), place, 2));
            let (y, dx) = (Map::filled(ty.clone(), place, 7.0), Map::filled(ty.clone(), place, 7.0));
            if !run(&Op::Relu, &[x.operand()], &[y.operand()]) {
                return;
            }
            let expected: Vec<f64> = values.iter().map(|&v| f64::from(v.max(0.0))).collect();
            assert_close("relu", &y.values(), &expected, 0.0);
            run(&Op::ReluGrad, &[y.operand(), dy.operand()], &[dx.operand()]);
            let grad = |(&v, &d): (&f32, &f32)| if v > 0.0 { f64::from(d) } else { 0.0 };
            let gradient: Vec<f64> = values.iter().zip(&given).map(grad).collect();
            assert_close("relu_grad", &dx.values(), &gradient, 0.0);
            let (masked, mask) = (Map::filled(ty.clone(), place, 7.0), Bytes::new(mask_type(&ty)));
            run(&Op::ReluMask, &[x.operand()], &[masked.operand(), mask.operand()]);
            assert_close("relu with a mask", &masked.values(), &expected, 0.0);
            run(&Op::ReluMaskGrad, &[mask.operand(), dy.operand()], &[dy.operand()]);
            assert_close("relu_mask_grad in place", &dy.values(), &gradient, 0.0);
            // The same mask whether in packs or byte by byte.
            let (odd, again) = (Map::new(ty.clone(), Place::Odd, &values), Bytes::new(mask_type(&ty)));
            run(&Op::ReluMask, &[odd.operand()], &[odd.operand(), again.operand()]);
            assert_eq!(mask.values(), again.values(), "{ty} {place:?}");
        }
    }
}

#[test]
fn addition_rounds_once() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        for dtype in TYPES {
            let ty = nhwc(dims, dtype, 0);
            let ((a, x), (b, y)) = (Map::normal(ty.clone(), place, 1), Map::normal(ty, Place::Dense, 2));
            if !run(&Op::Add, &[a.operand(), b.operand()], &[a.operand()]) {
                return;
            }
            let sum = |(x, y): (&f32, &f32)| f64::from(round(dtype, x + y));
            assert_close("add", &a.values(), &x.iter().zip(&y).map(sum).collect::<Vec<_>>(), 0.0);
        }
    }
}

#[test]
fn concat_and_split_move_pixels() {
    for (parts, dtype) in [[8, 16], [3, 8], [5, 2]].iter().flat_map(|p| TYPES.map(|t| (*p, t))) {
        let dims = |c: u64| [2, c, 3, 4];
        let whole = Map::filled(nhwc(&dims(parts[0] + parts[1]), dtype, 0), Place::Sliced, 7.0);
        let [a, b] =
            [(parts[0], 1), (parts[1], 2)].map(|(c, s)| Map::normal(nhwc(&dims(c), dtype, 0), Place::Dense, s));
        if !run(&Op::Concat(Concat::default()), &[a.0.operand(), b.0.operand()], &[whole.operand()]) {
            return;
        }
        let [c, d] = parts.map(|c| Map::filled(nhwc(&dims(c), dtype, 0), Place::Odd, 7.0));
        run(&Op::Split(Split::channels(parts.to_vec())), &[whole.operand()], &[c.operand(), d.operand()]);
        assert_eq!((c.values(), d.values()), (a.1, b.1));
    }
}

/// The mask of a number depends on its place in the logical order alone, so on no layout.
#[test]
fn dropout_drops_the_same_elements_in_every_order() {
    let op = Op::Dropout(Dropout { p: 0.4, seed: 5, stream: 3 });
    let counter = TensorType::new([1], DType::U64);
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let (x, y) = (Tensor::filled(dims, Place::Dense, 1.0), Tensor::filled(dims, Place::Dense, 0.0));
        if !run(&op, &[x.operand(), integers(&counter, &[9u64])], &[y.operand()]) {
            return;
        }
        let expected: Vec<f64> = y.values().iter().map(|&v| if v > 0.0 { 1.0 / 0.6 } else { 0.0 }).collect();
        for ty in TYPES.iter().flat_map(|&dtype| [nhwc(dims, dtype, 0), TensorType::new(&dims[..], dtype)]) {
            let x = Map::filled(ty.clone(), place, 1.0);
            run(&op, &[x.operand(), integers(&counter, &[9u64])], &[x.operand()]);
            assert_near(&format!("dropout of {ty}"), ty.dtype, &x.values(), &expected, 1.0);
        }
    }
}

#[test]
fn bias_and_its_gradient() {
    for (dims, place) in SHAPES.iter().chain(&[[70, 300, 1, 1]]).flat_map(|d| PLACES.map(|p| (d, p))) {
        for dtype in TYPES {
            let mut types = vec![nhwc(dims, dtype, 0)];
            types.extend((dims[2] * dims[3] == 1).then(|| TensorType::new(&dims[..2], dtype)));
            for ty in types {
                let (y, values) = Map::normal(ty.clone(), place, 1);
                let (bias, db) = (normal(dims[1], 2), Tensor::filled(&dims[1..2], Place::Dense, 9.0));
                if !run(&Op::BiasGrad, &[y.operand()], &[db.operand()]) {
                    return;
                }
                let hw = (dims[2] * dims[3]) as usize;
                let channel = |e: usize| e / hw % dims[1] as usize;
                let mut sums = vec![0.0; dims[1] as usize];
                values.iter().enumerate().for_each(|(e, &v)| sums[channel(e)] += f64::from(v));
                assert_close("bias_grad", &db.values(), &sums, 1e-5);
                let b = Tensor::new(&dims[1..2], Place::Dense, &bias);
                emulator::run(&kernels::bias_add(y.operand(), b.operand()).unwrap());
                let sum = |(e, v): (usize, &f32)| f64::from(round(dtype, v + bias[channel(e)]));
                assert_close("bias_add", &y.values(), &values.iter().enumerate().map(sum).collect::<Vec<_>>(), 0.0);
            }
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    let x = nhwc(&[2, 8, 3, 3], DType::F16, 0);
    let other = TensorType { dtype: DType::BF16, ..x.clone() };
    let at = |ty| Operand::contiguous(ty, 4096);
    let error = kernels::prepare(&cast(&other), &[at(&x)], &[at(&other)], 0).unwrap_err().to_string();
    assert!(error.contains("found f16[2, 8, 3, 3] nhwc to bf16") && error.contains("cast to f32 between"), "{error}");
    let padded = nhwc(&[2, 8, 3, 3], DType::F16, 8);
    let error = kernels::prepare(&Op::Relu, &[at(&padded)], &[at(&padded)], 0).unwrap_err().to_string();
    assert!(error.contains("without padding, found f16[2, 8, 3, 3] nhwc +8c"), "{error}");
}

/// Bias and ReLU in one pass: the bits of both; and backward those of ReLU's gradient and of the bias' after it.
#[test]
fn bias_with_relu_and_its_gradient() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        for ty in TYPES.iter().map(|&dtype| nhwc(dims, dtype, 0)) {
            let (x, values) = Map::normal(ty.clone(), place, 21);
            let bias = Tensor::new(&dims[1..2], Place::Dense, &normal(dims[1], 22));
            let launched = |plan: Result<kernels::LaunchPlan, kernels::KernelError>| emulator::run(&plan.unwrap());
            if !launched(kernels::bias_relu(x.operand(), Some(bias.operand()))) {
                return;
            }
            let channel = |e: usize| e / (dims[2] * dims[3]) as usize % dims[1] as usize;
            let sum = |(e, &v): (usize, &f32)| f64::from((v + bias.values()[channel(e)]).max(0.0));
            let expected: Vec<f64> = values.iter().enumerate().map(sum).collect();
            assert_near("bias_relu", ty.dtype, &x.values(), &expected, 0.51);
            let (dy, given) = Map::normal(ty.clone(), place, 23);
            let (dz, dz_alone) = (Map::filled(ty.clone(), place, 7.0), Map::filled(ty.clone(), place, 7.0));
            let [db, db_alone] = [0, 1].map(|_| Tensor::filled(&dims[1..2], Place::Dense, 0.0));
            run(&Op::ReluBiasGrad, &[x.operand(), dy.operand()], &[dz.operand(), db.operand()]);
            run(&Op::ReluGrad, &[x.operand(), dy.operand()], &[dz_alone.operand()]);
            run(&Op::BiasGrad, &[dz_alone.operand()], &[db_alone.operand()]);
            assert_eq!(dz.values(), dz_alone.values(), "{dims:?} {place:?}");
            // Sums of halves are exact in f32 here, those of f32 depend on how rows are dealt.
            let alone: Vec<f64> = db_alone.values().iter().map(|&sum| f64::from(sum)).collect();
            assert_close("dbias", &db.values(), &alone, if ty.dtype == DType::F32 { 1e-6 } else { 0.0 });
            let over = Map::new(ty.clone(), place, &given);
            run(&Op::ReluBiasGrad, &[x.operand(), over.operand()], &[over.operand(), db.operand()]);
            assert_eq!(over.values(), dz.values());
        }
    }
}
