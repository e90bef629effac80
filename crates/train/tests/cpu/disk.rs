//! Values that rest on disk: the same bits, the host memory planned, a file of the planned size without a name.

use crate::setup::{Outcome, Setup, nameless_files, run, trainer};
use std::path::Path;
use tempfile::TempDir;
use vdnn_memory::{Options, PlanError, State, Sync};
use vdnn_schedule::{Direction, Space};
use vdnn_train::TrainError;

const STEPS: u64 = 6;
const ROOM: u64 = 1 << 30;

fn on_disk<'a>(folder: &'a Path, host: u64, setup: Setup<'a>) -> Setup<'a> {
    Setup { host_budget: Some(host), disk: Some((ROOM, folder)), steps: STEPS, ..setup }
}

/// The most that any value which rests on disk needs of host memory on its way.
fn largest_copy(outcome: &Outcome) -> u64 {
    let below = outcome.schedule.buffers.iter().filter(|buffer| buffer.space == Space::Host);
    below.map(|buffer| buffer.bytes).max().unwrap()
}

/// What holds of a run that rests on disk, whatever its policy.
fn as_planned(name: &str, folder: &Path, host: u64, outcome: &Outcome) {
    let (planned, measured) = (outcome.host_planned, outcome.host_measured);
    assert!(planned <= host, "{name}: {planned} bytes of host memory, budget {host}");
    assert!(measured <= planned && measured + 256 >= planned, "{name}: measured {measured} of {planned}");
    assert!(outcome.measured <= outcome.planned, "{name}");
    assert_eq!(outcome.files, [outcome.disk_planned], "{name}: one file of the planned size");
    assert!(outcome.disk_planned > 0 && outcome.disk_planned <= ROOM, "{name}");
    assert!(nameless_files(folder).is_empty(), "{name}: the file is gone with the device");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "{name}: nothing has a name");
}

/// Host budgets that force some of what leaves, and then nearly all of it, to disk.
#[test]
fn resting_on_disk_changes_no_bit() {
    let folder = TempDir::new().unwrap();
    for (model, policy) in [("vgg-small", "all-m"), ("resnet-small", "all-m")] {
        for sync in [Sync::Events, Sync::PerLayer] {
            let options = Options { sync, ..Setup::default().options };
            let setup = || Setup { model, policy, options, steps: STEPS, ..Setup::default() };
            let kept = run(&Setup { policy: "none-m", ..setup() });
            let moved = run(&setup());
            assert_eq!((moved.bits(), moved.disk_planned), (kept.bits(), 0), "{model}");
            let (all, least) = (moved.host_planned, largest_copy(&moved));
            let mut before = 0;
            for host in [all * 3 / 4, u64::midpoint(all, least), least + least / 4] {
                let name = format!("{model} {policy} {sync:?} with {host} of {all} bytes of host memory");
                let outcome = run(&on_disk(folder.path(), host, setup()));
                assert_eq!(outcome.bits(), kept.bits(), "{name}");
                as_planned(&name, folder.path(), host, &outcome);
                let disk = |way| outcome.schedule.disk_bytes(way);
                assert!(disk(Direction::Offload) >= before && disk(Direction::Prefetch) >= before, "{name}");
                before = disk(Direction::Offload);
            }
            let total = moved.schedule.transfer_bytes(Direction::Offload);
            assert!(before > total / 2, "{model} {sync:?}: {before} of {total} bytes go to disk");
        }
    }
}

