//! Random schedules: every span's start and length is explained by an independent reading of the rules.

use crate::builder::{Builder, COMPUTE, OFFLOAD, PREFETCH};
use proptest::prelude::*;
use vdnn_schedule::{Action, Direction, KernelTable, Schedule, Space, Span};
use vdnn_sim::{Links, simulate};

#[derive(Clone, Debug)]
enum Line {
    Launch(u32),
    Copy {
        stream: u32,
        offload: bool,
        bytes: u64,
    },
    Record(u32),
    /// Waits for one of the events recorded so far.
    Wait {
        stream: u32,
        which: usize,
    },
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        (0u32..5).prop_map(Line::Launch),
        (0u32..3, any::<bool>(), 0u64..500).prop_map(|(stream, offload, bytes)| Line::Copy { stream, offload, bytes }),
        (0u32..3).prop_map(Line::Record),
        (0u32..3, any::<usize>()).prop_map(|(stream, which)| Line::Wait { stream, which }),
    ]
}

fn build(lines: &[Line]) -> (Schedule, KernelTable) {
    let (mut builder, mut events) = (Builder::new(), 0);
    for line in lines {
        builder = match *line {
            Line::Launch(quarters) => builder.launch_on(COMPUTE, f64::from(quarters) / 4.0),
            Line::Copy { stream, offload: true, bytes } => {
                builder.transfer_on(stream, Direction::Offload, Space::Device, Space::Host, bytes)
            }
            Line::Copy { stream, offload: false, bytes } => {
                builder.transfer_on(stream, Direction::Prefetch, Space::Host, Space::Device, bytes)
            }
            Line::Record(stream) => {
                events += 1;
                builder.record(stream, events - 1)
            }
            Line::Wait { .. } if events == 0 => builder,
            Line::Wait { stream, which } => builder.wait(stream, (which % events as usize) as u32),
        };
    }
    builder.build()
}

/// Bytes a copy moves between `from` and `to`, given when every copy's bytes flow.
fn moved(flows: &[(Direction, f64, f64)], links: &Links, index: usize) -> f64 {
    let (direction, from, to) = flows[index];
    let mut cuts: Vec<f64> = flows.iter().flat_map(|flow| [flow.1, flow.2]).collect();
    cuts.retain(|&cut| from <= cut && cut <= to);
    cuts.sort_by(f64::total_cmp);
    let stretch = |pair: &[f64]| {
        let middle = (pair[0] + pair[1]) / 2.0;
        let active = |way: Direction| flows.iter().filter(|f| f.0 == way && f.1 < middle && middle < f.2).count();
        let (offloads, prefetches) = (active(Direction::Offload), active(Direction::Prefetch));
        let sharers = if direction == Direction::Offload { offloads } else { prefetches };
        let rate = links.rate(direction, offloads > 0 && prefetches > 0);
        if sharers == 0 { 0.0 } else { (pair[1] - pair[0]) * rate / sharers as f64 }
    };
    cuts.windows(2).map(stretch).sum()
}

/// By how much a launch that could begin at `time` is delayed by the copies that the timeline has then.
fn delay(schedule: &Schedule, spans: &[Span], links: &Links, time: f64) -> f64 {
    let under_way = |way: Direction| {
        let takes = |span: &&Span| matches!(schedule.commands[span.command as usize].action, Action::Transfer { direction, .. } if direction == way);
        spans.iter().filter(takes).any(|span| span.start <= time && time < span.end)
    };
    let of = |way: Direction, delay: f64| if under_way(way) { delay } else { 0.0 };
    of(Direction::Offload, links.launch_delay_d2h) + of(Direction::Prefetch, links.launch_delay_h2d)
}

