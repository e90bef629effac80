//! Convolution with optional bias.

use crate::{Init, Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// A convolution `[N, in, H, W]` → `[N, out, OH, OW]`. Parameters: `weight` `[out, in/groups, kh, kw]`, `bias` `[out]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2d {
    in_channels: u64,
    out_channels: u64,
    kernel: [u64; 2],
    attributes: op::Conv2d,
    bias: bool,
    weight_init: Init,
    bias_init: Option<Init>,
}

impl Conv2d {
    /// A square convolution with stride 1, no padding, a bias and PyTorch's default initial values.
    pub fn new(in_channels: u64, out_channels: u64, kernel: u64) -> Self {
        Conv2d {
            in_channels,
            out_channels,
            kernel: [kernel; 2],
            attributes: op::Conv2d::default(),
            bias: true,
            weight_init: Init::KaimingUniform,
            bias_init: None,
        }
    }

    /// Height and width of the kernel.
    pub fn kernel(self, kernel: [u64; 2]) -> Self {
        Conv2d { kernel, ..self }
    }

    /// Distance between windows, both axes.
    pub fn stride(self, stride: u64) -> Self {
        self.attributes(|attributes| attributes.stride = [stride; 2])
    }

    /// Implicit zeros on each side, both axes.
    pub fn padding(self, padding: u64) -> Self {
        self.attributes(|attributes| attributes.padding = [padding; 2])
    }

    /// Distance between taps, both axes.
    pub fn dilation(self, dilation: u64) -> Self {
        self.attributes(|attributes| attributes.dilation = [dilation; 2])
    }

    /// Groups the channels are cut into.
    pub fn groups(self, groups: u64) -> Self {
        self.attributes(|attributes| attributes.groups = groups)
    }

    /// Anything the op can do, height and width apart.
    pub fn attributes(mut self, change: impl FnOnce(&mut op::Conv2d)) -> Self {
        change(&mut self.attributes);
        self
    }

    /// Leaves the bias away.
    pub fn no_bias(self) -> Self {
        Conv2d { bias: false, ..self }
    }

    /// Initial weights and bias.
    pub fn init(self, weight: Init, bias: Init) -> Self {
        Conv2d { weight_init: weight, bias_init: Some(bias), ..self }
    }
}

impl Layer for Conv2d {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        let per_group = self.in_channels.checked_div(self.attributes.groups).unwrap_or(0);
        let [kh, kw] = self.kernel;
        net.begin_layer(name);
        let mut inputs = vec![x];
        inputs.push(net.parameter(name, "weight", &[self.out_channels, per_group, kh, kw], self.weight_init)?);
        if self.bias {
            let fan_in = per_group.saturating_mul(kh).saturating_mul(kw).max(1) as f64;
            let init = self.bias_init.unwrap_or(Init::Uniform { bound: 1.0 / fan_in.sqrt() });
            inputs.push(net.parameter(name, "bias", &[self.out_channels], init)?);
        }
        Ok(net.node(name, Op::Conv2d(self.attributes), &inputs)?[0])
    }
}
