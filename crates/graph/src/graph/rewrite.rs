//! A node that computes the same by another op.

use super::{Graph, NodeId, ValueId};
use crate::{GraphError, Op};
use vdnn_tensor::TensorType;

impl Graph {
    /// Gives a node another op and other inputs. Its outputs stay, and what the op makes beyond them is appended to the
    /// values: ids and names of everything that was there stay as they were. That both ops make the same is the caller's
    /// word.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when the op refuses the inputs, changes an output's type or has an effect,
    /// [`GraphError::Order`] for an input that is made later, or a naming error; the graph is then as it was.
    pub fn rewrite(&mut self, id: NodeId, op: Op, inputs: &[ValueId]) -> Result<(), GraphError> {
        let node = self.node(id);
        let (name, phase, n_old) = (node.name.clone(), node.phase, node.outputs.len());
        let refuse = |reason| GraphError::Shape { node: name.clone(), op: op.kind(), reason };
        if let Some(&late) = inputs.iter().find(|&&input| self.value(input).producer.is_some_and(|by| by >= id)) {
            return Err(GraphError::Order { node: name, value: self.value(late).name.clone() });
        }
        if op.has_effect() || node.op.has_effect() {
            return Err(refuse("an effect cannot be rewritten".to_string()));
        }
        let types: Vec<&TensorType> = inputs.iter().map(|&input| &self.value(input).ty).collect();
        let made = op.infer(&types).map_err(refuse)?;
        let kept = node.outputs.iter().zip(&made).all(|(&old, ty)| self.value(old).ty == *ty);
        if made.len() < n_old || !kept {
            return Err(refuse("expected outputs of the types that the node has".to_string()));
        }
        for (index, ty) in made.into_iter().enumerate().skip(n_old) {
            let value_name = self.output_name(&name, &op, inputs, index);
            let role = self.output_role(&op, inputs, index, phase);
            let value = self.add_value(&value_name, ty, role, Some(id))?;
            self.nodes[id.index()].outputs.push(value);
        }
        let node = &mut self.nodes[id.index()];
        (node.op, node.inputs) = (op, inputs.to_vec());
        Ok(())
    }
}
