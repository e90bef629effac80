//! Ten seconds of a hand-made schedule whose bytes are free only when a copy has ended.

use super::*;
use vdnn_graph::{NodeId, Step, ValueId};
use vdnn_schedule::{
    AlgoId, BufferId, Cause, Command, Direction, Event, EventId, FORMAT, Home, Region, Span, StreamId, StreamRole,
};
use vdnn_tensor::{DType, TensorType};

/// `w`, 400 bytes at home; `x`, 1000 bytes that stand for a map; a workspace of 50.
fn graph() -> Graph {
    let mut graph = Graph::new("hand-made");
    graph.parameter("w", TensorType::new([100], DType::F32)).unwrap();
    graph.input("x", TensorType::new([250], DType::F32)).unwrap();
    graph
}

fn schedule() -> Schedule {
    let buffer =
        |name: &str, space, bytes, kind, root| Buffer { name: name.into(), space, offset: 0, bytes, kind, root };
    let on = |stream, action| Command { stream: StreamId(stream), action, because: Cause::Step(Step(0)) };
    let launch = |node| Action::Launch {
        node: NodeId(node),
        run: 0,
        algo: AlgoId(0),
        reads: vec![],
        writes: vec![],
        workspace: None,
    };
    let region = |id| Region::contiguous(BufferId(id), 0, 1000);
    Schedule {
        format: FORMAT,
        name: "hand-made".into(),
        policy: "hand".into(),
        nodes: ["n0", "n1", "n2"].map(String::from).into(),
        values: ["w", "x"].map(String::from).into(),
        algorithms: vec!["a".into()],
        arenas: vec![],
        buffers: vec![
            buffer("w", Space::Device, 400, BufferKind::Home, Some(ValueId(0))),
            buffer("x", Space::Device, 1000, BufferKind::Storage, Some(ValueId(1))),
            buffer("x@host", Space::Host, 1000, BufferKind::Copy, Some(ValueId(1))),
            buffer("n2.workspace", Space::Device, 50, BufferKind::Workspace, None),
        ],
        homes: vec![Home { initial: ValueId(0), last: ValueId(0), buffer: BufferId(0) }],
        events: ["computed", "offloaded"].map(|name| Event { name: name.into() }).into(),
        streams: vec![StreamRole::Compute, StreamRole::Offload],
        commands: vec![
            on(0, Action::Alloc(BufferId(1))),
            on(0, launch(0)),
            on(0, Action::Record(EventId(0))),
            on(0, Action::Alloc(BufferId(2))),
            on(1, Action::Wait(EventId(0))),
            on(1, Action::Transfer { direction: Direction::Offload, src: region(1), dst: region(2) }),
            on(1, Action::Record(EventId(1))),
            on(0, launch(1)),
            on(0, Action::Wait(EventId(1))),
            on(0, Action::Free(BufferId(1))),
            on(0, Action::Alloc(BufferId(3))),
            on(0, launch(2)),
            on(0, Action::Free(BufferId(3))),
        ],
    }
}

fn timeline() -> Timeline {
    let span = |command, start, end| Span { command, start, end };
    Timeline { spans: vec![span(1, 0.0, 2.0), span(5, 2.0, 5.0), span(7, 2.0, 3.0), span(11, 5.0, 9.0)], seconds: 10.0 }
}

/// The map goes when its copy ends, at 5 s, though the kernel before it ended at 3 s.
#[test]
fn bytes_go_when_the_stream_has_waited() {
    let columns = columns(&schedule(), &graph(), &timeline(), 20);
    let bytes: Vec<Bytes> = columns.iter().map(Moment::bytes).collect();
    // At 5 s and at 9 s a column begins with what is about to go.
    assert_eq!(bytes, [vec![1400; 11], vec![450; 8], vec![400; 1]].concat());
    assert_eq!(columns[0].levels, [400, 0, 1000, 0, 0, 0, 0, 0]);
    assert_eq!(columns[12].levels, [400, 0, 0, 0, 0, 0, 0, 50]);
    assert_eq!((columns[0].launched, columns[12].launched, columns[19].launched), (0, 2, 3));
}

#[test]
fn no_peak_is_lost_between_columns() {
    let most = |count| columns(&schedule(), &graph(), &timeline(), count).iter().map(Moment::bytes).max();
    assert_eq!((most(1), most(3), most(1000)), (Some(1400), Some(1400), Some(1400)));
    let still = Timeline { spans: vec![], seconds: 0.0 };
    assert_eq!(columns(&schedule(), &graph(), &still, 1)[0].bytes(), 1400, "an iteration without time");
}

#[test]
fn averages_are_over_time() {
    let averages = averages(&schedule(), &graph(), &timeline());
    let expected = [400.0, 0.0, 1000.0 * 5.0 / 10.0, 0.0, 0.0, 0.0, 0.0, 50.0 * 4.0 / 10.0];
    assert!(averages.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{averages:?}");
}
