//! Tiny iterations made of `vdnn_graph` ops: a stage of a network, whose output's gradient arrives from the next stage, or
//! which ends with a loss.
//!
//! ```text
//!  image ─► conv ─► relu ─► … ─► y          dy ─► relu grad ─► weight grad, update, data grad ─► …
//!           forward                         backward and updates, layer by layer from the last
//! ```

use std::collections::BTreeMap;
use vdnn_graph::op::{
    AvgPool2d, AvgPool2dGrad, Concat, Conv2d, Conv2dDataGrad, Conv2dWeightGrad, Dropout, LocalResponseNorm, MaxPool2d,
    Sgd, SoftmaxCrossEntropy, Split, Window,
};
use vdnn_graph::{Graph, InPlace, LayerId, Op, Phase, Program, ValueId};
use vdnn_tensor::{DType, TensorType};

/// Samples of a batch; with images of 8 × 8 a channel has a kibibyte.
const N: u64 = 4;

/// What a forward node's backward needs to know.
struct Step {
    op: Op,
    layer: LayerId,
    inputs: Vec<ValueId>,
    output: ValueId,
    trained: bool,
}

/// A stage under construction.
pub struct Stage {
    graph: Graph,
    tape: Vec<Step>,
    image: ValueId,
    counter: ValueId,
    rate: ValueId,
    /// Gradients found so far, by value.
    gradients: BTreeMap<ValueId, ValueId>,
}

impl Stage {
    /// A stage that reads images of so many channels, 8 × 8 pixels each.
    pub fn images(name: &str, channels: u64) -> Self {
        Self::new(name, &[N, channels, 8, 8])
    }

    /// A stage that reads rows.
    pub fn rows(name: &str, features: u64) -> Self {
        Self::new(name, &[64, features])
    }

    fn new(name: &str, shape: &[u64]) -> Self {
        let mut graph = Graph::new(name);
        let image = graph.input("image", f32s(shape)).unwrap();
        let rate = graph.input("learning_rate", f32s(&[1])).unwrap();
        let counter = graph.input("iteration", TensorType::new([1], DType::U64)).unwrap();
        Stage { graph, tape: Vec::new(), image, counter, rate, gradients: BTreeMap::new() }
    }

    /// The batch.
    pub fn image(&self) -> ValueId {
        self.image
    }

    /// A 1 × 1 convolution to so many channels (of rows: a linear layer) whose weights are updated.
    pub fn trained(&mut self, x: ValueId, out: u64) -> ValueId {
        self.weighted(x, out, true)
    }

    /// The same with weights that stay as they are.
    pub fn frozen(&mut self, x: ValueId, out: u64) -> ValueId {
        self.weighted(x, out, false)
    }

    fn weighted(&mut self, x: ValueId, out: u64, trained: bool) -> ValueId {
        let features = self.graph.value(x).ty.shape.dim(1);
        let (kind, op, shape) = match self.graph.value(x).ty.shape.rank() {
            2 => ("linear", Op::Linear, vec![out, features]),
            _ => ("conv", Op::Conv2d(Conv2d::default()), vec![out, features, 1, 1]),
        };
        let w = self.graph.parameter(&format!("{kind}{}.w", self.tape.len()), f32s(&shape)).unwrap();
        self.forward(kind, op, &[x, w], trained)
    }

    /// max(X, 0), in place where that is legal.
    pub fn relu(&mut self, x: ValueId) -> ValueId {
        self.forward("relu", Op::Relu, &[x], false)
    }

