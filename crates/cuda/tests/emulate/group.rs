//! Groups: every member gets what its op makes alone, bit for bit, however it lies and whatever its gradient's type.

use crate::half::tensor::{Map, TYPES, nhwc, round};
use crate::tensor::{Place, Tensor, assert_bits, integers, normal, run};
use vdnn_cuda::kernels::{self, Operand};
use vdnn_graph::op::{BatchNormUpdate, Cast, Group, Op, Sgd};
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

/// Shapes of weights and vectors, of more than one stretch and of more members than a launch takes.
fn shapes() -> Vec<Vec<u64>> {
    let few = [
        vec![1],
        vec![1, 9000],
        vec![8, 3, 3, 3],
        vec![16, 40, 3, 3],
        vec![64, 72, 1, 1],
        vec![10, 33],
        vec![5, 1, 2, 2],
        vec![3, 2, 17, 17],
        vec![70, 5, 3, 3],
    ];
    few.iter().cycle().take(35).cloned().collect()
}

fn of_group(op: Op, members: usize, inputs: usize) -> Op {
    Op::Group(Group { op: Box::new(op), members: members as u32, inputs: inputs as u32 })
}

/// W, momentum and the gradient that the members read.
struct Trained {
    w: Tensor,
    m: Tensor,
    wide: Tensor,
    half: Map,
}

impl Trained {
    /// The same numbers for the same n and dtype.
    fn new(n: usize, dims: &[u64], dtype: DType) -> Self {
        let (count, stream) = (dims.iter().product(), n as u64 * 3);
        // One row at an odd place is in one piece.
        let place = if n % 2 == 1 && dims[0] == 1 { Place::Odd } else { Place::Dense };
        let tensor = |stream, place| Tensor::new(dims, place, &normal(count, stream));
        let gradient: Vec<f32> = normal(count, stream + 2).iter().map(|&v| round(dtype, v)).collect();
        let ty = if dims.len() == 4 { nhwc(dims, dtype, 0) } else { TensorType::new(dims, dtype) };
        Trained {
            w: tensor(stream, place),
            m: tensor(stream + 1, Place::Dense),
            wide: Tensor::new(dims, Place::Dense, &gradient),
            half: Map::new(ty, Place::Dense, &gradient),
        }
    }

    fn values(&self) -> [Vec<f32>; 2] {
        [self.w.values(), self.m.values()]
    }
}

#[test]
fn sgd_of_many_is_sgd_of_each() {
    let (counter, at) = (TensorType::new([1], DType::U64), [3u64]);
    let (lr, guard) = (Tensor::filled(&[1], Place::Dense, 0.1), Tensor::filled(&[1], Place::Dense, 2.0));
    for (momentum, nesterov, half) in [(0.9, false, true), (0.9, true, false), (0.0, false, true)] {
        let op = Op::Sgd(Sgd { momentum, dampening: 0.25, weight_decay: 0.01, nesterov });
        let inputs = |of: &'_ Trained, half: bool| -> Vec<Operand<'static>> {
            // The operands live as long as the test's tensors.
            let long = |operand: Operand<'_>| Operand {
                ty: Box::leak(Box::new(operand.ty.clone())),
                address: operand.address,
                row_stride: operand.row_stride,
            };
            let dw = if half { of.half.operand() } else { of.wide.operand() };
            let state = (momentum != 0.0).then(|| of.m.operand());
            let scalars = [lr.operand(), integers(&counter, &at), guard.operand()];
            [of.w.operand(), dw].into_iter().chain(state).chain(scalars).map(long).collect()
        };
        for dtype in TYPES {
            let make = || shapes().iter().enumerate().map(|(n, dims)| Trained::new(n, dims, dtype)).collect::<Vec<_>>();
            let (alone, together) = (make(), make());
            let outputs = |inputs: &[Operand<'static>]| {
                if momentum != 0.0 { vec![inputs[0], inputs[2]] } else { vec![inputs[0]] }
            };
            for of in &alone {
                let inputs = inputs(of, false);
                if !run(&op, &inputs, &outputs(&inputs)) {
                    return;
                }
            }
            // Vectors' gradients are f32 between the weights' halves: one launch of each type, in f32 of as many as it takes.
            let is_half = |of: &Trained| half && of.w.ty.shape.dim(0) > 1;
            let all: Vec<Vec<Operand<'static>>> = together.iter().map(|of| inputs(of, is_half(of))).collect();
            let group = of_group(op.clone(), all.len(), all[0].len());
            let outputs: Vec<Operand<'static>> = all.iter().flat_map(|inputs| outputs(inputs)).collect();
            run(&group, &all.concat(), &outputs);
            let launches = kernels::prepare(&group, &all.concat(), &outputs, 0).unwrap().launches.len();
            assert_eq!(
                launches, 2,
                "35 members of one type are more than a launch takes; of two types each has its own"
            );
            for (n, (alone, together)) in alone.iter().zip(&together).enumerate() {
                let what = format!("member {n} {:?} {dtype} momentum {momentum}", shapes()[n]);
                for (alone, together) in alone.values().iter().zip(together.values()) {
                    assert_bits(&what, &together, alone);
                }
            }
        }
    }
}

