//! From placed intervals to commands.
//!
//! Inside each step, in this order:
//! ```text
//!  releases   wait offloaded %x · free %x             bytes given back before new ones are taken (no wait where a copy is left)
//!  slots      wait written · free the slot down
//!  allocs     alloc %y · alloc workspace
//!  reads      alloc the slot up · record room · disk: wait room · copy · record read
//!  fetches    record room · prefetch: wait room, wait read · copy · record prefetched %x'
//!  needs      wait prefetched %x' · free its lower copy, if that is not fetched again
//!  offloads   record computed %x · offload: alloc, wait computed · copy · record offloaded %x   (after the launch if it writes %x)
//!             disk: wait offloaded · copy · record written
//!  launch
//!  frees      free what was used for the last time, and the workspace
//! ```
//! `emit/tables.rs` has what stands before the commands, `emit/agenda.rs` what is to happen when, `emit/lower.rs` what rests on disk.
//! Allocations and frees all stand on the compute stream, whose order is the time axis; the copy streams are fenced by
//! events on both sides. With [`Sync::PerLayer`] the compute stream also waits for all copies of a layer at its end.

mod agenda;
mod lower;
mod tables;

use crate::address::{Addresses, Below};
use crate::stretch::{Away, Intervals};
use crate::{MemoryPlan, Problem, Sync};
use agenda::Agenda;
use std::collections::BTreeMap;
use vdnn_graph::{NodeId, Phase, Step, ValueId};
use vdnn_schedule::{
    Action, AlgoId, BufferId, Cause, Command, Direction, Event, EventId, FORMAT, Region, Schedule, StreamId, StreamRole,
};

const COMPUTE: StreamId = StreamId(0);
const OFFLOAD: StreamId = StreamId(1);
const PREFETCH: StreamId = StreamId(2);
const DISK: StreamId = StreamId(3);

/// Emits the schedule of a placed plan.
pub(crate) fn emit(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    policy: &str,
    intervals: &Intervals,
    addresses: &Addresses,
    below: &Below,
) -> Schedule {
    let mut emitter = Emitter::new(problem, plan, policy, intervals);
    emitter.arenas(addresses, below);
    emitter.homes();
    emitter.buffers(addresses, below);
    for step in 0..plan.order.len() as u32 {
        emitter.step(Step(step));
    }
    emitter.finish();
    emitter.schedule
}

struct Emitter<'a> {
    problem: &'a Problem<'a>,
    plan: &'a MemoryPlan,
    intervals: &'a Intervals,
    agenda: Vec<Agenda>,
    schedule: Schedule,
    algorithms: BTreeMap<String, AlgoId>,
    stretch_buffers: Vec<BufferId>,
    /// By storage: its home.
    homes: Vec<Option<BufferId>>,
    workspace_buffers: Vec<BufferId>,
    copy_buffers: Vec<BufferId>,
    file_buffers: Vec<BufferId>,
    /// The buffer each storage is in at the moment.
    current: Vec<Option<BufferId>>,
    /// By time away: the event that the bytes have left, and that they are back.
    offloaded: Vec<Option<EventId>>,
    prefetched: Vec<Option<EventId>>,
    /// The same of what rests on disk: that it is in the file, and in the slot up.
    written: Vec<Option<EventId>>,
    read: Vec<Option<EventId>>,
    /// By event: whether the compute stream has waited for it.
    waited: Vec<bool>,
    /// Copies started since the streams last joined.
    outstanding: Vec<EventId>,
}

