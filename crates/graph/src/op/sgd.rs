//! Stochastic gradient descent with momentum, dampening, Nesterov and weight decay (PyTorch's form).
//!
//! `g = dW + decay · W`; with momentum `M = g` at iteration 0, else `M = mu · M + (1 − dampening) · g`, and `g = M`, or
//! `g + mu · M` for Nesterov; `W' = W − lr · g`.
//!
//! dW may be in half precision, or in another order than W: it is read element by element, as a cast before the update would.
//!
//! With a guard (the loss) that is not finite nothing changes: a run that diverges stops with its last good weights.

use super::{Inferred, arity, iteration_counter, same_type, vector};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, TensorType};

/// Attributes of SGD. The learning rate and the iteration are buffers, since they vary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// Momentum; 0 for none, and then no momentum buffer.
    pub momentum: f64,
    /// Dampening of the gradient in the momentum, from the second iteration on.
    pub dampening: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's form.
    pub nesterov: bool,
}

impl Sgd {
    /// True when there is a momentum buffer.
    pub fn has_momentum(&self) -> bool {
        self.momentum != 0.0
    }

    /// True for a dW that has W's numbers in half precision or f32, in any order, without padding.
    pub fn takes_uncast(w: &TensorType, dw: &TensorType) -> bool {
        let known = dw.dtype.is_half() || dw.dtype == DType::F32;
        w.dtype == DType::F32 && known && dw.shape == w.shape && dw.layout.channel_padding == 0
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        let operands = 4 + usize::from(self.has_momentum());
        arity(inputs, operands..=operands + 1)?;
        let w = inputs[0];
        if !Sgd::takes_uncast(w, inputs[1]) {
            same_type("dW", w, inputs[1])?;
        }
        if self.has_momentum() {
            same_type("momentum", w, inputs[2])?;
        }
        vector("the learning rate", 1, w, inputs[operands - 2])?;
        iteration_counter(inputs[operands - 1])?;
        if let Some(guard) = inputs.get(operands) {
            vector("the guard", 1, w, guard)?;
        }
        Ok(vec![w.clone(); 1 + usize::from(self.has_momentum())])
    }
}
