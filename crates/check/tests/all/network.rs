//! A training program built by hand: twenty convolutions with in-place ReLUs, a residual join, a concat, batch norm with
//! running statistics, and SGD right after each gradient.

use std::collections::BTreeMap;
use vdnn_graph::op::{Axis, BatchNorm, BatchNormUpdate, Concat, Conv2d, Conv2dDataGrad, Conv2dWeightGrad, Sgd};
use vdnn_graph::op::{SoftmaxCrossEntropy, Split, Unflatten};
use vdnn_graph::{Graph, InPlace, LayerId, Op, Phase, Program, ValueId};
use vdnn_tensor::{DType, TensorType};

/// A graph under construction; forward nodes are remembered so that `backward` can walk them in reverse.
pub struct Network {
    pub graph: Graph,
    rate: ValueId,
    iteration: ValueId,
    tape: Vec<(Op, String, Vec<ValueId>, Vec<ValueId>)>,
    gradients: BTreeMap<ValueId, ValueId>,
}

fn f32(dims: &[u64]) -> TensorType {
    TensorType::new(dims.to_vec(), DType::F32)
}

impl Network {
    pub fn new(name: &str) -> Self {
        let mut graph = Graph::new(name);
        let rate = graph.input("rate", f32(&[1])).unwrap();
        let iteration = graph.input("iteration", TensorType::new([1], DType::U64)).unwrap();
        Network { graph, rate, iteration, tape: Vec::new(), gradients: BTreeMap::new() }
    }

    pub fn push(&mut self, op: Op, name: &str, inputs: &[ValueId]) -> ValueId {
        let outputs = self.graph.push(name, op.clone(), inputs).unwrap();
        self.tape.push((op, name.to_string(), inputs.to_vec(), outputs.clone()));
        outputs[0]
    }

    /// 3×3 convolution, padding 1.
    pub fn conv(&mut self, name: &str, x: ValueId, channels: u64) -> ValueId {
        let inputs = self.graph.value(x).ty.shape.dim(1);
        let w = self.graph.parameter(&format!("{name}.w"), f32(&[channels, inputs, 3, 3])).unwrap();
        self.push(Op::Conv2d(Conv2d { padding: [1, 1], ..Conv2d::default() }), name, &[x, w])
    }

    pub fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.push(Op::Relu, name, &[x])
    }

    pub fn norm(&mut self, name: &str, x: ValueId) -> ValueId {
        let channels = self.graph.value(x).ty.shape.dim(1);
        let vector = |graph: &mut Graph, suffix: &str, trained: bool| {
            let name = format!("{name}.{suffix}");
            if trained { graph.parameter(&name, f32(&[channels])) } else { graph.state(&name, f32(&[channels])) }
                .unwrap()
        };
        let [gamma, beta] = ["gamma", "beta"].map(|s| vector(&mut self.graph, s, true));
        let [mean, variance] = ["running_mean", "running_variance"].map(|s| vector(&mut self.graph, s, false));
        let batch = self.graph.push(&format!("{name}.stats"), Op::BatchNormStats, &[x]).unwrap();
        let update = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 8 });
        self.graph.push(&format!("{name}.update"), update, &[batch[0], batch[1], mean, variance]).unwrap();
        self.push(Op::BatchNorm(BatchNorm { eps: 1e-5 }), name, &[x, batch[0], batch[1], gamma, beta])
    }

    /// Loss, then gradients and updates in reverse.
    pub fn train(mut self, x: ValueId, labels: ValueId) -> Program {
        let flat = self.push(Op::Flatten, "flatten", &[x]);
        let features = self.graph.value(flat).ty.shape.dim(1);
        let w = self.graph.parameter("fc.w", f32(&[3, features])).unwrap();
        let logits = self.push(Op::Linear, "fc", &[flat, w]);
        let loss = SoftmaxCrossEntropy::default();
        self.graph.push("loss", Op::SoftmaxCrossEntropy(loss), &[logits, labels]).unwrap();
        self.graph.push("accuracy", Op::Accuracy, &[logits, labels]).unwrap();
        let dlogits = self.back(Op::SoftmaxCrossEntropyGrad(loss), "loss.grad", &[logits, labels])[0];
        self.gradients.insert(logits, dlogits);
        while let Some((op, name, inputs, outputs)) = self.tape.pop() {
            let Some(dy) = self.gradients.get(&outputs[0]).copied() else { continue };
            self.rule(&op, &name, &inputs, outputs[0], dy);
        }
        Program::linearize(self.graph, InPlace::Allowed).unwrap()
    }

    fn back(&mut self, op: Op, name: &str, inputs: &[ValueId]) -> Vec<ValueId> {
        let phase = if op.has_effect() { Phase::Update } else { Phase::Backward };
        self.graph.push_at(name, op, inputs, phase, LayerId(0)).unwrap()
    }

    fn give(&mut self, to: ValueId, name: &str, gradient: ValueId) {
        let sum = match self.gradients.get(&to) {
            Some(&other) => self.back(Op::Add, &format!("{name}.sum"), &[other, gradient])[0],
            None => gradient,
        };
        self.gradients.insert(to, sum);
    }

    fn update(&mut self, name: &str, w: ValueId, dw: ValueId) {
        let momentum = self.graph.state(&format!("{name}.momentum"), self.graph.value(w).ty.clone()).unwrap();
        let sgd = Op::Sgd(Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false });
        self.back(sgd, name, &[w, dw, momentum, self.rate, self.iteration]);
    }

    fn rule(&mut self, op: &Op, name: &str, inputs: &[ValueId], y: ValueId, dy: ValueId) {
        let n = |suffix: &str| format!("{name}.{suffix}");
        let x = inputs[0];
        match op {
            Op::Conv2d(conv) => {
                let dw = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv: *conv, kernel: [3, 3] });
                let dw = self.back(dw, &n("dw"), &[x, dy])[0];
                if self.graph.value(x).producer.is_some() {
                    let dx = Op::Conv2dDataGrad(Conv2dDataGrad { conv: *conv, input: [2, 2] });
                    let dx = self.back(dx, &n("dx"), &[dy, inputs[1]])[0];
                    self.give(x, &n("dx"), dx);
                }
                self.update(&n("step"), inputs[1], dw);
            }
            Op::Linear => {
                let dw = self.back(Op::LinearWeightGrad, &n("dw"), &[x, dy])[0];
                let dx = self.back(Op::LinearDataGrad, &n("dx"), &[dy, inputs[1]])[0];
                self.give(x, &n("dx"), dx);
                self.update(&n("step"), inputs[1], dw);
            }
            Op::Relu => {
                let dx = self.back(Op::ReluGrad, &n("dx"), &[y, dy])[0];
                self.give(x, &n("dx"), dx);
            }
            Op::BatchNorm(norm) => {
                let grads = self.back(Op::BatchNormGrad(*norm), &n("grad"), &[x, dy, inputs[1], inputs[2], inputs[3]]);
                self.give(x, &n("dx"), grads[0]);
                self.update(&n("gamma.step"), inputs[3], grads[1]);
                self.update(&n("beta.step"), inputs[4], grads[2]);
            }
            Op::Add => inputs.iter().for_each(|&input| self.give(input, &n(&format!("d{}", input.0)), dy)),
            Op::Concat(Concat { axis }) => {
                let (axis, dimension) = (*axis, axis.dimension());
                let sections = inputs.iter().map(|&id| self.graph.value(id).ty.shape.dim(dimension)).collect();
                let parts = self.back(Op::Split(Split { sections, axis }), &n("split"), &[dy]);
                inputs
                    .iter()
                    .zip(parts)
                    .for_each(|(&input, part)| self.give(input, &n(&format!("d{}", input.0)), part));
            }
            Op::Flatten => {
                let sample = self.graph.value(x).ty.shape.dims()[1..].to_vec();
                let dx = self.back(Op::Unflatten(Unflatten { sample }), &n("dx"), &[dy])[0];
                self.give(x, &n("dx"), dx);
            }
            other => unreachable!("{} is not differentiated here", other.kind()),
        }
    }
}