impl<'a> Emitter<'a> {
    fn new(problem: &'a Problem<'a>, plan: &'a MemoryPlan, policy: &str, intervals: &'a Intervals) -> Self {
        let graph = &problem.program.graph;
        let schedule = Schedule {
            format: FORMAT,
            name: graph.name.clone(),
            policy: policy.to_string(),
            nodes: graph.nodes().iter().map(|node| node.name.clone()).collect(),
            values: graph.values().iter().map(|value| value.name.clone()).collect(),
            algorithms: Vec::new(),
            arenas: Vec::new(),
            buffers: Vec::new(),
            homes: Vec::new(),
            events: Vec::new(),
            streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch],
            commands: Vec::new(),
        };
        Emitter {
            problem,
            plan,
            intervals,
            agenda: Agenda::of(intervals),
            schedule,
            algorithms: BTreeMap::new(),
            stretch_buffers: Vec::new(),
            homes: vec![None; graph.values().len()],
            workspace_buffers: Vec::new(),
            copy_buffers: Vec::new(),
            file_buffers: Vec::new(),
            current: vec![None; graph.values().len()],
            offloaded: vec![None; intervals.aways.len()],
            prefetched: vec![None; intervals.aways.len()],
            written: vec![None; intervals.aways.len()],
            read: vec![None; intervals.aways.len()],
            waited: Vec::new(),
            outstanding: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let agenda = std::mem::take(&mut self.agenda[step.index()]);
        for &copy in &agenda.releases {
            self.release(copy, step);
        }
        for &away in &agenda.slots {
            self.give_slot_back(away, step);
        }
        for &stretch in &agenda.starts {
            let (buffer, stretch) = (self.stretch_buffers[stretch], &self.intervals.stretches[stretch]);
            self.current[stretch.root.index()] = Some(buffer);
            if stretch.over.is_none() {
                self.push(COMPUTE, Action::Alloc(buffer), Cause::Step(step));
            }
        }
        if let Some(workspace) = agenda.workspace {
            self.push(COMPUTE, Action::Alloc(self.workspace_buffers[workspace]), Cause::Step(step));
        }
        self.read(&agenda.reads);
        self.fetch(&agenda.fetches);
        for &copy in &agenda.needs {
            self.need(copy, step);
        }
        let (after, before): (Vec<usize>, Vec<usize>) =
            agenda.offloads.iter().partition(|&&away| self.intervals.aways[away].gap.from.writes);
        self.offload(&before);
        self.launch(step, agenda.workspace);
        self.offload(&after);
        if self.ends_layer(step) {
            self.join_layer(step);
        }
        for &stretch in &agenda.ends {
            self.push(COMPUTE, Action::Free(self.stretch_buffers[stretch]), Cause::After(step));
        }
        if let Some(workspace) = agenda.workspace {
            self.push(COMPUTE, Action::Free(self.workspace_buffers[workspace]), Cause::After(step));
        }
    }

    fn release(&mut self, away: usize, step: Step) {
        let interval = &self.intervals.aways[away];
        let (from, idle_until) = (interval.from, interval.gap.to.step);
        if let Some(event) = self.offloaded[away] {
            self.wait(event, Cause::IdleUntil(idle_until));
        }
        self.push(COMPUTE, Action::Free(self.stretch_buffers[from]), Cause::After(Step(step.0.saturating_sub(1))));
    }

    /// Starts the copies up. One event tells the prefetch stream that the bytes of all of them are free.
    fn fetch(&mut self, aways: &[usize]) {
        let Some(&first) = aways.first() else { return };
        let intervals = self.intervals;
        let cause = |away: usize| Cause::For(intervals.aways[away].gap.to.step);
        let room =
            self.event(format!("room for %{}", self.buffer_name(self.stretch_buffers[intervals.aways[first].to])));
        self.push(COMPUTE, Action::Record(room), cause(first));
        self.push(PREFETCH, Action::Wait(room), cause(first));
        for &away in aways {
            let interval = &intervals.aways[away];
            if let Some(read) = self.read[away] {
                self.push(PREFETCH, Action::Wait(read), cause(away));
            }
            let (src, dst) = (self.below(interval), self.stretch_buffers[interval.to]);
            let event = self.event(format!("prefetched %{}", self.buffer_name(dst)));
            let direction = Direction::Prefetch;
            let (src, dst) = (self.whole(src), self.whole(dst));
            self.push(PREFETCH, Action::Transfer { direction, src, dst }, cause(away));
            self.push(PREFETCH, Action::Record(event), cause(away));
            self.prefetched[away] = Some(event);
            self.outstanding.push(event);
        }
    }

    fn need(&mut self, away: usize, step: Step) {
        if let Some(event) = self.prefetched[away] {
            self.wait(event, Cause::Step(step));
        }
        if let Some(host) = self.intervals.aways[away].host
            && self.intervals.copies[host].end == step
        {
            self.push(COMPUTE, Action::Free(self.copy_buffers[host]), Cause::After(step));
        }
        self.forget_file(away, step);
    }

