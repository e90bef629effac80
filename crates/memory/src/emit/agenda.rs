//! What is to happen at each step: the intervals, by the steps at which something begins or ends.

use crate::stretch::Intervals;

/// What happens at each step, by index into the intervals.
#[derive(Default)]
pub(super) struct Agenda {
    pub releases: Vec<usize>,
    pub starts: Vec<usize>,
    pub ends: Vec<usize>,
    pub fetches: Vec<usize>,
    pub needs: Vec<usize>,
    pub offloads: Vec<usize>,
    /// Slots that give their bytes back, and those that are read to, by time away.
    pub slots: Vec<usize>,
    pub reads: Vec<usize>,
    pub workspace: Option<usize>,
}

impl Agenda {
    /// By step, and at the end what follows the last one.
    pub(super) fn of(intervals: &Intervals) -> Vec<Agenda> {
        let mut agenda: Vec<Agenda> = (0..=intervals.n_steps).map(|_| Agenda::default()).collect();
        let mut offloaded = vec![false; intervals.stretches.len()];
        for (i, away) in intervals.aways.iter().enumerate() {
            agenda[away.release.index()].releases.push(i);
            agenda[away.fetch.index()].fetches.push(i);
            agenda[away.gap.to.step.index()].needs.push(i);
            if away.down {
                agenda[away.gap.from.step.index()].offloads.push(i);
            }
            if let Some(file) = &away.file {
                agenda[file.read.index()].reads.push(i);
                file.slot.iter().for_each(|(_, written)| agenda[written.index()].slots.push(i));
            }
            offloaded[away.from] = true;
        }
        for (i, stretch) in intervals.stretches.iter().enumerate() {
            agenda[stretch.start.index()].starts.push(i);
            if !offloaded[i] && stretch.next.is_none() {
                agenda[stretch.end.index()].ends.push(i);
            }
        }
        for (i, workspace) in intervals.workspaces.iter().enumerate() {
            agenda[workspace.step.index()].workspace = Some(i);
        }
        // One stream brings bytes back: what is needed first must not queue behind what is needed later.
        for step in &mut agenda {
            for list in [&mut step.fetches, &mut step.reads] {
                list.sort_by_key(|&i| (intervals.aways[i].gap.to.step, i));
            }
        }
        agenda
    }
}
