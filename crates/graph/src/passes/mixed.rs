//! Mixed precision: feature maps in half precision and channels-last order, what is trained and summed in f32. With f32 as
//! the storage type it is the order alone that changes, which is how matrix units read f32 maps (tf32) as well.
//!
//! ```text
//!   image f32 NCHW ──cast──► half NHWC, 3 channels of 8 ─┐
//!   W f32 OIHW ──────cast──► half, in X's order ─────────┴─ conv2d ─► half NHWC ─ … ─ flatten ─ linear ─cast─► f32 ─ loss
//!   gamma, beta, bias, batch and running statistics: f32                 ▲ in NCHW order
//! ```
//!
//! | op | reads | makes |
//! | --- | --- | --- |
//! | convolution | X and W half, channels last; fewer than 8 channels of one group padded to 8 | half, channels last |
//! | unfold | X f32 or half in the logical order | half, channels last, padded to a multiple of 8 channels |
//! | linear | X and W half | half |
//! | flatten | X half, in the logical order | half |
//! | normalise | bytes | half, in the logical order |
//! | batch norm, ReLU, pools, add, concat, dropout | half, images channels last | the same |
//! | local response norm, loss, accuracy | f32 in the logical order | f32 |
//!
//! Casts are nodes, one for each value and type, in the layer of the first reader. The half-precision weights are such
//! casts: made anew in every iteration from what is trained, never saved, and a plan may drop them and cast again. A weight's
//! gradient is cast back by backward, so optimizers see f32 alone; `group` may then let SGD read it before that cast.
//!
//! Where f32 is stored, read f32 for half: casts remain where an order changes, at images, at convolutions' weights and before
//! what reads the logical order. No channels are padded, since kernels for few channels are no quicker with zeros among them.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::op::{Cast, Conv2d, Normalise, Unfold};
use crate::{Graph, GraphError, LayerId, Node, Op, Phase, ValueId};
use std::collections::BTreeMap;
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

const PASS: &str = "mixed";

/// Channels that a convolution's X and W of half precision are padded to where they have fewer: eight halves are the 16 bytes
/// that a matrix unit takes at once.
pub const CHANNEL_MULTIPLE: u64 = 8;

/// Stores feature maps, and weights as convolutions and linear layers read them, in a half-precision type or f32, channels last.
///
/// # Errors
/// [`GraphError::Pass`] when `dtype` is none of these types, when the graph is not one of forward nodes in f32, or for
/// an op that has no place in a forward graph.
pub fn mixed(graph: &Graph, dtype: DType) -> Result<Rewritten, GraphError> {
    let refuse = |place: &str, reason: String| {
        Err(GraphError::Pass { pass: PASS, graph: graph.name.clone(), place: place.to_string(), reason })
    };
    if !dtype.is_half() && dtype != DType::F32 {
        return refuse("its storage type", format!("expected bf16, f16 or f32, found {dtype}"));
    }
    let other = |ty: &TensorType| ty.dtype.is_float() && (ty.dtype != DType::F32 || ty.layout != Layout::default());
    if let Some(value) = graph.values().iter().find(|value| other(&value.ty)) {
        return refuse(&value.name, format!("expected an f32 network in NCHW order, found {}", value.ty));
    }
    let mut lowering = Lowering { rebuild: Rebuild::new(PASS, graph)?, dtype, casts: BTreeMap::new() };
    for node in graph.nodes() {
        let Some(inputs) = lowering.operands(node)? else {
            return refuse(&node.name, format!("{} has no rule for storage channels last", node.op.kind()));
        };
        let op = match &node.op {
            Op::Unfold(unfold) => Op::Unfold(lowering.unfolded(unfold, inputs[0])),
            other => in_type(other, dtype),
        };
        lowering.rebuild.push(node, op, &inputs)?;
    }
    Ok(lowering.rebuild.finish())
}

/// The op in the new graph: one that says the type of its result says the one that is stored.
fn in_type(op: &Op, dtype: DType) -> Op {
    match op {
        Op::Normalise(op) => Op::Normalise(Normalise { dtype, ..op.clone() }),
        _ => op.clone(),
    }
}

struct Lowering<'a> {
    rebuild: Rebuild<'a>,
    dtype: DType,
    /// Casts so far, by what is cast to what.
    casts: BTreeMap<(ValueId, TensorType), ValueId>,
}

/// How an op wants an operand.
#[derive(Clone, Copy)]
enum Want {
    /// The stored type, images channels last.
    Stored,
    /// The stored type in the logical order.
    Logical,
    /// f32 in the logical order.
    Wide,
}

