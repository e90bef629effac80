//! Networks of every kind of layer: a few steps on both devices from the same weights, all numbers compared.

use crate::feeds::{Run, numbers};
use crate::{Outcome, Report, cuda, relative_error};
use serde_json::{Value, json};
use std::error::Error;
use vdnn_autograd::Optimizer;
use vdnn_graph::ValueId;
use vdnn_graph::op::Adam;
use vdnn_layers::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Layer, LayerError, Linear, LocalResponseNorm,
    MaxPool2d, Mode, Net, NetOptions, Relu, Sequential, add, concat,
};
use vdnn_runtime::CpuDevice;
use vdnn_train::Network;

const STEPS: u64 = 3;

/// Pushes a network's layers and returns its logits.
type Body = fn(&mut Net, ValueId) -> Result<ValueId, LayerError>;

/// Name, network, image, batch size, optimizer if not SGD.
type Case = (&'static str, Body, [u64; 3], u64, Option<Optimizer>);

/// Builds a network by its body, which ends in logits.
pub fn network(image: [u64; 3], body: Body) -> impl Network {
    move |batch_size: u64, mode: Mode| -> Result<Net, Box<dyn Error + Send + Sync>> {
        let options = NetOptions { batch_size, image, mode, seed: 5, ..NetOptions::default() };
        let mut net = Net::new("net", &options)?;
        let image = net.image();
        let logits = body(&mut net, image)?;
        net.classify(logits, 0.0)?;
        Ok(net)
    }
}

pub fn run(report: &mut Report) -> Outcome {
    let adam = Optimizer::Adam(Adam { beta1: 0.9, beta2: 0.999, eps: 1e-4, weight_decay: 1e-4, decoupled: true });
    let cases: [Case; 6] = [
        ("vgg", vgg, [3, 32, 32], 8, None),
        ("vgg with adam", vgg, [3, 32, 32], 8, Some(adam)),
        ("residual", residual, [3, 32, 32], 16, None),
        ("dense", dense, [3, 28, 28], 16, None),
        ("inception", inception, [3, 35, 33], 8, None),
        ("odd batch", vgg, [1, 32, 32], 5, None),
    ];
    for (name, body, image, batch_size, optimizer) in cases {
        for policy in ["none", "all"] {
            let mut run = Run { policy, ..Run::small(batch_size, image) };
            run.options.min_offload = 1 << 10;
            run.optimizer = optimizer.unwrap_or(run.optimizer);
            report.outcome(&format!("{name}, {policy}"), compare(&run, &network(image, body)));
        }
    }
    Ok(())
}

fn compare(run: &Run<'_>, network: &dyn Network) -> Outcome<(bool, Value)> {
    let mut cpu = run.trainer(network, Box::new(CpuDevice::new()?))?;
    let mut gpu = run.trainer(network, Box::new(cuda()?))?;
    let (want, got) = (run.steps(&mut cpu, STEPS)?, run.steps(&mut gpu, STEPS)?);
    let (mut worst, mut of) = (0f64, String::new());
    for ((name, want), (_, got)) in numbers(&mut cpu)?.iter().zip(&numbers(&mut gpu)?) {
        let error = relative_error(got, want);
        if error > worst {
            (worst, of) = (error, name.clone());
        }
    }
    let loss_error = want.iter().zip(&got).map(|(a, b)| ((a - b) / a).abs()).fold(0.0, f64::max);
    let passed = loss_error <= 1e-4 && worst <= 1e-3;
    let facts = json!({"losses": got, "cpu_losses": want, "loss_error": loss_error, "worst": worst, "of": of});
    Ok((passed, facts))
}

pub fn vgg(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let channels = net.channels(x);
    let chain = Sequential::new()
        .then("conv1", Conv2d::new(channels, 16, 3).padding(1))
        .then("relu1", Relu)
        .then("conv2", Conv2d::new(16, 16, 3).padding(1))
        .then("relu2", Relu)
        .then("pool1", MaxPool2d::new(2, 2))
        .then("conv3", Conv2d::new(16, 32, 3).padding(1))
        .then("relu3", Relu)
        .then("pool2", MaxPool2d::new(2, 2))
        .then("flatten", Flatten)
        .then("fc1", Linear::new(32 * 8 * 8, 64))
        .then("relu4", Relu)
        .then("dropout", Dropout(0.5))
        .then("fc2", Linear::new(64, 10));
    chain.push(net, "", x)
}

fn residual(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let stem = Sequential::new()
        .then("conv", Conv2d::new(3, 16, 7).stride(2).padding(3).no_bias())
        .then("bn", BatchNorm2d::new(16))
        .then("relu", Relu)
        .then("pool", MaxPool2d::new(3, 2).padding(1));
    let mut x = stem.push(net, "stem", x)?;
    for (name, inputs, outputs, stride) in [("a", 16u64, 16u64, 1), ("b", 16, 32, 2)] {
        let main = Sequential::new()
            .then("conv1", Conv2d::new(inputs, outputs, 3).stride(stride).padding(1).no_bias())
            .then("bn1", BatchNorm2d::new(outputs))
            .then("relu", Relu)
            .then("conv2", Conv2d::new(outputs, outputs, 3).padding(1).no_bias())
            .then("bn2", BatchNorm2d::new(outputs));
        let y = main.push(net, name, x)?;
        let short = if stride == 1 {
            x
        } else {
            let down = Sequential::new()
                .then("conv", Conv2d::new(inputs, outputs, 1).stride(stride).no_bias())
                .then("bn", BatchNorm2d::new(outputs));
            down.push(net, &format!("{name}.down"), x)?
        };
        let sum = add(net, &format!("{name}.add"), y, short)?;
        x = Relu.push(net, &format!("{name}.out"), sum)?;
    }
    let head =
        Sequential::new().then("pool", AdaptiveAvgPool2d(1)).then("flatten", Flatten).then("fc", Linear::new(32, 10));
    head.push(net, "head", x)
}

fn dense(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let mut x = Conv2d::new(3, 12, 3).padding(1).no_bias().push(net, "stem", x)?;
    for layer in ["a", "b", "c"] {
        let channels = net.channels(x);
        let grow = Sequential::new()
            .then("bn", BatchNorm2d::new(channels))
            .then("relu", Relu)
            .then("conv", Conv2d::new(channels, 5, 3).padding(1).no_bias());
        let y = grow.push(net, layer, x)?;
        x = concat(net, &format!("{layer}.cat"), &[x, y])?;
    }
    let channels = net.channels(x);
    let tail = Sequential::new()
        .then("bn", BatchNorm2d::new(channels))
        .then("relu", Relu)
        .then("conv", Conv2d::new(channels, 8, 1).no_bias())
        .then("pool", AvgPool2d::new(2, 2))
        .then("flatten", Flatten)
        .then("fc", Linear::new(8 * 14 * 14, 10));
    tail.push(net, "tail", x)
}

fn inception(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let stem = Sequential::new()
        .then("conv", Conv2d::new(3, 16, 5).stride(2))
        .then("relu", Relu)
        .then("norm", LocalResponseNorm::new(5))
        .then("pool", MaxPool2d::new(3, 2).ceil_mode());
    let x = stem.push(net, "stem", x)?;
    let a = Conv2d::new(16, 8, 1).push(net, "a", x)?;
    let a = Relu.push(net, "a.relu", a)?;
    let b = Conv2d::new(16, 12, 3).padding(1).groups(4).push(net, "b", x)?;
    let b = Relu.push(net, "b.relu", b)?;
    let c = Conv2d::new(16, 6, 3).padding(2).dilation(2).push(net, "c", x)?;
    let c = Relu.push(net, "c.relu", c)?;
    let d = MaxPool2d::new(3, 1).padding(1).push(net, "d", x)?;
    let whole = concat(net, "cat", &[a, b, c, d])?;
    let channels = net.channels(whole);
    let head = Sequential::new()
        .then("conv", Conv2d::new(channels, 16, 3))
        .then("relu", Relu)
        .then("pool", AdaptiveAvgPool2d(3))
        .then("flatten", Flatten)
        .then("dropout", Dropout(0.3))
        .then("fc", Linear::new(16 * 9, 10));
    head.push(net, "head", whole)
}
