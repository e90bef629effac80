//! The clean schedule passes, the judge agrees with the program, and messages name what is wrong.

use crate::{emit, interpret, network};
use vdnn_check::{Rule, Violation, check, kernels, sequence, staging};
use vdnn_graph::Program;
use vdnn_schedule::{Action, BufferKind, Choice, Direction, KernelTable, Schedule, Space};

#[test]
fn the_hand_made_schedule_is_clean() {
    let program = network::twenty_layers();
    for recompute in [None, Some("relu9")] {
        let schedule = emit::emit(&program, recompute);
        assert_eq!(check(&schedule, &program), vec![]);
        let moved = [Direction::Offload, Direction::Prefetch].map(|way| schedule.transfer_bytes(way));
        assert!(moved[0] > 0 && moved[0] == moved[1]);
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

fn broken(change: impl FnOnce(&mut Schedule)) -> Vec<Violation> {
    let program: Program = network::twenty_layers();
    let mut schedule = emit::emit(&program, Some("relu9"));
    change(&mut schedule);
    check(&schedule, &program)
}

#[track_caller]
fn expect(found: &[Violation], rule: Rule, words: &[&str]) {
    let text: Vec<String> = found.iter().map(Violation::to_string).collect();
    let named = |violation: &&Violation| words.iter().all(|word| violation.message.contains(word));
    assert!(found.iter().filter(|v| v.rule == rule).any(|v| named(&v)), "expected {rule:?} {words:?} in {text:#?}");
}

/// Index of the first command that prints like this.
fn find(schedule: &Schedule, start: &str) -> usize {
    let text = schedule.to_text();
    let mut commands = text.lines().skip_while(|line| *line != "commands").skip(1);
    commands.position(|line| line.contains(start)).unwrap_or_else(|| panic!("no {start} in {text}"))
}

fn drop_command(schedule: &mut Schedule, start: &str) {
    let at = find(schedule, start);
    schedule.commands.remove(at);
}

/// B33: the device buffer is freed while its copy to the host is under way.
#[test]
fn b33_a_free_waits_for_the_offload() {
    let found = broken(|schedule| drop_command(schedule, "compute  | wait     offloaded %conv2 "));
    expect(&found, Rule::Lifetime, &["offload %conv2 uses %conv2", "is not ordered after it"]);
}

/// B34: a kernel reads a prefetched buffer before the copy has ended.
#[test]
fn b34_a_reader_waits_for_the_prefetch() {
    let found = broken(|schedule| drop_command(schedule, "compute  | wait     prefetched %conv2' "));
    expect(&found, Rule::Races, &["%conv2'", "is not ordered after prefetch %conv2'"]);
}

/// B36: the copy on the host is given up while the prefetch from it is queued.
#[test]
fn b36_a_copy_outlives_its_prefetch() {
    let found = broken(|schedule| {
        let free = find(schedule, "free     %conv2@host");
        schedule.commands.swap(free, free - 1);
    });
    expect(&found, Rule::Lifetime, &["prefetch %conv2' uses %conv2@host"]);
}

/// B31: a feature map with two readers goes after the first.
#[test]
fn b31_a_fork_is_held_for_its_last_reader() {
    let found = broken(|schedule| {
        let (reader, free) = (find(schedule, "launch   conv7("), find(schedule, "free     %conv6 "));
        let command = schedule.commands.remove(free);
        schedule.commands.insert(reader + 1, command);
    });
    expect(&found, Rule::Lifetime, &["launch join uses %conv6"]);
}

/// B15: running statistics move once, whatever runs again.
#[test]
fn b15_an_effect_happens_once() {
    let found = broken(|schedule| {
        let at = find(schedule, "launch   norm.update(");
        let mut again = schedule.commands[at].clone();
        if let Action::Launch { run, .. } = &mut again.action {
            *run = 1;
        }
        schedule.commands.insert(at + 1, again);
    });
    expect(&found, Rule::Refines, &["norm.update has an effect and must run once"]);
    expect(&found, Rule::Refines, &["norm.update to read %norm.running_mean", "holds %norm.running_mean'"]);
}

/// B30: an op writes over what backward still needs.
#[test]
fn b30_nothing_is_written_over_a_value_in_need() {
    let found = broken(|schedule| {
        let at = find(schedule, "launch   norm(");
        if let Action::Launch { reads, writes, .. } = &mut schedule.commands[at].action {
            writes[0] = reads[0];
        }
    });
    expect(&found, Rule::Refines, &["norm.grad to read %conv4", "holds %norm there"]);
}

#[test]
fn kernels_may_only_overwrite_what_their_op_allows() {
    let found = broken(|schedule| {
        let at = find(schedule, "launch   conv3(");
        if let Action::Launch { reads, writes, .. } = &mut schedule.commands[at].action {
            writes[0] = reads[0];
        }
    });
    expect(&found, Rule::Refines, &["conv3 may not read %relu3", "and write %conv3"]);
}

#[test]
fn budgets_are_counted_in_bytes() {
    let found = broken(|schedule| schedule.arenas[0].budget = Some(schedule.arenas[0].bytes - 1));
    assert_eq!(found.len(), 1);
    expect(&found, Rule::Budget, &["expected the Device arena within", "found"]);
    assert_eq!(broken(|schedule| schedule.arenas[0].budget = Some(schedule.arenas[0].bytes)), vec![]);
}

#[test]
fn a_schedule_of_another_program_is_told_apart() {
    let schedule = emit::emit(&network::chain(3), None);
    let found = check(&schedule, &network::twenty_layers());
    expect(&found, Rule::Refines, &["expected node", "as in the program"]);
}

#[test]
fn an_empty_schedule_of_a_program_is_unfaithful_but_no_panic() {
    let found = broken(|schedule| {
        schedule.commands.clear();
        schedule.events.clear();
    });
    expect(&found, Rule::Refines, &["expected conv0.step to run"]);
}

#[test]
fn workspaces_suffice_for_the_algorithms() {
    let program = network::twenty_layers();
    let schedule = emit::emit(&program, None);
    let choice = |algorithm: &str, workspace| Choice {
        algorithm: algorithm.to_string(),
        workspace,
        seconds: 1.0,
        deterministic: true,
    };
    let mut table = KernelTable::new(vec![vec![choice("gemm", 48), choice("direct", 0)]; schedule.nodes.len()]);
    assert_eq!(kernels(&schedule, &table), vec![]);
    table.choices[0] = vec![choice("gemm", 49)];
    expect(&kernels(&schedule, &table), Rule::Kernels, &["expected 49 bytes", "conv0 by gemm", "found 48"]);
    table.choices[0] = vec![choice("fft", 0)];
    expect(&kernels(&schedule, &table), Rule::Kernels, &["expected conv0 by one of fft, found gemm"]);
    // Also among the choices in pieces of the batch.
    table.pieces = vec![vec![choice("gemm", 49)]];
    expect(&kernels(&schedule, &table), Rule::Kernels, &["expected 49 bytes", "conv0 by gemm", "found 48"]);
    table.pieces[0] = vec![choice("gemm", 48)];
    assert_eq!(kernels(&schedule, &table), vec![]);
    table.choices.pop();
    expect(&kernels(&schedule, &table), Rule::Kernels, &["kernel table of"]);
}

#[test]
fn schedules_of_a_run_leave_each_others_homes_alone() {
    let program = network::twenty_layers();
    let schedules = [emit::emit(&program, None), emit::emit(&program, Some("relu9"))];
    let [plain, mut other] = schedules;
    assert_eq!(sequence(&[(&plain, &program), (&other, &program), (&plain, &program)]), vec![]);
    let moved = other.homes.iter().map(|home| home.buffer.index());
    let moved: Vec<usize> = moved.filter(|&i| other.buffers[i].space == Space::Device).take(2).collect();
    let offsets = [other.buffers[moved[0]].offset, other.buffers[moved[1]].offset];
    other.buffers[moved[1]].offset = offsets[0];
    let found = sequence(&[(&plain, &program), (&other, &program)]);
    expect(&found, Rule::Sequence, &["expected the home of", "in every schedule"]);
    other.buffers[moved[1]].offset = offsets[1];
    let scratch = other.buffers.iter_mut().find(|buffer| buffer.kind == BufferKind::Workspace).unwrap();
    scratch.offset = offsets[1];
    let found = sequence(&[(&plain, &program), (&other, &program)]);
    expect(&found, Rule::Sequence, &["workspace of twenty (by hand) overwrites the home of"]);
    // The same address of another space is another place.
    let mut below = plain.clone();
    below.buffers[moved[1]].space = Space::Host;
    let home = below.homes.iter().position(|home| home.buffer.index() == moved[1]).unwrap();
    below.commands.clear();
    for arena in &mut below.arenas {
        let ends = below.buffers.iter().filter(|buffer| buffer.space == arena.space);
        arena.bytes = ends.map(|buffer| buffer.offset + buffer.bytes).max().unwrap_or(0);
    }
    let name = &below.values[below.homes[home].initial.index()];
    let found = sequence(&[(&plain, &program), (&below, &program)]);
    expect(&found, Rule::Sequence, &[&format!("expected the home of %{name} at Device"), "found Host"]);
}

/// The host may fill what lies in no buffer and within the arena.
#[test]
fn no_buffer_lies_in_the_staging_region() {
    let program = network::twenty_layers();
    let mut schedule = emit::emit(&program, None);
    let peak = schedule.peak_bytes(Space::Device);
    expect(&staging(&schedule, peak, 256), Rule::Budget, &["staging region", "its end at"]);
    let arena = schedule.arenas.iter_mut().find(|arena| arena.space == Space::Device).unwrap();
    arena.bytes = peak + 256;
    assert_eq!(staging(&schedule, peak, 256), vec![]);
    expect(&staging(&schedule, peak - 1, 257), Rule::Sharing, &["outside the staging region"]);
    let workspace = schedule.buffers.iter().find(|buffer| buffer.kind == BufferKind::Workspace).unwrap().clone();
    let found = staging(&schedule, workspace.offset + workspace.bytes - 1, 1);
    expect(&found, Rule::Sharing, &[&workspace.name]);
    assert_eq!(staging(&schedule, workspace.offset, 0), vec![]);
}
