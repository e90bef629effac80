//! SGD updates, of one parameter or of many in one launch.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan, SAMPLE_LIMIT, at_most};
use super::table::{Table, Turning};
use super::{KernelError, Operand, file_of, files, operands, whole, with_optional};
use KernelArg::{F32, U32, U64};
use vdnn_graph::op::Sgd;
use vdnn_tensor::MemoryOrder;

const OP: &str = "sgd";
const FILES: [&str; 3] = files!("sgd");

/// (W, dW, momentum?, learning rate, iteration, guard?) → W', momentum'; the same of each further member.
pub(super) fn prepare<'a>(
    op: &Sgd,
    members: impl Iterator<Item = (&'a [Operand<'a>], &'a [Operand<'a>])>,
) -> Result<LaunchPlan, KernelError> {
    let mut members =
        members.map(|(inputs, outputs)| Member::of(op, inputs, outputs)).collect::<Result<Vec<_>, _>>()?;
    let mut launches = Vec::new();
    // One launch reads one learning rate and gradients of one type; weights' and vectors' types alternate.
    members.sort_by_key(|member| (member.file, member.scalars));
    for alike in members.chunk_by(|a, b| a.scalars == b.scalars && a.file == b.file) {
        let attributes = [F32(op.weight_decay as f32), F32(op.momentum as f32), F32((1.0 - op.dampening) as f32)];
        let [rate, iteration, guard] = alike[0].scalars.map(U64);
        let further = [&[rate, iteration], &attributes[..], &[U32(u32::from(op.nesterov)), guard]].concat();
        for table in Table::cut(alike.iter().map(|member| (member.words, member.blocks))) {
            let args = [table.args(), further.clone()].concat();
            launches.push(KernelLaunch::new(OP, alike[0].file, OP, table.blocks, args)?);
        }
    }
    Ok(launches.into())
}

/// One parameter's share of the table, `Member` in `sgd.cu`.
struct Member {
    words: [u64; 11],
    blocks: u64,
    /// Addresses of the learning rate, the iteration and the guard.
    scalars: [u64; 3],
    file: &'static str,
}

impl Member {
    fn of(op: &Sgd, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<Self, KernelError> {
        let (inputs, guard) = with_optional(inputs, 4 + usize::from(op.has_momentum()));
        let ([w, dw, rate, iteration, new_w], momentum) = if op.has_momentum() {
            let ([w, dw, m, rate, iteration], [new_w, new_m]) = (operands(OP, inputs)?, operands(OP, outputs)?);
            whole(OP, &[m, new_m])?;
            ([w, dw, rate, iteration, new_w], [m.address, new_m.address])
        } else {
            let ([w, dw, rate, iteration], [new_w]) = (operands(OP, inputs)?, operands(OP, outputs)?);
            ([w, dw, rate, iteration, new_w], [0; 2])
        };
        whole(OP, &[w, dw, new_w])?;
        let (shape, len) = (&w.ty.shape, w.elements());
        let (channels, hw) = (shape.dim(1), shape.dim(2) * shape.dim(3));
        let turned = dw.ty.layout.order == MemoryOrder::Nhwc && channels > 1 && hw > 1;
        if turned {
            at_most(OP, "the number of elements", len, SAMPLE_LIMIT)?;
        }
        let turning = if turned { Turning::of(channels, hw, &dw) } else { Turning::default() };
        let [m, new_m] = momentum;
        let [a, b, c, d, e] = turning.words;
        let words = [w.address, dw.address, m, new_w.address, new_m, len, a, b, c, d, e];
        let (blocks, scalars) = (turning.blocks(len), [rate.address, iteration.address, guard]);
        Ok(Member { words, blocks, scalars, file: file_of(dw.ty.dtype, FILES) })
    }
}
