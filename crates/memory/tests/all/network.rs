//! Random networks of everything that makes planning hard: forks, joins, nested concatenations, values used many times,
//! shared parameters, ops in place, effects, branches that nobody reads.

use crate::random::Random;
use vdnn_graph::ValueId;
use vdnn_layers::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Layer, Linear, LocalResponseNorm, MaxPool2d,
    Net, NetOptions, Relu, Reuse, add, concat,
};

/// Number of classes.
pub const CLASSES: u64 = 3;

/// A random network that classifies tiny images.
pub fn random_network(random: &mut Random) -> Net {
    let image = [random.between(1, 3), random.between(3, 6), random.between(3, 6)];
    let options =
        NetOptions { batch_size: random.between(2, 4), image, seed: random.below(1000), ..NetOptions::default() };
    let net = Net::new("random", &options).unwrap();
    let start = net.image();
    let mut builder = Builder { net, random, features: vec![start], convolutions: Vec::new(), norms: Vec::new(), n: 0 };
    let mut x = builder.convolution(start);
    for _ in 0..builder.random.between(2, 9) {
        x = builder.block(x, 2);
        builder.features.push(x);
    }
    builder.head(x);
    builder.net
}

struct Builder<'a> {
    net: Net,
    random: &'a mut Random,
    /// Features so far: what a skip may reach back to.
    features: Vec<ValueId>,
    /// Convolutions so far: name, channels in and out.
    convolutions: Vec<(String, u64, u64)>,
    /// Batch norms so far: name and channels.
    norms: Vec<(String, u64)>,
    n: usize,
}

impl Builder<'_> {
    fn name(&mut self, kind: &str) -> String {
        self.n += 1;
        format!("{kind}{}", self.n)
    }

    fn push(&mut self, kind: &str, layer: impl Layer, x: ValueId) -> ValueId {
        let name = self.name(kind);
        layer.push(&mut self.net, &name, x).unwrap()
    }

    /// One block: a layer, or several around a fork. `depth` bounds how far blocks nest.
    fn block(&mut self, x: ValueId, depth: u64) -> ValueId {
        let channels = self.net.channels(x);
        let (height, width) = (self.net.ty(x).shape.dim(2), self.net.ty(x).shape.dim(3));
        match self.random.below(if depth > 0 { 16 } else { 9 }) {
            0 => self.convolution(x),
            1 | 2 => self.push("relu", Relu, x),
            3 => self.norm(x),
            4 => self.push("dropout", Dropout(0.4), x),
            5 if height > 1 && width > 1 => self.push("maxpool", MaxPool2d::new(2, 1), x),
            6 if height > 2 && width > 2 => self.push("avgpool", AvgPool2d::new(2, 2), x),
            7 => self.push("lrn", LocalResponseNorm::new(3), x),
            8 => self.shared_convolution(x),
            9 | 10 => self.residual(x, depth),
            11 | 12 if channels <= 8 => self.branches(x, depth),
            13 => self.skip(x),
            14 => self.unused(x),
            _ => {
                let y = self.push("relu", Relu, x);
                self.push("relu", Relu, y)
            }
        }
    }

    fn convolution(&mut self, x: ValueId) -> ValueId {
        let out = self.random.between(1, 4);
        self.convolution_to(x, out)
    }

    fn convolution_to(&mut self, x: ValueId, out: u64) -> ValueId {
        let channels = self.net.channels(x);
        let name = self.name("conv");
        let y = convolution(channels, out).push(&mut self.net, &name, x).unwrap();
        self.convolutions.push((name, channels, out));
        y
    }

    /// A module called twice: the parameters of an earlier convolution that fits.
    fn shared_convolution(&mut self, x: ValueId) -> ValueId {
        let channels = self.net.channels(x);
        let fitting = self.convolutions.iter().find(|(_, from, _)| *from == channels).cloned();
        let Some((of, from, out)) = fitting else { return self.convolution(x) };
        self.push("again", Reuse::new(convolution(from, out), &of), x)
    }

    /// A batch norm, sometimes an earlier one's parameters and running statistics again.
    fn norm(&mut self, x: ValueId) -> ValueId {
        let channels = self.net.channels(x);
        let fitting = self.norms.iter().find(|(_, of)| *of == channels).cloned();
        if let Some((of, _)) = fitting
            && self.random.chance(30)
        {
            return self.push("bn_again", Reuse::new(BatchNorm2d::new(channels), &of), x);
        }
        let name = self.name("bn");
        self.norms.push((name.clone(), channels));
        BatchNorm2d::new(channels).push(&mut self.net, &name, x).unwrap()
    }

    /// x + f(x), sometimes with a ReLU in place on the way or after.
    fn residual(&mut self, x: ValueId, depth: u64) -> ValueId {
        let channels = self.net.channels(x);
        let mut y = self.convolution_to(x, channels);
        if self.random.chance(50) {
            y = self.same_shape(y);
        }
        if self.random.chance(30) && depth > 1 {
            y = self.convolution_to(y, channels);
        }
        let name = self.name("add");
        let (a, b) = if self.random.chance(50) { (x, y) } else { (y, x) };
        let z = add(&mut self.net, &name, a, b).unwrap();
        if self.random.chance(50) { self.push("relu", Relu, z) } else { z }
    }

    fn same_shape(&mut self, x: ValueId) -> ValueId {
        match self.random.below(3) {
            0 => self.push("relu", Relu, x),
            1 => self.norm(x),
            _ => self.push("dropout", Dropout(0.3), x),
        }
    }

    /// Two or three branches side by side, some of them nested, some the input itself.
    fn branches(&mut self, x: ValueId, depth: u64) -> ValueId {
        let parts: Vec<ValueId> = (0..self.random.between(2, 3))
            .map(|_| match self.random.below(6) {
                0 => x,
                1 if depth > 1 && self.net.channels(x) <= 4 => self.branches(x, depth - 1),
                2 => self.same_shape(x),
                _ => {
                    let y = self.convolution(x);
                    if self.random.chance(50) { self.same_shape(y) } else { y }
                }
            })
            .collect();
        let name = self.name("concat");
        concat(&mut self.net, &name, &parts).unwrap()
    }

    /// Adds a feature from far back.
    fn skip(&mut self, x: ValueId) -> ValueId {
        let like = self.net.ty(x).clone();
        let earlier: Vec<ValueId> = self.features.iter().copied().filter(|&id| *self.net.ty(id) == like).collect();
        if earlier.is_empty() {
            return self.push("relu", Relu, x);
        }
        let from = self.random.pick(&earlier);
        let name = self.name("skip");
        add(&mut self.net, &name, x, from).unwrap()
    }

    /// A branch that nobody reads, perhaps with running statistics that must be updated all the same.
    fn unused(&mut self, x: ValueId) -> ValueId {
        let y = self.convolution(x);
        if self.random.chance(50) {
            self.norm(y);
        }
        x
    }

    fn head(&mut self, mut x: ValueId) {
        if self.random.chance(40) {
            x = self.push("pool", AdaptiveAvgPool2d(1), x);
        }
        x = self.push("flatten", Flatten, x);
        if self.random.chance(30) {
            x = self.push("dropout", Dropout(0.5), x);
        }
        if self.random.chance(50) {
            x = self.push("fc", Linear::new(self.net.channels(x), 4), x);
            x = self.push("relu", Relu, x);
        }
        x = self.push("fc", Linear::new(self.net.channels(x), CLASSES), x);
        self.net.classify(x, 0.1).unwrap();
    }
}

fn convolution(channels: u64, out: u64) -> Conv2d {
    Conv2d::new(channels, out, 3).padding(1)
}
