//! Networks by name.

use crate::{ModelError, Options, alexnet, densenet, googlenet, overfeat, resnet, vgg};
use vdnn_graph::ValueId;
use vdnn_layers::{LayerError, Net, NetOptions};

/// What a network's body needs to know besides its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Body {
    /// Channels of the images.
    pub channels: u64,
    /// Number of classes.
    pub classes: u64,
    /// Probability of dropping.
    pub dropout: f64,
}

/// Pushes everything between the image and the logits.
pub(crate) type BuildBody = Box<dyn Fn(&mut Net, ValueId, &Body) -> Result<ValueId, LayerError>>;

/// A network: its name, its defaults, and how it is built.
pub struct ModelSpec {
    /// Name on the command line.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// Default height and width of the images.
    pub image_size: u64,
    /// Default channels of the images.
    pub channels: u64,
    /// Default number of classes.
    pub classes: u64,
    /// Default probability of dropping; 0 for networks without dropout.
    pub dropout: f64,
    pub(crate) body: BuildBody,
}

impl ModelSpec {
    /// A network for ImageNet: 3 channels of 224×224, 1,000 classes, no dropout.
    pub(crate) fn imagenet(name: impl Into<String>, description: impl Into<String>, body: BuildBody) -> Self {
        let (name, description) = (name.into(), description.into());
        ModelSpec { name, description, image_size: 224, channels: 3, classes: 1000, dropout: 0.0, body }
    }

    /// Builds the network, from the image to loss and accuracy.
    ///
    /// # Errors
    /// [`ModelError`] for an empty batch, or naming the layer that does not fit the images.
    pub fn build(&self, options: &Options) -> Result<Net, ModelError> {
        let image_size = options.image_size.unwrap_or(self.image_size);
        let channels = options.channels.unwrap_or(self.channels);
        let classes = options.classes.unwrap_or(self.classes);
        let settings = [
            ("batch size", options.batch_size),
            ("image size", image_size),
            ("channels", channels),
            ("classes", classes),
        ];
        if let Some((setting, _)) = settings.into_iter().find(|(_, value)| *value == 0) {
            return Err(ModelError::Zero { model: self.name.clone(), setting });
        }
        let body = Body { channels, classes, dropout: options.dropout.unwrap_or(self.dropout) };
        let net_options = NetOptions {
            batch_size: options.batch_size,
            image: [channels, image_size, image_size],
            mode: options.mode,
            seed: options.seed,
            dtype: options.dtype,
            precision: options.precision,
            bytes: options.bytes.clone(),
            passes: options.passes,
            split_batch: options.split_batch.clone(),
        };
        let refuse =
            |source| ModelError::Layer { model: self.name.clone(), channels, image_size, source: Box::new(source) };
        self.build_net(&net_options, &body, options.label_smoothing).map_err(refuse)
    }

    fn build_net(&self, options: &NetOptions, body: &Body, label_smoothing: f64) -> Result<Net, LayerError> {
        let mut net = Net::new(&self.name, options)?;
        let image = net.image();
        let logits = (self.body)(&mut net, image, body)?;
        net.classify(logits, label_smoothing)?;
        Ok(net)
    }
}

/// All networks with a fixed name, and the usual members of the families `vgg-N`, `resnet-N` and `resnet-cifar-N`.
pub fn models() -> Vec<ModelSpec> {
    let mut all = vec![vgg::small(), resnet::small()];
    all.extend([alexnet::alexnet(), alexnet::alexnet_lrn(), overfeat::fast(), overfeat::accurate()]);
    all.push(googlenet::googlenet());
    all.extend(vgg::torchvision());
    all.extend([116, 216, 316, 416].map(|depth| vgg::deep(depth).expect("the paper's depths exist")));
    all.extend(resnet::torchvision());
    all.extend([1001, 2504].map(|depth| resnet::deep(depth).expect("the usual depths exist")));
    all.extend([20, 56, 110].map(|depth| resnet::cifar(depth).expect("the usual depths exist")));
    all.push(densenet::densenet121());
    all
}

/// The network of this name.
///
/// # Errors
/// [`ModelError::Unknown`] with the nearest name, [`ModelError::Depth`] for a family's member that does not exist.
pub fn find(name: &str) -> Result<ModelSpec, ModelError> {
    let mut all = models();
    if let Some(index) = all.iter().position(|spec| spec.name == name) {
        return Ok(all.swap_remove(index));
    }
    let depth = |prefix| name.strip_prefix(prefix).and_then(|rest: &str| rest.parse::<u64>().ok());
    let refuse = |expected| ModelError::Depth { name: name.to_string(), expected };
    if let Some(depth) = depth("vgg-") {
        return vgg::deep(depth).ok_or_else(|| refuse(vgg::DEPTHS));
    }
    if let Some(depth) = depth("resnet-") {
        return resnet::deep(depth).ok_or_else(|| refuse(resnet::DEPTHS));
    }
    if let Some(depth) = depth("resnet-cifar-") {
        return resnet::cifar(depth).ok_or_else(|| refuse(resnet::CIFAR_DEPTHS));
    }
    let similarity = |spec: &ModelSpec| strsim::jaro_winkler(name, &spec.name);
    let nearest = all.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let nearest = nearest.map(|spec| spec.name.clone()).unwrap_or_default();
    Err(ModelError::Unknown { name: name.to_string(), nearest })
}

/// Builds a network by name, from the image to loss and accuracy.
///
/// # Errors
/// [`ModelError`] for an unknown name, an empty batch, or a layer that does not fit the images.
pub fn build(name: &str, options: &Options) -> Result<Net, ModelError> {
    find(name)?.build(options)
}
