//! Loss scaling: states, the scaled gradient of the loss, and what stands between gradients and updates.
//!
//! ```text
//!   loss ─────────────────────────────────────────┐ guard
//!   loss_scale ─► dlogits · scale ─ … ─► dW · scale ─ unscale ─ unscale ─► dW, found ─ loss_scale_update ─► updates
//! ```
//!
//! No update may run before all gradients are known to be finite, so updates stand at the end. Gradients are unscaled and checked
//! in groups; each group's guard is the next one's. The scale moves before the updates run, which read how many of them
//! there have been.

use crate::tape::Tape;
use crate::{AutogradError, Options, Root};
use std::collections::BTreeMap;
use vdnn_graph::op::{LossScaleUpdate, MOST_UNSCALED, Unscale};
use vdnn_graph::{LayerId, Op, Phase, ValueId};
use vdnn_tensor::{Bytes, DType, TensorType};

/// The state that holds the scale.
pub const LOSS_SCALE: &str = "loss_scale";
/// The state that counts good steps since the scale changed.
pub const GOOD_STEPS: &str = "loss_scale.good_steps";
/// The state that counts skipped steps.
pub const SKIPPED_STEPS: &str = "loss_scale.skipped_steps";

/// A group of gradients takes no more that would make it larger than this: the gradients of a group are on the device together.
const GROUP_BYTES: Bytes = 64 << 20;

/// The states of a loss that is scaled.
pub(crate) struct LossScaling {
    update: LossScaleUpdate,
    scale: ValueId,
    good: ValueId,
    skipped: ValueId,
}

impl LossScaling {
    /// Adds the states, when the options ask for loss scaling.
    pub(crate) fn start(tape: &mut Tape, options: &Options) -> Result<Option<Self>, AutogradError> {
        let Some(update) = options.loss_scaling else { return Ok(None) };
        let Root::Loss(loss) = options.root else {
            return Err(AutogradError::NoLossToScale { root: tape.name(options.root.value()) });
        };
        let like = tape.graph().value(loss).ty.clone();
        let count = TensorType::new([1], DType::I32);
        let graph = tape.graph_mut();
        let scale = graph.state(LOSS_SCALE, like)?;
        let good = graph.state(GOOD_STEPS, count.clone())?;
        let skipped = graph.state(SKIPPED_STEPS, count)?;
        Ok(Some(LossScaling { update, scale, good, skipped }))
    }

    pub(crate) fn scale(&self) -> ValueId {
        self.scale
    }

    /// Divides the gradients of parameters by the scale; the guard that says whether all of them are finite.
    pub(crate) fn unscale(
        &self,
        tape: &mut Tape,
        parameters: &[(ValueId, LayerId)],
        mut guard: ValueId,
    ) -> Result<ValueId, AutogradError> {
        for (nth, group) in groups(tape, parameters).iter().enumerate() {
            let name = if nth == 0 { "unscale".to_string() } else { format!("unscale.{}", nth + 1) };
            let gradients: Vec<ValueId> = group.iter().map(|(gradient, _)| *gradient).collect();
            let inputs = [&[self.scale, guard], &gradients[..]].concat();
            let op = Op::Unscale(Unscale { gradients: gradients.len() as u32 });
            // The group belongs where its last gradient was made.
            let layer = group.last().map_or(LayerId(0), |(_, of)| of[0].1);
            let made = tape.graph_mut().push_at(&name, op, &inputs, Phase::Update, layer)?;
            guard = made[0];
            for ((scaled, of), &unscaled) in group.iter().zip(&made[1..]) {
                let name = tape.name(*scaled);
                tape.graph_mut().rename_value(*scaled, &format!("{name}.scaled"))?;
                tape.graph_mut().rename_value(unscaled, &name)?;
                of.iter().for_each(|(parameter, _)| tape.replace_gradient(*parameter, unscaled));
            }
        }
        Ok(guard)
    }

    /// Moves the scale; the number of steps that have been taken before this one.
    pub(crate) fn advance(
        &self,
        tape: &mut Tape,
        guard: ValueId,
        iteration: ValueId,
        layer: LayerId,
    ) -> Result<ValueId, AutogradError> {
        let inputs = [self.scale, self.good, self.skipped, guard, iteration];
        let op = Op::LossScaleUpdate(self.update);
        let made = tape.graph_mut().push_at("loss_scale.update", op, &inputs, Phase::Update, layer)?;
        Ok(made[3])
    }
}

/// A gradient and the parameters it is of, one save where they are added to each other.
type Gradient = (ValueId, Vec<(ValueId, LayerId)>);

/// Gradients in the order in which they were completed, cut into groups of bounded number and size.
fn groups(tape: &Tape, parameters: &[(ValueId, LayerId)]) -> Vec<Vec<Gradient>> {
    let mut groups: Vec<Vec<Gradient>> = Vec::new();
    let mut place: BTreeMap<ValueId, (usize, usize)> = BTreeMap::new();
    let mut bytes = 0;
    for &(parameter, layer) in parameters {
        let Some(gradient) = tape.gradient(parameter) else { continue };
        if let Some(&(group, at)) = place.get(&gradient) {
            groups[group][at].1.push((parameter, layer));
            continue;
        }
        let more = tape.graph().value(gradient).ty.bytes();
        bytes += more;
        if groups.last().is_none_or(|group| group.len() == MOST_UNSCALED || bytes > GROUP_BYTES) {
            groups.push(Vec::new());
            bytes = more;
        }
        let last = groups.len() - 1;
        place.insert(gradient, (last, groups[last].len()));
        groups[last].push((gradient, vec![(parameter, layer)]));
    }
    groups
}