    /// A + B.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.forward("add", Op::Add, &[a, b], false)
    }

    /// Channels one after the other.
    pub fn concat(&mut self, parts: &[ValueId]) -> ValueId {
        self.forward("concat", Op::Concat(Concat::default()), parts, false)
    }

    /// 2 × 2 maxima.
    pub fn max_pool(&mut self, x: ValueId) -> ValueId {
        self.forward("max_pool", Op::MaxPool2d(MaxPool2d { window: Window::square(2) }), &[x], false)
    }

    /// 2 × 2 means.
    pub fn avg_pool(&mut self, x: ValueId) -> ValueId {
        let pool = AvgPool2d { window: Window::square(2), count_include_pad: true };
        self.forward("avg_pool", Op::AvgPool2d(pool), &[x], false)
    }

    /// Half of the elements.
    pub fn dropout(&mut self, x: ValueId) -> ValueId {
        let dropout = Dropout { p: 0.5, seed: 1, stream: self.tape.len() as u32 };
        self.forward("dropout", Op::Dropout(dropout), &[x, self.counter], false)
    }

    /// Local response normalisation, whose gradient reads X.
    pub fn norm(&mut self, x: ValueId) -> ValueId {
        let norm = LocalResponseNorm { size: 3, alpha: 1e-4, beta: 0.75, k: 1.0 };
        self.forward("norm", Op::LocalResponseNorm(norm), &[x], false)
    }

    fn forward(&mut self, kind: &str, op: Op, inputs: &[ValueId], trained: bool) -> ValueId {
        let name = format!("{kind}{}", self.tape.len());
        let layer = self.graph.begin_layer(&name);
        let output = self.graph.push(&name, op.clone(), inputs).unwrap()[0];
        self.tape.push(Step { op, layer, inputs: inputs.to_vec(), output, trained });
        output
    }

    /// Backward from a gradient that arrives from outside, and updates.
    pub fn finish(mut self, y: ValueId) -> Program {
        let dy = self.graph.input("dy", self.graph.value(y).ty.clone()).unwrap();
        self.gradients.insert(y, dy);
        self.backward()
    }

    /// The mean loss of logits, backward from it, and updates.
    pub fn classify(mut self, logits: ValueId) -> Program {
        let labels = self.graph.input("label", TensorType::new([64], DType::I32)).unwrap();
        let loss = SoftmaxCrossEntropy::default();
        let layer = self.graph.begin_layer("loss");
        self.graph.push("loss", Op::SoftmaxCrossEntropy(loss), &[logits, labels]).unwrap();
        let op = Op::SoftmaxCrossEntropyGrad(loss);
        let dy = self.graph.push_at("loss.grad", op, &[logits, labels], Phase::Backward, layer).unwrap()[0];
        self.gradients.insert(logits, dy);
        self.backward()
    }

    fn backward(mut self) -> Program {
        for step in std::mem::take(&mut self.tape).into_iter().rev() {
            let dy = self.gradients[&step.output];
            self.step_back(&step, dy);
        }
        Program::linearize(self.graph, InPlace::Allowed).unwrap()
    }

    fn step_back(&mut self, step: &Step, dy: ValueId) {
        let (x, second) = (step.inputs[0], step.inputs.get(1).copied());
        let input = || {
            let dims = self.graph.value(x).ty.shape.dims();
            [dims[2], dims[3]]
        };
        let mut dw = None;
        let (op, reads) = match &step.op {
            Op::Conv2d(conv) => {
                let weights = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv: *conv, kernel: [1, 1] });
                dw = self.weight_gradient(step, weights, dy);
                let dims = self.graph.value(x).ty.shape.dims();
                let input = [dims[2], dims[3]];
                (Op::Conv2dDataGrad(Conv2dDataGrad { conv: *conv, input }), vec![dy, second.unwrap()])
            }
            Op::Linear => {
                dw = self.weight_gradient(step, Op::LinearWeightGrad, dy);
                (Op::LinearDataGrad, vec![dy, second.unwrap()])
            }
            Op::Relu => (Op::ReluGrad, vec![step.output, dy]),
            Op::MaxPool2d(pool) => (Op::MaxPool2dGrad(*pool), vec![x, step.output, dy]),
            Op::AvgPool2d(pool) => (Op::AvgPool2dGrad(AvgPool2dGrad { pool: *pool, input: input() }), vec![dy]),
            Op::Dropout(dropout) => (Op::DropoutGrad(*dropout), vec![dy, self.counter]),
            Op::LocalResponseNorm(norm) => (Op::LocalResponseNormGrad(*norm), vec![x, dy]),
            Op::Concat(_) => {
                let sections = step.inputs.iter().map(|&part| self.graph.value(part).ty.shape.dim(1)).collect();
                let parts = self.push(step, "grad", Op::Split(Split::channels(sections)), &[dy]);
                return step.inputs.iter().zip(parts).for_each(|(&input, part)| self.give(step, input, part));
            }
            Op::Add => return step.inputs.iter().for_each(|&input| self.give(step, input, dy)),
            other => panic!("no gradient of {other:?}"),
        };
        if x != self.image {
            let dx = self.push(step, "data_grad", op, &reads)[0];
            self.give(step, x, dx);
        }
        self.update(step, dw);
    }

    fn weight_gradient(&mut self, step: &Step, op: Op, dy: ValueId) -> Option<ValueId> {
        step.trained.then(|| self.push(step, "weight_grad", op, &[step.inputs[0], dy])[0])
    }

    /// After the last that reads the weights.
    fn update(&mut self, step: &Step, dw: Option<ValueId>) {
        if let Some(dw) = dw {
            let name = format!("{}.update", self.graph.layer(step.layer).name);
            let sgd = Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false };
            let reads = [step.inputs[1], dw, self.rate, self.counter];
            self.graph.push_at(&name, Op::Sgd(sgd), &reads, Phase::Update, step.layer).unwrap();
        }
    }

    /// Adds to what is known of a value's gradient.
    fn give(&mut self, step: &Step, value: ValueId, gradient: ValueId) {
        let sum = match self.gradients.get(&value) {
            Some(&known) => self.push(step, "sum", Op::Add, &[known, gradient])[0],
            None => gradient,
        };
        self.gradients.insert(value, sum);
    }

    fn push(&mut self, step: &Step, what: &str, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let name = format!("{}.{what}", self.graph.layer(step.layer).name);
        self.graph.push_at(&name, op, inputs, Phase::Backward, step.layer).unwrap()
    }
}

fn f32s(shape: &[u64]) -> TensorType {
    TensorType::new(shape.to_vec(), DType::F32)
}
