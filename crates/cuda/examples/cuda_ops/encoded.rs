//! Encoded gradient rules beside the plain ones in one graph: the same bits on the card, the CPU's masks and indices.

use crate::Outcome;
use crate::build::Build;
use vdnn_graph::op::{Concat, MaxPool2d, MaxPool2dIndicesGrad, Window};
use vdnn_graph::{Op, ValueId};

/// ReLU with a mask: apart, in place, over slices of a concatenation.
pub fn relu(b: &mut Build, dims: &[u64], awkward: bool) -> Outcome {
    let numbers = |b: &mut Build| if awkward { b.awkward(dims) } else { b.x(dims) };
    let (x, dy) = (numbers(b), numbers(b));
    let y = b.push(Op::Relu, &[x])?[0];
    let encoded = b.push(Op::ReluMask, &[x])?;
    let (dx, masked) = (b.push(Op::ReluGrad, &[y, dy])?[0], b.push(Op::ReluMaskGrad, &[encoded[1], dy])?[0]);
    b.same(y, encoded[0]);
    b.same(dx, masked);
    b.bytes(encoded[1]);
    in_place(b, x, dy)?;
    if dims.len() == 4 { slices(b, x, dy) } else { Ok(()) }
}

/// Y over X and dX over dY: what is overwritten is made for this alone.
fn in_place(b: &mut Build, x: ValueId, dy: ValueId) -> Outcome {
    let (sum, twin) = (b.push(Op::Add, &[x, dy])?[0], b.push(Op::Add, &[x, dy])?[0]);
    let (y, encoded) = (b.push(Op::Relu, &[sum])?[0], b.push(Op::ReluMask, &[twin])?);
    let (over, under) = (b.push(Op::Add, &[dy, dy])?[0], b.push(Op::Add, &[dy, dy])?[0]);
    let (dx, masked) = (b.push(Op::ReluGrad, &[y, over])?[0], b.push(Op::ReluMaskGrad, &[encoded[1], under])?[0]);
    let after = [y, encoded[0], dx, masked].map(|id| b.push(Op::Add, &[id, x]).map(|added| added[0]));
    let [y, encoded, dx, masked] = after;
    b.same(y?, encoded?);
    b.same(dx?, masked?);
    Ok(())
}

fn slices(b: &mut Build, x: ValueId, dy: ValueId) -> Outcome {
    let mut joined = Vec::new();
    let mut masks = Vec::new();
    for op in [Op::Relu, Op::ReluMask] {
        let (left, right) = (b.push(op.clone(), &[x])?, b.push(op, &[dy])?);
        masks.extend([left.get(1), right.get(1)].into_iter().flatten().copied());
        joined.push(b.push(Op::Concat(Concat::default()), &[left[0], right[0]])?[0]);
    }
    masks.into_iter().for_each(|mask| b.bytes(mask));
    b.same(joined[0], joined[1]);
    Ok(())
}

/// Max pooling with indices.
pub fn max_pool2d(b: &mut Build, dims: [u64; 4], window: Window, awkward: bool) -> Outcome {
    let pool = MaxPool2d { window };
    let x = if awkward { b.awkward(&dims) } else { b.x(&dims) };
    let y = b.push(Op::MaxPool2d(pool), &[x])?[0];
    let encoded = b.push(Op::MaxPool2dIndices(pool), &[x])?;
    let shape = b.graph.value(y).ty.shape.clone();
    let dy = b.x(shape.dims());
    let dx = b.push(Op::MaxPool2dGrad(pool), &[x, y, dy])?[0];
    let grad = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [dims[2], dims[3]] });
    let indexed = b.push(grad, &[encoded[1], dy])?[0];
    b.same(y, encoded[0]);
    b.same(dx, indexed);
    b.bytes(encoded[1]);
    let through = Op::MaxPool2dReluBiasGrad(MaxPool2dIndicesGrad { pool, input: [dims[2], dims[3]] });
    if awkward { Ok(()) } else { b.read(through, &[encoded[1], y, dy]) }
}
