//! Smaller read sets for gradient rules, of which nothing is lost: the same program, bit for bit, with less to keep.
//!
//! ```text
//!   ReLU       Y, dY → dX        one bit an element, dY → dX        where backward reads Y for nothing else
//!   max pool   X, Y, dY → dX     one byte a window, dY → dX         unless backward reads X and Y anyway
//! ```
//!
//! Nodes and values keep their ids and names; masks and indices are outputs of the forward nodes and stand after all other
//! values. A pass of its own, and not part of [`differentiate`](crate::differentiate), because whether less memory is worth
//! the bytes written is the plan's to say (`docs/decisions/0016-encodings.md`).

use vdnn_graph::{Graph, GraphError, InPlace, Node, NodeId, Op, Phase, Program, ValueId, op};

/// The program with encoded gradient rules; `None` when none of its rules gains by it.
///
/// # Errors
/// [`GraphError`] for a name that a mask or an index needs and that is taken.
pub fn encode(program: &Program) -> Result<Option<Program>, GraphError> {
    let readers = Readers::of(program);
    let mut graph = program.graph.clone();
    let mut encoded = false;
    for id in program.graph.node_ids().filter(|&id| program.graph.node(id).phase == Phase::Forward) {
        encoded |= match program.graph.node(id).op {
            Op::Relu => relu(&readers, &mut graph, id)?,
            Op::MaxPool2d(pool) => max_pool2d(&readers, &mut graph, id, pool)?,
            _ => false,
        };
    }
    if !encoded {
        return Ok(None);
    }
    Program::with_order(graph, program.order.clone(), InPlace::Allowed).map(Some)
}

/// A mask, where Y need not last.
fn relu(readers: &Readers<'_>, graph: &mut Graph, id: NodeId) -> Result<bool, GraphError> {
    let node = readers.graph().node(id);
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let gradients = readers.gradients(y, |gradient| gradient.op == Op::ReluGrad && gradient.inputs[0] == y);
    if gradients.is_empty() || readers.last(y) {
        return Ok(false);
    }
    graph.rewrite(id, Op::ReluMask, &[x])?;
    let mask = graph.node(id).outputs[1];
    for gradient in gradients {
        let dy = graph.node(gradient).inputs[1];
        graph.rewrite(gradient, Op::ReluMaskGrad, &[mask, dy])?;
    }
    Ok(true)
}

/// Indices, where X or Y need not last.
fn max_pool2d(readers: &Readers<'_>, graph: &mut Graph, id: NodeId, pool: op::MaxPool2d) -> Result<bool, GraphError> {
    let node = readers.graph().node(id);
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let is_own = |gradient: &Node| gradient.op == Op::MaxPool2dGrad(pool) && gradient.inputs[..2] == [x, y];
    let gradients = readers.gradients(y, is_own);
    if gradients.is_empty() || !pool.has_indices() || (readers.last(x) && readers.last(y)) {
        return Ok(false);
    }
    let shape = &readers.graph().value(x).ty.shape;
    let input = [shape.dim(2), shape.dim(3)];
    graph.rewrite(id, Op::MaxPool2dIndices(pool), &[x])?;
    let indices = graph.node(id).outputs[1];
    for gradient in gradients {
        let dy = graph.node(gradient).inputs[2];
        let op = Op::MaxPool2dIndicesGrad(op::MaxPool2dIndicesGrad { pool, input });
        graph.rewrite(gradient, op, &[indices, dy])?;
    }
    Ok(true)
}

/// Who reads what in the program as it was.
struct Readers<'a> {
    program: &'a Program,
    /// By value.
    of: Vec<Vec<NodeId>>,
}

impl<'a> Readers<'a> {
    fn of(program: &'a Program) -> Self {
        let mut of = vec![Vec::new(); program.graph.values().len()];
        for id in program.graph.node_ids() {
            for &input in &program.graph.node(id).inputs {
                let readers: &mut Vec<NodeId> = &mut of[input.index()];
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        Readers { program, of }
    }

    fn graph(&self) -> &'a Graph {
        &self.program.graph
    }

    fn gradients(&self, value: ValueId, is: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        self.of[value.index()].iter().copied().filter(|&id| is(self.graph().node(id))).collect()
    }

    /// True when the bytes of a value are read after forward by a rule that has no encoding, be it as part of a
    /// concatenation or under another shape: then they last in any case.
    fn last(&self, value: ValueId) -> bool {
        let mut same = vec![value];
        let mut next = 0;
        while let Some(&value) = same.get(next) {
            next += 1;
            for &id in &self.of[value.index()] {
                let node = self.graph().node(id);
                if node.phase != Phase::Forward && !is_encoded_read(node, value) {
                    return true;
                }
                let inside = |output: &&ValueId| self.lies_in(value, **output) && !same.contains(*output);
                if node.phase == Phase::Forward && moves_only(&node.op) {
                    let more: Vec<ValueId> = node.outputs.iter().filter(inside).copied().collect();
                    same.extend(more);
                }
            }
        }
        false
    }

    fn lies_in(&self, value: ValueId, other: ValueId) -> bool {
        self.program.aliases.root(value) == self.program.aliases.root(other)
    }
}

/// A read that an encoding takes the place of.
fn is_encoded_read(node: &Node, value: ValueId) -> bool {
    match node.op {
        Op::ReluGrad => node.inputs[1] != value,
        Op::MaxPool2dGrad(pool) => pool.has_indices() && node.inputs[2] != value,
        _ => false,
    }
}

fn moves_only(op: &Op) -> bool {
    matches!(op, Op::Concat(_) | Op::Split(_)) || op.is_view()
}
