//! `hybrid-ladder` is never slower with more bytes: small networks at every rung, beside rungs and between.

use crate::sweep::Subject;

/// Sums of seconds in another order.
const EQUAL: f64 = 1e-9;

/// Rungs from the floor to the top, as documented: each a twelfth part larger than the one below, then the top.
fn rungs(floor: u64, top: u64) -> Vec<u64> {
    let below = std::iter::successors(Some(floor), |rung| Some(rung + rung / 11)).take_while(|&rung| rung < top);
    below.chain([top]).collect()
}

/// Looks at every so many rungs and at `between` other budgets.
fn never_slower(model: &str, batch_size: u64, every: usize, between: u64) {
    let subject = Subject::new(model, batch_size);
    let floor = subject.at("hybrid-ladder", Some(0)).unwrap_err();
    let top = subject.at("none", None).unwrap().peak;
    assert_eq!(subject.at("hybrid", Some(0)).unwrap_err(), floor);
    assert_eq!(subject.at("hybrid-ladder", Some(floor - 1)).unwrap_err(), floor);
    let rungs = rungs(floor, top);
    // One byte less than a rung is the rung below; so is anything between them.
    let others = (0..between).map(|i| floor + (top - floor) * i / between).chain(rungs.last().map(|top| top - 1));
    let mut budgets: Vec<u64> = rungs.iter().copied().step_by(every).chain(others).chain([top + 1, 2 * top]).collect();
    budgets.sort_unstable();
    budgets.dedup();
    let started = std::time::Instant::now();
    let (mut least, mut before, mut rises) = (f64::INFINITY, f64::INFINITY, 0);
    for &budget in &budgets {
        let seconds = subject.at("hybrid-ladder", Some(budget)).unwrap().seconds;
        assert!(seconds <= least * (1.0 + EQUAL), "{model}: {seconds} s in {budget} bytes, {least} s in fewer");
        least = least.min(seconds);
        let found = subject.at("hybrid", Some(budget)).unwrap().seconds;
        assert!(!rungs.contains(&budget) || seconds <= found * (1.0 + EQUAL), "{model}: {budget} bytes are a rung");
        rises += usize::from(found > before * (1.0 + EQUAL));
        before = found;
    }
    println!(
        "{model}: {} budgets, {} rungs, hybrid rises at {rises}, {:?}",
        budgets.len(),
        rungs.len(),
        started.elapsed()
    );
}

#[test]
fn a_plain_network() {
    never_slower("vgg-small", 32, 1, 20);
}

#[test]
fn a_network_with_shortcuts() {
    never_slower("resnet-small", 32, 3, 0);
}
