//! Random schedules: every span's start and length is explained by an independent reading of the rules.

use crate::builder::{Builder, COMPUTE};
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

/// Each command starts when its stream is free and its waits are over, and not later.
fn check_starts(schedule: &Schedule, spans: &[Span]) {
    let mut spans = spans.iter().peekable();
    let mut at = vec![0.0f64; schedule.streams.len()];
    let mut recorded = vec![0.0f64; schedule.events.len()];
    for (index, command) in schedule.commands.iter().enumerate() {
        let stream = command.stream.index();
        match command.action {
            Action::Record(event) => recorded[event.index()] = at[stream],
            Action::Wait(event) => at[stream] = at[stream].max(recorded[event.index()]),
            _ => {
                let span = spans.next().unwrap();
                assert_eq!((span.command as usize, span.start), (index, at[stream]));
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
    ) {
        let (schedule, table) = build(&lines);
        let links = Links { d2h: 100.0, h2d: 80.0, duplex_each: 60.0, latency, disk: None };
        let timeline = simulate(&schedule, &table, &links).unwrap();
        check_starts(&schedule, &timeline.spans);
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
}