/// Each command starts when its stream is free and its waits are over, launches later beside copies, and no later than that.
fn check_starts(schedule: &Schedule, all: &[Span], table: &KernelTable, links: &Links) {
    let mut spans = all.iter().peekable();
    let mut at = vec![0.0f64; schedule.streams.len()];
    let mut recorded = vec![0.0f64; schedule.events.len()];
    for (index, command) in schedule.commands.iter().enumerate() {
        let stream = command.stream.index();
        match command.action {
            Action::Record(event) => recorded[event.index()] = at[stream],
            Action::Wait(event) => at[stream] = at[stream].max(recorded[event.index()]),
            _ => {
                let span = spans.next().unwrap();
                let late = match command.action {
                    Action::Launch { node, .. } if table.of(node)[0].seconds > 0.0 => {
                        delay(schedule, all, links, at[stream])
                    }
                    _ => 0.0,
                };
                assert_eq!((span.command as usize, span.start), (index, at[stream] + late));
                at[stream] = span.end;
            }
        }
    }
    assert!(spans.peek().is_none());
}

proptest! {
    #[test]
    fn spans_start_on_time_and_last_as_long_as_their_bytes(
        lines in prop::collection::vec(line(), 0..60),
        latency in prop::sample::select(vec![0.0, 0.125, 1.0]),
        (launch_delay_d2h, launch_delay_h2d) in prop::sample::select(vec![(0.0, 0.0), (0.125, 0.0), (0.25, 0.5)]),
    ) {
        let (schedule, table) = build(&lines);
        let links = Links { latency, launch_delay_d2h, launch_delay_h2d, ..Links::new(100.0, 80.0, 60.0) };
        let timeline = simulate(&schedule, &table, &links).unwrap();
        check_starts(&schedule, &timeline.spans, &table, &links);
        let latest = timeline.spans.iter().map(|span| span.end).fold(0.0, f64::max);
        prop_assert_eq!(timeline.seconds, latest);

        let mut flows = Vec::new();
        let mut sizes = Vec::new();
        for span in &timeline.spans {
            match &schedule.commands[span.command as usize].action {
                Action::Launch { node, .. } => prop_assert_eq!(span.end, span.start + table.of(*node)[0].seconds),
                Action::Transfer { direction, src, .. } => {
                    flows.push((*direction, span.start + latency, span.end));
                    sizes.push(src.bytes() as f64);
                }
                other => panic!("a span for {other:?}"),
            }
        }
        for (index, &bytes) in sizes.iter().enumerate() {
            let found = moved(&flows, &links, index);
            prop_assert!((found - bytes).abs() < 1e-6, "copy {index} moved {found} of {bytes} bytes");
        }
    }

    /// Where copies do not take each other's rate: what begins later then ends sooner for nobody.
    #[test]
    fn delays_make_nothing_earlier_and_no_delay_changes_nothing(
        lines in prop::collection::vec(line(), 0..60),
        latency in prop::sample::select(vec![0.0, 0.125, 1.0]),
        (d2h, h2d) in (0u32..4, 0u32..4),
    ) {
        let alone = |line: &Line| match *line {
            Line::Copy { offload, bytes, .. } => Line::Copy { stream: if offload { OFFLOAD } else { PREFETCH }, offload, bytes },
            ref other => other.clone(),
        };
        let (schedule, table) = build(&lines.iter().map(alone).collect::<Vec<_>>());
        let links = Links { latency, ..Links::new(128.0, 64.0, 128.0) };
        let delays = |links: Links, d2h: u32, h2d: u32| Links {
            launch_delay_d2h: f64::from(d2h) / 8.0,
            launch_delay_h2d: f64::from(h2d) / 8.0,
            ..links
        };
        let on_time = simulate(&schedule, &table, &links).unwrap();
        prop_assert_eq!(&simulate(&schedule, &table, &delays(links, 0, 0)).unwrap(), &on_time);
        let late = simulate(&schedule, &table, &delays(links, d2h, h2d)).unwrap();
        prop_assert!(late.seconds >= on_time.seconds);
        for (late, on_time) in late.spans.iter().zip(&on_time.spans) {
            prop_assert!(late.start >= on_time.start && late.end >= on_time.end, "{late:?} {on_time:?}");
        }
    }
}
