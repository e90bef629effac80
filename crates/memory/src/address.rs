//! Addresses for a plan's intervals: by liveness, or network-wide as the paper's baseline has it.
//!
//! How items find room is `placement`'s business; this file says what the items are.

use crate::homes::home_values;
use crate::placement::{Item, Placed, place as place_items, place_within};
use crate::stretch::{Intervals, LowerCopy, Stretch};
use crate::{Allocation, MemoryPlan, Problem};
use vdnn_graph::Role;
use vdnn_schedule::Space;
use vdnn_tensor::Bytes;

/// Where copies lie below the device.
pub(crate) struct Below {
    pub host: Placed,
    pub disk: Placed,
}

/// Addresses of a plan's intervals.
pub(crate) struct Addresses {
    pub stretches: Vec<Bytes>,
    pub workspaces: Vec<Bytes>,
    pub device_extent: Bytes,
}

/// Places the device intervals of a plan above the homes. Bytes that are taken over tie two addresses to one: where the budget is not
/// kept so, storages have bytes of their own if that needs less.
pub(crate) fn place(problem: &Problem<'_>, plan: &MemoryPlan, intervals: &mut Intervals) -> Addresses {
    let placed = |intervals: &Intervals| match plan.allocation {
        Allocation::Liveness => place_by_liveness(problem, intervals),
        Allocation::NetworkWide => place_network_wide(problem, intervals),
    };
    let addresses = placed(intervals);
    if let Some(apart) = apart(problem, intervals, addresses.device_extent) {
        let addresses_apart = placed(&apart);
        if addresses_apart.device_extent < addresses.device_extent {
            *intervals = apart;
            return addresses_apart;
        }
    }
    addresses
}

/// An extent that [`place`] reaches or stays below; where the device budget is kept, not always the least one.
pub(crate) fn extent_within_budget(problem: &Problem<'_>, plan: &MemoryPlan, intervals: &Intervals) -> Bytes {
    let extent = |intervals: &Intervals| match plan.allocation {
        Allocation::Liveness => {
            let (options, enough) = (&problem.options, problem.budgets.device.unwrap_or(0));
            let DeviceItems { items, .. } = DeviceItems::of(intervals);
            place_within(options.placement, &items, problem.homes.extent(), options.alignment, enough).extent
        }
        Allocation::NetworkWide => place_network_wide(problem, intervals).device_extent,
    };
    let found = extent(intervals);
    apart(problem, intervals, found).map_or(found, |apart| extent(&apart).min(found))
}

/// The same intervals with nothing taken over, where some is and the extent is over the budget, which they may keep.
fn apart(problem: &Problem<'_>, intervals: &Intervals, extent: Bytes) -> Option<Intervals> {
    let budget = problem.budgets.device.filter(|&budget| extent > budget)?;
    let apart = intervals.apart()?;
    let live = apart.live_profile().into_iter().max().unwrap_or(0);
    (problem.homes.extent() + live <= budget).then_some(apart)
}

/// What lies on the device: stretches, each with those that take its bytes over one after the other, and workspaces.
struct DeviceItems {
    items: Vec<Item>,
    /// By stretch: its item.
    of_stretch: Vec<usize>,
}

impl DeviceItems {
    fn of(intervals: &Intervals) -> Self {
        let stretches = &intervals.stretches;
        let mut found = DeviceItems { items: Vec::new(), of_stretch: vec![0; stretches.len()] };
        for (first, stretch) in stretches.iter().enumerate().filter(|(_, stretch)| stretch.over.is_none()) {
            let mut end = stretch.end;
            for i in intervals.taken_over(first) {
                (found.of_stretch[i], end) = (found.items.len(), stretches[i].end);
            }
            found.items.push(Item { start: stretch.start.0, end: end.0, bytes: stretch.bytes });
        }
        let workspaces = intervals.workspaces.iter().map(|w| Item { start: w.step.0, end: w.step.0, bytes: w.bytes });
        found.items.extend(workspaces);
        found
    }
}

fn place_by_liveness(problem: &Problem<'_>, intervals: &Intervals) -> Addresses {
    let DeviceItems { items, of_stretch } = DeviceItems::of(intervals);
    let options = &problem.options;
    let base = problem.homes.extent();
    // Without a budget nothing is gained by the longer search, and the peak is never below the floor, which a short one finds.
    let placed = match problem.budgets.device {
        Some(_) => place_items(options.placement, &items, base, options.alignment),
        None => place_within(options.placement, &items, base, options.alignment, 0),
    };
    let stretches = of_stretch.into_iter().map(|item| placed.offsets[item]).collect();
    let workspaces = placed.offsets[items.len() - intervals.workspaces.len()..].to_vec();
    Addresses { stretches, workspaces, device_extent: placed.extent }
}

