//! The graph as people read it: one line a node.

use crate::{Graph, ValueId};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {} ({} nodes, {} values)", self.name, self.nodes().len(), self.values().len())?;
        let list =
            |ids: &[ValueId]| ids.iter().map(|&id| format!("%{}", self.value(id).name)).collect::<Vec<_>>().join(", ");
        for node in self.nodes() {
            let types: Vec<String> = node.outputs.iter().map(|&id| self.value(id).ty.to_string()).collect();
            writeln!(
                f,
                "  {} = {}[{}]({}) : {}",
                list(&node.outputs),
                node.op.kind(),
                node.name,
                list(&node.inputs),
                types.join(", ")
            )?;
        }
        Ok(())
    }
}
