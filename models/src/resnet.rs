//! Residual networks (He et al., 2016): torchvision's for ImageNet, deeper ones of the same kind, and those of depth 6n + 2
//! for small images.
//!
//! A block adds its input to what its convolutions make of it; where shapes change, the input goes through a 1×1
//! convolution. (The original networks for small images pad with zero channels there; ours use the convolution as well.)

use crate::registry::{Body, ModelSpec};
use vdnn_graph::ValueId;
use vdnn_layers::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Init, Layer, LayerError, Linear, MaxPool2d, Net, Relu, add, join,
};

/// Which networks for small images exist.
pub(crate) const CIFAR_DEPTHS: &str =
    "resnet-cifar-N with N = 6n + 2 (resnet-cifar-20, -32, -56, -110, …), at most 60002";

/// Which deep networks for ImageNet exist.
pub(crate) const DEPTHS: &str = "resnet-N with N = 3n + 44 (resnet-152, -1001, -2504, -10001, …), at most 60002";

const DEEPEST: u64 = 60_002;

/// What stands in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// Two 3×3 convolutions.
    Basic,
    /// 1×1, 3×3 and 1×1 convolutions; the last makes four times the channels.
    Bottleneck,
}

/// ResNet-18, -34, -50, -101 and -152.
pub(crate) fn torchvision() -> Vec<ModelSpec> {
    let plans = [
        (18, Block::Basic, [2, 2, 2, 2]),
        (34, Block::Basic, [3, 4, 6, 3]),
        (50, Block::Bottleneck, [3, 4, 6, 3]),
        (101, Block::Bottleneck, [3, 4, 23, 3]),
        (152, Block::Bottleneck, [3, 8, 36, 3]),
    ];
    let spec = |(depth, block, blocks)| {
        let body = move |net: &mut Net, image, body: &Body| imagenet_body(net, image, body, block, blocks);
        ModelSpec::imagenet(format!("resnet{depth}"), format!("ResNet-{depth} (torchvision's)"), Box::new(body))
    };
    plans.into_iter().map(spec).collect()
}

/// ResNet-152 with n blocks instead of 36 in the stage at 14×14: depth 3n + 44.
pub(crate) fn deep(depth: u64) -> Option<ModelSpec> {
    let n = depth.checked_sub(44).filter(|rest| rest % 3 == 0 && *rest > 0 && depth <= DEEPEST)? / 3;
    let description = format!("ResNet-152 with {n} blocks in its third stage, {depth} layers");
    let body =
        move |net: &mut Net, image, body: &Body| imagenet_body(net, image, body, Block::Bottleneck, [3, 8, n, 3]);
    Some(ModelSpec::imagenet(format!("resnet-{depth}"), description, Box::new(body)))
}

/// The network of depth 6n + 2 for small images: three stages of n basic blocks with 16, 32 and 64 channels.
pub(crate) fn cifar(depth: u64) -> Option<ModelSpec> {
    let n = depth.checked_sub(2).filter(|rest| rest % 6 == 0 && *rest > 0 && depth <= DEEPEST)? / 6;
    let description = format!("ResNet for small images with three stages of {n} blocks, {depth} layers");
    Some(small_images(format!("resnet-cifar-{depth}"), description, n, 32, 3))
}

/// The shallowest residual network for small images, sized for a CPU: 9 million multiply-adds an image.
pub(crate) fn small() -> ModelSpec {
    let description = "three residual blocks for small images; trains on a CPU".to_string();
    small_images("resnet-small".to_string(), description, 1, 28, 1)
}

fn small_images(name: String, description: String, n: u64, image_size: u64, channels: u64) -> ModelSpec {
    let body = move |net: &mut Net, image, body: &Body| {
        let x = conv_norm(net, ["conv1", "bn1"], image, convolution(body.channels, 16, 3))?;
        let x = Relu.push(net, "relu", x)?;
        let x = stages(net, x, Block::Basic, &[(16, n), (32, n), (64, n)])?;
        head(net, x, body)
    };
    ModelSpec { name, description, image_size, channels, classes: 10, dropout: 0.0, body: Box::new(body) }
}