/// `[2, 3, 2, 2]` images through twenty convolutions.
pub fn twenty_layers() -> Program {
    let mut net = Network::new("twenty");
    let image = net.graph.input("image", f32(&[2, 3, 2, 2])).unwrap();
    let labels = net.graph.input("labels", TensorType::new([2], DType::I32)).unwrap();
    let mut x = net.conv("conv0", image, 4);
    for layer in 1..17 {
        x = net.relu(&format!("relu{layer}"), x);
        let skip = x;
        x = net.conv(&format!("conv{layer}"), x, 4);
        if layer == 4 {
            x = net.norm("norm", x);
        }
        if layer == 7 {
            x = net.push(Op::Add, "join", &[x, skip]);
        }
    }
    let a = net.conv("conv17", x, 2);
    let a = net.relu("relu17", a);
    let b = net.conv("conv18", x, 4);
    let z = net.push(Op::Concat(Concat::default()), "concat", &[a, b]);
    let z = net.conv("conv19", z, 4);
    net.train(z, labels)
}

/// Three images of which two and one run through branches one after the other; the parts are joined along the batch.
pub fn split_batch() -> Program {
    let mut net = Network::new("split batch");
    let image = net.graph.input("image", f32(&[3, 3, 2, 2])).unwrap();
    let labels = net.graph.input("labels", TensorType::new([3], DType::I32)).unwrap();
    let cut = Op::Split(Split { sections: vec![2, 1], axis: Axis::Batch });
    let images = net.graph.push("cut", cut, &[image]).unwrap();
    let mut part = |part: usize| {
        let x = net.conv(&format!("stem{part}"), images[part], 2);
        let x = net.relu(&format!("relu{part}"), x);
        let a = net.conv(&format!("a{part}"), x, 2);
        let b = net.conv(&format!("b{part}"), x, 4);
        net.push(Op::Concat(Concat::default()), &format!("joined{part}"), &[a, b])
    };
    let parts = [part(0), part(1)];
    let z = net.push(Op::Concat(Concat::along(Axis::Batch)), "whole", &parts);
    let z = net.relu("relu", z);
    let z = net.conv("conv", z, 2);
    net.train(z, labels)
}

/// A plain chain of convolutions and ReLUs.
pub fn chain(n_layers: usize) -> Program {
    let mut net = Network::new("chain");
    let image = net.graph.input("image", f32(&[2, 1, 2, 2])).unwrap();
    let labels = net.graph.input("labels", TensorType::new([2], DType::I32)).unwrap();
    let mut x = net.conv("conv0", image, 1);
    for layer in 1..n_layers {
        x = net.relu(&format!("relu{layer}"), x);
        x = net.conv(&format!("conv{layer}"), x, 1);
    }
    net.train(x, labels)
}
