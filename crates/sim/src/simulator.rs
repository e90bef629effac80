//! Discrete-event run of a schedule: what each stream does when, and how long an iteration takes.
//!
//! ```text
//!   compute  |launch 3 s      |launch 2 s |.wait.|launch 1 s|       one command after another, as the stream has them
//!   offload  |.wait.|  copy           |record                       rate d2h alone,
//!   prefetch |..............|     copy    |record                   duplex_each while both directions run
//!                           └─ rates change here, in mid-copy
//! ```
//!
//! A launch takes its table time, and begins later by [`Links::launch_delay`] where copies between device and host are under way
//! at the moment at which it could begin, from their start to their end, latency included; a copy that ends at that moment does not
//! count, one that starts then does. Once begun it is not slowed. A copy takes the link's latency, then shares its direction's rate equally with other
//! copies the same way (a disk's with copies of both its ways); `Alloc`, `Free`, `Record`, `Wait` and launches without time
//! take none. Launches on several compute streams do not slow each other. [`Simulator::new`] looks all names up once; a run is then linear in the
//! commands (times the number of streams), so planners can afford thousands. Left to others: whether the schedule is
//! right (`check`), what kernels cost ([`crate::Machine`], [`crate::ProfileCost`]).

use crate::{DiskRates, Links, SimError, Stuck};
use vdnn_graph::NodeId;
use vdnn_schedule::{Action, Direction, KernelTable, Region, Schedule, Span, Timeline};

/// Runs a schedule once and returns its timeline.
///
/// # Errors
/// As [`Simulator::new`] and [`Simulator::run`].
pub fn simulate(schedule: &Schedule, table: &KernelTable, links: &Links) -> Result<Timeline, SimError> {
    Simulator::new(schedule, table, links)?.run()
}

/// A schedule made ready to be run many times.
#[derive(Clone, Debug)]
pub struct Simulator<'a> {
    schedule: &'a Schedule,
    links: Links,
    /// Timed and ordering commands of each stream.
    streams: Vec<Vec<Item>>,
    /// Command index of each span, in issue order.
    commands: Vec<u32>,
}

/// The way a copy takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Down,
    Up,
    Write,
    Read,
}

/// What a stream does next.
#[derive(Clone, Copy, Debug)]
enum Item {
    Launch { span: u32, seconds: f64 },
    Transfer { span: u32, route: Route, bytes: f64 },
    Record { event: u32 },
    Wait { event: u32, command: u32 },
}

impl<'a> Simulator<'a> {
    /// Looks up every launch's time.
    ///
    /// # Errors
    /// [`SimError`] when a launch is not in the table, an id is out of range, a time or rate is not a usable number, or a
    /// transfer takes a way that has no rate.
    pub fn new(schedule: &'a Schedule, table: &KernelTable, links: &Links) -> Result<Self, SimError> {
        check_links(links)?;
        let mut simulator = Simulator {
            schedule,
            links: *links,
            streams: vec![Vec::new(); schedule.streams.len()],
            commands: Vec::with_capacity(schedule.commands.len()),
        };
        for (index, command) in schedule.commands.iter().enumerate() {
            let stream = in_range(index, "stream", command.stream.index(), schedule.streams.len())?;
            if let Some(item) = simulator.item(index, table)? {
                simulator.streams[stream].push(item);
            }
        }
        Ok(simulator)
    }

    /// Runs the schedule. The timeline's spans are in issue order.
    ///
    /// # Errors
    /// [`SimError::Deadlock`] when streams wait for what never comes.
    pub fn run(&self) -> Result<Timeline, SimError> {
        let mut spans: Vec<Span> =
            self.commands.iter().map(|&command| Span { command, start: 0.0, end: 0.0 }).collect();
        let seconds = Run::new(self).finish(|span, start, end| {
            spans[span as usize].start = start;
            spans[span as usize].end = end;
        })?;
        Ok(Timeline { spans, seconds })
    }

    /// Length of the iteration in seconds, without a timeline.
    ///
    /// # Errors
    /// As [`Simulator::run`].
    pub fn seconds(&self) -> Result<f64, SimError> {
        Run::new(self).finish(|_, _, _| {})
    }