fn imagenet_body(
    net: &mut Net,
    image: ValueId,
    body: &Body,
    block: Block,
    blocks: [u64; 4],
) -> Result<ValueId, LayerError> {
    let x = conv_norm(net, ["conv1", "bn1"], image, convolution(body.channels, 64, 7).stride(2))?;
    let x = Relu.push(net, "relu", x)?;
    let x = MaxPool2d::new(3, 2).padding(1).push(net, "maxpool", x)?;
    let widths: Vec<(u64, u64)> = [64, 128, 256, 512].into_iter().zip(blocks).collect();
    let x = stages(net, x, block, &widths)?;
    head(net, x, body)
}

/// Stages of (width, number of blocks); each but the first halves height and width.
fn stages(net: &mut Net, x: ValueId, block: Block, widths: &[(u64, u64)]) -> Result<ValueId, LayerError> {
    let mut x = x;
    for (stage, &(width, blocks)) in widths.iter().enumerate() {
        for index in 0..blocks {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            x = residual(net, &format!("layer{}.{index}", stage + 1), x, block, width, stride)?;
        }
    }
    Ok(x)
}

fn residual(
    net: &mut Net,
    name: &str,
    x: ValueId,
    block: Block,
    width: u64,
    stride: u64,
) -> Result<ValueId, LayerError> {
    let channels = net.channels(x);
    let (y, out) = match block {
        Block::Basic => (basic(net, name, x, width, stride)?, width),
        Block::Bottleneck => (bottleneck(net, name, x, width, stride)?, 4 * width),
    };
    let shortcut = if stride == 1 && channels == out {
        x
    } else {
        let names = [join(name, "downsample.0"), join(name, "downsample.1")];
        conv_norm(net, [&names[0], &names[1]], x, convolution(channels, out, 1).stride(stride))?
    };
    let sum = add(net, &join(name, "add"), y, shortcut)?;
    Relu.push(net, &join(name, "relu"), sum)
}

fn basic(net: &mut Net, name: &str, x: ValueId, width: u64, stride: u64) -> Result<ValueId, LayerError> {
    let channels = net.channels(x);
    let x = numbered(net, name, 1, x, convolution(channels, width, 3).stride(stride))?;
    let x = Relu.push(net, &join(name, "relu1"), x)?;
    numbered(net, name, 2, x, convolution(width, width, 3))
}

/// The stride is in the 3×3 convolution ("version 1.5").
fn bottleneck(net: &mut Net, name: &str, x: ValueId, width: u64, stride: u64) -> Result<ValueId, LayerError> {
    let channels = net.channels(x);
    let x = numbered(net, name, 1, x, convolution(channels, width, 1))?;
    let x = Relu.push(net, &join(name, "relu1"), x)?;
    let x = numbered(net, name, 2, x, convolution(width, width, 3).stride(stride))?;
    let x = Relu.push(net, &join(name, "relu2"), x)?;
    numbered(net, name, 3, x, convolution(width, 4 * width, 1))
}

fn numbered(net: &mut Net, name: &str, number: u64, x: ValueId, conv: Conv2d) -> Result<ValueId, LayerError> {
    conv_norm(net, [&join(name, &format!("conv{number}")), &join(name, &format!("bn{number}"))], x, conv)
}

fn conv_norm(net: &mut Net, names: [&str; 2], x: ValueId, conv: Conv2d) -> Result<ValueId, LayerError> {
    let x = conv.push(net, names[0], x)?;
    BatchNorm2d::new(net.channels(x)).push(net, names[1], x)
}

/// A convolution that keeps the image's size at stride 1.
fn convolution(channels: u64, out: u64, kernel: u64) -> Conv2d {
    Conv2d::new(channels, out, kernel).padding(kernel / 2).no_bias().init(Init::KaimingNormalFanOut, Init::Zeros)
}

fn head(net: &mut Net, x: ValueId, body: &Body) -> Result<ValueId, LayerError> {
    let x = AdaptiveAvgPool2d(1).push(net, "avgpool", x)?;
    let x = Flatten.push(net, "flatten", x)?;
    Linear::new(net.channels(x), body.classes).push(net, "fc", x)
}
