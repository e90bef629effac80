//! Runs of schedules small enough to do by hand.

use crate::builder::{Builder, COMPUTE, DISK, LINKS, OFFLOAD, PREFETCH};
use vdnn_schedule::{Direction, Space};
use vdnn_sim::{DiskRates, Links, SimError, Simulator, Stuck, simulate};

/// (start, end) of each launch and transfer, in issue order, and the length of the iteration.
fn run(builder: Builder, links: Links) -> (Vec<(f64, f64)>, f64) {
    let (schedule, table) = builder.build();
    let timeline = simulate(&schedule, &table, &links).unwrap();
    let alone = Simulator::new(&schedule, &table, &links).unwrap().seconds().unwrap();
    assert_eq!(alone, timeline.seconds);
    (timeline.spans.iter().map(|span| (span.start, span.end)).collect(), timeline.seconds)
}

#[test]
fn launches_of_one_stream_follow_each_other() {
    let (spans, seconds) = run(Builder::new().launch(1.0).launch(0.0).launch(2.5), LINKS);
    assert_eq!((spans, seconds), (vec![(0.0, 1.0), (1.0, 1.0), (1.0, 3.5)], 3.5));
}

#[test]
fn an_empty_schedule_takes_no_time() {
    assert_eq!(run(Builder::new(), LINKS), (Vec::new(), 0.0));
}

#[test]
fn a_copy_hides_behind_a_later_launch() {
    // n0 makes x; the copy of x (2 s) runs beside n1 (3 s); n2 needs the freed bytes and waits for nothing.
    let builder = Builder::new()
        .launch(1.0)
        .record(COMPUTE, 0)
        .wait(OFFLOAD, 0)
        .offload(200)
        .record(OFFLOAD, 1)
        .launch(3.0)
        .wait(COMPUTE, 1)
        .launch(1.0);
    assert_eq!(run(builder, LINKS), (vec![(0.0, 1.0), (1.0, 3.0), (1.0, 4.0), (4.0, 5.0)], 5.0));
}

#[test]
fn a_join_at_the_end_of_each_layer_stalls_where_the_copy_outlasts_the_kernel() {
    // Two layers of 1 s, each with a copy of 3 s: joined per layer 3 + 3 s, without the joins the copies queue: 6 s of
    // copying, but compute is done after 2 s.
    let layer = |builder: Builder, event: u32| {
        let builder = builder.offload(300).launch(1.0).record(OFFLOAD, event).wait(COMPUTE, event);
        builder.record(COMPUTE, event + 1).wait(OFFLOAD, event + 1)
    };
    let (spans, seconds) = run(layer(layer(Builder::new(), 0), 2), LINKS);
    assert_eq!((spans, seconds), (vec![(0.0, 3.0), (0.0, 1.0), (3.0, 6.0), (3.0, 4.0)], 6.0));

    let (spans, seconds) = run(Builder::new().offload(300).launch(1.0).offload(300).launch(1.0), LINKS);
    assert_eq!((spans, seconds), (vec![(0.0, 3.0), (0.0, 1.0), (3.0, 6.0), (1.0, 2.0)], 6.0));
}

#[test]
fn both_directions_at_once_run_at_the_duplex_rate() {
    // The prefetch starts at 1 s. The offload has moved 100 of 200 bytes by then; the rest at 50/s ends at 3 s. The
    // prefetch has moved 100 of 300 by then; the rest at 100/s ends at 5 s.
    let builder = Builder::new().offload(200).launch(1.0).record(COMPUTE, 0).wait(PREFETCH, 0).prefetch(300);
    assert_eq!(run(builder, LINKS), (vec![(0.0, 3.0), (0.0, 1.0), (1.0, 5.0)], 5.0));
}

#[test]
fn a_copy_keeps_its_rate_while_the_other_direction_is_only_in_latency() {
    // Both start together, but bytes flow only after 1 s; the prefetch's latency starts at 2 s, its bytes at 3 s.
    let links = Links { latency: 1.0, ..LINKS };
    let builder = Builder::new().offload(300).launch(2.0).record(COMPUTE, 0).wait(PREFETCH, 0).prefetch(100);
    // Offload: 1..3 s at 100/s = 200 bytes, then the last 100 at 50/s: done at 5 s. Prefetch: 100 bytes at 50/s: 5 s.
    assert_eq!(run(builder, links), (vec![(0.0, 5.0), (0.0, 2.0), (2.0, 5.0)], 5.0));
}

#[test]
fn copies_of_one_direction_on_two_streams_share_it() {
    let to_host = |builder: Builder, stream: u32, bytes: u64| {
        builder.transfer_on(stream, Direction::Offload, Space::Device, Space::Host, bytes)
    };
    // 50/s each until the shorter one ends at 2 s; the other has 200 left at 100/s.
    let builder = to_host(to_host(Builder::new(), OFFLOAD, 100), PREFETCH, 300);
    assert_eq!(run(builder, LINKS), (vec![(0.0, 2.0), (0.0, 4.0)], 4.0));
}

