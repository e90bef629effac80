//! What rests on disk: the way from host memory to the file and back, on a stream of its own.
//!
//! ```text
//!  offload   copy %x -> %x.to_disk · record offloaded
//!  disk      wait offloaded · %x.to_disk -> %x.disk · record written      wait room · %x.disk -> %x.from_disk' · record read
//!  compute   … wait written · free %x.to_disk        alloc %x.from_disk' · record room …
//!  prefetch                                                               wait room, wait read · %x.from_disk' -> %x'
//! ```
//! Reads and writes run one after the other, so that what is read has been written. The bytes in the file are given back when
//! the last gap that they serve has been fetched.

use super::{COMPUTE, DISK, Emitter};
use crate::Sync;
use crate::stretch::Away;
use vdnn_graph::Step;
use vdnn_schedule::{Action, BufferId, Cause, Direction, EventId};

impl Emitter<'_> {
    /// The lower buffers that a gap takes for its copy down: that in host memory, if its home is not that, or a slot and the
    /// place in the file.
    pub(super) fn copied_to(&self, away: &Away) -> Vec<BufferId> {
        match &away.file {
            Some(file) => {
                let slot = file.slot.map(|(slot, _)| self.copy_buffers[slot]);
                slot.into_iter().chain([self.file_buffers[file.copy]]).collect()
            }
            None => away.host.iter().map(|&host| self.copy_buffers[host]).collect(),
        }
    }

    /// Where the copy down goes first.
    pub(super) fn first_below(&self, away: &Away) -> BufferId {
        match away.file.and_then(|file| file.slot) {
            Some((slot, _)) => self.copy_buffers[slot],
            None => self.below(away),
        }
    }

    /// Starts the way on from the slot down to the file, once the copy to it has ended.
    pub(super) fn write(&mut self, away: usize, offloaded: EventId) {
        let interval = &self.intervals.aways[away];
        let Some((file, (slot, _))) = interval.file.and_then(|file| Some((file.copy, file.slot?))) else { return };
        let cause = Cause::IdleUntil(interval.gap.to.step);
        let (src, dst) = (self.copy_buffers[slot], self.file_buffers[file]);
        let event = self.event(format!("written %{}", self.buffer_name(src)));
        let (src, dst) = (self.whole(src), self.whole(dst));
        self.push(DISK, Action::Wait(offloaded), cause);
        self.push(DISK, Action::Transfer { direction: Direction::Offload, src, dst }, cause);
        self.push(DISK, Action::Record(event), cause);
        self.written[away] = Some(event);
        self.outstanding.push(event);
    }

    /// The bytes of a slot down are in the file: others may have the slot.
    pub(super) fn give_slot_back(&mut self, away: usize, step: Step) {
        let interval = &self.intervals.aways[away];
        let Some((slot, _)) = interval.file.and_then(|file| file.slot) else { return };
        if let Some(event) = self.written[away] {
            self.wait(event, Cause::IdleUntil(interval.gap.to.step));
        }
        self.push(COMPUTE, Action::Free(self.copy_buffers[slot]), Cause::After(Step(step.0.saturating_sub(1))));
    }

    /// Starts the ways back from the file. One event tells the disk stream that the slots of all of them are free.
    pub(super) fn read(&mut self, aways: &[usize]) {
        let intervals = self.intervals;
        let cause = |away: usize| Cause::For(intervals.aways[away].gap.to.step);
        let Some(&first) = aways.first() else { return };
        for &away in aways {
            let slot = self.below(&intervals.aways[away]);
            self.push(COMPUTE, Action::Alloc(slot), cause(away));
        }
        let room = self.event(format!("room for %{}", self.buffer_name(self.below(&intervals.aways[first]))));
        self.push(COMPUTE, Action::Record(room), cause(first));
        self.push(DISK, Action::Wait(room), cause(first));
        for &away in aways {
            let Some(file) = &intervals.aways[away].file else { continue };
            let (src, dst) = (self.file_buffers[file.copy], self.below(&intervals.aways[away]));
            let event = self.event(format!("read %{}", self.buffer_name(dst)));
            let (src, dst) = (self.whole(src), self.whole(dst));
            self.push(DISK, Action::Transfer { direction: Direction::Prefetch, src, dst }, cause(away));
            self.push(DISK, Action::Record(event), cause(away));
            self.read[away] = Some(event);
            // With events alone, who waits for the copy up has waited for this.
            if self.problem.options.sync == Sync::PerLayer {
                self.outstanding.push(event);
            }
        }
    }

    /// Gives the bytes in the file back after the last gap that they serve.
    pub(super) fn forget_file(&mut self, away: usize, step: Step) {
        if let Some(file) = &self.intervals.aways[away].file
            && self.intervals.files[file.copy].end == step
        {
            self.push(COMPUTE, Action::Free(self.file_buffers[file.copy]), Cause::After(step));
        }
    }
}
