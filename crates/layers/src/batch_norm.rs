//! Batch normalisation: three nodes in training, one in evaluation.

use crate::{Init, Layer, LayerError, Mode, Net};
use vdnn_graph::{Op, ValueId, op};

/// Batch normalisation per channel. Parameters `weight` (gamma) and `bias` (beta), states `running_mean`, `running_var`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm2d {
    channels: u64,
    eps: f64,
    momentum: f64,
    weight_init: Init,
}

impl BatchNorm2d {
    /// With eps 1e-5 and momentum 0.1.
    pub fn new(channels: u64) -> Self {
        BatchNorm2d { channels, eps: 1e-5, momentum: 0.1, weight_init: Init::Ones }
    }

    /// What is added to the variance.
    pub fn eps(self, eps: f64) -> Self {
        BatchNorm2d { eps, ..self }
    }

    /// Weight of the batch in the running statistics.
    pub fn momentum(self, momentum: f64) -> Self {
        BatchNorm2d { momentum, ..self }
    }

    /// Initial gamma.
    pub fn weight_init(self, weight_init: Init) -> Self {
        BatchNorm2d { weight_init, ..self }
    }
}

impl Layer for BatchNorm2d {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.begin_layer(name);
        let shape = [self.channels];
        let gamma = net.parameter(name, "weight", &shape, self.weight_init)?;
        let beta = net.parameter(name, "bias", &shape, Init::Zeros)?;
        let running_mean = net.state(name, "running_mean", &shape, Init::Zeros)?;
        let running_var = net.state(name, "running_var", &shape, Init::Ones)?;
        let running = [net.graph().latest(running_mean), net.graph().latest(running_var)];
        let norm = Op::BatchNorm(op::BatchNorm { eps: self.eps });
        if net.mode() == Mode::Eval {
            return Ok(net.node(name, norm, &[x, running[0], running[1], gamma, beta])?[0]);
        }
        let statistics = net.node(&format!("{name}.stats"), Op::BatchNormStats, &[x])?;
        let (mean, variance) = (statistics[0], statistics[1]);
        let y = net.node(name, norm, &[x, mean, variance, gamma, beta])?[0];
        let count = net.ty(x).shape.elements().checked_div(self.channels).unwrap_or(0);
        let update = Op::BatchNormUpdate(op::BatchNormUpdate { momentum: self.momentum, count });
        net.node(&format!("{name}.update"), update, &[mean, variance, running[0], running[1]])?;
        Ok(y)
    }
}
