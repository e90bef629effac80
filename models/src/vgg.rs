//! VGG (Simonyan & Zisserman, 2015), its very deep relatives from the vDNN paper, and a small one.
//!
//! Five groups of 3×3 convolutions, each ended by a 2×2 max pooling, then three fully connected layers.

use crate::registry::{Body, ModelSpec};
use vdnn_graph::ValueId;
use vdnn_layers::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Init, Layer, LayerError, Linear, MaxPool2d, Net, Relu,
    Sequential,
};

/// Channels of the five groups.
const CHANNELS: [u64; 5] = [64, 128, 256, 512, 512];

/// Which very deep networks exist.
pub(crate) const DEPTHS: &str = "vgg-N with N = 16 + 5k, the depth of VGG-16 with k more convolutions in each group \
                                 (vgg-116, vgg-216, vgg-316, vgg-416, …), at most vgg-100016";

const DEEPEST: u64 = 100_016;

/// VGG-11, -13, -16 and -19, each without and with batch normalisation.
pub(crate) fn torchvision() -> Vec<ModelSpec> {
    let plans = [(11, [1, 1, 2, 2, 2]), (13, [2, 2, 2, 2, 2]), (16, [2, 2, 3, 3, 3]), (19, [2, 2, 4, 4, 4])];
    let spec = |(depth, groups), norm: bool| {
        let name = format!("vgg{depth}{}", if norm { "_bn" } else { "" });
        let with = if norm { " with batch normalisation" } else { "" };
        imagenet(name, format!("VGG-{depth}{with} (torchvision's)"), groups, norm)
    };
    plans.into_iter().flat_map(|plan| [spec(plan, false), spec(plan, true)]).collect()
}

/// VGG-16 with k more convolutions in each of the five groups; the paper's VGG-116 to VGG-416 have k = 20 to 80.
pub(crate) fn deep(depth: u64) -> Option<ModelSpec> {
    let extra = depth.checked_sub(16).filter(|extra| extra % 5 == 0 && depth <= DEEPEST)? / 5;
    let groups = [2, 2, 3, 3, 3].map(|convolutions| convolutions + extra);
    let description = format!("VGG-16 with {extra} more convolutions in each group, as in the vDNN paper");
    Some(imagenet(format!("vgg-{depth}"), description, groups, false))
}

/// A VGG for 28×28 images that learns Fashion-MNIST on a CPU in minutes: 7 million multiply-adds an image.
pub(crate) fn small() -> ModelSpec {
    ModelSpec {
        name: "vgg-small".to_string(),
        description: "six convolutions and one linear layer for small images; trains on a CPU".to_string(),
        image_size: 28,
        channels: 1,
        classes: 10,
        dropout: 0.0,
        body: Box::new(small_body),
    }
}

fn small_body(net: &mut Net, image: ValueId, body: &Body) -> Result<ValueId, LayerError> {
    let groups = [(16, 2), (32, 2), (64, 2)];
    let x = features(&groups, body.channels, false).push(net, "features", image)?;
    let features = net.ty(x).shape.elements_per_sample();
    let classifier = Sequential::new()
        .then("0", Dropout(body.dropout))
        .then("1", Linear::new(features, body.classes).init(Init::KaimingUniform, Init::Zeros));
    let x = Flatten.push(net, "flatten", x)?;
    classifier.push(net, "classifier", x)
}

fn imagenet(name: String, description: String, convolutions: [u64; 5], norm: bool) -> ModelSpec {
    let body = move |net: &mut Net, image, body: &Body| {
        let groups: Vec<(u64, u64)> = CHANNELS.into_iter().zip(convolutions).collect();
        let x = features(&groups, body.channels, norm).push(net, "features", image)?;
        let x = AdaptiveAvgPool2d(7).push(net, "avgpool", x)?;
        let x = Flatten.push(net, "flatten", x)?;
        classifier(body).push(net, "classifier", x)
    };
    ModelSpec { dropout: 0.5, ..ModelSpec::imagenet(name, description, Box::new(body)) }
}

/// Groups of (channels, convolutions), layers numbered through.
fn features(groups: &[(u64, u64)], image_channels: u64, norm: bool) -> Sequential {
    let mut features = Sequential::new();
    let mut channels = image_channels;
    for &(out, convolutions) in groups {
        for _ in 0..convolutions {
            let convolution = Conv2d::new(channels, out, 3).padding(1);
            features = features.next(convolution.init(Init::KaimingNormalFanOut, Init::Zeros));
            if norm {
                features = features.next(BatchNorm2d::new(out));
            }
            features = features.next(Relu);
            channels = out;
        }
        features = features.next(MaxPool2d::new(2, 2));
    }
    features
}

fn classifier(body: &Body) -> Sequential {
    let linear = |from, to| Linear::new(from, to).init(Init::Normal { std: 0.01 }, Init::Zeros);
    Sequential::new()
        .next(linear(CHANNELS[4] * 7 * 7, 4096))
        .next(Relu)
        .next(Dropout(body.dropout))
        .next(linear(4096, 4096))
        .next(Relu)
        .next(Dropout(body.dropout))
        .next(linear(4096, body.classes))
}
