//! The arithmetic kernels are generic over: `f32` to train, `f64` to check gradients.

use super::operand::{Input, Output};
use crate::{View, ViewMut};
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use vdnn_tensor::Element;

/// A floating-point element. Reductions go through `f64` whatever the element.
pub(super) trait Real:
    Element
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
{
    /// 0.
    const ZERO: Self;
    /// −∞.
    const LOWEST: Self;

    /// The nearest value.
    fn of(value: f64) -> Self;
    /// The same value in double precision.
    fn wide(self) -> f64;
    /// Square root.
    fn sqrt(self) -> Self;
    /// True for a value that is no number.
    fn is_nan(self) -> bool;
    /// The view in an input of this type.
    fn input<'a>(input: &Input<'a>) -> Option<View<'a, Self>>;
    /// The view in an output of this type.
    fn output(output: Output<'_>) -> Option<ViewMut<'_, Self>>;
}

macro_rules! real {
    ($rust:ident, $variant:ident) => {
        impl Real for $rust {
            const ZERO: Self = 0.0;
            const LOWEST: Self = $rust::NEG_INFINITY;

            fn of(value: f64) -> Self {
                value as $rust
            }
            fn wide(self) -> f64 {
                self as f64
            }
            fn sqrt(self) -> Self {
                $rust::sqrt(self)
            }
            fn is_nan(self) -> bool {
                $rust::is_nan(self)
            }
            fn input<'a>(input: &Input<'a>) -> Option<View<'a, Self>> {
                if let Input::$variant(view) = input { Some(*view) } else { None }
            }
            fn output(output: Output<'_>) -> Option<ViewMut<'_, Self>> {
                if let Output::$variant(view) = output { Some(view) } else { None }
            }
        }
    };
}
real!(f32, F32);
real!(f64, F64);

/// Runs `f` compiled for the widest vectors of this machine. What `f` calls must be inlined to gain from it; results are
/// the same either way.
#[inline(always)]
pub(super) fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}
