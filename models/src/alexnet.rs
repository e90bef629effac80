//! AlexNet in one tower (Krizhevsky, 2014), torchvision's, and with the local response normalisation of 2012.

use crate::registry::{Body, ModelSpec};
use vdnn_graph::ValueId;
use vdnn_layers::{
    AdaptiveAvgPool2d, Conv2d, Dropout, Flatten, Layer, LayerError, Linear, LocalResponseNorm, MaxPool2d, Net, Relu,
    Sequential,
};

/// torchvision's AlexNet.
pub(crate) fn alexnet() -> ModelSpec {
    let body = |net: &mut Net, image, body: &Body| push(net, image, body, false);
    ModelSpec { dropout: 0.5, ..ModelSpec::imagenet("alexnet", "AlexNet in one tower (torchvision's)", Box::new(body)) }
}

/// The same with local response normalisation after the first two convolutions.
pub(crate) fn alexnet_lrn() -> ModelSpec {
    let body = |net: &mut Net, image, body: &Body| push(net, image, body, true);
    let description = "AlexNet in one tower with local response normalisation";
    ModelSpec { dropout: 0.5, ..ModelSpec::imagenet("alexnet-lrn", description, Box::new(body)) }
}

fn push(net: &mut Net, image: ValueId, body: &Body, norm: bool) -> Result<ValueId, LayerError> {
    let x = features(body.channels, norm).push(net, "features", image)?;
    let x = AdaptiveAvgPool2d(6).push(net, "avgpool", x)?;
    let x = Flatten.push(net, "flatten", x)?;
    classifier(body).push(net, "classifier", x)
}

/// The normalisations have names of their own, so that the convolutions keep torchvision's.
fn features(channels: u64, norm: bool) -> Sequential {
    let normalised = |features: Sequential, name: &str| match norm {
        true => features.then(name, LocalResponseNorm::new(5)),
        false => features,
    };
    let first = Sequential::new().then("0", Conv2d::new(channels, 64, 11).stride(4).padding(2)).then("1", Relu);
    let second = normalised(first, "norm1")
        .then("2", MaxPool2d::new(3, 2))
        .then("3", Conv2d::new(64, 192, 5).padding(2))
        .then("4", Relu);
    normalised(second, "norm2")
        .then("5", MaxPool2d::new(3, 2))
        .then("6", Conv2d::new(192, 384, 3).padding(1))
        .then("7", Relu)
        .then("8", Conv2d::new(384, 256, 3).padding(1))
        .then("9", Relu)
        .then("10", Conv2d::new(256, 256, 3).padding(1))
        .then("11", Relu)
        .then("12", MaxPool2d::new(3, 2))
}

fn classifier(body: &Body) -> Sequential {
    Sequential::new()
        .next(Dropout(body.dropout))
        .next(Linear::new(256 * 6 * 6, 4096))
        .next(Relu)
        .next(Dropout(body.dropout))
        .next(Linear::new(4096, 4096))
        .next(Relu)
        .next(Linear::new(4096, body.classes))
}
