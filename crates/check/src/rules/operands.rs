//! Which operands of a launch may share bytes.
//!
//! An update lies over its persistent, always. An output may lie over an input where the op says that its kernels accept
//! it, and then exactly. Parts of a concat or split may lie at their place in the whole; a concat may also copy a part
//! from inside another one that lies in place and so does not change (a value concatenated twice). All else is apart.

use super::tables::Entry;
use crate::grid;
use vdnn_graph::op::{Axis, Concat, Split};
use vdnn_graph::{Graph, Node, Op, ValueId};
use vdnn_schedule::BufferId;

/// An operand's place: a buffer, some of its rows and their columns.
pub(crate) type Place = (BufferId, grid::Place);

fn overlap(a: &Place, b: &Place) -> bool {
    a.0 == b.0 && a.1.overlaps(&b.1)
}

/// The first pair (input, output) that shares bytes and may not, or does not and must.
pub(crate) fn clash(
    graph: &Graph,
    node: &Node,
    entry: &Entry,
    reads: &[Place],
    writes: &[Place],
) -> Option<(usize, usize)> {
    if let Some(&(i, o)) = entry.updates.iter().find(|&&(i, o)| reads[i] != writes[o]) {
        return Some((i, o));
    }
    for (o, write) in writes.iter().enumerate() {
        for (i, read) in reads.iter().enumerate() {
            let allowed =
                || read == write && entry.may_overwrite(i, o) || lies_in_place(graph, node, reads, i, (o, write));
            if overlap(read, write) && !allowed() {
                return Some((i, o));
            }
        }
    }
    None
}

/// Whether a part of a concat or split lies where it does in the whole.
fn lies_in_place(graph: &Graph, node: &Node, reads: &[Place], i: usize, (o, write): (usize, &Place)) -> bool {
    let read = &reads[i];
    let lies_at = |part: &Place, whole: &Place, (row, column): (u64, u64)| {
        part.0 == whole.0
            && part.1.rows.start == whole.1.rows.start + row
            && part.1.columns.start == whole.1.columns.start + column
    };
    let inside = |part: &Place, whole: &Place| part.1.is_inside(&whole.1);
    let unchanged = |axis, j: usize| lies_at(&reads[j], write, offset(graph, &node.inputs[..j], axis));
    match node.op {
        Op::Concat(Concat { axis }) => {
            unchanged(axis, i) || (0..reads.len()).any(|j| unchanged(axis, j) && inside(read, &reads[j]))
        }
        Op::Split(Split { axis, .. }) => lies_at(write, read, offset(graph, &node.outputs[..o], axis)),
        _ => false,
    }
}

/// Rows, or bytes in each row, of the values before a part in the whole.
fn offset(graph: &Graph, before: &[ValueId], axis: Axis) -> (u64, u64) {
    let grids = before.iter().map(|&id| super::atoms::rows_of(&graph.value(id).ty));
    match axis {
        Axis::Channels => (0, grids.map(|grid| grid.stride).sum()),
        Axis::Batch => (grids.map(|grid| grid.rows).sum(), 0),
    }
}
