//! The fully connected layer.

use crate::{Init, Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId};

/// `Y = X Wᵀ + b`, `[N, in]` → `[N, out]`. Parameters: `weight` `[out, in]`, `bias` `[out]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    in_features: u64,
    out_features: u64,
    bias: bool,
    weight_init: Init,
    bias_init: Option<Init>,
}

impl Linear {
    /// With a bias and PyTorch's default initial values.
    pub fn new(in_features: u64, out_features: u64) -> Self {
        Linear { in_features, out_features, bias: true, weight_init: Init::KaimingUniform, bias_init: None }
    }

    /// Leaves the bias away.
    pub fn no_bias(self) -> Self {
        Linear { bias: false, ..self }
    }

    /// Initial weights and bias.
    pub fn init(self, weight: Init, bias: Init) -> Self {
        Linear { weight_init: weight, bias_init: Some(bias), ..self }
    }
}

impl Layer for Linear {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.begin_layer(name);
        let mut inputs = vec![x];
        inputs.push(net.parameter(name, "weight", &[self.out_features, self.in_features], self.weight_init)?);
        if self.bias {
            let bound = 1.0 / (self.in_features.max(1) as f64).sqrt();
            let init = self.bias_init.unwrap_or(Init::Uniform { bound });
            inputs.push(net.parameter(name, "bias", &[self.out_features], init)?);
        }
        Ok(net.node(name, Op::Linear, &inputs)?[0])
    }
}
