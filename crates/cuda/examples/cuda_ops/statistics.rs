//! Convolutions that make the statistics of their output, beside the two ops: by the plans that are offered, those that sum the output
//! among them where they are worthwhile, and by the two ops' own plans.

use crate::Outcome;
use crate::build::{Build, Maps};
use crate::ops::{Case, case};
use vdnn_graph::op::{Concat, Conv2d};
use vdnn_graph::{Graph, Op, ValueId};
use vdnn_schedule::{Choice, KernelTable};

/// X, channels of Y, the filter's size, stride, padding, whether all numbers are positive.
const CASES: [([u64; 4], u64, u64, u64, u64, bool); 9] = [
    ([4, 16, 14, 14], 24, 3, 1, 1, false),
    ([32, 64, 28, 28], 256, 1, 1, 0, false),
    ([8, 64, 28, 28], 128, 1, 2, 0, false),
    ([8, 64, 28, 28], 64, 3, 2, 1, false),
    ([2, 8, 9, 9], 16, 3, 1, 1, false),
    ([16, 512, 7, 7], 2048, 1, 1, 0, false),
    // Channels that no plan sums.
    ([3, 5, 9, 9], 7, 3, 1, 1, false),
    // Means of 13 and 27 deviations: sums of squares in f32 are 180 and 730 times as far off as variances may be.
    ([32, 16, 28, 28], 64, 1, 1, 0, true),
    ([32, 64, 28, 28], 64, 1, 1, 0, true),
];

pub fn cases(cases: &mut Vec<Case>) {
    for (x, k, filter, stride, padding, positive) in CASES {
        let name =
            format!("conv2d_stats {x:?} to {k} by {filter} s{stride}{}", if positive { " positive" } else { "" });
        case(cases, name, move |b| {
            let w = [k, x[1], filter, filter];
            let (x, w) = if positive { (b.positive(&x), b.positive(&w)) } else { (b.x(&x), b.x(&w)) };
            let conv = Conv2d { stride: [stride; 2], padding: [padding; 2], ..Conv2d::default() };
            both(b, conv, [x, w]).map(|_| ())
        });
    }
    case(cases, "conv2d_stats into a concatenation".to_string(), |b| {
        let (x, w) = (b.x(&[4, 16, 14, 14]), b.x(&[24, 16, 3, 3]));
        let y = both(b, Conv2d { padding: [1; 2], ..Conv2d::default() }, [x, w])?;
        let whole = b.push(Op::Concat(Concat::default()), &[x, y])?[0];
        let stride = Conv2d { stride: [2; 2], ..Conv2d::default() };
        let last = b.x(&[8, 40, 1, 1]);
        b.read(Op::Conv2d(stride), &[whole, last])
    });
}

/// Y, mean and variance of one op and of two, all read back. In f32 the two say what is expected of either.
fn both(b: &mut Build, conv: Conv2d, [x, w]: [ValueId; 2]) -> Outcome<ValueId> {
    let y = b.push(Op::Conv2d(conv), &[x, w])?[0];
    let statistics = b.push(Op::BatchNormStats, &[y])?;
    let apart = [&[y], &statistics[..]].concat();
    let made = if let Maps::Inner(_) = b.maps { b.push(Op::Conv2dStats(conv), &[x, w])? } else { apart.clone() };
    made.iter().chain(&apart).for_each(|&id| b.back(id));
    Ok(made[0])
}

/// The first choices, with convolutions that make statistics run as their two ops do. `None` where there are no such.
pub fn as_two_ops(graph: &Graph, kernels: &KernelTable) -> Option<KernelTable> {
    let mut table = kernels.clone();
    let mut any = false;
    table.choices.iter_mut().for_each(|choices| choices.truncate(1));
    for (at, node) in graph.nodes().iter().enumerate().filter(|(_, node)| matches!(node.op, Op::Conv2dStats(_))) {
        let find = |op: fn(&Op) -> bool, inputs: &[ValueId]| {
            graph.nodes().iter().position(|other| op(&other.op) && other.inputs == inputs)
        };
        let conv = find(|op| matches!(op, Op::Conv2d(_)), &node.inputs)?;
        let statistics = find(|op| *op == Op::BatchNormStats, &graph.nodes()[conv].outputs)?;
        let (conv, statistics) = (kernels.choices[conv].first()?, kernels.choices[statistics].first()?);
        // Where Y is a slice the plan may want more than where it is not.
        let workspace = conv.workspace.max(statistics.workspace).max(1 << 20);
        let seconds = conv.seconds + statistics.seconds;
        table.choices[at] = vec![Choice { workspace, seconds, ..conv.clone() }];
        any = true;
    }
    any.then_some(table)
}

/// The algorithms that convolutions with statistics take, for reports.
pub fn algorithms(graph: &Graph, kernels: &KernelTable) -> Vec<String> {
    let of = graph.nodes().iter().zip(&kernels.choices).filter(|(node, _)| matches!(node.op, Op::Conv2dStats(_)));
    of.flat_map(|(_, choices)| choices).map(|choice| choice.algorithm.clone()).collect()
}
