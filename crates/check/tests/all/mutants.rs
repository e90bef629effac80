//! Every mutant is caught, or does no harm under many interleavings.

use crate::{emit, interpret, network};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use vdnn_check::mutants::mutants;
use vdnn_check::{Rule, check};
use vdnn_graph::Program;

const SEEDS: u64 = 12;

/// What became of the mutants of one operator.
#[derive(Default)]
struct Tally {
    made: usize,
    caught: usize,
    /// Mutants each rule objects to, and those that no other rule does.
    by: BTreeMap<Rule, (usize, usize)>,
    harmful: Vec<(usize, u64)>,
}

impl Tally {
    fn count(&mut self, mut rules: BTreeSet<Rule>) {
        self.caught += 1;
        // Whoever reads the right value reads what was written, so this rule only counts where the program is not known.
        if rules.contains(&Rule::Initialised) {
            rules.remove(&Rule::Refines);
        }
        for rule in &rules {
            let (among, alone) = self.by.entry(*rule).or_default();
            *among += 1;
            *alone += usize::from(rules.len() == 1);
        }
    }
}

fn tally(program: &Program, offloaded: &str) -> BTreeMap<(Rule, &'static str), Tally> {
    let schedule = emit::emit(program, Some(offloaded));
    assert_eq!(check(&schedule, program), []);
    let expected = interpret::reference(&schedule, program);
    let mut tallies: BTreeMap<(Rule, &'static str), Tally> = BTreeMap::new();
    for mutant in mutants(&schedule) {
        let tally = tallies.entry((mutant.rule, mutant.operator)).or_default();
        tally.made += 1;
        let violations = check(&mutant.schedule, program);
        if !violations.is_empty() {
            tally.count(violations.iter().map(|violation| violation.rule).collect());
            continue;
        }
        let differs = |seed: &u64| interpret::run(&mutant.schedule, program, *seed).as_ref() != Some(&expected);
        tally.harmful.extend((0..SEEDS).find(differs).map(|seed| (mutant.position, seed)));
    }
    tallies
}

fn table(tallies: &BTreeMap<(Rule, &'static str), Tally>) -> String {
    let mut text = String::new();
    for ((rule, operator), tally) in tallies {
        let harmless = tally.made - tally.caught - tally.harmful.len();
        let _ = writeln!(
            text,
            "{rule:?}: {operator}: {} made, {} caught {:?}, {harmless} harmless, missed {:?}",
            tally.made, tally.caught, tally.by, tally.harmful
        );
    }
    text
}

#[test]
fn every_mutant_is_caught_or_harmless() {
    let tallies = tally(&network::twenty_layers(), "relu9");
    let text = table(&tallies);
    println!("{text}");
    assert!(tallies.values().all(|tally| tally.harmful.is_empty()), "some harmful mutants pass:\n{text}");
    for rule in RULES {
        let aimed = || tallies.iter().filter(|((aim, _), _)| *aim == rule).map(|(_, tally)| tally);
        let (made, caught): (usize, usize) = (aimed().map(|t| t.made).sum(), aimed().map(|t| t.caught).sum());
        let objects = |tally: &Tally| tally.by.get(&rule).copied().unwrap_or_default();
        let among: usize = tallies.values().map(|tally| objects(tally).0).sum();
        let alone: usize = tallies.values().map(|tally| objects(tally).1).sum();
        println!("{rule:?}: {made} made for it, {caught} caught; it objects to {among}, to {alone} alone");
        assert!(made >= 20, "expected at least 20 mutants for {rule:?}, found {made}");
        assert!(caught * 2 > made, "only {caught} of {made} mutants for {rule:?} are caught");
        assert!(among >= 20, "expected {rule:?} to object to at least 20 mutants, found {among}");
        // Iterations that are joined and leave nothing behind cannot disturb each other: a second look, by design.
        assert!(alone >= 1 || rule == Rule::Sequence, "expected some mutant that only {rule:?} objects to");
    }
}

/// The same where samples of one value lie in several buffers' rows, and slices of channels in some of the rows.
#[test]
fn every_mutant_of_a_split_batch_is_caught_or_harmless() {
    let tallies = tally(&network::split_batch(), "relu");
    let text = table(&tallies);
    println!("{text}");
    assert!(tallies.values().all(|tally| tally.harmful.is_empty()), "some harmful mutants pass:\n{text}");
    for (operator, least) in [("samples at another place", 8), ("slice at another place", 4)] {
        let tally = &tallies[&(Rule::Refines, operator)];
        assert!(tally.caught >= least && tally.caught == tally.made, "{operator}:\n{text}");
    }
}

const RULES: [Rule; 10] = [
    Rule::WellFormed,
    Rule::Events,
    Rule::Lifetime,
    Rule::Initialised,
    Rule::Races,
    Rule::Sharing,
    Rule::ForkJoin,
    Rule::Budget,
    Rule::Refines,
    Rule::Sequence,
];