    /// The simulated form of one command; `None` for those without time or order.
    fn item(&mut self, index: usize, table: &KernelTable) -> Result<Option<Item>, SimError> {
        let schedule = self.schedule;
        let event = |event: usize| in_range(index, "event", event, schedule.events.len());
        Ok(match &schedule.commands[index].action {
            Action::Alloc(_) | Action::Free(_) => None,
            Action::Launch { node, algo, .. } => {
                let node = in_range(index, "node", node.index(), schedule.nodes.len().min(table.choices.len()))?;
                let algo = in_range(index, "algorithm", algo.index(), schedule.algorithms.len())?;
                let seconds = launch_seconds(schedule, table, node, algo)?;
                Some(Item::Launch { span: self.span(index), seconds })
            }
            Action::Transfer { direction, src, dst } => {
                let route = self.route(index, *direction, src, dst)?;
                let bytes = src.bytes() as f64;
                Some(Item::Transfer { span: self.span(index), route, bytes })
            }
            Action::Record(id) => Some(Item::Record { event: event(id.index())? as u32 }),
            Action::Wait(id) => Some(Item::Wait { event: event(id.index())? as u32, command: index as u32 }),
        })
    }

    /// The way of a copy: along the link of device and host, or of host and disk where there is one.
    fn route(&self, command: usize, direction: Direction, src: &Region, dst: &Region) -> Result<Route, SimError> {
        use vdnn_schedule::Space::{Device, Disk, Host};
        let space = |region: &Region| {
            let buffer = in_range(command, "buffer", region.buffer.index(), self.schedule.buffers.len())?;
            Ok(self.schedule.buffers[buffer].space)
        };
        match (space(src)?, space(dst)?) {
            (Device, Host) | (Host, Device) if direction == Direction::Offload => Ok(Route::Down),
            (Device, Host) | (Host, Device) => Ok(Route::Up),
            (Host, Disk) if self.links.disk.is_some() => Ok(Route::Write),
            (Disk, Host) if self.links.disk.is_some() => Ok(Route::Read),
            (src, dst) => Err(SimError::NoLink { command, src, dst }),
        }
    }

    fn latency(&self, route: Route) -> f64 {
        match (route, &self.links.disk) {
            (Route::Write | Route::Read, Some(disk)) => disk.latency,
            _ => self.links.latency,
        }
    }

    /// The rate of a copy beside all that are moving, itself among them. A disk's rate is shared by both of its ways.
    fn share(&self, route: Route, moving: [usize; 4]) -> f64 {
        let both = moving[0] > 0 && moving[1] > 0;
        let disk = |rate: fn(&DiskRates) -> f64| {
            self.links.disk.as_ref().map_or(f64::INFINITY, rate) / (moving[2] + moving[3]) as f64
        };
        match route {
            Route::Down => self.links.rate(Direction::Offload, both) / moving[0] as f64,
            Route::Up => self.links.rate(Direction::Prefetch, both) / moving[1] as f64,
            Route::Write => disk(|disk| disk.write),
            Route::Read => disk(|disk| disk.read),
        }
    }

    fn span(&mut self, command: usize) -> u32 {
        self.commands.push(command as u32);
        self.commands.len() as u32 - 1
    }

    fn stream_name(&self, stream: usize) -> String {
        let role = self.schedule.streams[stream];
        format!("stream {stream} ({})", format!("{role:?}").to_lowercase())
    }
}

/// What a stream is doing. Times are absolute.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Can go on with its next command now.
    Ready,
    /// Could begin a launch now.
    Starting { span: u32, seconds: f64 },
    /// Runs a kernel.
    Busy { span: u32, start: f64, until: f64 },
    /// In a copy's latency.
    Latency { span: u32, start: f64, until: f64, route: Route, bytes: f64 },
    /// Moves bytes: `remaining` at time `since`, done at `until` unless the rate changes.
    Moving { span: u32, start: f64, until: f64, route: Route, remaining: f64, since: f64, rate: f64 },
    /// Waits for an event.
    Blocked { event: u32, command: u32 },
    /// Has no more commands.
    Done,
}

