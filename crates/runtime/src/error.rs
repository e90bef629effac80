//! What can go wrong on a device.

use thiserror::Error;
use vdnn_tensor::Bytes;

/// A device that could not do what was asked.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A library, driver or device is missing.
    #[error("{what} is not available: {reason}. {advice}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// What was found instead.
        reason: String,
        /// What to try.
        advice: String,
    },
    /// An arena could not be had.
    #[error("cannot reserve {bytes} bytes of {space} memory: {reason}")]
    OutOfMemory {
        /// Which memory.
        space: &'static str,
        /// How much.
        bytes: Bytes,
        /// What the system said.
        reason: String,
    },
    /// The file for what rests on disk could not be had.
    #[error(
        "cannot take {bytes} bytes in the folder {folder} for values that rest on disk: {reason}; name a folder with that \
         much room (--disk-dir), or raise --host-budget so that less rests there"
    )]
    DiskFolder {
        /// The folder.
        folder: String,
        /// How much.
        bytes: Bytes,
        /// What the system said.
        reason: String,
    },
    /// A file could not be written or read in the middle of an iteration.
    #[error(
        "cannot {way} {bytes} bytes at {offset} of {file}: {reason}; what rests there is lost, start the run again"
    )]
    Disk {
        /// `write` or `read`.
        way: &'static str,
        /// The file, by the name that it had.
        file: String,
        /// First byte.
        offset: Bytes,
        /// How many.
        bytes: Bytes,
        /// What the system said, with its error number.
        reason: String,
    },
    /// A kernel cannot run as the schedule says.
    #[error("{node} cannot run as {algorithm}: {reason}")]
    Kernel {
        /// The node.
        node: String,
        /// The algorithm the schedule names.
        algorithm: String,
        /// Why not.
        reason: String,
    },
    /// An op, dtype or layout the device has no kernel for.
    #[error("{device} has no kernel for {op} on {operands}")]
    Unsupported {
        /// The device.
        device: String,
        /// The op.
        op: String,
        /// Operand types.
        operands: String,
    },
    /// Two accesses to the same bytes at the same time, at least one a write. A schedule that passed `check` has none.
    #[error("{first} and {second} touch the same bytes at the same time; the schedule is not safe")]
    Conflict {
        /// The access already running.
        first: String,
        /// The access refused.
        second: String,
    },
    /// A schedule that contradicts itself, its program or the memory reserved for it.
    #[error("the schedule cannot run at {place}: {reason}")]
    Schedule {
        /// The command, operand or buffer.
        place: String,
        /// What was expected and found.
        reason: String,
    },
    /// Streams wait for events that nothing will record any more.
    #[error("the iteration is stuck, every stream waits: {waiting}; record each event before the waits for it")]
    Deadlock {
        /// The waiting commands.
        waiting: String,
    },
    /// A kernel panicked; the iteration was given up.
    #[error("{command} panicked: {message}; this is a defect of its kernel")]
    Panic {
        /// The command.
        command: String,
        /// The panic's text.
        message: String,
    },
    /// A name that no home of the schedule carries.
    #[error("no home holds {name}; the schedule's homes are {known}")]
    UnknownValue {
        /// The name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// Bytes written to or read from a home do not fit it.
    #[error("the home of {name} holds {expected} bytes, found {found}")]
    HomeSize {
        /// The value.
        name: String,
        /// Bytes of the home.
        expected: Bytes,
        /// Bytes given.
        found: Bytes,
    },
    /// The device or a library reported a failure.
    #[error("{call} failed: {message}")]
    Backend {
        /// The call.
        call: String,
        /// The library's text.
        message: String,
    },
}
