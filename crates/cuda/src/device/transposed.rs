//! Weight gradients in tf32 of maps with channels innermost, by cuDNN's plans for NCHW order.
//!
//! ```text
//!  X  [N, H, W, C] ─ cast ─► [N, C, H, W] ─┐
//!                                          ├─ plan ─► dW [K, C, KH, KW] ─ cast ─► [K, KH, KW, C]
//!  dY [N, H, W, K] ─ cast ─► [N, K, H, W] ─┘
//! ```
//!
//! A weight gradient sums over pixels, and tensor cores take what they sum side by side, which in f32 no instruction turns for them.
//! Of many layers cuDNN's kernels for NCHW order take half as long as those for NHWC, more than the casts cost. All
//! that is turned lies in the workspace, so the choice is the planner's, like any with more bytes and less time.

use vdnn_graph::Op;
use vdnn_graph::op::Cast;
use vdnn_tensor::{DType, Layout, TensorType};

use super::convolution::Convolution;
use super::gpu::{Bytes, Gpu, Work};
use super::site::{Plans, Site, settled};
use crate::cudnn::{Addresses, ConvolutionProblem, Direction, Epilogue, Order, Precision};
use crate::kernels::{self, Operand};

/// Places in the workspace are multiples of this.
const ALIGNMENT: u64 = 256;
/// What stands before the name of such a plan.
const PREFIX: &str = "nchw_";

/// The algorithm's name of a plan for NCHW order.
pub(super) fn join_transposed(plan: &str) -> String {
    format!("{PREFIX}{plan}")
}

/// The plan's name, if it is one for NCHW order.
pub(super) fn split_transposed(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// The same weight gradient in NCHW order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transposed {
    pub problem: ConvolutionProblem,
    /// X, dW and dY.
    types: [TensorType; 3],
    /// Where they begin in the workspace, and bytes of all; the plan's own workspace follows.
    places: [u64; 3],
    pub bytes: u64,
}

impl Transposed {
    /// `None` for what is no weight gradient in tf32 with channels innermost, or has padding channels.
    pub fn of(found: &Convolution<'_>) -> Option<Self> {
        let Convolution { problem, operands } = found;
        let tf32 = problem.dtype == DType::F32 && problem.precision == Precision::Tf32 && problem.order == Order::Nhwc;
        let padded = operands.iter().any(|operand| operand.ty.layout.channel_padding > 0);
        if problem.direction != Direction::WeightGradient || !tf32 || padded || problem.epilogue != Epilogue::None {
            return None;
        }
        let mut problem = ConvolutionProblem { order: Order::Nchw, alignment: 16, ..*problem };
        problem.pack();
        let types = operands.each_ref().map(|operand| TensorType { layout: Layout::default(), ..operand.ty.clone() });
        let mut bytes = 0;
        let places = types.each_ref().map(|ty| {
            let place = bytes;
            bytes += ty.bytes().next_multiple_of(ALIGNMENT);
            place
        });
        Some(Transposed { problem, types, places, bytes })
    }

    /// X, dW and dY as they are turned, in the workspace at this address.
    pub fn operands(&self, workspace: u64) -> [Operand<'_>; 3] {
        let at = |index: usize| Operand::contiguous(&self.types[index], workspace + self.places[index]);
        [at(0), at(1), at(2)]
    }
}

/// The cast that makes such a value of one in another order.
pub(super) fn cast_into(ty: &TensorType) -> Op {
    Op::Cast(Cast { dtype: ty.dtype, layout: ty.layout })
}

impl Site<'_> {
    /// The casts and the plan's convolution between them.
    pub(super) fn transposed(
        &self,
        found: &Convolution<'_>,
        name: &str,
        gpu: &mut Gpu,
        plans: &mut Plans,
    ) -> Result<Vec<Work>, String> {
        let turned = Transposed::of(found).ok_or("expected a weight gradient in tf32 in NHWC order without padding")?;
        let plan = plans.find(gpu, &turned.problem, name)?;
        self.check_workspace(turned.bytes + plan.workspace_bytes)?;
        let Bytes { address, bytes } = self.workspace;
        let [x, dw, dy] = turned.operands(address);
        let mut cast =
            |from: Operand<'_>, to: Operand<'_>| settled(kernels::prepare(&cast_into(to.ty), &[from], &[to], 0), gpu);
        let mut works = cast(found.operands[0], x)?;
        works.extend(cast(found.operands[2], dy)?);
        let (workspace, workspace_bytes) = (address + turned.bytes, bytes - turned.bytes);
        let at = Addresses { x: x.address, w: dw.address, y: dy.address, epilogue: [0; 2], workspace, workspace_bytes };
        // SAFETY: the three tensors have the problem's extents, packed, and lie one after the other at the beginning of this launch's
        // workspace, which lies in the arena (or in scratch memory while measuring), outlives the work and is no one else's.
        let site = unsafe { plan.bind(at) }.map_err(|e| e.to_string())?;
        works.push(Work::Convolution { site, plan });
        works.extend(cast(dw, found.operands[1])?);
        Ok(works)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_graph::op::{Conv2d, Conv2dWeightGrad};
    use vdnn_tensor::MemoryOrder;

    fn found(dtype: DType, order: MemoryOrder, precision: Precision) -> Option<Transposed> {
        let layout = Layout { order, channel_padding: 0 };
        let map = |dims: [u64; 4]| TensorType { layout, ..TensorType::new(dims, dtype) };
        let (x, dw, dy) = (map([2, 8, 9, 7]), map([6, 8, 3, 3]), map([2, 6, 9, 7]));
        let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
        let op = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] });
        let slice = Operand { ty: &x, address: 4100, row_stride: 24 };
        let inputs = vec![slice, Operand::contiguous(&dy, 8192)];
        let outputs = vec![Operand::contiguous(&dw, 16384)];
        let site = Site { op: &op, precision, inputs, outputs, algorithm: "nchw_eng0", workspace: Bytes::default() };
        Transposed::of(&super::super::convolution::of(&site)?.ok()?)
    }

    /// Slices and odd places become whole maps at places of their own.
    #[test]
    fn weight_gradients_in_tf32_are_turned_into_the_workspace() {
        let turned = found(DType::F32, MemoryOrder::Nhwc, Precision::Tf32).unwrap();
        let problem = turned.problem;
        assert_eq!((problem.order, problem.alignment), (Order::Nchw, 16));
        assert_eq!((problem.x_batch_stride, problem.y_batch_stride), (8 * 63, 6 * 63));
        assert!(problem.validate().is_ok());
        let places = turned.operands(512).map(|operand| (operand.address, operand.ty.to_string()));
        let expected = [(512, "f32[2, 8, 9, 7]"), (512 + 4096, "f32[6, 8, 3, 3]"), (512 + 5888, "f32[2, 6, 9, 7]")];
        assert_eq!(places, expected.map(|(address, ty)| (address, ty.to_string())));
        assert_eq!(turned.bytes, 5888 + 3072);
    }

    #[test]
    fn others_stay_as_they_are() {
        assert_eq!(found(DType::F32, MemoryOrder::Nhwc, Precision::Fp32), None);
        assert_eq!(found(DType::F32, MemoryOrder::Nchw, Precision::Tf32), None);
        assert_eq!(found(DType::BF16, MemoryOrder::Nhwc, Precision::Tf32), None);
        assert_eq!(split_transposed(&join_transposed("eng65{k2=1}")), Some("eng65{k2=1}"));
        assert_eq!(split_transposed("eng65{k2=1}"), None);
    }
}
