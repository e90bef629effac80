//! Gradients of a scaled loss divided by its scale, and whether all of them are finite.
//!
//! Over many gradients at once, since most are vectors of a few hundred numbers. A gradient may come in half precision and in any
//! order, as its layer made it; it goes on as the optimizer reads it. The guard that comes out is the one that went
//! in, or no number when any gradient has an infinity or no number: an update that reads it changes nothing then
//! (`docs/decisions/0009-updates-guarded-by-the-loss.md`).

use super::{Inferred, arity, same_type, vector};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{Layout, TensorType};

/// Most gradients of one node: what a CUDA kernel takes as a table of arguments.
pub const MOST_UNSCALED: usize = 64;

/// Each gradient's result may lie over the gradient.
const OVER: [(usize, usize); MOST_UNSCALED] = {
    let mut pairs = [(0, 0); MOST_UNSCALED];
    let mut index = 0;
    while index < MOST_UNSCALED {
        pairs[index] = (index + 2, index + 1);
        index += 1;
    }
    pairs
};

/// Attributes of unscaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unscale {
    /// Number of gradients, from 1 to [`MOST_UNSCALED`].
    pub gradients: u32,
}

impl Unscale {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        let count = self.gradients as usize;
        if !(1..=MOST_UNSCALED).contains(&count) {
            return Err(format!("expected 1 to {MOST_UNSCALED} gradients, found {count}"));
        }
        arity(inputs, count + 2..=count + 2)?;
        let (guard, gradients) = (inputs[1], &inputs[2..]);
        vector("the guard", 1, guard, guard)?;
        same_type("the scale", guard, inputs[0])?;
        let wide = |ty: &TensorType| ty.dtype == guard.dtype && ty.layout == guard.layout;
        if let Some(odd) = gradients.iter().find(|ty| !wide(ty) && !Unscale::takes_half(ty)) {
            let expected = format!("{} in NCHW order, or in half precision without padding", guard.dtype);
            return Err(format!("expected gradients in {expected}, found {odd}"));
        }
        let out =
            |ty: &TensorType| TensorType { dtype: guard.dtype, layout: Layout::default(), shape: ty.shape.clone() };
        Ok(inputs[1..].iter().map(|&ty| out(ty)).collect())
    }

    /// True for a gradient that is widened on the way.
    pub fn takes_half(gradient: &TensorType) -> bool {
        gradient.dtype.is_half() && gradient.layout.channel_padding == 0
    }

    pub(super) fn in_place(&self) -> &'static [(usize, usize)] {
        &OVER[..(self.gradients as usize).min(MOST_UNSCALED)]
    }
}
