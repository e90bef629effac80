//! Casts between floating-point types and orders of memory. Rounding is to nearest, ties to even, in one step.

use super::launch::Launch;
use super::operand::{Input, Output};
use super::order::reorder;
use crate::{DeviceError, View};
use half::{bf16, f16};
use vdnn_tensor::{Element, MemoryOrder, TensorType};

/// A floating-point number as it is stored.
pub(super) trait Number: Element + Default {
    /// The same number.
    fn wide(self) -> f64;
    /// The nearest number there is.
    fn nearest(wide: f64) -> Self;
}

impl Number for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn nearest(wide: f64) -> Self {
        wide
    }
}

impl Number for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn nearest(wide: f64) -> Self {
        wide as f32
    }
}

macro_rules! half {
    ($($half:ident),*) => {$(
        impl Number for $half {
            fn wide(self) -> f64 {
                f64::from(self.to_f32())
            }
            fn nearest(wide: f64) -> Self {
                $half::from_f32(to_odd(wide))
            }
        }
    )*};
}
half!(bf16, f16);

/// The number itself where f32 has it; else its neighbour with an odd last bit, from which a second rounding to fewer bits
/// goes where one rounding would have gone.
fn to_odd(wide: f64) -> f32 {
    let near = wide as f32;
    if f64::from(near) == wide || !near.is_finite() {
        return near;
    }
    let beyond = f64::from(near).abs() > wide.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// True for a type that is cast from and to: numbers, channels padded only where they are innermost.
pub(super) fn takes(ty: &TensorType) -> bool {
    ty.dtype.is_float() && (ty.layout.channel_padding == 0 || ty.layout.order == MemoryOrder::Nhwc)
}

/// (X) → the same numbers in another type.
pub(super) fn forward(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let types = [&launch.input_types[0], &launch.output_types[0]];
    let (Some(x), Some(y)) = (launch.inputs.pop(), launch.outputs.pop()) else {
        return Err(launch.refuse("expected one input and one output"));
    };
    let cast = match x {
        Input::F64(x) => write(types, x, y),
        Input::F32(x) => write(types, x, y),
        Input::F16(x) => write(types, x, y),
        Input::BF16(x) => write(types, x, y),
        _ => None,
    };
    cast.ok_or_else(|| launch.refuse(format!("expected numbers that fill {} and {}, apart", types[0], types[1])))
}

/// Writes X into an output of any of the types; `None` when that is no such output, or of another size.
fn write<S: Number>(types: [&TensorType; 2], x: View<'_, S>, y: Output<'_>) -> Option<()> {
    let [from, to] = types.map(|ty| ty.stored_elements() as usize);
    if x.len() != from || y.len() != Some(to) {
        return None;
    }
    match y {
        Output::F64(y) => reorder(types, x, y, Number::wide),
        Output::F32(y) => reorder(types, x, y, |x| Number::nearest(x.wide())),
        Output::F16(y) => reorder(types, x, y, |x| Number::nearest(x.wide())),
        Output::BF16(y) => reorder(types, x, y, |x| Number::nearest(x.wide())),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_round_once() {
        // Just above the middle between 1 and the next bf16: by way of f32 to nearest it would be a tie, and go to 1.
        let above = 1.0 + f64::exp2(-8.0) + f64::exp2(-40.0);
        assert_eq!(bf16::nearest(above).to_f32(), 1.0078125);
        assert_eq!(bf16::nearest(1.0 + f64::exp2(-8.0)).to_f32(), 1.0);
        assert_eq!(f16::nearest(-1.0 - f64::exp2(-11.0) - f64::exp2(-50.0)).to_f32(), -1.0009766);
        assert_eq!(f16::nearest(1.0 + f64::exp2(-11.0) - f64::exp2(-50.0)).to_f32(), 1.0);
        assert!(bf16::nearest(f64::NAN).is_nan());
        assert_eq!(f16::nearest(1e300).to_f32(), f32::INFINITY);
    }
}
