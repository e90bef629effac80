//! Without a GPU: which choices are worth keeping, and the patterns of a graph with slices.

use super::*;
use vdnn_graph::op::{Concat, Conv2d};
use vdnn_graph::{LayerId, Op, Phase, Role};
use vdnn_tensor::DType;

fn choice(seconds: f64, workspace: u64) -> Choice {
    Choice { algorithm: format!("{seconds} {workspace}"), workspace, seconds, deterministic: true }
}

#[test]
fn slower_and_hungrier_choices_are_dropped() {
    let all = vec![choice(3.0, 0), choice(1.0, 50), choice(2.0, 50), choice(2.5, 10), choice(4.0, 0), choice(1.0, 90)];
    assert_eq!(worthwhile(all), [choice(1.0, 50), choice(2.5, 10), choice(3.0, 0)]);
    assert_eq!(worthwhile(Vec::new()), []);
}

/// Two convolutions of one image side by side, concatenated, and a third over the whole.
fn forked() -> Graph {
    let mut graph = Graph::new("forked");
    graph.begin_layer("layer");
    let f32s = |dims: [u64; 4]| TensorType::new(dims, DType::F32);
    let image = graph.input("image", f32s([2, 3, 6, 6])).unwrap();
    let wa = graph.parameter("wa", f32s([4, 3, 1, 1])).unwrap();
    let wb = graph.parameter("wb", f32s([5, 3, 1, 1])).unwrap();
    let wc = graph.parameter("wc", f32s([2, 9, 1, 1])).unwrap();
    let conv = || Op::Conv2d(Conv2d::default());
    let a = graph.push("a", conv(), &[image, wa]).unwrap()[0];
    let b = graph.push("b", conv(), &[image, wb]).unwrap()[0];
    let whole = graph.push("whole", Op::Concat(Concat::default()), &[a, b]).unwrap()[0];
    let relu = graph.push("relu", Op::Relu, &[whole]).unwrap()[0];
    let c = graph.push_at("c", conv(), &[relu, wc], Phase::Forward, LayerId(0)).unwrap()[0];
    graph.read_back(c);
    assert_eq!(graph.value(c).role, Role::Metric);
    graph
}

#[test]
fn patterns_have_the_strides_that_slices_of_a_concat_have() {
    let graph = forked();
    let patterns = patterns(&graph);
    let problem = |index: usize| convolution::of(&patterns[index].site(EMPTY)).unwrap().unwrap().problem;
    let (a, b, c) = (problem(0), problem(1), problem(4));
    assert_eq!((a.x_batch_stride, a.y_batch_stride, a.alignment), (108, 324, 16));
    assert_eq!((b.y_batch_stride, b.alignment), (324, 16));
    assert_eq!((c.x_batch_stride, c.y_batch_stride), (324, 72));
    assert_eq!(patterns[1].slices(), " 2+324");
}

#[test]
fn what_lies_in_place_has_nothing_to_run() {
    let graph = forked();
    let pattern = &patterns(&graph)[2];
    let plan = kernels::prepare(&pattern.node.op, &pattern.inputs, &pattern.outputs, 0).unwrap();
    assert!(plan.launches.is_empty());
}

#[test]
fn own_kernels_name_their_sources() {
    let graph = forked();
    let files: Vec<BTreeSet<&str>> = patterns(&graph).iter().map(Pattern::own_files).collect();
    assert_eq!(
        files.iter().map(BTreeSet::len).collect::<Vec<_>>(),
        [0, 0, 0, 1, 0],
        "convolutions and a concat in place"
    );
    assert!(files[3].contains("relu.cu"));
}

/// A cache outlives a build: what a kernel took before its source or its grid changed is not what it takes now.
#[test]
fn own_kernels_are_known_by_their_code() {
    let graph = forked();
    let patterns = patterns(&graph);
    assert_eq!(patterns[0].own_code(), "", "a convolution is cuDNN's");
    let launches = patterns[3].own_launches();
    let code = code_of(&launches);
    assert_eq!(patterns[3].own_code(), code);
    let [mut grid, mut file, mut moved] = [launches.clone(), launches.clone(), launches];
    grid[0].grid[0] += 1;
    file[0].file = "relu.bf16.cu";
    moved[0].args[0] = kernels::KernelArg::U64(1 << 20);
    assert!(code_of(&grid) != code && code_of(&file) != code);
    assert_eq!(code_of(&moved), code, "wherever it lies");
}

#[test]
fn keys_tell_deterministic_choices_from_others() {
    let graph = forked();
    let pattern = &patterns(&graph)[0];
    let (strict, any) = (pattern.convolution_key(true).unwrap(), pattern.convolution_key(false).unwrap());
    assert!(strict != any && strict.contains("forward f32 nchw 2x3x6x6"), "{strict}");
    assert_eq!(patterns(&graph)[3].convolution_key(true), None);
}

/// A convolution with statistics needs what either way of taking them launches, and asks for the sums' bytes where a plan has them.
#[test]
fn statistics_bring_their_kernels_and_their_bytes() {
    let layout = vdnn_tensor::Layout { order: vdnn_tensor::MemoryOrder::Nhwc, channel_padding: 0 };
    let half = |dims: [u64; 4]| TensorType { layout, ..TensorType::new(dims, DType::F16) };
    let mut graph = Graph::new("statistics");
    graph.begin_layer("layer");
    let [x, w] = [("x", [4, 8, 6, 6]), ("w", [80, 8, 1, 1])].map(|(name, dims)| graph.input(name, half(dims)).unwrap());
    graph.push("conv", Op::Conv2dStats(Conv2d::default()), &[x, w]).unwrap();
    let pattern = &patterns(&graph)[0];
    assert_eq!(pattern.own_files(), BTreeSet::from(["batch_norm_nhwc.f16.cu", "conv2d_stats.cu"]));
    let site = pattern.site(EMPTY);
    let problem = convolution::of(&site).unwrap().unwrap().taking_in(&site).unwrap().problem;
    let taking_in = epilogue::with_epilogue(choice(1.0, 50), &problem, LAUNCH);
    assert_eq!((taking_in.algorithm.as_str(), taking_in.workspace), ("stats_1 50", 50 + 2 * 512));
    assert!(taking_in.seconds > 1.0);
}