/// The policies that choose algorithms, under device budgets: the bits of keeping everything with the algorithms they chose.
#[test]
fn every_policy_may_rest_on_disk() {
    let folder = TempDir::new().unwrap();
    for (model, policy) in
        [("vgg-small", "dyn"), ("vgg-small", "hybrid"), ("resnet-small", "dyn"), ("resnet-small", "hybrid")]
    {
        let setup = |budget| Setup { model, policy, budget, steps: STEPS, ..Setup::default() };
        let kept = run(&Setup { policy: "none-m", ..setup(None) });
        let TrainError::Plan(PlanError::Infeasible(refusal)) = refusal(&setup(Some(1))) else {
            panic!("{model} {policy}")
        };
        let budget = Some(refusal.floor + kept.planned.saturating_sub(refusal.floor) / 4);
        let moved = run(&setup(budget));
        let name = format!("{model} {policy} in {budget:?} bytes");
        assert!(moved.offloads(), "{name}");
        let host = largest_copy(&moved).max(moved.host_planned / 2);
        let outcome = run(&on_disk(folder.path(), host, setup(budget)));
        let same = Setup { policy: "none", algos_from: Some(outcome.schedule.clone()), ..setup(None) };
        assert_eq!(outcome.bits(), run(&same).bits(), "{name}");
        if outcome.disk_planned > 0 {
            as_planned(&name, folder.path(), host, &outcome);
        } else {
            // `hybrid` may find that making values again is quicker than this disk.
            assert!(policy == "hybrid" && outcome.host_planned <= host, "{name}");
        }
    }
}

/// Parameters at home in host memory stay there; only feature maps go on to disk.
#[test]
fn homes_stay_in_host_memory() {
    let folder = TempDir::new().unwrap();
    let options = Options { state: State::Host, ..Setup::default().options };
    let setup =
        || Setup { policy: "all-m", options, steps: STEPS, partial: vec![3], eval: vec![4], ..Setup::default() };
    let moved = run(&setup());
    let homes = moved.schedule.homes.iter().map(|home| moved.schedule.buffer(home.buffer));
    let homes: u64 = homes.filter(|home| home.space == Space::Host).map(|home| home.offset + home.bytes).max().unwrap();
    let host = homes + (moved.host_planned - homes) * 2 / 3;
    let outcome = run(&on_disk(folder.path(), host, setup()));
    assert_eq!(outcome.bits(), moved.bits());
    as_planned("streaming", folder.path(), host, &outcome);
    assert!(outcome.schedule.buffers.iter().filter(|b| b.space == Space::Disk).all(|b| b.name.ends_with(".disk")));
}

fn refusal(setup: &Setup<'_>) -> TrainError {
    trainer(setup).map(|_| "a trainer").unwrap_err()
}

#[test]
fn what_does_not_fit_is_refused_before_the_first_step() {
    let folder = TempDir::new().unwrap();
    let setup = || Setup { policy: "all-m", ..Setup::default() };
    let moved = run(&Setup { steps: 1, ..setup() });
    let slots = largest_copy(&moved);
    // Not even one value on its way.
    match refusal(&on_disk(folder.path(), slots - 1, setup())) {
        TrainError::Plan(error @ PlanError::LowerBudgets { host_needed, .. }) => {
            assert!(host_needed >= slots && error.to_string().contains("raise the one that is too small"), "{error}");
        }
        other => panic!("{other}"),
    }
    // A file that is too small by a byte.
    let host = moved.host_planned * 3 / 4;
    let outcome = run(&on_disk(folder.path(), host, Setup { steps: 1, ..setup() }));
    let too_small = Setup { disk: Some((1, folder.path())), ..on_disk(folder.path(), host, setup()) };
    match refusal(&too_small) {
        TrainError::Plan(PlanError::LowerBudgets { disk_needed, disk_budget: 1, host_needed, .. }) => {
            assert!(disk_needed <= outcome.disk_planned && host_needed <= host);
        }
        other => panic!("{other}"),
    }
    // A folder that is not there.
    let missing = folder.path().join("missing");
    let error = refusal(&on_disk(&missing, host, setup())).to_string();
    assert!(error.contains("missing") && error.contains("--disk-dir"), "{error}");
    // Nothing needs the disk: the folder is not looked at, and a budget alone changes nothing.
    let unused = Setup { disk: Some((ROOM, &missing)), steps: 1, ..setup() };
    assert_eq!(run(&unused).schedule.to_text(), moved.schedule.to_text());
}
