//! Batch normalisation over `[N, C, H, W]`, per channel.
//!
//! Training is three nodes: statistics of the batch, normalisation with given statistics, and the effect that moves the
//! running statistics. Because normalisation takes its statistics as operands, it can be run again without counting the
//! batch twice, and evaluation is the same op on the running ones.
//!
//! `Y = gamma · (X − mean) / √(variance + eps) + beta`, the variance biased (divided by N·H·W).

use super::{Inferred, arity, nchw, same_type, vector};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of batch normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f64,
}

/// Attributes of the running statistics' update: `running ← (1 − momentum) · running + momentum · batch`, with the
/// unbiased variance (times count / (count − 1)), as PyTorch has it. A count of 0 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNormUpdate {
    /// Weight of this batch.
    pub momentum: f64,
    /// Elements a channel's statistics were taken over: N·H·W.
    pub count: u64,
}

/// (X) → mean, variance.
pub(super) fn infer_stats(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 1..=1)?;
    let [n, c, h, w] = nchw(inputs[0])?;
    if n * h * w == 1 {
        return Err("expected more than one value per channel in training, found 1; use a larger batch".to_string());
    }
    let statistic = TensorType::new([c], inputs[0].dtype.wide());
    Ok(vec![statistic.clone(), statistic])
}

impl BatchNorm {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 5..=5)?;
        coefficients(inputs[0], &["mean", "variance", "gamma", "beta"], &inputs[1..])?;
        Ok(vec![inputs[0].clone()])
    }

    pub(super) fn infer_grad(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 5..=5)?;
        same_type("dY", inputs[0], inputs[1])?;
        let parameter = coefficients(inputs[0], &["mean", "variance", "gamma"], &inputs[2..])?;
        Ok(vec![inputs[0].clone(), parameter.clone(), parameter])
    }
}

/// Checks one number a channel of X for each name; the type they have.
pub(super) fn coefficients(x: &TensorType, names: &[&str], found: &[&TensorType]) -> Result<TensorType, String> {
    let [_, c, ..] = nchw(x)?;
    for (what, operand) in names.iter().zip(found) {
        vector(what, c, x, operand)?;
    }
    Ok(TensorType::new([c], x.dtype.wide()))
}

impl BatchNormUpdate {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 4..=4)?;
        for (what, operand) in ["variance", "running mean", "running variance"].iter().zip(&inputs[1..]) {
            same_type(what, inputs[0], operand)?;
        }
        Ok(vec![inputs[2].clone(), inputs[3].clone()])
    }
}
