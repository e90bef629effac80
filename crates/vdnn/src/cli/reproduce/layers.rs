//! One network layer by layer: figures 5 and 6.

use super::Figure;
use super::cells::{Wanted, planned};
use super::chart::{Chart, Series};
use crate::cli::explain::{Clock, explain};
use crate::cli::planning::Done;
use crate::cli::table::{Show, Table};
use anyhow::Result;
use serde_json::json;
use vdnn_graph::{LayerId, Node, NodeId, Phase, Role};
use vdnn_tensor::Bytes;
use vdnn_train::Planned;

/// What is known of a layer with weights.
struct Layer {
    name: String,
    x: Bytes,
    y: Bytes,
    weights: Bytes,
    /// Of its kernel with most.
    workspace: Bytes,
    forward_ms: f64,
    backward_ms: f64,
    /// From the last use of X in forward to its first in backward; `None` where it is not used again.
    reuse_ms: Option<f64>,
}

/// VGG-16 (256), everything kept, with the fastest kernels.
const NETWORK: Wanted = Wanted { network: ("vgg16", 256), policy: "none", per_layer: false };

fn layers() -> Result<Vec<Layer>> {
    let Done { explained, settings, .. } = &planned(&NETWORK)?;
    let planned = &explained.planned;
    let graph = &planned.program.graph;
    let clock = Clock::of(planned, &explained.timeline);
    let mut layers = Vec::new();
    for node in graph.nodes().iter().filter(|node| node.phase == Phase::Forward) {
        let weights = node.inputs.iter().map(|&id| graph.value(id)).filter(|value| value.role == Role::Parameter);
        let weights: Bytes = weights.map(|value| value.ty.bytes()).sum();
        let (Some(&x), Some(&y), true) = (node.inputs.first(), node.outputs.first(), weights > 0) else { continue };
        let told = explain(planned, settings, &clock, x)?;
        let over = |phase: Phase| told.uses.iter().find(|used| used.phase == phase).map(|used| used.step);
        let turn = over(Phase::Backward);
        let gap = told.gaps.iter().find(|gap| !gap.wraps && Some(gap.to_step) == turn);
        layers.push(Layer {
            name: node.name.clone(),
            x: graph.value(x).ty.bytes(),
            y: graph.value(y).ty.bytes(),
            weights,
            workspace: of_layer(planned, node.layer).map(|(_, choice)| choice.workspace).max().unwrap_or(0),
            forward_ms: milliseconds(planned, node.layer, Phase::Forward),
            backward_ms: milliseconds(planned, node.layer, Phase::Backward),
            reuse_ms: gap.map(|gap| gap.simulated_ms),
        });
    }
    Ok(layers)
}

/// The kernels of a layer with what they run as.
fn of_layer(planned: &Planned, layer: LayerId) -> impl Iterator<Item = (&Node, &vdnn_schedule::Choice)> {
    let graph = &planned.program.graph;
    let ids = graph.node_ids().filter(move |&id: &NodeId| graph.node(id).layer == layer);
    ids.filter_map(|id| Some((graph.node(id), planned.kernels.get(id, planned.plan.choice(id))?)))
}

fn milliseconds(planned: &Planned, layer: LayerId, phase: Phase) -> f64 {
    let kernels = of_layer(planned, layer).filter(|(node, _)| node.phase == phase);
    kernels.map(|(_, choice)| choice.seconds).fold(0.0, |sum, seconds| sum + seconds) * 1e3
}

/// Figure 5: bytes.
///
/// # Errors
/// As planning.
pub fn sizes() -> Result<Figure> {
    let layers = layers()?;
    let mut table = Table::new(&[
        ("layer", "layer", Show::Plain),
        ("x_bytes", "X GB", Show::Gb),
        ("y_bytes", "Y GB", Show::Gb),
        ("workspace_bytes", "workspace GB", Show::Gb),
        ("weight_bytes", "weights GB", Show::Gb),
    ]);
    for layer in &layers {
        let Layer { name, x, y, workspace, weights, .. } = layer;
        table.rows.push(vec![json!(name), json!(x), json!(y), json!(workspace), json!(weights)]);
    }
    let series = |name: &str, of: fn(&Layer) -> Bytes| {
        Series::of(name, layers.iter().map(|layer| Some(of(layer) as f64 / 1e9)).collect())
    };
    let parts = vec![
        series("X", |layer| layer.x),
        series("Y", |layer| layer.y),
        series("workspace", |layer| layer.workspace),
        series("weights", |layer| layer.weights),
    ];
    Ok(Figure {
        title: "Figure 5: what each layer of VGG-16 (256) needs".into(),
        text: "Layers with weights. Workspace is that of the layer's fastest kernels, of the one with most.".into(),
        table,
        chart: Some(Chart::stacked("GB", names(&layers), parts)),
    })
}

/// Figure 6: times.
///
/// # Errors
/// As planning.
pub fn times() -> Result<Figure> {
    let layers = layers()?;
    let mut table = Table::new(&[
        ("layer", "layer", Show::Plain),
        ("forward_ms", "forward ms", Show::Digits(2)),
        ("backward_ms", "backward ms", Show::Digits(2)),
        ("reuse_ms", "X idle for ms", Show::Digits(1)),
    ]);
    for layer in &layers {
        let Layer { name, forward_ms, backward_ms, reuse_ms, .. } = layer;
        table.rows.push(vec![json!(name), json!(forward_ms), json!(backward_ms), json!(reuse_ms)]);
    }
    let series = |name: &str, of: fn(&Layer) -> Option<f64>| Series::of(name, layers.iter().map(of).collect());
    let parts = vec![
        series("forward", |layer| Some(layer.forward_ms)),
        series("backward", |layer| Some(layer.backward_ms)),
        series("X idle between them", |layer| layer.reuse_ms),
    ];
    Ok(Figure {
        title: "Figure 6: times of VGG-16's (256) layers, and the reuse distance of X".into(),
        text: "Predicted for the described card; the paper measured. X is idle from its last use in forward to its first in backward.".into(),
        table,
        chart: Some(Chart::grouped("ms", names(&layers), parts)),
    })
}

fn names(layers: &[Layer]) -> Vec<String> {
    layers.iter().map(|layer| layer.name.clone()).collect()
}