/// Host addresses of the copies, above the homes there.
pub(crate) fn place_host(problem: &Problem<'_>, intervals: &Intervals) -> Placed {
    let items: Vec<Item> = intervals.copies.iter().map(lower_item).collect();
    let mut placed =
        place_items(problem.options.placement, &items, problem.homes.host_extent(), problem.options.alignment);
    // The arena ends with what this program has there, not with homes that only others know.
    let entries =
        home_values(&problem.program.graph).filter_map(|id| problem.homes.find(&problem.program.graph.value(id).name));
    let homes = entries.filter(|home| home.space == Space::Host).map(|home| home.offset + home.bytes);
    let copies = placed.offsets.iter().zip(&items).map(|(offset, item)| offset + item.bytes);
    placed.extent = homes.chain(copies).max().unwrap_or(0);
    placed
}

/// Addresses in the file of the copies that rest there.
pub(crate) fn place_disk(problem: &Problem<'_>, intervals: &Intervals) -> Placed {
    let items: Vec<Item> = intervals.files.iter().map(lower_item).collect();
    place_items(problem.options.placement, &items, 0, problem.options.alignment)
}

fn lower_item(copy: &LowerCopy) -> Item {
    Item { start: copy.start.0, end: copy.end.0, bytes: copy.bytes }
}

/// The paper's baseline: everything but gradients in a row, then as many gradient slots of the largest size as gradients
/// live at once, then one workspace of the largest size.
fn place_network_wide(problem: &Problem<'_>, intervals: &Intervals) -> Addresses {
    let alignment = problem.options.alignment;
    let graph = &problem.program.graph;
    let is_gradient = |s: &Stretch| graph.value(s.root).role == Role::Gradient;
    let mut top = problem.homes.extent();
    let mut stretches = vec![0; intervals.stretches.len()];
    for (offset, stretch) in stretches.iter_mut().zip(&intervals.stretches) {
        if !is_gradient(stretch) {
            *offset = top.next_multiple_of(alignment);
            top = *offset + stretch.bytes;
        }
    }
    let gradients: Vec<usize> =
        (0..intervals.stretches.len()).filter(|&i| is_gradient(&intervals.stretches[i])).collect();
    let slot_bytes = gradients.iter().map(|&i| intervals.stretches[i].bytes).max().unwrap_or(0);
    let slots = gradient_slots(&intervals.stretches, &gradients);
    let first_slot = top.next_multiple_of(alignment);
    let stride = slot_bytes.next_multiple_of(alignment);
    for (&i, &slot) in gradients.iter().zip(&slots) {
        stretches[i] = first_slot + slot as Bytes * stride;
    }
    if let Some(&last) = slots.iter().max() {
        top = first_slot + last as Bytes * stride + slot_bytes;
    }
    let workspace = intervals.workspaces.iter().map(|w| w.bytes).max().unwrap_or(0);
    let workspace_at = top.next_multiple_of(alignment);
    let device_extent = if workspace > 0 { workspace_at + workspace } else { top };
    Addresses { stretches, workspaces: vec![workspace_at; intervals.workspaces.len()], device_extent }
}

/// A slot for each gradient, so that gradients that live at once have different ones; as few as possible. The last slot
/// is the one that holds the largest gradient, so that the arena ends where a buffer ends.
fn gradient_slots(stretches: &[Stretch], gradients: &[usize]) -> Vec<usize> {
    let mut by_start: Vec<usize> = (0..gradients.len()).collect();
    by_start.sort_by_key(|&g| (stretches[gradients[g]].start, g));
    let mut free_from: Vec<u32> = Vec::new();
    let mut slots = vec![0; gradients.len()];
    for g in by_start {
        let stretch = &stretches[gradients[g]];
        let slot = free_from.iter().position(|&free| free <= stretch.start.0).unwrap_or_else(|| {
            free_from.push(0);
            free_from.len() - 1
        });
        free_from[slot] = stretch.end.0 + 1;
        slots[g] = slot;
    }
    let largest = (0..gradients.len()).max_by_key(|&g| stretches[gradients[g]].bytes).map_or(0, |g| slots[g]);
    let last = free_from.len().saturating_sub(1);
    let swap = |slot: usize| {
        if slot == largest {
            last
        } else if slot == last {
            largest
        } else {
            slot
        }
    };
    slots.into_iter().map(swap).collect()
}
