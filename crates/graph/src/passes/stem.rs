//! Convolutions over an image of few channels become convolutions over more channels of the unfolded image.
//!
//! ```text
//!   image [N, 3, H, W] ──────────► conv2d 7×7, stride 2      image ─ unfold 7×2 ─► [N, 42, OH, OW + 3] ─┐
//!   W [64, 3, 7, 7] ─────────────────┘                       W ───── unfold 7×2 ─► [64, 42, 1, 4] ──────┴► conv2d 1×4
//! ```
//!
//! A matrix unit takes channels, and an image has three. Unfolded by the stride in width and the whole window in height the
//! stem of a ResNet reads 42; the same products are summed, in another order. In width the windows overlap in the convolution
//! as before, so that the unfolded image is no larger than it must be. Where the stride alone makes enough channels (AlexNet's
//! is 4), height is unfolded by the stride as well.
//!
//! The weights stay what is trained and saved: their unfolding is a node, and its gradient folds the convolution's back.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::op::{Conv2d, Unfold};
use crate::{Graph, GraphError, LayerId, Node, Op, Phase, Role, ValueId};
use std::collections::HashMap;
use vdnn_tensor::Layout;

const PASS: &str = "stem";
/// Channels from which a convolution is left alone.
const MANY_CHANNELS: u64 = super::CHANNEL_MULTIPLE;
/// Channels from which unfolding by the stride alone does.
const ENOUGH: u64 = 32;

/// Unfolds the images that convolutions of few channels read.
///
/// # Errors
/// [`GraphError::Pass`] for a graph that has been differentiated.
pub fn stem(graph: &Graph) -> Result<Rewritten, GraphError> {
    let mut rebuild = Rebuild::new(PASS, graph)?;
    let trained = trained(graph);
    let mut made = HashMap::new();
    for node in graph.nodes() {
        let mut inputs = rebuild.inputs(node);
        let op = match unfolding(graph, &trained, node) {
            Some([of_x, of_w]) => {
                for (input, unfold) in inputs.iter_mut().zip([of_x, of_w]) {
                    *input = unfolded(&mut rebuild, &mut made, node.layer, *input, unfold)?;
                }
                match &node.op {
                    Op::Conv2dRelu(_) => Op::Conv2dRelu(Conv2d::default()),
                    _ => Op::Conv2d(Conv2d::default()),
                }
            }
            None => node.op.clone(),
        };
        rebuild.push(node, op, &inputs)?;
    }
    Ok(rebuild.finish())
}

/// By value: whether it depends on what is trained. Its gradient then is wanted, and folding one of an image costs a pass.
fn trained(graph: &Graph) -> Vec<bool> {
    let mut trained: Vec<bool> = graph.values().iter().map(|value| value.role == Role::Parameter).collect();
    for node in graph.nodes() {
        if node.inputs.iter().any(|input| trained[input.index()]) {
            node.outputs.iter().for_each(|output| trained[output.index()] = true);
        }
    }
    trained
}

/// How X and W of a convolution are unfolded; `None` for what is left alone.
fn unfolding(graph: &Graph, trained: &[bool], node: &Node) -> Option<[Unfold; 2]> {
    let (Op::Conv2d(conv) | Op::Conv2dRelu(conv)) = &node.op else { return None };
    let (x, w) = (*node.inputs.first()?, *node.inputs.get(1)?);
    let (x_ty, w_ty) = (&graph.value(x).ty, &graph.value(w).ty);
    let ([_, c, ..], [.., kh, kw]) = (x_ty.shape.nchw()?, w_ty.shape.nchw()?);
    let [.., oh, ow] = graph.value(*node.outputs.first()?).ty.shape.nchw()?;
    let plain = conv.groups == 1 && conv.dilation == [1, 1];
    if !plain || c >= MANY_CHANNELS || trained[x.index()] {
        return None;
    }
    let [sh, sw] = conv.stride;
    let window = [if c * sh * sw >= ENOUGH { sh.min(kh) } else { kh }, sw.min(kw)];
    if window == [1, 1] {
        return None;
    }
    let taps = [kh.div_ceil(window[0]), kw.div_ceil(window[1])];
    let plain =
        Unfold { window, stride: window, padding: [0; 2], output: taps, dtype: x_ty.dtype, layout: Layout::default() };
    // Steps are as before; where height is unfolded by the stride, windows overlap in it as they do in width.
    let of_x =
        Unfold { stride: conv.stride, padding: conv.padding, output: [oh + taps[0] - 1, ow + taps[1] - 1], ..plain };
    Some([of_x, plain])
}

/// The value unfolded: what is there already, or a new node.
fn unfolded(
    rebuild: &mut Rebuild<'_>,
    made: &mut HashMap<(ValueId, Unfold), ValueId>,
    layer: LayerId,
    value: ValueId,
    unfold: Unfold,
) -> Result<ValueId, GraphError> {
    let key = (value, unfold);
    if let Some(&found) = made.get(&key) {
        return Ok(found);
    }
    let first = format!("{}.unfolded", rebuild.new.value(value).name);
    let name = rebuild.free_name(first);
    let unfolded = rebuild.new.push_at(&name, Op::Unfold(unfold), &[value], Phase::Forward, layer)?[0];
    made.insert(key, unfolded);
    Ok(unfolded)
}
