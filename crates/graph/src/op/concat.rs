//! Concatenation along the channels, and its backward, the split. Both usually move no bytes: see [`crate::Aliases`].

use super::{Inferred, arity};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{Shape, TensorType};

/// Concatenation along dimension 1. (It has no attributes yet; a struct so that an axis can come.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Concat {}

/// Cuts dimension 1 into parts of these sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Split {
    /// Channels of each part.
    pub sections: Vec<u64>,
}

fn with_channels(ty: &TensorType, channels: u64) -> TensorType {
    let mut dims = ty.shape.dims().to_vec();
    dims[1] = channels;
    ty.with_shape(Shape::new(dims))
}

impl Concat {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=usize::MAX)?;
        let first = inputs[0];
        if first.shape.rank() < 2 {
            return Err(format!("expected [N, C, …], found {}", first.shape));
        }
        for (index, other) in inputs.iter().enumerate() {
            if other.shape.rank() < 2 || with_channels(other, 0) != with_channels(first, 0) {
                return Err(format!("expected input {index} to match {first} in all but channels, found {other}"));
            }
        }
        Ok(vec![with_channels(first, inputs.iter().map(|ty| ty.shape.dim(1)).sum())])
    }
}

impl Split {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let total: u64 = self.sections.iter().sum();
        if inputs[0].shape.rank() < 2 || inputs[0].shape.dim(1) != total {
            return Err(format!("expected {total} channels to cut into {:?}, found {}", self.sections, inputs[0]));
        }
        Ok(self.sections.iter().map(|&channels| with_channels(inputs[0], channels)).collect())
    }
}
