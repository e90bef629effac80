//! DenseNet-121 (Huang et al., 2017), as torchvision has it.
//!
//! Every layer reads all earlier maps of its block. The block is written as `x_k = concat(x_{k−1}, f_k)`, so that each
//! concatenation lies inside the next one and the whole block is one storage in which every map is written in place.

use crate::registry::{Body, ModelSpec};
use vdnn_graph::ValueId;
use vdnn_layers::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Init, Layer, LayerError, Linear, MaxPool2d,
    Net, Relu, concat, join,
};

const GROWTH: u64 = 32;
const STEM: u64 = 64;
const BOTTLENECK: u64 = 4;

/// torchvision's DenseNet-121.
pub(crate) fn densenet121() -> ModelSpec {
    let body = |net: &mut Net, image, body: &Body| push(net, image, body, [6, 12, 24, 16]);
    ModelSpec::imagenet("densenet121", "DenseNet-121 (torchvision's)", Box::new(body))
}

fn push(net: &mut Net, image: ValueId, body: &Body, blocks: [u64; 4]) -> Result<ValueId, LayerError> {
    let stem = convolution(body.channels, STEM, 7).stride(2).padding(3);
    let x = stem.push(net, "features.conv0", image)?;
    let x = norm_relu(net, ["features.norm0", "features.relu0"], x)?;
    let mut x = MaxPool2d::new(3, 2).padding(1).push(net, "features.pool0", x)?;
    for (index, layers) in blocks.into_iter().enumerate() {
        x = block(net, &format!("features.denseblock{}", index + 1), x, layers, body.dropout)?;
        if index + 1 < blocks.len() {
            x = transition(net, &format!("features.transition{}", index + 1), x)?;
        }
    }
    let x = norm_relu(net, ["features.norm5", "relu"], x)?;
    let x = AdaptiveAvgPool2d(1).push(net, "avgpool", x)?;
    let x = Flatten.push(net, "flatten", x)?;
    let bias = Init::Zeros;
    Linear::new(net.channels(x), body.classes).init(Init::KaimingUniform, bias).push(net, "classifier", x)
}

fn block(net: &mut Net, name: &str, x: ValueId, layers: u64, dropout: f64) -> Result<ValueId, LayerError> {
    let mut x = x;
    for index in 1..=layers {
        let layer = join(name, &format!("denselayer{index}"));
        let new = dense_layer(net, &layer, x, dropout)?;
        x = concat(net, &join(&layer, "concat"), &[x, new])?;
    }
    Ok(x)
}

/// Norm, ReLU and a 1×1 convolution to 4·growth channels; norm, ReLU and a 3×3 convolution to growth channels.
fn dense_layer(net: &mut Net, name: &str, x: ValueId, dropout: f64) -> Result<ValueId, LayerError> {
    let width = BOTTLENECK * GROWTH;
    let x = norm_relu(net, [&join(name, "norm1"), &join(name, "relu1")], x)?;
    let x = convolution(net.channels(x), width, 1).push(net, &join(name, "conv1"), x)?;
    let x = norm_relu(net, [&join(name, "norm2"), &join(name, "relu2")], x)?;
    let x = convolution(width, GROWTH, 3).padding(1).push(net, &join(name, "conv2"), x)?;
    Dropout(dropout).push(net, &join(name, "drop"), x)
}

/// Halves channels, height and width.
fn transition(net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
    let channels = net.channels(x);
    let x = norm_relu(net, [&join(name, "norm"), &join(name, "relu")], x)?;
    let x = convolution(channels, channels / 2, 1).push(net, &join(name, "conv"), x)?;
    AvgPool2d::new(2, 2).push(net, &join(name, "pool"), x)
}

fn norm_relu(net: &mut Net, names: [&str; 2], x: ValueId) -> Result<ValueId, LayerError> {
    let x = BatchNorm2d::new(net.channels(x)).push(net, names[0], x)?;
    Relu.push(net, names[1], x)
}

fn convolution(channels: u64, out: u64, kernel: u64) -> Conv2d {
    Conv2d::new(channels, out, kernel).no_bias().init(Init::KaimingNormalFanIn, Init::Zeros)
}