impl Lowering<'_> {
    /// A node's operands as it wants them; `None` for an op without a rule.
    fn operands(&mut self, node: &Node) -> Result<Option<Vec<ValueId>>, GraphError> {
        let mut inputs = self.rebuild.inputs(node);
        let (want, which): (Want, &[usize]) = match &node.op {
            Op::Conv2d(conv) | Op::Conv2dRelu(conv) => {
                self.convolution(node.layer, conv, &mut inputs)?;
                return Ok(Some(inputs));
            }
            Op::Add | Op::Concat(_) => {
                self.cast_all(node.layer, Want::Stored, &mut inputs)?;
                return Ok(Some(inputs));
            }
            Op::BatchNormStats | Op::BatchNorm(_) | Op::BatchNormRelu(_) | Op::Relu | Op::ReluMask => {
                (Want::Stored, &[0])
            }
            Op::MaxPool2d(_) | Op::MaxPool2dIndices(_) | Op::AvgPool2d(_) => (Want::Stored, &[0]),
            Op::BatchNormReluMaxPool2d(_) => (Want::Stored, &[0]),
            Op::AdaptiveAvgPool2d(_) | Op::Split(_) | Op::Dropout(_) => (Want::Stored, &[0]),
            Op::BatchNormAddRelu(_) | Op::BatchNormPairRelu(_) => (Want::Stored, &[0, 5]),
            Op::Linear => (Want::Logical, &[0, 1]),
            Op::Flatten | Op::Unflatten(_) => (Want::Logical, &[0]),
            Op::LocalResponseNorm(_) | Op::SoftmaxCrossEntropy(_) | Op::Accuracy => (Want::Wide, &[0]),
            Op::BatchNormUpdate(_) | Op::Cast(_) | Op::Unfold(_) | Op::Normalise(_) => (Want::Wide, &[]),
            _ => return Ok(None),
        };
        for &index in which {
            let to = self.wanted(want, inputs[index]);
            inputs[index] = self.cast(node.layer, inputs[index], to)?;
        }
        Ok(Some(inputs))
    }

    /// What is unfolded comes out as convolutions read it.
    fn unfolded(&self, unfold: &Unfold, x: ValueId) -> Unfold {
        let channels = self.rebuild.new.value(x).ty.shape.dim(1) * unfold.window[0] * unfold.window[1];
        let missing = channels.next_multiple_of(CHANNEL_MULTIPLE) - channels;
        let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: missing as u32 };
        Unfold { dtype: self.dtype, layout, ..*unfold }
    }

    /// X and W of one type and layout; a bias stays.
    fn convolution(&mut self, layer: LayerId, conv: &Conv2d, inputs: &mut [ValueId]) -> Result<(), GraphError> {
        let x = &self.rebuild.new.value(inputs[0]).ty;
        let padded = conv.groups == 1 && self.dtype.is_half();
        let few = if padded { CHANNEL_MULTIPLE.saturating_sub(x.shape.dim(1)) as u32 } else { 0 };
        let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: few.max(x.layout.channel_padding) };
        for input in inputs.iter_mut().take(2) {
            let to = TensorType { layout, ..self.wanted(Want::Stored, *input) };
            *input = self.cast(layer, *input, to)?;
        }
        Ok(())
    }

    fn cast_all(&mut self, layer: LayerId, want: Want, inputs: &mut [ValueId]) -> Result<(), GraphError> {
        for input in inputs {
            let to = self.wanted(want, *input);
            *input = self.cast(layer, *input, to)?;
        }
        Ok(())
    }

    fn wanted(&self, want: Want, value: ValueId) -> TensorType {
        let found = &self.rebuild.new.value(value).ty;
        let image = found.shape.rank() == 4;
        let (dtype, order) = match want {
            Want::Stored if image => (self.dtype, MemoryOrder::Nhwc),
            Want::Stored | Want::Logical => (self.dtype, MemoryOrder::Nchw),
            Want::Wide => (DType::F32, MemoryOrder::Nchw),
        };
        TensorType { shape: found.shape.clone(), dtype, layout: Layout { order, channel_padding: 0 } }
    }

    /// The value in another type: itself, a cast that is there, or a new one.
    fn cast(&mut self, layer: LayerId, value: ValueId, to: TensorType) -> Result<ValueId, GraphError> {
        if self.rebuild.new.value(value).ty == to {
            return Ok(value);
        }
        let key = (value, to);
        if let Some(&found) = self.casts.get(&key) {
            return Ok(found);
        }
        let name = self.cast_name(value, &key.1);
        let op = Op::Cast(Cast { dtype: key.1.dtype, layout: key.1.layout });
        let made = self.rebuild.new.push_at(&name, op, &[value], Phase::Forward, layer)?[0];
        self.casts.insert(key, made);
        Ok(made)
    }

    /// `conv1.weight.bf16`, `avgpool.nchw`; numbered from the second of a name.
    fn cast_name(&self, value: ValueId, to: &TensorType) -> String {
        let from = self.rebuild.new.value(value);
        let word = match to.layout.order {
            _ if from.ty.dtype != to.dtype => to.dtype.name(),
            MemoryOrder::Nhwc => "nhwc",
            MemoryOrder::Nchw => "nchw",
        };
        self.rebuild.free_name(format!("{}.{word}", from.name))
    }
}