#[test]
fn casts_of_many_are_the_casts_of_each() {
    let (inner, logical) = (MemoryOrder::Nhwc, MemoryOrder::Nchw);
    for (order, padding, dtype) in
        [(inner, 0, DType::BF16), (inner, 5, DType::F16), (logical, 0, DType::BF16), (inner, 0, DType::F32)]
    {
        let layout = Layout { order, channel_padding: padding };
        let cast = Op::Cast(Cast { dtype, layout });
        let dims: Vec<Vec<u64>> =
            shapes().into_iter().filter(|dims| dims.len() == 4 || layout == Layout::default()).collect();
        let sources: Vec<Tensor> = (0..)
            .zip(&dims)
            .map(|(n, dims)| {
                let place = if n % 4 == 3 { Place::Odd } else { Place::Dense };
                Tensor::new(dims, place, &normal(dims.iter().product(), n))
            })
            .collect();
        let halves = || {
            dims.iter()
                .map(|dims| Map::filled(TensorType { layout, ..TensorType::new(&dims[..], dtype) }, Place::Dense, 3.0))
                .collect::<Vec<_>>()
        };
        let (alone, together) = (halves(), halves());
        for (x, y) in sources.iter().zip(&alone) {
            if !run(&cast, &[x.operand()], &[y.operand()]) {
                return;
            }
        }
        let (xs, ys): (Vec<_>, Vec<_>) = sources.iter().zip(&together).map(|(x, y)| (x.operand(), y.operand())).unzip();
        run(&of_group(cast, xs.len(), 1), &xs, &ys);
        for ((alone, together), dims) in alone.iter().zip(&together).zip(&dims) {
            assert_bits(&format!("{dims:?} to {}", alone.ty), &together.values(), &alone.values());
        }
        // A source that is no slice goes by the table: one launch for 32 members.
        let dense = |n: usize| sources[n].operand();
        let plan =
            kernels::prepare(&of_group(Op::Cast(Cast { dtype, layout }), 2, 1), &[dense(0), dense(1)], &ys[..2], 0);
        assert_eq!(plan.unwrap().launches.len(), 1);
    }
}

#[test]
fn running_statistics_of_many_layers_move_as_each_alone() {
    let op = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 18 });
    let channels = [1u64, 5, 64, 5000, 8];
    let make = || -> Vec<[Tensor; 4]> {
        let vector = |c: u64, stream| Tensor::new(&[c], Place::Dense, &normal(c, stream));
        channels.iter().map(|&c| [0, 1, 2, 3].map(|stream| vector(c, stream))).collect()
    };
    let (alone, together) = (make(), make());
    for of in &alone {
        let inputs = of.each_ref().map(Tensor::operand);
        if !run(&op, &inputs, &inputs[2..]) {
            return;
        }
    }
    let inputs: Vec<Operand<'_>> = together.iter().flatten().map(Tensor::operand).collect();
    let outputs: Vec<Operand<'_>> = together.iter().flat_map(|of| [of[2].operand(), of[3].operand()]).collect();
    run(&of_group(op, channels.len(), 4), &inputs, &outputs);
    for (alone, together) in alone.iter().flatten().zip(together.iter().flatten()) {
        assert_bits("running statistics", &together.values(), &alone.values());
    }
}
