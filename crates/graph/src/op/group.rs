//! Several nodes of one op in one launch, for ops so small that starting them is most of their time.
//!
//! Operands are those of the members, one member after the other. Members compute what they compute alone, and none may
//! read what another makes.

use super::{Inferred, Op};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What every member computes.
    pub op: Box<Op>,
    /// Number of members, at least one.
    pub members: u32,
    /// Number of inputs of each member.
    pub inputs: u32,
}

impl Group {
    /// The members' shares of operands, in order.
    pub fn shares<'a, T>(&self, operands: &'a [T]) -> std::slice::Chunks<'a, T> {
        operands.chunks(self.share(operands.len()).max(1))
    }

    /// How many of so many operands are one member's.
    pub fn share(&self, operands: usize) -> usize {
        operands / (self.members as usize).max(1)
    }

    pub(super) fn kind(&self) -> &'static str {
        match *self.op {
            Op::Sgd(_) => "sgd_group",
            Op::Cast(_) => "cast_group",
            Op::BatchNormUpdate(_) => "batch_norm_update_group",
            _ => "group",
        }
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        let (members, each) = (self.members as usize, self.inputs as usize);
        if members == 0 || each == 0 || inputs.len() != members * each {
            return Err(format!("expected {each} inputs of each of {members} members, found {}", inputs.len()));
        }
        let made = self.shares(inputs).map(|share| self.op.infer(share)).collect::<Result<Vec<_>, _>>()?;
        Ok(made.concat())
    }

    /// The members' updates. An op with an effect makes nothing but updated persistents.
    pub(super) fn updates(&self) -> Vec<(usize, usize)> {
        let of_one = self.op.updates();
        let of_member = |member: usize| {
            let (inputs, outputs) = (member * self.inputs as usize, member * of_one.len());
            of_one.iter().map(move |(input, output)| (inputs + input, outputs + output))
        };
        (0..self.members as usize).flat_map(of_member).collect()
    }
}