    /// Starts the copies down. One event tells the offload stream that all of their bytes are final.
    fn offload(&mut self, aways: &[usize]) {
        let Some(&first) = aways.first() else { return };
        let intervals = self.intervals;
        let cause = |away: usize| Cause::IdleUntil(intervals.aways[away].gap.to.step);
        for &away in aways {
            for buffer in self.copied_to(&intervals.aways[away]) {
                self.push(COMPUTE, Action::Alloc(buffer), cause(away));
            }
        }
        let name = self.buffer_name(self.stretch_buffers[intervals.aways[first].from]);
        let computed = self.event(format!("computed %{name}"));
        self.push(COMPUTE, Action::Record(computed), cause(first));
        self.push(OFFLOAD, Action::Wait(computed), cause(first));
        for &away in aways {
            let src = self.stretch_buffers[intervals.aways[away].from];
            let event = self.event(format!("offloaded %{}", self.buffer_name(src)));
            let (src, dst) = (self.whole(src), self.whole(self.first_below(&intervals.aways[away])));
            self.push(OFFLOAD, Action::Transfer { direction: Direction::Offload, src, dst }, cause(away));
            self.push(OFFLOAD, Action::Record(event), cause(away));
            self.offloaded[away] = Some(event);
            self.outstanding.push(event);
            self.write(away, event);
        }
    }

    /// Where a storage lies in host memory while it is away, or when it is back from the file.
    fn below(&self, away: &Away) -> BufferId {
        match away.host {
            Some(host) => self.copy_buffers[host],
            None => self.homes[away.gap.root.index()].expect("what streams has a home"),
        }
    }

    fn launch(&mut self, step: Step, workspace: Option<usize>) {
        let u = self.plan.order[step.index()];
        let node = self.problem.program.graph.node(u.node);
        let reads = node.inputs.iter().map(|&id| self.region(id)).collect();
        let writes = node.outputs.iter().map(|&id| self.region(id)).collect();
        let algo = self.algorithm(u.node);
        let workspace = workspace.map(|index| self.whole(self.workspace_buffers[index]));
        let action = Action::Launch { node: u.node, run: u.run, algo, reads, writes, workspace };
        self.push(COMPUTE, action, Cause::Step(step));
    }

    fn algorithm(&mut self, node: NodeId) -> AlgoId {
        let name = &self.problem.chosen(self.plan, node).algorithm;
        if let Some(&id) = self.algorithms.get(name) {
            return id;
        }
        let id = AlgoId(self.schedule.algorithms.len() as u32);
        self.schedule.algorithms.push(name.clone());
        self.algorithms.insert(name.clone(), id);
        id
    }

    /// True at the last step of a run of steps of one layer in one direction.
    fn ends_layer(&self, step: Step) -> bool {
        let graph = &self.problem.program.graph;
        let key = |index: usize| {
            self.plan.order.get(index).map(|u| {
                let node = graph.node(u.node);
                (node.layer, node.phase == Phase::Forward && u.run == 0)
            })
        };
        key(step.index()) != key(step.index() + 1)
    }

    fn join_layer(&mut self, step: Step) {
        if self.problem.options.sync == Sync::PerLayer {
            for event in std::mem::take(&mut self.outstanding) {
                self.wait(event, Cause::EndOfLayer(step));
            }
        }
    }

    /// The end of the iteration: nothing may still run on a copy stream, and what was updated last goes.
    fn finish(&mut self) {
        for event in std::mem::take(&mut self.outstanding) {
            self.wait(event, Cause::EndOfIteration);
        }
        let end = self.intervals.n_steps;
        for away in std::mem::take(&mut self.agenda[end].releases) {
            self.release(away, Step(end as u32));
        }
    }

    /// Where a value lies now.
    fn region(&self, value: ValueId) -> Region {
        let location = self.problem.program.aliases.location(value);
        let buffer = self.current[location.root.index()].expect("a value used at a step has a stretch or a home there");
        Region {
            buffer,
            offset: location.offset,
            rows: location.rows,
            row_bytes: location.row_bytes,
            row_stride: location.row_stride,
        }
    }

    fn whole(&self, buffer: BufferId) -> Region {
        Region::contiguous(buffer, 0, self.schedule.buffer(buffer).bytes)
    }

    fn buffer_name(&self, buffer: BufferId) -> String {
        self.schedule.buffer(buffer).name.clone()
    }

    fn event(&mut self, name: String) -> EventId {
        self.schedule.events.push(Event { name });
        self.waited.push(false);
        EventId(self.schedule.events.len() as u32 - 1)
    }

    /// The compute stream waits for an event, once.
    fn wait(&mut self, event: EventId, because: Cause) {
        if !std::mem::replace(&mut self.waited[event.index()], true) {
            self.push(COMPUTE, Action::Wait(event), because);
        }
    }

    fn push(&mut self, stream: StreamId, action: Action, because: Cause) {
        self.schedule.commands.push(Command { stream, action, because });
    }
}
