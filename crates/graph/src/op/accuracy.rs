//! Number of rows whose largest logit is the label's (the first largest on ties).

use super::{Inferred, softmax_cross_entropy::logits_and_labels};
use vdnn_tensor::TensorType;

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    logits_and_labels(inputs)?;
    Ok(vec![TensorType::new([1], inputs[0].dtype)])
}
