//! What a check reports.

use std::fmt;

/// The rules, one file each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Ids are in range, regions inside buffers, buffers inside arenas, commands on streams that may run them.
    WellFormed,
    /// Events are recorded once, before their waits.
    Events,
    /// Every use comes after the buffer's one alloc and before its one free.
    Lifetime,
    /// Every byte read was written before.
    Initialised,
    /// Conflicting accesses are ordered.
    Races,
    /// Buffers that share addresses have ordered lifetimes.
    Sharing,
    /// Every stream forks from the compute stream and joins it.
    ForkJoin,
    /// Arenas keep their budgets.
    Budget,
    /// Every kernel reads the values its node names, every effect happens once, homes end as they must.
    Refines,
    /// The schedule may follow itself and the other schedules of its run.
    Sequence,
    /// Launches use algorithms that exist, with enough workspace.
    Kernels,
}

/// One way in which a schedule breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// The command at which it shows, as an index into the schedule's commands.
    pub command: Option<usize>,
    /// What was expected and what was found, with names.
    pub message: String,
}

impl Violation {
    /// A violation at a command.
    pub(crate) fn at(rule: Rule, command: usize, message: String) -> Self {
        Violation { rule, command: Some(command), message }
    }

    /// A violation of the schedule as a whole.
    pub(crate) fn whole(rule: Rule, message: String) -> Self {
        Violation { rule, command: None, message }
    }
}

impl Rule {
    /// The rule in words.
    pub fn name(self) -> &'static str {
        match self {
            Rule::WellFormed => "well formed",
            Rule::Events => "events",
            Rule::Lifetime => "lifetime",
            Rule::Initialised => "initialised",
            Rule::Races => "races",
            Rule::Sharing => "sharing",
            Rule::ForkJoin => "fork and join",
            Rule::Budget => "budget",
            Rule::Refines => "refines",
            Rule::Sequence => "sequence",
            Rule::Kernels => "kernels",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command {
            Some(command) => write!(f, "{}: command {command}: {}", self.rule.name(), self.message),
            None => write!(f, "{}: {}", self.rule.name(), self.message),
        }
    }
}
