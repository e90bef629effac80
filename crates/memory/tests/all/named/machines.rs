//! Made-up machines: kernels priced by the bytes they touch, links by a rate.

use vdnn_graph::{NodeId, Op, Program};
use vdnn_schedule::{Choice, KernelTable};
use vdnn_sim::Links;

/// What kernels and copies cost.
pub struct Machine {
    /// For tables.
    pub name: &'static str,
    /// Seconds a kibibyte of operands of a convolution or a linear layer, and of what only passes over its bytes.
    convolution: f64,
    pass: f64,
    /// Kibibytes a second down and up, alone; both ways at once each has seven tenths.
    link: [f64; 2],
    latency: f64,
}

/// All machines.
pub const MACHINES: [Machine; 3] = [
    Machine { name: "even", convolution: 0.5, pass: 0.1, link: [1.0, 1.1], latency: 0.05 },
    Machine { name: "slow-link", convolution: 0.5, pass: 0.2, link: [0.25, 0.2], latency: 0.2 },
    Machine { name: "fast-link", convolution: 0.5, pass: 0.1, link: [5.0, 7.0], latency: 0.01 },
];

impl Machine {
    /// What copies cost.
    pub fn links(&self) -> Links {
        let [d2h, h2d] = self.link.map(|rate| rate * 1024.0);
        Links { latency: self.latency, ..Links::new(d2h, h2d, 0.7 * d2h.max(h2d)) }
    }

    /// What each kernel may run as. Two or three algorithms of what has weights, the faster ones with more workspace.
    pub fn kernels(&self, program: &Program) -> KernelTable {
        KernelTable::new(program.graph.node_ids().map(|id| self.choices(program, id)).collect())
    }

    fn choices(&self, program: &Program, id: NodeId) -> Vec<Choice> {
        let node = program.graph.node(id);
        let bytes: u64 = node.inputs.iter().chain(&node.outputs).map(|&v| program.graph.value(v).ty.bytes()).sum();
        let first = program.graph.value(node.inputs[0]).ty.bytes();
        // No two kernels take quite the same time, so that plans seldom tie.
        let kibibytes = bytes as f64 / 1024.0 * (1.0 + 0.013 * f64::from(id.0));
        let choice = |name: &str, slower: f64, workspace: u64, rate: f64| Choice {
            algorithm: name.to_string(),
            workspace,
            seconds: kibibytes * rate * slower,
            deterministic: true,
        };
        match node.op {
            Op::Conv2d(_) | Op::Linear => {
                vec![choice("fast", 1.0, first, self.convolution), choice("lean", 1.4, 0, self.convolution)]
            }
            Op::Conv2dWeightGrad(_) | Op::LinearWeightGrad => vec![
                choice("fast", 1.0, first, self.convolution),
                choice("half", 1.2, first / 2, self.convolution),
                choice("lean", 1.7, 0, self.convolution),
            ],
            Op::Conv2dDataGrad(_) | Op::LinearDataGrad => {
                vec![choice("fast", 1.0, first / 2, self.convolution), choice("lean", 1.3, 0, self.convolution)]
            }
            Op::Concat(_) | Op::Split(_) => vec![choice("view", 1.0, 0, 0.0)],
            _ => vec![choice("only", 1.0, 0, self.pass)],
        }
    }
}