#[test]
fn latency_is_paid_by_each_copy_even_without_bytes() {
    let links = Links { latency: 0.5, ..LINKS };
    let (spans, seconds) = run(Builder::new().offload(0).offload(100), links);
    assert_eq!((spans, seconds), (vec![(0.0, 0.5), (0.5, 2.0)], 2.0));
}

#[test]
fn duplex_is_never_faster_than_alone() {
    let links = Links { duplex_each: 1e9, ..LINKS };
    let (spans, _) = run(Builder::new().offload(100).prefetch(200), links);
    assert_eq!(spans, vec![(0.0, 1.0), (0.0, 2.0)]);
    assert_eq!(links.duplex_seconds(Direction::Offload, 100), links.transfer_seconds(Direction::Offload, 100));
}

/// A quarter of a second beside copies to the host, half of one beside copies to the device.
const DELAYING: Links = Links { launch_delay_d2h: 0.25, launch_delay_h2d: 0.5, ..LINKS };

#[test]
fn launches_begin_later_while_a_copy_is_under_way() {
    // The copy takes 2 s. The first two launches begin a quarter of a second late, the third as it ends, on time.
    let builder = Builder::new().offload(200).launch(0.75).launch(0.75).launch(0.75);
    assert_eq!(run(builder, DELAYING), (vec![(0.0, 2.0), (0.25, 1.0), (1.25, 2.0), (2.0, 2.75)], 2.75));
    let builder = Builder::new().prefetch(200).launch(0.75).launch(0.75).launch(0.75);
    assert_eq!(run(builder, DELAYING), (vec![(0.0, 2.0), (0.5, 1.25), (1.75, 2.5), (2.5, 3.25)], 3.25));
    // Both ways at 50 bytes a second each until 2 s: the delays add up.
    let builder = Builder::new().offload(100).prefetch(100).launch(1.0).launch(1.0);
    assert_eq!(run(builder, DELAYING), (vec![(0.0, 2.0), (0.0, 2.0), (0.75, 1.75), (2.5, 3.5)], 3.5));
}

#[test]
fn n_launches_beside_a_copy_lose_n_delays() {
    // 64 launches of 1/64 s beside a copy of 1000 s.
    let copied = (0..64).fold(Builder::new().prefetch(100_000), |builder, _| builder.launch(1.0 / 64.0));
    let (spans, seconds) = run(copied.record(COMPUTE, 0), DELAYING);
    assert_eq!((spans[64].1, seconds), (1.0 + 64.0 * 0.5, 1000.0));
}

#[test]
fn a_copy_delays_from_its_start_to_its_end_latency_included() {
    let links = Links { latency: 1.0, ..DELAYING };
    // The copy starts as n0 ends, in its latency as n1 could begin; n2 could begin just as it ends.
    let builder =
        Builder::new().launch(1.0).record(COMPUTE, 0).wait(OFFLOAD, 0).offload(25).launch(1.0).launch(1.0).launch(0.0);
    assert_eq!(run(builder, links).0, vec![(0.0, 1.0), (1.0, 2.25), (1.25, 2.25), (2.25, 3.25), (3.25, 3.25)]);
    // Copies that take no time are under way at no time, whatever follows them.
    let builder = Builder::new().offload(0).launch(1.0).launch(1.0);
    assert_eq!(run(builder, DELAYING).0, vec![(0.0, 0.0), (0.0, 1.0), (1.0, 2.0)]);
    let builder = Builder::new().offload(0).offload(50).launch(1.0);
    assert_eq!(run(builder, DELAYING).0, vec![(0.0, 0.0), (0.0, 0.5), (0.25, 1.25)]);
}

#[test]
fn what_launches_nothing_is_not_delayed_and_disks_delay_nothing() {
    let links = Links { disk: WITH_DISK.disk, ..DELAYING };
    let builder = Builder::new().offload(100).launch(0.0).launch(1.0);
    assert_eq!(run(builder, links).0, vec![(0.0, 1.0), (0.0, 0.0), (0.25, 1.25)]);
    let builder = Builder::new().transfer_on(DISK, Direction::Offload, Space::Host, Space::Disk, 100).launch(1.0);
    assert_eq!(run(builder, links).0, vec![(0.0, 5.5), (0.0, 1.0)]);
}

/// A disk beside the link: 20 bytes a second down, 40 up.
const WITH_DISK: Links = Links { disk: Some(DiskRates { write: 20.0, read: 40.0, latency: 0.5 }), ..LINKS };

#[test]
fn a_disk_has_rates_and_a_latency_of_its_own() {
    let (down, up) = (Direction::Offload, Direction::Prefetch);
    // 100 bytes to the host in 1 s, on to disk in 0.5 + 5, back in 0.5 + 2.5, and up in 1; no copy slows another.
    let builder = Builder::new()
        .offload(100)
        .record(OFFLOAD, 0)
        .wait(DISK, 0)
        .transfer_on(DISK, down, Space::Host, Space::Disk, 100)
        .transfer_on(DISK, up, Space::Disk, Space::Host, 100)
        .record(DISK, 1)
        .wait(PREFETCH, 1)
        .prefetch(100);
    let expected = vec![(0.0, 1.0), (1.0, 6.5), (6.5, 9.5), (9.5, 10.5)];
    assert_eq!(run(builder, WITH_DISK), (expected, 10.5));
    assert_eq!(WITH_DISK.disk.unwrap().transfer_seconds(down, 100), 5.5);
    // A copy beside it keeps its rate.
    let builder = Builder::new().transfer_on(DISK, down, Space::Host, Space::Disk, 100).offload(200).launch(1.0);
    assert_eq!(run(builder, WITH_DISK), (vec![(0.0, 5.5), (0.0, 2.0), (0.0, 1.0)], 5.5));
}

