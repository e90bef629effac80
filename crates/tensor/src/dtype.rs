//! Element types. A tensor's dtype is part of its type; nothing converts silently.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE double precision (gradient checks on the CPU).
    F64,
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// Signed 32-bit integers (labels).
    I32,
    /// Unsigned 64-bit integers (the iteration counter).
    U64,
    /// Bytes (images as stored).
    U8,
}

impl DType {
    /// Size of one element in bytes.
    pub const fn size(self) -> u64 {
        match self {
            DType::F64 | DType::U64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 => 1,
        }
    }

    /// True for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// What sums, statistics and parameters beside tensors of this type are kept in: `f32` beside half precision, else the
    /// type itself.
    pub const fn wide(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// True for the two-byte floating-point types.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// The lower-case name (`f32`, `bf16`, …).
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U64 => "u64",
            DType::U8 => "u8",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that stores one element of a [`DType`].
pub trait Element: bytemuck::Pod + PartialEq + std::fmt::Debug + Send + Sync {
    /// The dtype this type stores.
    const DTYPE: DType;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
element!(f64 => F64, f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, u64 => U64, u8 => U8);
