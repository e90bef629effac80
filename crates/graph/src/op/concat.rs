//! Concatenation along the channels or the batch, and its backward, the split. Both usually move no bytes: see [`crate::Aliases`].

use super::{Inferred, arity};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{Shape, TensorType};

/// The dimension along which values are joined or cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Dimension 1.
    #[default]
    Channels,
    /// Dimension 0, the samples: parts are runs of whole samples.
    Batch,
}

/// Concatenation along the channels, or what [`Concat::along`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Concat {
    /// The dimension in which parts follow each other.
    #[serde(default)]
    pub axis: Axis,
}

/// Cuts a dimension into parts of these sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Split {
    /// Channels or samples of each part.
    pub sections: Vec<u64>,
    /// The dimension that is cut.
    #[serde(default)]
    pub axis: Axis,
}

impl Axis {
    /// Number of the dimension.
    pub fn dimension(self) -> usize {
        match self {
            Axis::Batch => 0,
            Axis::Channels => 1,
        }
    }

    /// The type with another size along this dimension.
    pub fn resized(self, ty: &TensorType, size: u64) -> TensorType {
        let mut dims = ty.shape.dims().to_vec();
        dims[self.dimension()] = size;
        ty.with_shape(Shape::new(dims))
    }

    fn what(self) -> &'static str {
        match self {
            Axis::Batch => "samples",
            Axis::Channels => "channels",
        }
    }

    fn is_in(self, ty: &TensorType) -> bool {
        ty.shape.rank() > self.dimension()
    }
}

impl Concat {
    /// Concatenation along a dimension.
    pub fn along(axis: Axis) -> Self {
        Concat { axis }
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=usize::MAX)?;
        let (first, axis) = (inputs[0], self.axis);
        if !axis.is_in(first) {
            return Err(format!("expected [N, C, …], found {}", first.shape));
        }
        for (index, other) in inputs.iter().enumerate() {
            if !axis.is_in(other) || axis.resized(other, 0) != axis.resized(first, 0) {
                let what = axis.what();
                return Err(format!("expected input {index} to match {first} in all but {what}, found {other}"));
            }
        }
        let total = inputs.iter().map(|ty| ty.shape.dim(axis.dimension())).sum();
        Ok(vec![axis.resized(first, total)])
    }
}

impl Split {
    /// Cuts the channels.
    pub fn channels(sections: Vec<u64>) -> Self {
        Split { sections, axis: Axis::Channels }
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let (axis, total) = (self.axis, self.sections.iter().sum::<u64>());
        if !axis.is_in(inputs[0]) || inputs[0].shape.dim(axis.dimension()) != total {
            let (what, sections) = (axis.what(), &self.sections);
            return Err(format!("expected {total} {what} to cut into {sections:?}, found {}", inputs[0]));
        }
        Ok(self.sections.iter().map(|&size| axis.resized(inputs[0], size)).collect())
    }
}
