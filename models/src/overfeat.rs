//! OverFeat (Sermanet et al., 2014): the fast network for images of 231 pixels, the accurate one for 221.

use crate::registry::{Body, ModelSpec};
use vdnn_graph::ValueId;
use vdnn_layers::{Conv2d, Dropout, Flatten, Layer, LayerError, Linear, MaxPool2d, Net, Relu, Sequential};

/// The fast network: five convolutions.
pub(crate) fn fast() -> ModelSpec {
    spec("overfeat-fast", "OverFeat, fast", 231, [3072, 4096], |channels| {
        let x = Sequential::new().next(Conv2d::new(channels, 96, 11).stride(4)).next(Relu).next(MaxPool2d::new(2, 2));
        let x = x.next(Conv2d::new(96, 256, 5)).next(Relu).next(MaxPool2d::new(2, 2));
        let x = same(x, 256, 512);
        let x = same(x, 512, 1024);
        same(x, 1024, 1024).next(MaxPool2d::new(2, 2))
    })
}

/// The accurate network: six convolutions at a finer stride.
pub(crate) fn accurate() -> ModelSpec {
    spec("overfeat-accurate", "OverFeat, accurate", 221, [4096, 4096], |channels| {
        let x = Sequential::new().next(Conv2d::new(channels, 96, 7).stride(2)).next(Relu).next(MaxPool2d::new(3, 3));
        let x = x.next(Conv2d::new(96, 256, 7)).next(Relu).next(MaxPool2d::new(2, 2));
        let x = same(x, 256, 512);
        let x = same(x, 512, 512);
        let x = same(x, 512, 1024);
        same(x, 1024, 1024).next(MaxPool2d::new(3, 3))
    })
}

/// A 3×3 convolution that keeps the image's size.
fn same(layers: Sequential, channels: u64, out: u64) -> Sequential {
    layers.next(Conv2d::new(channels, out, 3).padding(1)).next(Relu)
}

fn spec(
    name: &str,
    description: &str,
    image_size: u64,
    hidden: [u64; 2],
    features: impl Fn(u64) -> Sequential + 'static,
) -> ModelSpec {
    let body = move |net: &mut Net, image, body: &Body| {
        let x = features(body.channels).push(net, "features", image)?;
        let x = Flatten.push(net, "flatten", x)?;
        classifier(net, x, body, hidden)
    };
    ModelSpec { image_size, dropout: 0.5, ..ModelSpec::imagenet(name, description, Box::new(body)) }
}

fn classifier(net: &mut Net, x: ValueId, body: &Body, hidden: [u64; 2]) -> Result<ValueId, LayerError> {
    let layers = Sequential::new()
        .next(Dropout(body.dropout))
        .next(Linear::new(net.channels(x), hidden[0]))
        .next(Relu)
        .next(Dropout(body.dropout))
        .next(Linear::new(hidden[0], hidden[1]))
        .next(Relu)
        .next(Linear::new(hidden[1], body.classes));
    layers.push(net, "classifier", x)
}
