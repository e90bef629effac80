//! What fusing takes in, and what it leaves.

use crate::*;

#[test]
fn a_relu_takes_in_the_norm_before_it() {
    let mut b = Bench::new();
    let x = b.image([2, 4, 3, 3]);
    let y = b.norm("bn", x);
    let z = b.relu("relu", y);
    let end = b.conv("conv", z, [4, 4, 3, 3], 1);
    let fused = fuse(&b.0, false).unwrap();
    let graph = &fused.graph;
    assert_eq!(
        kinds(graph),
        ["bn.stats batch_norm_stats", "bn.update batch_norm_update", "relu batch_norm_relu", "conv conv2d"]
    );
    let relu = node(graph, "relu");
    assert_eq!(names(graph, &relu.inputs), ["image", "bn.stats.mean", "bn.stats.variance", "bn.weight", "bn.bias"]);
    assert_eq!(graph.layers(), b.0.layers());
    assert_eq!(graph.layer(relu.layer).name, "relu");
    assert_eq!((fused.value(y), fused.value(z)), (None, Some(relu.outputs[0])));
    assert_eq!(graph.value(fused.value(end).unwrap()).name, "conv");
    let persistents = |graph: &Graph| -> Vec<Vec<String>> {
        graph.persistents().iter().map(|p| names(graph, &[p.initial, p.last])).collect()
    };
    assert_eq!(persistents(graph), persistents(&b.0));
}

#[test]
fn of_two_norms_under_a_sum_both_are_taken() {
    for shortcut_first in [false, true] {
        let mut b = Bench::new();
        let x = b.image([2, 4, 3, 3]);
        let (main, shortcut) = (b.norm("main", x), b.norm("shortcut", x));
        let operands = if shortcut_first { [shortcut, main] } else { [main, shortcut] };
        let sum = b.layer("add", Op::Add, &operands);
        b.relu("relu", sum);
        let graph = fuse(&b.0, false).unwrap().graph;
        let relu = node(&graph, "relu");
        assert_eq!(relu.op, Op::BatchNormPairRelu(op::BatchNormPair { eps: [1e-5; 2] }));
        let (own, other) = if shortcut_first { ("shortcut", "main") } else { ("main", "shortcut") };
        assert_eq!([relu.inputs[0], relu.inputs[5]].map(|id| graph.value(id).name.as_str()), ["image"; 2]);
        assert_eq!(graph.value(relu.inputs[1]).name, format!("{own}.stats.mean"));
        assert_eq!(graph.value(relu.inputs[6]).name, format!("{other}.stats.mean"));
        assert!(graph.nodes().iter().all(|node| node.op.kind() != "batch_norm" && node.name != "add"));
        assert_eq!(names(&graph, &relu.outputs), ["relu", "relu.mask"]);
    }
}

#[test]
fn what_others_read_stays() {
    // The norm's result is read twice; is read back; its sum is read twice; there is no norm.
    type Build = fn(&mut Bench, ValueId) -> Vec<ValueId>;
    let twice: Build = |b, y| {
        b.relu("other", y);
        vec![]
    };
    let kept: Build = |_, y| vec![y];
    for also in [twice, kept] {
        let mut b = Bench::new();
        let x = b.image([2, 4, 3, 3]);
        let y = b.norm("bn", x);
        also(&mut b, y).into_iter().for_each(|id| b.0.read_back(id));
        b.relu("relu", y);
        assert_eq!(fuse(&b.0, false).unwrap().graph, b.0);
    }
    let mut b = Bench::new();
    let x = b.image([2, 4, 3, 3]);
    let y = b.norm("bn", x);
    let sum = b.layer("add", Op::Add, &[y, x]);
    b.relu("relu", sum);
    b.relu("relu2", sum);
    assert_eq!(fuse(&b.0, false).unwrap().graph, b.0);
}

