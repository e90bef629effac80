//! The buffers that hold a storage, and when.
//!
//! ```text
//!   %conv3+relu   ├── conv3 ──┤── relu ──┤      a storage may take over the bytes of another one: one buffer, both in turn
//! ```

use serde::Serialize;
use vdnn_graph::{Program, ValueId};
use vdnn_schedule::{Action, Buffer, BufferId, BufferKind, Schedule, Space};
use vdnn_tensor::Bytes;

/// A buffer that holds the storage for a while; a home always does.
#[derive(Serialize)]
pub struct Lies {
    pub buffer: String,
    pub space: Space,
    pub kind: BufferKind,
    pub offset: Bytes,
    pub bytes: Bytes,
    pub from_step: Option<usize>,
    pub until_step: Option<usize>,
}

/// The buffers of a storage, with the first and last step at which each holds it. One that was taken over from another storage, or
/// is by another, holds it for a part of its time.
pub(super) fn lies(program: &Program, schedule: &Schedule, root: ValueId) -> Vec<Lies> {
    let mut held: Vec<(Option<usize>, Option<usize>)> = vec![(None, None); schedule.buffers.len()];
    let mut holds: Vec<Option<ValueId>> = schedule.buffers.iter().map(|buffer| buffer.root).collect();
    let mut launched: usize = 0;
    for command in &schedule.commands {
        match &command.action {
            Action::Launch { node, writes, .. } => {
                for (&value, region) in program.graph.node(*node).outputs.iter().zip(writes) {
                    let (at, next) = (region.buffer.index(), program.aliases.root(value));
                    let before = holds[at].replace(next);
                    if before != Some(next) && next == root {
                        held[at] = (Some(launched), None);
                    } else if before != Some(next) && before == Some(root) {
                        held[at].1 = Some(launched);
                    }
                }
                launched += 1;
            }
            &Action::Alloc(BufferId(id)) if holds[id as usize] == Some(root) => held[id as usize].0 = Some(launched),
            &Action::Free(BufferId(id)) if holds[id as usize] == Some(root) => {
                held[id as usize].1 = Some(launched.saturating_sub(1));
            }
            _ => {}
        }
    }
    let is_of =
        |(buffer, held): &(&Buffer, (Option<usize>, Option<usize>))| buffer.root == Some(root) || held.0.is_some();
    let buffers = schedule.buffers.iter().zip(held).filter(is_of);
    buffers
        .map(|(buffer, (from_step, until_step))| Lies {
            buffer: buffer.name.clone(),
            space: buffer.space,
            kind: buffer.kind,
            offset: buffer.offset,
            bytes: buffer.bytes,
            from_step,
            until_step,
        })
        .collect()
}