#[test]
fn a_disk_does_one_thing_at_a_time() {
    let (down, up) = (Direction::Offload, Direction::Prefetch);
    // On two streams: each gets half. The read has 60 bytes at 20/s after 0.5 s, the write 100 at 10/s until 3.5 s, then 20/s.
    let builder = Builder::new().transfer_on(DISK, down, Space::Host, Space::Disk, 100).transfer_on(
        PREFETCH,
        up,
        Space::Disk,
        Space::Host,
        60,
    );
    assert_eq!(run(builder, WITH_DISK), (vec![(0.0, 7.0), (0.0, 3.5)], 7.0));
}

#[test]
fn a_wait_for_an_event_recorded_later_in_issue_order_still_holds() {
    let builder = Builder::new().wait(OFFLOAD, 0).offload(100).launch(2.0).record(COMPUTE, 0);
    assert_eq!(run(builder, LINKS), (vec![(2.0, 3.0), (0.0, 2.0)], 3.0));
}

#[test]
fn streams_that_wait_for_each_other_are_named() {
    let (schedule, table) =
        Builder::new().launch(1.0).wait(COMPUTE, 0).record(COMPUTE, 1).wait(OFFLOAD, 1).record(OFFLOAD, 0).build();
    let error = simulate(&schedule, &table, &LINKS).unwrap_err();
    let stuck = |stream: &str, command, event: &str| Stuck { stream: stream.into(), command, event: event.into() };
    let expected = vec![stuck("stream 0 (compute)", 1, "e0"), stuck("stream 1 (offload)", 3, "e1")];
    assert_eq!(error, SimError::Deadlock { seconds: 1.0, stuck: expected });
    let text = error.to_string();
    assert!(text.contains("stream 1 (offload) waits at command 3 for \"e1\""), "{text}");
}

#[test]
fn an_event_nobody_records_is_a_deadlock() {
    let (schedule, table) = Builder::new().wait(COMPUTE, 0).launch(1.0).build();
    assert!(matches!(simulate(&schedule, &table, &LINKS), Err(SimError::Deadlock { seconds: 0.0, .. })));
}

#[test]
fn what_cannot_be_simulated_is_refused_by_name() {
    let (mut schedule, table) = Builder::new().launch(1.0).build();
    schedule.algorithms[0] = "winograd".to_string();
    let error = simulate(&schedule, &table, &LINKS).unwrap_err();
    assert!(
        error.to_string().starts_with("no time for n0 with algorithm winograd; the table knows default"),
        "{error}"
    );

    let (schedule, table) = Builder::new().launch(f64::NAN).build();
    assert!(matches!(simulate(&schedule, &table, &LINKS), Err(SimError::BadNumber { .. })));

    let (schedule, table) = Builder::new().launch(1.0).build();
    let dead = Links { h2d: 0.0, ..LINKS };
    let error = simulate(&schedule, &table, &dead).unwrap_err();
    assert_eq!(error.to_string(), "link rate h2d: expected a positive number, found 0");
    let early = Links { launch_delay_d2h: -1.0, ..LINKS };
    let error = simulate(&schedule, &table, &early).unwrap_err();
    assert_eq!(error.to_string(), "launch delay d2h: expected a non-negative number, found -1");

    let (schedule, table) =
        Builder::new().transfer_on(OFFLOAD, Direction::Offload, Space::Host, Space::Disk, 1).build();
    let expected = SimError::NoLink { command: 0, src: Space::Host, dst: Space::Disk };
    assert_eq!(simulate(&schedule, &table, &LINKS), Err(expected));
    let dead = Links { disk: Some(DiskRates { write: 1.0, read: 0.0, latency: 0.0 }), ..LINKS };
    let error = simulate(&schedule, &table, &dead).unwrap_err().to_string();
    assert_eq!(error, "link rate disk read: expected a positive number, found 0");
    let (schedule, table) =
        Builder::new().transfer_on(OFFLOAD, Direction::Offload, Space::Device, Space::Disk, 1).build();
    let expected = SimError::NoLink { command: 0, src: Space::Device, dst: Space::Disk };
    assert_eq!(simulate(&schedule, &table, &WITH_DISK), Err(expected));

    let (schedule, table) = Builder::new().launch_on(7, 1.0).build();
    let expected = SimError::BadIndex { command: 0, what: "stream", index: 7, count: 4 };
    assert_eq!(simulate(&schedule, &table, &LINKS), Err(expected));
}