/// Evaluation fuses as well, but not across an update of the statistics that it reads.
#[test]
fn a_convolution_takes_the_relu_after_it_and_a_pool_keeps_its_places() {
    let mut b = Bench::new();
    let image = b.image([2, 3, 8, 8]);
    let x = b.conv("conv1", image, [4, 3, 3, 3], 1);
    let x = b.relu("relu1", x);
    let pool = op::MaxPool2d { window: op::Window::square(2) };
    let x = b.layer("pool", Op::MaxPool2d(pool), &[x]);
    let y = b.conv("conv2", x, [4, 4, 3, 3], 1);
    let z = b.relu("relu2", y);
    // The second convolution's result is read twice.
    b.layer("sum", Op::Add, &[y, z]);
    let fused = fuse(&b.0, false).unwrap();
    assert_eq!(
        kinds(&fused.graph),
        ["relu1 conv2d_relu", "pool max_pool2d_indices", "conv2 conv2d", "relu2 relu", "sum add"]
    );
    assert_eq!(names(&fused.graph, &node(&fused.graph, "relu1").inputs), ["image", "conv1.weight"]);
    assert_eq!(names(&fused.graph, &node(&fused.graph, "conv2").inputs), ["pool", "conv2.weight"]);
    assert_eq!(ty(&fused.graph, "pool.indices"), "u8[2, 4, 4, 4]");
    assert_eq!(fused.value(x).map(|id| fused.graph.value(id).name.as_str()), Some("pool"));
    // More places than a byte names.
    let mut b = Bench::new();
    let image = b.image([1, 1, 16, 16]);
    b.layer("large", Op::MaxPool2d(op::MaxPool2d { window: op::Window::square(16) }), &[image]);
    assert_eq!(kinds(&fuse(&b.0, false).unwrap().graph), ["large max_pool2d"]);
}

#[test]
fn running_statistics_are_read_before_they_move() {
    for moved in [false, true] {
        let mut b = Bench::new();
        let x = b.image([2, 4, 3, 3]);
        let vector = |b: &mut Bench, name: &str| b.0.state(name, f32s(&[4])).unwrap();
        let [mean, var] = ["mean", "var"].map(|name| vector(&mut b, name));
        let [gamma, beta] = ["gamma", "beta"].map(|name| b.0.parameter(name, f32s(&[4])).unwrap());
        let y = b.layer("bn", Op::BatchNorm(BatchNorm { eps: 1e-5 }), &[x, mean, var, gamma, beta]);
        if moved {
            let stats = b.0.push("stats", Op::BatchNormStats, &[x]).unwrap();
            let update = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 18 });
            b.0.push("update", update, &[stats[0], stats[1], mean, var]).unwrap();
        }
        b.relu("relu", y);
        let graph = fuse(&b.0, false).unwrap().graph;
        assert_eq!(node(&graph, "relu").op.kind(), if moved { "relu" } else { "batch_norm_relu" });
    }
}

/// A pool over a convolution with ReLU: its gradient and the ReLU's become one, unless somebody reads what lies between.
#[test]
fn gradients_of_a_pool_and_the_relu_before_it_are_one() {
    for read in [false, true] {
        let mut b = Bench::new();
        let (x, c) = (b.image([2, 4, 6, 6]), b.0.parameter("conv.bias", f32s(&[4])).unwrap());
        let w = b.0.parameter("conv.weight", f32s(&[4, 4, 3, 3])).unwrap();
        let conv = Op::Conv2dRelu(Conv2d { padding: [1, 1], ..Conv2d::default() });
        let y = b.layer("conv", conv, &[x, w, c]);
        let pool = op::MaxPool2d { window: op::Window::square(2) };
        b.0.begin_layer("pool");
        let pooled = b.0.push("pool", Op::MaxPool2dIndices(pool), &[y]).unwrap();
        let gradient = Op::MaxPool2dIndicesGrad(op::MaxPool2dIndicesGrad { pool, input: [6, 6] });
        let mut backward = |name: &str, op: Op, inputs: &[ValueId]| {
            b.0.push_at(name, op, inputs, Phase::Backward, vdnn_graph::LayerId(0)).unwrap()
        };
        let dy = backward("pool.grad", gradient, &[pooled[1], pooled[0]])[0];
        let made = backward("conv.bias_grad", Op::ReluBiasGrad, &[y, dy]);
        if read {
            backward("watched", Op::Relu, &[dy]);
        }
        let rewritten = fuse_gradients(&b.0).unwrap();
        let graph = &rewritten.graph;
        let kind = node(graph, "conv.bias_grad").op.kind();
        assert_eq!(kind, if read { "relu_bias_grad" } else { "max_pool2d_relu_bias_grad" });
        assert_eq!(graph.nodes().iter().any(|node| node.name == "pool.grad"), read);
        assert_eq!(rewritten.value(dy).is_some(), read);
        for (before, now) in made.iter().zip(&node(graph, "conv.bias_grad").outputs) {
            let (before, now) = (b.0.value(*before), graph.value(*now));
            assert_eq!((&before.name, &before.ty, before.role), (&now.name, &now.ty, now.role));
        }
        if !read {
            assert_eq!(names(graph, &node(graph, "conv.bias_grad").inputs), ["pool.indices", "pool", "pool"]);
        }
    }
}

