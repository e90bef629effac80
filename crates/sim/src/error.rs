//! Why something could not be priced or simulated.

use thiserror::Error;

/// A machine description, profile or graph that cannot be priced.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CostError {
    /// No built-in machine has this name.
    #[error("no machine is called {name:?}; nearest: {}; or give the path of a description", nearest.join(", "))]
    UnknownMachine {
        /// The name asked for.
        name: String,
        /// The three nearest names of built-in machines, most similar first.
        nearest: Vec<String>,
    },
    /// A machine description of another format.
    #[error("{file}: field format: expected {expected}, found {found}; write the description in format {expected}")]
    MachineFormat {
        /// The file, or what else the text came from.
        file: String,
        /// The format this program reads.
        expected: u32,
        /// The format of the text.
        found: u64,
    },
    /// A machine description with a missing, unknown or senseless field.
    #[error("{file}: field {field}: {reason}")]
    MachineField {
        /// The file, or what else the text came from.
        file: String,
        /// The field.
        field: String,
        /// What was expected and found.
        reason: String,
    },
    /// The machine states no arithmetic rate for a kernel's type.
    #[error(
        "machine {machine} states no peak_flops.{arithmetic}, which {node} needs; use another dtype, or add the rate to \
         the description"
    )]
    NoPeak {
        /// The machine.
        machine: String,
        /// The missing rate.
        arithmetic: String,
        /// The node that needs it.
        node: String,
    },
    /// A profile of another device.
    #[error("the profile was recorded on {found:?}, expected {expected:?}; record one there with `vdnn profile`")]
    ProfileDevice {
        /// The device it should be of.
        expected: String,
        /// The device it is of.
        found: String,
    },
    /// A profile whose contents cannot be used.
    #[error("profile of {device:?}: {reason}")]
    Profile {
        /// The device it was recorded on.
        device: String,
        /// What was expected and found.
        reason: String,
    },
    /// Kernels that were never measured, when no machine may stand in.
    #[error(
        "{count} kernels are not in the profile of {device:?}, the first for {}; record them with `vdnn profile` for this \
         model, or name a machine to estimate them",
        examples.join(", ")
    )]
    NotProfiled {
        /// The profiled device.
        device: String,
        /// Number of distinct kernels missing.
        count: usize,
        /// Names of some nodes that need them.
        examples: Vec<String>,
    },
}

/// A stream that waits for an event nothing will record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The stream, by number and role.
    pub stream: String,
    /// Index of the waiting command.
    pub command: usize,
    /// Name of the event.
    pub event: String,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} waits at command {} for \"{}\"", self.stream, self.command, self.event)
    }
}

/// A schedule that cannot be run to its end.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SimError {
    /// Streams wait for each other, or for events that are never recorded.
    #[error("deadlock after {seconds} s: {}", stuck.iter().map(Stuck::to_string).collect::<Vec<_>>().join("; "))]
    Deadlock {
        /// When everything stood still.
        seconds: f64,
        /// Each waiting stream.
        stuck: Vec<Stuck>,
    },
    /// A launch whose algorithm has no time in the table.
    #[error(
        "no time for {node} with algorithm {algorithm}; the table knows {}; simulate with the costs the schedule was \
         planned with",
        known.join(", ")
    )]
    UnknownAlgorithm {
        /// The node.
        node: String,
        /// The algorithm its launch names.
        algorithm: String,
        /// Algorithms of the table for this node.
        known: Vec<String>,
    },
    /// A time or rate that is not a usable number.
    #[error("{what}: expected a {expected} number, found {found}")]
    BadNumber {
        /// Whose it is.
        what: String,
        /// `positive` or `non-negative`.
        expected: &'static str,
        /// The number.
        found: f64,
    },
    /// A command that names something the schedule does not have.
    #[error("command {command} names {what} {index}, of which the schedule has {count}")]
    BadIndex {
        /// Index of the command.
        command: usize,
        /// What kind of thing.
        what: &'static str,
        /// Its index.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A transfer along a way that has no rate.
    #[error(
        "command {command} copies {src:?} to {dst:?}; device and host are linked here, and host and disk only where the \
         machine description states the disk's rates"
    )]
    NoLink {
        /// Index of the command.
        command: usize,
        /// Where from.
        src: vdnn_schedule::Space,
        /// Where to.
        dst: vdnn_schedule::Space,
    },
}
