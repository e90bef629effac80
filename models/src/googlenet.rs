//! GoogLeNet (Szegedy et al., 2015) as torchvision has it: batch normalisation after every convolution, no auxiliary
//! classifiers, and a 3×3 convolution in the third branch.

use crate::registry::{Body, ModelSpec};
use vdnn_graph::ValueId;
use vdnn_layers::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Init, Layer, LayerError, Linear, MaxPool2d, Net, Relu,
    concat, join,
};

/// Channels of one inception: 1×1; 1×1 then 3×3; 1×1 then 3×3; pooling then 1×1.
struct Inception {
    name: &'static str,
    one: u64,
    three: [u64; 2],
    five: [u64; 2],
    pool: u64,
}

const fn inception(name: &'static str, one: u64, three: [u64; 2], five: [u64; 2], pool: u64) -> Inception {
    Inception { name, one, three, five, pool }
}

const STAGE_3: [Inception; 2] =
    [inception("inception3a", 64, [96, 128], [16, 32], 32), inception("inception3b", 128, [128, 192], [32, 96], 64)];

const STAGE_4: [Inception; 5] = [
    inception("inception4a", 192, [96, 208], [16, 48], 64),
    inception("inception4b", 160, [112, 224], [24, 64], 64),
    inception("inception4c", 128, [128, 256], [24, 64], 64),
    inception("inception4d", 112, [144, 288], [32, 64], 64),
    inception("inception4e", 256, [160, 320], [32, 128], 128),
];

const STAGE_5: [Inception; 2] = [
    inception("inception5a", 256, [160, 320], [32, 128], 128),
    inception("inception5b", 384, [192, 384], [48, 128], 128),
];

/// torchvision's GoogLeNet.
pub(crate) fn googlenet() -> ModelSpec {
    let description = "GoogLeNet with batch normalisation, without auxiliary classifiers (torchvision's)";
    ModelSpec { dropout: 0.2, ..ModelSpec::imagenet("googlenet", description, Box::new(push)) }
}

fn push(net: &mut Net, image: ValueId, body: &Body) -> Result<ValueId, LayerError> {
    let stem = Conv2d::new(body.channels, 64, 7).stride(2).padding(3);
    let x = conv_norm_relu(net, "conv1", image, stem)?;
    let x = MaxPool2d::new(3, 2).ceil_mode().push(net, "maxpool1", x)?;
    let x = conv_norm_relu(net, "conv2", x, Conv2d::new(64, 64, 1))?;
    let x = conv_norm_relu(net, "conv3", x, Conv2d::new(64, 192, 3).padding(1))?;
    let x = MaxPool2d::new(3, 2).ceil_mode().push(net, "maxpool2", x)?;
    let x = STAGE_3.iter().try_fold(x, |x, block| push_inception(net, block, x))?;
    let x = MaxPool2d::new(3, 2).ceil_mode().push(net, "maxpool3", x)?;
    let x = STAGE_4.iter().try_fold(x, |x, block| push_inception(net, block, x))?;
    let x = MaxPool2d::new(2, 2).ceil_mode().push(net, "maxpool4", x)?;
    let x = STAGE_5.iter().try_fold(x, |x, block| push_inception(net, block, x))?;
    let x = AdaptiveAvgPool2d(1).push(net, "avgpool", x)?;
    let x = Flatten.push(net, "flatten", x)?;
    let x = Dropout(body.dropout).push(net, "dropout", x)?;
    let weight = Init::Normal { std: 0.01 };
    let bias = Init::Uniform { bound: 1.0 / 32.0 };
    Linear::new(net.channels(x), body.classes).init(weight, bias).push(net, "fc", x)
}

fn push_inception(net: &mut Net, block: &Inception, x: ValueId) -> Result<ValueId, LayerError> {
    let channels = net.channels(x);
    let at = |branch: &str| join(block.name, branch);
    let one = conv_norm_relu(net, &at("branch1"), x, Conv2d::new(channels, block.one, 1))?;
    let [reduced, out] = block.three;
    let three = conv_norm_relu(net, &at("branch2.0"), x, Conv2d::new(channels, reduced, 1))?;
    let three = conv_norm_relu(net, &at("branch2.1"), three, Conv2d::new(reduced, out, 3).padding(1))?;
    let [reduced, out] = block.five;
    let five = conv_norm_relu(net, &at("branch3.0"), x, Conv2d::new(channels, reduced, 1))?;
    let five = conv_norm_relu(net, &at("branch3.1"), five, Conv2d::new(reduced, out, 3).padding(1))?;
    let pool = MaxPool2d::new(3, 1).padding(1).ceil_mode().push(net, &at("branch4.0"), x)?;
    let pool = conv_norm_relu(net, &at("branch4.1"), pool, Conv2d::new(channels, block.pool, 1))?;
    concat(net, &at("concat"), &[one, three, five, pool])
}

fn conv_norm_relu(net: &mut Net, name: &str, x: ValueId, conv: Conv2d) -> Result<ValueId, LayerError> {
    let conv = conv.no_bias().init(Init::Normal { std: 0.01 }, Init::Zeros);
    let x = conv.push(net, &join(name, "conv"), x)?;
    let x = BatchNorm2d::new(net.channels(x)).eps(1e-3).push(net, &join(name, "bn"), x)?;
    Relu.push(net, &join(name, "relu"), x)
}