/// Apart, the shortcuts of the largest sums, of which there are two, keep their norms; that of a smaller one is taken.
#[test]
fn apart_are_the_norms_of_the_largest_residuals() {
    let mut b = Bench::new();
    let mut x = b.image([2, 4, 5, 5]);
    for stage in ["one", "two", "three"] {
        let [main, shortcut] = ["main", "shortcut"].map(|side| b.norm(&format!("{stage}.{side}"), x));
        let sum = b.layer(&format!("{stage}.add"), Op::Add, &[main, shortcut]);
        x = b.relu(&format!("{stage}.relu"), sum);
        if stage == "two" {
            x = b.conv("conv", x, [2, 4, 3, 3], 1);
        }
    }
    let relus = |apart: bool| {
        let graph = fuse(&b.0, apart).unwrap().graph;
        ["one.relu", "two.relu", "three.relu"].map(|name| node(&graph, name).op.kind())
    };
    assert_eq!(relus(false), ["batch_norm_pair_relu"; 3]);
    assert_eq!(relus(true), ["batch_norm_add_relu", "batch_norm_add_relu", "batch_norm_pair_relu"]);
    let graph = fuse(&b.0, true).unwrap().graph;
    let relu = node(&graph, "one.relu");
    assert_eq!(graph.value(relu.inputs[1]).name, "one.main.stats.mean");
    assert_eq!(
        (graph.value(relu.inputs[5]).name.as_str(), node(&graph, "one.shortcut").op.kind()),
        ("one.shortcut", "batch_norm")
    );
}

/// A residual that somebody else reads, or that no batch norm makes, is read as it is.
#[test]
fn a_residual_that_is_read_elsewhere_is_made() {
    let mut b = Bench::new();
    let x = b.image([2, 4, 3, 3]);
    let (main, shortcut) = (b.norm("main", x), b.norm("shortcut", x));
    let sum = b.layer("add", Op::Add, &[main, shortcut]);
    b.relu("relu", sum);
    b.relu("other", shortcut);
    let graph = fuse(&b.0, false).unwrap().graph;
    let relu = node(&graph, "relu");
    assert_eq!(relu.op.kind(), "batch_norm_add_relu");
    assert_eq!(graph.value(relu.inputs[1]).name, "main.stats.mean");
    assert_eq!(graph.value(relu.inputs[5]).name, "shortcut");
    assert_eq!(node(&graph, "shortcut").op.kind(), "batch_norm");
}

/// A stem's pool takes in the norm before it where maps are stored in half precision, if it alone reads it and has kernels for its
/// windows.
#[test]
fn a_pool_takes_in_the_norm_before_it() {
    let window = |kernel| op::Window { stride: [2, 2], padding: [1, 1], ..op::Window::square(kernel) };
    let stem = |kernel: u64, read_twice: bool, passes: Passes| {
        let mut b = Bench::new();
        let x = b.image([2, 8, 9, 9]);
        let y = b.norm("bn", x);
        let z = b.relu("relu", y);
        let pool = op::MaxPool2d { window: window(kernel) };
        let pooled = b.layer("pool", Op::MaxPool2d(pool), &[z]);
        if read_twice {
            b.relu("other", z);
        }
        (pool, passes.apply(&b.0).unwrap(), pooled)
    };
    let (half, plain) = (
        Passes { fuse: true, storage: Some(HALF), ..Passes::NONE },
        Passes { fuse: true, storage: None, ..Passes::NONE },
    );
    for kernel in [2, 3] {
        let (pool, made, pooled) = stem(kernel, false, half);
        let (graph, found) = (&made.graph, node(&made.graph, "pool"));
        let norm = BatchNorm { eps: 1e-5 };
        assert_eq!(found.op, Op::BatchNormReluMaxPool2d(op::BatchNormReluMaxPool2d { norm, pool }));
        assert_eq!(names(graph, &found.outputs), ["pool", "pool.indices"]);
        assert_eq!(made.value(pooled), Some(found.outputs[0]));
        assert!(graph.find_value("relu").is_none() && graph.layer(found.layer).name == "pool");
        assert_eq!(names(graph, &found.inputs[1..]), ["bn.stats.mean", "bn.stats.variance", "bn.weight", "bn.bias"]);
    }
    for (kernel, read_twice, passes) in [(3, true, half), (4, false, half), (3, false, plain)] {
        let (_, made, _) = stem(kernel, read_twice, passes);
        assert_eq!(node(&made.graph, "relu").op.kind(), "batch_norm_relu");
        assert_eq!(node(&made.graph, "pool").op.kind(), "max_pool2d_indices");
    }
}
