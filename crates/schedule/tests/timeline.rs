//! Timelines: what they add up to, and how they are shown.

use serde_json::Value;
use vdnn_graph::{NodeId, Step};
use vdnn_schedule::{
    Action, AlgoId, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Region, Schedule,
    Space, Span, StreamId, StreamRole, Timeline,
};

fn command(stream: u32, action: Action) -> Command {
    Command { stream: StreamId(stream), action, because: Cause::Step(Step(0)) }
}

fn launch(node: u32, run: u16) -> Command {
    let action =
        Action::Launch { node: NodeId(node), run, algo: AlgoId(0), reads: vec![], writes: vec![], workspace: None };
    command(0, action)
}

fn transfer(direction: Direction) -> Command {
    let region = |buffer| Region::contiguous(BufferId(buffer), 0, 64);
    let (stream, src, dst) = match direction {
        Direction::Offload => (1, region(0), region(1)),
        Direction::Prefetch => (2, region(1), region(0)),
    };
    command(stream, Action::Transfer { direction, src, dst })
}

/// conv1, offload of its X, conv2; later the prefetch and conv1 again.
fn schedule() -> Schedule {
    let buffer = |name: &str, space| {
        let kind = BufferKind::Storage;
        Buffer { name: name.to_string(), space, offset: 0, bytes: 64, kind, root: None }
    };
    Schedule {
        format: FORMAT,
        name: "net".to_string(),
        policy: "by hand".to_string(),
        nodes: vec!["conv1".to_string(), "conv2".to_string()],
        values: vec![],
        algorithms: vec!["winograd".to_string()],
        arenas: vec![],
        buffers: vec![buffer("x", Space::Device), buffer("x@host", Space::Host)],
        homes: vec![],
        events: vec![Event { name: "computed %x".to_string() }],
        streams: vec![StreamRole::Compute, StreamRole::Offload, StreamRole::Prefetch],
        commands: vec![
            launch(0, 0),
            command(0, Action::Record(EventId(0))),
            command(1, Action::Wait(EventId(0))),
            transfer(Direction::Offload),
            launch(1, 0),
            transfer(Direction::Prefetch),
            launch(0, 1),
        ],
    }
}

fn timeline(times: [(u32, f64, f64); 5], seconds: f64) -> Timeline {
    let spans = times.map(|(command, start, end)| Span { command, start, end }).to_vec();
    Timeline { spans, seconds }
}

/// Compute 0..2, 2..5 and 7..8; offload 2..6, of which 3 s beside conv2; prefetch 5..7, all of it exposed.
fn example() -> Timeline {
    timeline([(0, 0.0, 2.0), (3, 2.0, 6.0), (4, 2.0, 5.0), (5, 5.0, 7.0), (6, 7.0, 8.0)], 8.0)
}

#[test]
fn busy_idle_and_hidden_time_by_hand() {
    let (timeline, schedule) = (example(), schedule());
    assert_eq!(timeline.compute_busy(&schedule), 6.0);
    assert_eq!(timeline.compute_idle(&schedule), 2.0);
    assert_eq!(timeline.hidden_copy_share(&schedule), Some(3.0 / 6.0));
}

#[test]
fn nothing_copied_is_no_share_and_overlapping_kernels_count_once() {
    let schedule = schedule();
    let span = |command, start, end| Span { command, start, end };
    let two = Timeline { spans: vec![span(0, 0.0, 3.0), span(4, 1.0, 2.0), span(6, 2.5, 4.0)], seconds: 5.0 };
    assert_eq!((two.compute_busy(&schedule), two.hidden_copy_share(&schedule)), (4.0, None));
    let none = Timeline::default();
    assert_eq!((none.compute_busy(&schedule), none.compute_idle(&schedule)), (0.0, 0.0));
}

#[test]
fn a_small_timeline_in_text() {
    let expected = "\
compute  |aaaaccccccc.....ee|
offload  |....bbbbbbbbb.....|
prefetch |...........ddddd..|
          0 s            8 s
a conv1, b offload x,
c conv2, d prefetch x,
e conv1 (run 1)
";
    let rendered = example().render_ascii(&schedule(), 18);
    assert_eq!(rendered, expected, "\n{rendered}");
}

#[test]
fn many_spans_are_drawn_without_letters() {
    let spans = (0..53).map(|i| Span { command: 0, start: f64::from(i), end: f64::from(i) + 1.0 }).collect();
    let text = Timeline { spans, seconds: 53.0 }.render_ascii(&schedule(), 20);
    assert!(text.starts_with("compute  |####################|\n"), "{text}");
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn the_chrome_trace_has_a_row_a_stream_and_an_arrow_a_wait() {
    let text = example().chrome_trace(&schedule());
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let rows: Vec<_> =
        of("M").iter().filter(|e| e["name"] == "thread_name").map(|e| e["args"]["name"].clone()).collect();
    assert_eq!(rows, ["compute", "offload", "prefetch"]);

    let spans = of("X");
    let names: Vec<_> = spans.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["conv1", "offload x", "conv2", "prefetch x", "conv1 (run 1)"]);
    let offload = spans[1];
    assert_eq!(
        (offload["tid"].as_u64(), offload["ts"].as_f64(), offload["dur"].as_f64()),
        (Some(1), Some(2e6), Some(4e6))
    );
    assert_eq!((&offload["args"]["bytes"], &spans[0]["args"]["algorithm"]), (&64.into(), &"winograd".into()));

    let ends = |event: &Value| (event["name"].clone(), event["tid"].as_u64(), event["ts"].as_f64());
    assert_eq!(of("s").into_iter().map(ends).collect::<Vec<_>>(), [("computed %x".into(), Some(0), Some(2e6))]);
    assert_eq!(of("f").into_iter().map(ends).collect::<Vec<_>>(), [("computed %x".into(), Some(1), Some(2e6))]);
}

#[test]
fn predicted_against_measured() {
    let measured = timeline([(0, 0.0, 2.5), (3, 2.5, 7.5), (4, 2.5, 5.5), (5, 5.5, 7.5), (6, 7.5, 10.0)], 10.0);
    let diff = Timeline::diff(&example(), &measured, &schedule());
    let busy: Vec<_> = diff.streams.iter().map(|s| (s.predicted_busy, s.measured_busy, s.error_percent())).collect();
    assert_eq!(busy, [(6.0, 8.0, -25.0), (4.0, 5.0, -20.0), (2.0, 2.0, 0.0)]);
    assert_eq!(diff.error_percent(), -20.0);
    let expected = "\
busy          predicted     measured     error
compute             6 s          8 s    -25.0%
offload             4 s          5 s    -20.0%
prefetch            2 s          2 s     +0.0%
iteration           8 s         10 s    -20.0%
";
    assert_eq!(diff.to_string(), expected, "\n{diff}");
}

#[test]
fn spans_of_another_schedule_are_left_out_instead_of_failing() {
    let stray = Timeline { spans: vec![Span { command: 99, start: 0.0, end: 1.0 }], seconds: 1.0 };
    let schedule = schedule();
    assert_eq!(stray.compute_busy(&schedule), 0.0);
    assert!(!stray.chrome_trace(&schedule).contains("\"X\""));
    assert!(stray.render_ascii(&schedule, 16).contains("|................|"));
}