/// One run in progress.
struct Run<'s> {
    simulator: &'s Simulator<'s>,
    next: Vec<usize>,
    states: Vec<State>,
    fired: Vec<bool>,
    now: f64,
    /// True when the set of moving copies has changed since rates were shared out.
    rates_stale: bool,
}

impl<'s> Run<'s> {
    fn new(simulator: &'s Simulator<'_>) -> Self {
        let n_streams = simulator.streams.len();
        Run {
            simulator,
            next: vec![0; n_streams],
            states: vec![State::Ready; n_streams],
            fired: vec![false; simulator.schedule.events.len()],
            now: 0.0,
            rates_stale: false,
        }
    }

    /// Runs to the end; `done` hears of each launch and copy as it ends.
    fn finish(mut self, mut done: impl FnMut(u32, f64, f64)) -> Result<f64, SimError> {
        loop {
            self.advance_ready(&mut done);
            if self.rates_stale {
                self.share_rates();
            }
            match self.next_change() {
                Some(time) if time <= self.now => {}
                next => {
                    let next = if self.begin_launches() { self.next_change() } else { next };
                    let Some(time) = next else { break };
                    self.now = time;
                }
            }
            self.complete(&mut done);
        }
        let stuck = self.stuck();
        if stuck.is_empty() { Ok(self.now) } else { Err(SimError::Deadlock { seconds: self.now, stuck }) }
    }

    /// Lets every ready stream go on until it takes time or waits. A record may make an earlier stream ready again.
    fn advance_ready(&mut self, done: &mut impl FnMut(u32, f64, f64)) {
        while let Some(stream) = self.states.iter().position(|state| matches!(state, State::Ready)) {
            self.advance(stream, done);
        }
    }

    fn advance(&mut self, stream: usize, done: &mut impl FnMut(u32, f64, f64)) {
        let items = &self.simulator.streams[stream];
        let now = self.now;
        while let Some(&item) = items.get(self.next[stream]) {
            self.next[stream] += 1;
            match item {
                Item::Launch { span, seconds: 0.0 } => done(span, now, now),
                Item::Launch { span, seconds } => {
                    self.states[stream] = State::Starting { span, seconds };
                    return;
                }
                Item::Transfer { span, route, bytes } => {
                    let until = now + self.simulator.latency(route);
                    self.states[stream] = State::Latency { span, start: now, until, route, bytes };
                    return;
                }
                Item::Record { event } => self.fire(event),
                Item::Wait { event, .. } if self.fired[event as usize] => {}
                Item::Wait { event, command } => {
                    self.states[stream] = State::Blocked { event, command };
                    return;
                }
            }
        }
        self.states[stream] = State::Done;
    }

    fn fire(&mut self, fired: u32) {
        self.fired[fired as usize] = true;
        for state in &mut self.states {
            if matches!(*state, State::Blocked { event, .. } if event == fired) {
                *state = State::Ready;
            }
        }
    }

    /// Begins what could begin now, later where copies are under way. Nothing else ends or starts now, so these copies are all
    /// known. False when there is nothing to begin.
    fn begin_launches(&mut self) -> bool {
        if !self.states.iter().any(|state| matches!(state, State::Starting { .. })) {
            return false;
        }
        let [down, up] = [Route::Down, Route::Up].map(|way| {
            let takes = |state: &State| match state {
                State::Latency { route, .. } | State::Moving { route, .. } => *route == way,
                _ => false,
            };
            self.states.iter().any(takes)
        });
        let start = self.now + self.simulator.links.launch_delay(down, up);
        for state in &mut self.states {
            if let State::Starting { span, seconds } = *state {
                *state = State::Busy { span, start, until: start + seconds };
            }
        }
        true
    }

