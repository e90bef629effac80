//! What a kernel is given: typed views of its operands.
//!
//! ```text
//!   (X, W, bias) ──conv──► Y        inputs: F32(x) F32(w) F32(b)        outputs: F32(y)
//!   x ──relu──► y over x            inputs: InPlace(0)                  outputs: F32(y), holding x on entry
//!   (a, b) ──concat──► z            inputs: InPlace(0) F32(b)           a already lies inside z, b must move
//!   dz ──split──► da, db            outputs: InPlace(0) F32(db)         da already lies inside dz
//! ```
//!
//! Left to others: finding the bytes (the device) and deciding what lies where (the schedule).

use crate::{View, ViewMut};

/// One input of a launch.
pub enum Input<'a> {
    /// Single precision.
    F32(View<'a, f32>),
    /// Double precision.
    F64(View<'a, f64>),
    /// Labels.
    I32(View<'a, i32>),
    /// The iteration counter.
    U64(View<'a, u64>),
    /// A mask or indices.
    U8(View<'a, u8>),
    /// The bytes of this input are those of an output (its index). Only for the pairs of `Op::in_place` and
    /// `Op::updates`, for a concat's input that already lies at its place in the output, and for views.
    InPlace(usize),
}

/// One output of a launch.
pub enum Output<'a> {
    /// Single precision.
    F32(ViewMut<'a, f32>),
    /// Double precision.
    F64(ViewMut<'a, f64>),
    /// Integers (no op makes any today; a device may hold them all the same).
    I32(ViewMut<'a, i32>),
    /// Counters (as above).
    U64(ViewMut<'a, u64>),
    /// A mask or indices.
    U8(ViewMut<'a, u8>),
    /// This output already lies inside an input (its index): the parts of a split. Nothing is written.
    InPlace(usize),
}

impl Input<'_> {
    /// A word for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Input::F32(_) => "f32",
            Input::F64(_) => "f64",
            Input::I32(_) => "i32",
            Input::U64(_) => "u64",
            Input::U8(_) => "u8",
            Input::InPlace(_) => "in place",
        }
    }
}

impl Output<'_> {
    /// A word for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Output::F32(_) => "f32",
            Output::F64(_) => "f64",
            Output::I32(_) => "i32",
            Output::U64(_) => "u64",
            Output::U8(_) => "u8",
            Output::InPlace(_) => "in place",
        }
    }
}

/// A source of a kernel that may run in place: `None` means "what the output holds".
pub(super) type Source<'a, T> = Option<View<'a, T>>;
