//! The clean schedule passes, the judge agrees with the program, and messages name what is wrong.

use crate::{emit, interpret, network};
use vdnn_check::{Rule, check, refines, verify};
use vdnn_schedule::{Action, Direction};

#[test]
fn the_hand_made_schedule_is_clean() {
    let program = network::twenty_layers();
    for recompute in [None, Some("relu9")] {
        let schedule = emit::emit(&program, recompute);
        assert_eq!(check(&schedule, &program), vec![]);
        let offloads = schedule.transfer_bytes(Direction::Offload);
        assert!(offloads > 0 && offloads == schedule.transfer_bytes(Direction::Prefetch));
        let reruns = |command: &vdnn_schedule::Command| matches!(command.action, Action::Launch { run, .. } if run > 0);
        assert_eq!(schedule.commands.iter().any(reruns), recompute.is_some());
    }
}

#[test]
fn the_judge_finds_the_clean_schedule_right() {
    let program = network::twenty_layers();
    let schedule = emit::emit(&program, Some("relu9"));
    let expected = interpret::reference(&schedule, &program);
    for seed in 0..20 {
        assert_eq!(interpret::run(&schedule, &program, seed).as_ref(), Some(&expected), "seed {seed}");
    }
}
