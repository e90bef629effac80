//! Which operands of a launch may share bytes.
//!
//! An update lies over its persistent, always. An output may lie over an input where the op says that its kernels accept
//! it, and then exactly. Parts of a concat or split may lie at their place in the whole; a concat may also copy a part
//! from inside another one that lies in place and so does not change (a value concatenated twice). All else is apart.

use std::ops::Range;
use vdnn_graph::{Graph, Node, Op, ValueId};
use vdnn_schedule::BufferId;

/// An operand's place: a buffer and the columns of all its rows.
pub(crate) type Place = (BufferId, Range<u64>);

fn overlap(a: &Place, b: &Place) -> bool {
    a.0 == b.0 && a.1.start.max(b.1.start) < a.1.end.min(b.1.end)
}

/// The first pair (input, output) that shares bytes and may not, or does not and must.
pub(crate) fn clash(graph: &Graph, node: &Node, reads: &[Place], writes: &[Place]) -> Option<(usize, usize)> {
    if let Some(&(i, o)) = node.op.updates().iter().find(|&&(i, o)| reads[i] != writes[o]) {
        return Some((i, o));
    }
    for (o, write) in writes.iter().enumerate() {
        for (i, read) in reads.iter().enumerate() {
            if overlap(read, write) && !may_share(graph, node, reads, i, (o, write)) {
                return Some((i, o));
            }
        }
    }
    None
}

fn may_share(graph: &Graph, node: &Node, reads: &[Place], i: usize, (o, write): (usize, &Place)) -> bool {
    let read = &reads[i];
    let lies_at =
        |part: &Place, whole: &Place, offset: u64| part.0 == whole.0 && part.1.start == whole.1.start + offset;
    let inside = |part: &Place, whole: &Place| whole.1.start <= part.1.start && part.1.end <= whole.1.end;
    let unchanged = |j: usize| lies_at(&reads[j], write, row_offset(graph, &node.inputs[..j]));
    match node.op {
        Op::Concat(_) => unchanged(i) || (0..reads.len()).any(|j| unchanged(j) && inside(read, &reads[j])),
        Op::Split(_) => lies_at(write, read, row_offset(graph, &node.outputs[..o])),
        _ => read == write && (node.op.in_place().contains(&(i, o)) || node.op.updates().contains(&(i, o))),
    }
}

/// Bytes of the values before a part, in a row of the whole.
fn row_offset(graph: &Graph, before: &[ValueId]) -> u64 {
    before.iter().map(|&id| super::content::rows_of(&graph.value(id).ty).stride).sum()
}
