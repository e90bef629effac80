//! Which bytes a command reads and writes.

use vdnn_schedule::{Action, Region};

/// What is done to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The accesses of a command, reads first. A workspace is written.
pub(crate) fn accesses(action: &Action) -> impl Iterator<Item = (Access, &Region)> {
    let (reads, writes, workspace): (&[Region], &[Region], Option<&Region>) = match action {
        Action::Launch { reads, writes, workspace, .. } => (reads, writes, workspace.as_ref()),
        Action::Transfer { src, dst, .. } => (std::slice::from_ref(src), std::slice::from_ref(dst), None),
        _ => (&[], &[], None),
    };
    let read = reads.iter().map(|region| (Access::Read, region));
    read.chain(writes.iter().chain(workspace).map(|region| (Access::Write, region)))
}
