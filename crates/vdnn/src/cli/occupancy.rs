//! What the device's memory holds over time, by kind.
//!
//! ```text
//!   compute stream   launch │ wait copied │ free x │ alloc y │ launch       allocs and frees happen when the stream
//!   time                    ├─────────────▶ here                            reaches them: after what they wait for
//!
//!   columns          │ 3 GiB │ 5 GiB │ 5 GiB │ 2 GiB │      of each stretch of time the moment with the most bytes,
//!                                                           so that no peak is lost, however short
//! ```

use vdnn_graph::{Graph, Role};
use vdnn_schedule::{Action, Buffer, BufferKind, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;

/// What bytes are for, and in what colour they are drawn, from the bottom of a picture to its top.
pub const KINDS: [(&str, &str); 8] = [
    ("parameters", "#0072b2"),
    ("states of optimizer and norms", "#56b4e9"),
    ("inputs and metrics", "#8c8c8c"),
    ("statistics", "#f0e442"),
    ("feature maps", "#009e73"),
    ("gradient maps", "#d55e00"),
    ("parameter gradients", "#e69f00"),
    ("workspace", "#cc79a7"),
];

/// Bytes of each of [`KINDS`].
pub type Levels = [Bytes; KINDS.len()];

/// What lives on the device at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Bytes by kind.
    pub levels: Levels,
    /// Launches before it.
    pub launched: usize,
}

impl Moment {
    /// All bytes.
    pub fn bytes(&self) -> Bytes {
        self.levels.iter().sum()
    }
}

/// The fullest moment of each of so many equal parts of the iteration.
pub fn columns(schedule: &Schedule, graph: &Graph, timeline: &Timeline, count: usize) -> Vec<Moment> {
    let changes = changes(schedule, graph, timeline);
    let column = |time: f64| {
        let share = if timeline.seconds > 0.0 { time / timeline.seconds } else { 0.0 };
        ((share * count as f64) as usize).min(count.saturating_sub(1))
    };
    let mut now = Moment { levels: homes(schedule, graph), launched: 0 };
    let mut columns: Vec<Moment> = Vec::with_capacity(count);
    for (time, moment) in changes {
        // What stays from before is there at the start of every column up to this one.
        columns.resize(columns.len().max(column(time) + 1), now);
        now = moment;
        if let Some(last) = columns.last_mut().filter(|last| last.bytes() < now.bytes()) {
            *last = now;
        }
    }
    columns.resize(count.max(columns.len()), now);
    columns
}

/// Bytes of each of [`KINDS`], averaged over the time of the iteration.
pub fn averages(schedule: &Schedule, graph: &Graph, timeline: &Timeline) -> [f64; KINDS.len()] {
    let (mut levels, mut since) = (homes(schedule, graph), 0.0);
    let mut sums = [0.0; KINDS.len()];
    let last = changes(schedule, graph, timeline).into_iter().chain([(timeline.seconds, Moment::default())]);
    for (time, moment) in last {
        let time = time.max(since);
        for (sum, level) in sums.iter_mut().zip(levels) {
            *sum += level as f64 * (time - since);
        }
        (levels, since) = (moment.levels, time);
    }
    sums.map(|sum| if since > 0.0 { sum / since } else { 0.0 })
}

/// Index into [`KINDS`].
pub fn kind(graph: &Graph, buffer: &Buffer) -> usize {
    match buffer.root.filter(|_| buffer.kind != BufferKind::Workspace) {
        Some(root) => kind_of(graph.value(root).role),
        None => 7,
    }
}

/// Index into [`KINDS`] of what holds values of a role.
pub fn kind_of(role: Role) -> usize {
    match role {
        Role::Parameter => 0,
        Role::State => 1,
        Role::Input | Role::Metric => 2,
        Role::Statistic => 3,
        Role::FeatureMap => 4,
        Role::Gradient => 5,
        Role::ParameterGradient => 6,
    }
}

/// What is there between iterations.
fn homes(schedule: &Schedule, graph: &Graph) -> Levels {
    let mut levels = Levels::default();
    let homes = schedule.homes.iter().map(|home| schedule.buffer(home.buffer));
    for home in homes.filter(|home| home.space == Space::Device) {
        levels[kind(graph, home)] += home.bytes;
    }
    levels
}

/// Every change, with the time at which the compute stream reaches the command that makes it, in order.
fn changes(schedule: &Schedule, graph: &Graph, timeline: &Timeline) -> Vec<(f64, Moment)> {
    let mut ends = vec![None; schedule.commands.len()];
    timeline.spans.iter().for_each(|span| {
        if let Some(end) = ends.get_mut(span.command as usize) {
            *end = Some(span.end);
        }
    });
    // How far each stream has come, and when each event was recorded.
    let mut reached = vec![0.0; schedule.streams.len()];
    let mut fired: Vec<f64> = vec![0.0; schedule.events.len()];
    let mut now = Moment { levels: homes(schedule, graph), launched: 0 };
    let mut changes = Vec::new();
    for (command, end) in schedule.commands.iter().zip(ends) {
        let at: &mut f64 = &mut reached[command.stream.index()];
        *at = end.unwrap_or(*at);
        match command.action {
            Action::Record(event) => fired[event.index()] = *at,
            Action::Wait(event) => *at = at.max(fired[event.index()]),
            Action::Launch { .. } => {
                now.launched += 1;
                changes.push((*at, now));
            }
            Action::Alloc(id) | Action::Free(id) if schedule.buffer(id).space == Space::Device => {
                let buffer = schedule.buffer(id);
                let level = &mut now.levels[kind(graph, buffer)];
                *level = match command.action {
                    Action::Alloc(_) => *level + buffer.bytes,
                    _ => level.saturating_sub(buffer.bytes),
                };
                changes.push((*at, now));
            }
            _ => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests;
