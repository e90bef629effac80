//! Bytes of feature maps, parameters and multiply-adds against the published table of the paper's networks.
//!
//! Counting rule: the input image, and every feature map that owns bytes: ReLU and dropout run in place, flattening moves
//! nothing.

use vdnn_graph::{Graph, NodeId, Op, Role};
use vdnn_models::{Options, build};

fn graph(name: &str, batch_size: u64) -> Graph {
    build(name, &Options { batch_size, ..Options::default() }).unwrap().into_graph()
}

fn owns_bytes(graph: &Graph, producer: NodeId) -> bool {
    !matches!(graph.node(producer).op, Op::Relu | Op::Dropout(_) | Op::Flatten)
}

fn feature_map_bytes(graph: &Graph) -> u64 {
    let maps = graph.values().iter().filter(|value| value.role == Role::FeatureMap);
    let owners = maps.filter(|value| value.producer.is_some_and(|id| owns_bytes(graph, id)));
    let image = graph.find_value("image").map_or(0, |id| graph.value(id).ty.bytes());
    image + owners.map(|value| value.ty.bytes()).sum::<u64>()
}

fn multiply_adds(graph: &Graph) -> f64 {
    let types = |ids: &[vdnn_graph::ValueId]| ids.iter().map(|&id| &graph.value(id).ty).collect::<Vec<_>>();
    graph.nodes().iter().map(|node| node.op.multiply_adds(&types(&node.inputs), &types(&node.outputs))).sum()
}

#[test]
fn the_papers_networks() {
    for (name, batch, million_parameters, gmac, maps_gb) in [
        ("alexnet", 128, 61.1, 0.71, 0.38),
        ("overfeat-fast", 128, 145.9, 2.80, 0.58),
        ("overfeat-accurate", 128, 144.7, 5.36, 1.23),
        ("vgg16", 64, 138.4, 15.47, 3.90),
        ("vgg16", 128, 138.4, 15.47, 7.80),
        ("vgg16", 256, 138.4, 15.47, 15.60),
        ("vgg-116", 32, 248.2, 172.7, 17.62),
        ("vgg-216", 32, 358.1, 329.9, 33.29),
        ("vgg-316", 32, 468.0, 487.1, 48.96),
        ("vgg-416", 32, 577.9, 644.4, 64.63),
    ] {
        let graph = graph(name, batch);
        let parameters: u64 = graph.bytes_of(Role::Parameter) / 4;
        let maps = feature_map_bytes(&graph) as f64 / 1e9;
        let macs = multiply_adds(&graph) / batch as f64 / 1e9;
        assert!((parameters as f64 / 1e6 - million_parameters).abs() <= 0.06, "{name}: {parameters} parameters");
        assert!((maps - maps_gb).abs() <= 0.0051, "{name} ({batch}): {maps} GB of feature maps");
        assert!((macs / gmac - 1.0).abs() <= 0.01, "{name}: {macs} GMAC an image");
    }
}

/// Small enough to train on a CPU.
#[test]
fn the_small_networks() {
    for name in ["vgg-small", "resnet-small"] {
        let macs = multiply_adds(&graph(name, 1)) / 1e6;
        assert!((5.0..=10.0).contains(&macs), "{name}: {macs} million multiply-adds an image");
    }
}
