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
use half::{bf16, f16};

/// One input of a launch.
pub enum Input<'a> {
    /// Single precision.
    F32(View<'a, f32>),
    /// Double precision.
    F64(View<'a, f64>),
    /// Half precision.
    F16(View<'a, f16>),
    /// bfloat16.
    BF16(View<'a, bf16>),
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
    /// Half precision.
    F16(ViewMut<'a, f16>),
    /// bfloat16.
    BF16(ViewMut<'a, bf16>),
    /// Counters of steps.
    I32(ViewMut<'a, i32>),
    /// The number of steps taken.
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
            Input::F16(_) => "f16",
            Input::BF16(_) => "bf16",
            Input::I32(_) => "i32",
            Input::U64(_) => "u64",
            Input::U8(_) => "u8",
            Input::InPlace(_) => "in place",
        }
    }

    /// Number of elements, unless in place.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Input::F32(view) => Some(view.len()),
            Input::F64(view) => Some(view.len()),
            Input::F16(view) => Some(view.len()),
            Input::BF16(view) => Some(view.len()),
            Input::I32(view) => Some(view.len()),
            Input::U64(view) => Some(view.len()),
            Input::U8(view) => Some(view.len()),
            Input::InPlace(_) => None,
        }
    }
}

impl Output<'_> {
    /// A word for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Output::F32(_) => "f32",
            Output::F64(_) => "f64",
            Output::F16(_) => "f16",
            Output::BF16(_) => "bf16",
            Output::I32(_) => "i32",
            Output::U64(_) => "u64",
            Output::U8(_) => "u8",
            Output::InPlace(_) => "in place",
        }
    }

    /// Number of elements, unless in place.
    pub(super) fn len(&self) -> Option<usize> {
        self.as_input().len()
    }

    /// The same for a while.
    pub(super) fn reborrow(&mut self) -> Output<'_> {
        match self {
            Output::F32(view) => Output::F32(view.reborrow()),
            Output::F64(view) => Output::F64(view.reborrow()),
            Output::F16(view) => Output::F16(view.reborrow()),
            Output::BF16(view) => Output::BF16(view.reborrow()),
            Output::I32(view) => Output::I32(view.reborrow()),
            Output::U64(view) => Output::U64(view.reborrow()),
            Output::U8(view) => Output::U8(view.reborrow()),
            Output::InPlace(input) => Output::InPlace(*input),
        }
    }

    /// What it holds.
    pub(super) fn as_input(&self) -> Input<'_> {
        match self {
            Output::F32(view) => Input::F32(view.as_view()),
            Output::F64(view) => Input::F64(view.as_view()),
            Output::F16(view) => Input::F16(view.as_view()),
            Output::BF16(view) => Input::BF16(view.as_view()),
            Output::I32(view) => Input::I32(view.as_view()),
            Output::U64(view) => Input::U64(view.as_view()),
            Output::U8(view) => Input::U8(view.as_view()),
            Output::InPlace(input) => Input::InPlace(*input),
        }
    }
}

/// A source of a kernel that may run in place: `None` means "what the output holds".
pub(super) type Source<'a, T> = Option<View<'a, T>>;
