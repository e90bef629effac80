//! Why a launch cannot be prepared.

use vdnn_tensor::TensorType;

/// An error of [`super::prepare`]. Texts say what was expected, what was found and what to try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The op is not run by these kernels (convolution and linear layers belong to cuDNN and cuBLAS).
    #[error("no kernel here runs `{op}`: convolutions are cuDNN's, matrix products cuBLAS's")]
    NotHere {
        /// The op's kind.
        op: &'static str,
    },
    /// An operand of a type these kernels do not take.
    #[error("`{op}`: expected {operand} as {expected}, found {found}; cast it, or use --dtype f32")]
    Type {
        /// The op's kind.
        op: &'static str,
        /// Which operand.
        operand: String,
        /// The types its kernels take.
        expected: &'static str,
        /// Its type.
        found: Box<TensorType>,
    },
    /// A cast between types that no kernel casts between.
    #[error(
        "`cast`: expected f32 to f16 or bf16, either to f32, or either to itself in another order, found {from} to {to}; cast to f32 between"
    )]
    Cast {
        /// The type of X.
        from: Box<TensorType>,
        /// What it is cast to.
        to: Box<TensorType>,
    },
    /// Too many or too few operands.
    #[error("`{op}`: expected {expected} operands, found {found}")]
    Operands {
        /// The op's kind.
        op: &'static str,
        /// As the op's documentation has it.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// A sample or launch larger than the kernels count to.
    #[error("`{op}`: {what} is {found}, more than the {limit} that its kernel counts to; use a smaller batch or image")]
    TooLarge {
        /// The op's kind.
        op: &'static str,
        /// What is too large.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A sliced operand where only contiguous ones are taken.
    #[error("`{op}`: expected {operand} in one piece, found a slice at a distance of {stride} elements")]
    Sliced {
        /// The op's kind.
        op: &'static str,
        /// Which operand.
        operand: &'static str,
        /// Its distance between rows.
        stride: u64,
    },
    /// An operand that is not even aligned to its elements.
    #[error("`{op}`: {operand} at {address:#x} is not aligned to {alignment} bytes")]
    Misaligned {
        /// The op's kind.
        op: &'static str,
        /// Which operand.
        operand: String,
        /// Its address.
        address: u64,
        /// What its elements need.
        alignment: u64,
    },
}
