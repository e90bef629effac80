//! What other placements would make of a schedule's buffers: the extent of the device arena under each.

use serde_json::{Value, json};
use vdnn_memory::placement::{Item, Placement, place};
use vdnn_schedule::{Action, BufferKind, Schedule, Space};

/// Extents in bytes by placement, for the same buffers at the same times.
pub fn by_placement(schedule: &Schedule) -> Value {
    let homes = schedule.buffers.iter().filter(|buffer| buffer.space == Space::Device);
    let homes = homes.filter(|buffer| buffer.kind == BufferKind::Home);
    let base = homes.map(|buffer| buffer.offset + buffer.bytes).max().unwrap_or(0);
    let alignment =
        schedule.arenas.iter().find(|arena| arena.space == Space::Device).map_or(1, |arena| arena.alignment);
    let items = items(schedule);
    let extent = |method| place(method, &items, base, alignment).extent;
    json!({
        "planned": extent(Placement::Planned),
        "first_fit": extent(Placement::FirstFit),
        "size_class": extent(Placement::SizeClass),
    })
}

/// The device buffers that are taken and given back, timed by the index of the command that does it.
fn items(schedule: &Schedule) -> Vec<Item> {
    let last = schedule.commands.len() as u32;
    let mut spans = vec![None; schedule.buffers.len()];
    for (index, command) in (0u32..).zip(&schedule.commands) {
        match command.action {
            Action::Alloc(id) => spans[id.0 as usize] = Some((index, last)),
            Action::Free(id) => {
                if let Some((_, end)) = &mut spans[id.0 as usize] {
                    *end = index;
                }
            }
            _ => {}
        }
    }
    let device = spans.into_iter().zip(&schedule.buffers).filter(|(_, buffer)| buffer.space == Space::Device);
    device.filter_map(|(span, buffer)| span.map(|(start, end)| Item { start, end, bytes: buffer.bytes })).collect()
}
