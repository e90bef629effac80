//! No buffer of a schedule lies in the staging region, which the host fills while the schedule runs.

use crate::{Rule, Violation};
use vdnn_schedule::{Schedule, Space};
use vdnn_tensor::Bytes;

pub(crate) fn check(schedule: &Schedule, offset: Bytes, bytes: Bytes) -> Vec<Violation> {
    let end = offset.saturating_add(bytes);
    let peak = schedule.peak_bytes(Space::Device);
    let outside = (end > peak).then(|| {
        let message =
            format!("expected the staging region within the device arena of {peak} bytes, found its end at {end}");
        Violation::whole(Rule::Budget, message)
    });
    let meets = |first: Bytes, len: Bytes| len > 0 && first < end && offset < first.saturating_add(len);
    let buffers = schedule.buffers.iter().filter(|buffer| buffer.space == Space::Device && bytes > 0);
    let inside = buffers.filter(|buffer| meets(buffer.offset, buffer.bytes)).map(|buffer| {
        let (name, first, last) = (&buffer.name, buffer.offset, buffer.offset + buffer.bytes);
        let message =
            format!("expected {name} outside the staging region {offset}..{end}, found it at {first}..{last}");
        Violation::whole(Rule::Sharing, message)
    });
    outside.into_iter().chain(inside).collect()
}