    /// Gives every moving copy its rate. A copy whose rate stays keeps its end, so that lone copies end exactly on time.
    fn share_rates(&mut self) {
        self.rates_stale = false;
        let mut moving = [0usize; 4];
        for state in &self.states {
            if let State::Moving { route, .. } = state {
                moving[*route as usize] += 1;
            }
        }
        let now = self.now;
        for state in &mut self.states {
            if let State::Moving { until, route, remaining, since, rate, .. } = state {
                let share = self.simulator.share(*route, moving);
                if share != *rate {
                    *remaining = (*remaining - *rate * (now - *since)).max(0.0);
                    *since = now;
                    *rate = share;
                    *until = now + *remaining / share;
                }
            }
        }
    }

    /// When the next launch, latency or copy ends.
    fn next_change(&self) -> Option<f64> {
        let until = |state: &State| match state {
            State::Busy { until, .. } | State::Latency { until, .. } | State::Moving { until, .. } => Some(*until),
            State::Ready | State::Starting { .. } | State::Blocked { .. } | State::Done => None,
        };
        self.states.iter().filter_map(until).min_by(f64::total_cmp)
    }

    /// Ends what ends now.
    fn complete(&mut self, done: &mut impl FnMut(u32, f64, f64)) {
        let now = self.now;
        for state in &mut self.states {
            match *state {
                State::Busy { span, start, until } if until <= now => {
                    done(span, start, until);
                    *state = State::Ready;
                }
                State::Latency { span, start, until, route, bytes } if until <= now => {
                    *state = State::Moving { span, start, until: now, route, remaining: bytes, since: now, rate: 0.0 };
                    self.rates_stale = true;
                }
                State::Moving { span, start, until, .. } if until <= now => {
                    done(span, start, until);
                    *state = State::Ready;
                    self.rates_stale = true;
                }
                _ => {}
            }
        }
    }

    fn stuck(&self) -> Vec<Stuck> {
        let waiting = |(stream, state): (usize, &State)| match *state {
            State::Blocked { event, command } => Some(Stuck {
                stream: self.simulator.stream_name(stream),
                command: command as usize,
                event: self.simulator.schedule.events[event as usize].name.clone(),
            }),
            _ => None,
        };
        self.states.iter().enumerate().filter_map(waiting).collect()
    }
}

fn launch_seconds(schedule: &Schedule, table: &KernelTable, node: usize, algo: usize) -> Result<f64, SimError> {
    let (id, algorithm) = (NodeId(node as u32), &schedule.algorithms[algo]);
    let name = &schedule.nodes[node];
    let Some(choice) = table.find(id, algorithm) else {
        let known = table.all(id).map(|choice| choice.algorithm.clone()).collect();
        return Err(SimError::UnknownAlgorithm { node: name.clone(), algorithm: algorithm.clone(), known });
    };
    if choice.seconds >= 0.0 && choice.seconds.is_finite() {
        return Ok(choice.seconds);
    }
    let what = format!("seconds of {name} with algorithm {algorithm}");
    Err(SimError::BadNumber { what, expected: "non-negative", found: choice.seconds })
}

fn check_links(links: &Links) -> Result<(), SimError> {
    let (write, read) = links.disk.map_or((1.0, 1.0), |disk| (disk.write, disk.read));
    let disk = [("disk write", write), ("disk read", read)];
    let links_own = [("d2h", links.d2h), ("h2d", links.h2d), ("duplex_each", links.duplex_each)];
    for (what, rate) in links_own.into_iter().chain(disk) {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(SimError::BadNumber { what: format!("link rate {what}"), expected: "positive", found: rate });
        }
    }
    let times = [
        ("link latency", Some(links.latency)),
        ("launch delay d2h", Some(links.launch_delay_d2h)),
        ("launch delay h2d", Some(links.launch_delay_h2d)),
        ("disk latency", links.disk.map(|disk| disk.latency)),
    ];
    for (what, time) in times {
        if let Some(found) = time.filter(|time| !(*time >= 0.0 && time.is_finite())) {
            return Err(SimError::BadNumber { what: what.to_string(), expected: "non-negative", found });
        }
    }
    Ok(())
}

fn in_range(command: usize, what: &'static str, index: usize, count: usize) -> Result<usize, SimError> {
    if index < count { Ok(index) } else { Err(SimError::BadIndex { command, what, index, count }) }
}
