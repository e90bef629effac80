//! Ten thousand layers: linear time, and no recursion.

use crate::{emit, network};
use std::time::{Duration, Instant};

#[test]
fn ten_thousand_layers() {
    let program = network::chain(10_000);
    let schedule = emit::emit(&program, None);
    assert!(schedule.commands.len() > 100_000, "{} commands", schedule.commands.len());
    let start = Instant::now();
    assert_eq!(vdnn_check::check(&schedule, &program), vec![]);
    let took = start.elapsed();
    let text = schedule.to_text();
    let start = Instant::now();
    assert!(vdnn_schedule::Schedule::parse(&text) == Ok(schedule.clone()));
    println!("{} bytes of text read in {:?}", text.len(), start.elapsed());
    println!("{} commands in {took:?}", schedule.commands.len());
    // Generous: unoptimised builds on a busy machine. A quadratic check would need minutes.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
