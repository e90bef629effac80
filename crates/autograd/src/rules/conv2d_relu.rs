//! Convolution with ReLU: dZ and the bias' gradient read Y, dW reads X, dX reads W.

use super::{Context, conv2d};
use crate::AutogradError;
use vdnn_graph::{Op, op};

/// ReLU and bias in one node, then the convolution's gradients from dZ.
pub(super) fn rule(ctx: &mut Context<'_>, conv: op::Conv2d) -> Result<(), AutogradError> {
    let reads = [ctx.y(0), ctx.dy()];
    let dz = if ctx.wants(2) {
        let made = ctx.push("bias_grad", Op::ReluBiasGrad, &reads)?;
        ctx.give(2, made[1])?;
        made[0]
    } else {
        ctx.push("relu_grad", Op::ReluGrad, &reads)?[0]
    };
    conv2d::weight(ctx, conv, dz)?;
    conv2d::data(ctx, conv, dz)
}
