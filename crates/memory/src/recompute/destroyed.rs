//! What writing a value destroys of the storage that it lies in: the same whenever it is written, so it is found once a program.

use super::{Makers, Span};
use vdnn_graph::op::{Concat, Split};
use vdnn_graph::{Node, Op, ValueId};
use vdnn_tensor::Bytes;

impl Makers<'_> {
    /// The values of the same storage that writing `output` leaves with other bytes.
    pub(super) fn destroyed_by(&self, output: ValueId) -> Vec<ValueId> {
        let Some(node) = self.producer[output.index()].map(|id| self.program.graph.node(id)) else { return Vec::new() };
        let others = self.values[self.program.aliases.root(output).index()].iter().copied();
        others.filter(|&other| other != output && self.destroys(node, output, other)).collect()
    }

    /// Whether writing `output` leaves `other` with other bytes. What lies in place already, a part of a concatenation or a
    /// split or a view, is not written.
    fn destroys(&self, node: &Node, output: ValueId, other: ValueId) -> bool {
        let (aliases, touched) = (&self.program.aliases, self.span(other));
        let whole = aliases.location(output);
        match node.op {
            Op::Concat(Concat { axis }) => {
                let offsets = self.program.part_offsets(output, &node.inputs, axis);
                node.inputs.iter().zip(offsets).any(|(&part, offset)| {
                    let place = aliases.location(part);
                    (place.root, place.offset) != (whole.root, offset)
                        && self.span_at(offset, part, whole.root).meets(touched)
                })
            }
            Op::Split(Split { axis, .. }) => {
                let offsets = self.program.part_offsets(node.inputs[0], &node.outputs, axis);
                let own = node.outputs.iter().position(|&part| part == output).map(|at| offsets[at]);
                let source = (aliases.root(node.inputs[0]), own);
                source != (whole.root, Some(whole.offset)) && self.span(output).meets(touched)
            }
            _ if node.op.is_view() => {
                let source = aliases.location(node.inputs[0]);
                (source.root, source.offset) != (whole.root, whole.offset) && self.span(output).meets(touched)
            }
            _ => self.span(output).meets(touched),
        }
    }

    /// What a value would cover of a storage from this byte on.
    fn span_at(&self, offset: Bytes, value: ValueId, root: ValueId) -> Span {
        let ty = |id: ValueId| &self.program.graph.value(id).ty;
        Span::at(offset, ty(value), ty(root))
    }
}
