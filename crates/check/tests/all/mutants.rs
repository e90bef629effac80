//! Every mutant is caught, or does no harm under many interleavings.

use crate::{emit, interpret, network};
use std::collections::BTreeMap;
use std::fmt::Write;
use vdnn_check::mutants::mutants;
use vdnn_check::{Rule, check};

const SEEDS: u64 = 40;

/// What became of the mutants of one operator.
#[derive(Default)]
struct Tally {
    made: usize,
    caught: usize,
    by: BTreeMap<Rule, usize>,
    harmful: Vec<(usize, u64)>,
}

fn tally(recompute: Option<&str>) -> BTreeMap<(Rule, &'static str), Tally> {
    let program = network::twenty_layers();
    let schedule = emit::emit(&program, recompute);
    let expected = interpret::reference(&schedule, &program);
    let mut tallies: BTreeMap<(Rule, &'static str), Tally> = BTreeMap::new();
    for mutant in mutants(&schedule) {
        let tally = tallies.entry((mutant.rule, mutant.operator)).or_default();
        tally.made += 1;
        let violations = check(&mutant.schedule, &program);
        if let Some(first) = violations.first() {
            tally.caught += 1;
            *tally.by.entry(first.rule).or_default() += 1;
            continue;
        }
        let differs = |seed: &u64| interpret::run(&mutant.schedule, &program, *seed).as_ref() != Some(&expected);
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
    for recompute in [None, Some("relu9")] {
        let tallies = tally(recompute);
        let text = table(&tallies);
        println!("{text}");
        assert!(tallies.values().all(|tally| tally.harmful.is_empty()), "some harmful mutants pass:\n{text}");
        let mut by_rule: BTreeMap<Rule, (usize, usize)> = BTreeMap::new();
        for ((rule, _), tally) in &tallies {
            let (made, caught) = by_rule.entry(*rule).or_default();
            *made += tally.made;
            *caught += tally.caught;
        }
        for rule in RULES {
            let (made, caught) = by_rule.get(&rule).copied().unwrap_or_default();
            assert!(made >= 20, "expected at least 20 mutants for {rule:?}, found {made}");
            assert!(caught * 2 > made, "only {caught} of {made} mutants for {rule:?} are caught");
        }
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
