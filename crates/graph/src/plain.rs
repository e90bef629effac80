//! Encoded ops beside the plain ones whose results they give.

use crate::Op;
use crate::op::MaxPool2dIndicesGrad;
use vdnn_tensor::TensorType;

impl Op {
    /// For an encoded op the plain one that makes the same first output, with the types of its inputs.
    pub fn plain(&self, inputs: &[&TensorType]) -> Option<(Op, Vec<TensorType>)> {
        let all = || inputs.iter().map(|&ty| ty.clone());
        match self {
            Op::ReluMask => Some((Op::Relu, all().collect())),
            Op::MaxPool2dIndices(pool) => Some((Op::MaxPool2d(*pool), all().collect())),
            Op::ReluMaskGrad => {
                let dy = all().nth(1)?;
                Some((Op::ReluGrad, vec![dy.clone(), dy]))
            }
            Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [h, w] }) => {
                let dy = all().nth(1)?;
                let x = dy.with_shape([dy.shape.dim(0), dy.shape.dim(1), *h, *w]);
                Some((Op::MaxPool2dGrad(*pool), vec![x, dy.clone(), dy]))
            }
            _ => None,
        }
    }
}
