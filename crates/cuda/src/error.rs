//! What can go wrong on the CUDA side, as one enum. Nothing here is reported by a panic.

use std::path::PathBuf;

/// An error of this crate. Every text says what was expected or asked, what was found and what to try.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CudaError {
    /// A library is missing, of the wrong version, or unusable.
    #[error(transparent)]
    Library(#[from] vdnn_cudnn_sys::OpenError),
    /// A library is open but lacks a function that we call.
    #[error("{}: {missing}", path.display())]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The function.
        missing: vdnn_cudnn_sys::MissingSymbol,
    },
    /// The driver is installed but reports no device.
    #[error(
        "the NVIDIA driver reports no GPU ({reason}); use --device cpu, or check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// What the driver said.
        reason: String,
    },
    /// The device asked for is not there.
    #[error("there is no GPU {asked}: the driver reports {count}; ordinals start at 0")]
    NoSuchDevice {
        /// The ordinal asked for.
        asked: usize,
        /// How many devices there are.
        count: usize,
    },
    /// The driver cannot run what a library brings along.
    #[error(
        "the driver supports CUDA {driver}, but {library} is made for CUDA {library_version}; update the driver, or install a {library} for CUDA {driver_major}"
    )]
    DriverTooOld {
        /// CUDA version of the driver, `12.4`.
        driver: String,
        /// Its major part.
        driver_major: usize,
        /// The library.
        library: String,
        /// The CUDA version that it is made for.
        library_version: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {name} ({text})")]
    Driver {
        /// The call.
        call: &'static str,
        /// The number returned.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The driver's explanation.
        text: String,
    },
    /// A cuDNN call failed.
    #[error("{call} failed: {status} ({text})")]
    Cudnn {
        /// The call, with the attribute it was for.
        call: String,
        /// cuDNN's name of the status.
        status: String,
        /// The last error text of cuDNN.
        text: String,
    },
    /// A cuBLAS call failed.
    #[error("{call} failed: {status}")]
    Cublas {
        /// The call.
        call: &'static str,
        /// Name or number of the status.
        status: String,
    },
    /// An NVRTC call failed, other than by an error in the source.
    #[error("{call} failed: {status}")]
    Nvrtc {
        /// The call.
        call: &'static str,
        /// Name or number of the status.
        status: String,
    },
    /// A kernel source does not compile.
    #[error("kernel source `{name}` does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name of the source.
        name: String,
        /// `sm_90` and the like.
        architecture: String,
        /// The compiler's messages.
        log: String,
    },
    /// A module has no function of that name.
    #[error("kernel module `{module}` has no function `{function}`")]
    MissingFunction {
        /// The module.
        module: String,
        /// The function.
        function: String,
    },
    /// Device memory ran out.
    #[error(
        "device memory: {requested} bytes asked for, {free} of {total} free; lower --budget or --batch-size, or end other programs on the GPU"
    )]
    DeviceMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes free at that moment.
        free: u64,
        /// Bytes of the device.
        total: u64,
    },
    /// Host memory could not be had or pinned.
    #[error("host memory: {requested} bytes of pinned memory asked for: {reason}; {limits}; lower --host-budget")]
    HostMemory {
        /// Bytes asked for.
        requested: u64,
        /// What failed.
        reason: String,
        /// The limits that apply to this process.
        limits: String,
    },
    /// A range leaves its arena.
    #[error("{what}: bytes {offset}..{end} lie outside an arena of {size}")]
    OutOfRange {
        /// The access.
        what: &'static str,
        /// First byte.
        offset: u64,
        /// One past the last byte.
        end: u64,
        /// Bytes of the arena.
        size: u64,
    },
    /// Two ends of a copy differ in shape.
    #[error("a copy of {src_rows} rows of {src_bytes} bytes into {dst_rows} rows of {dst_bytes} bytes")]
    CopyShape {
        /// Rows read.
        src_rows: u64,
        /// Bytes of each.
        src_bytes: u64,
        /// Rows written.
        dst_rows: u64,
        /// Bytes of each.
        dst_bytes: u64,
    },
    /// A convolution over nothing: the caller skips it.
    #[error("empty convolution: {problem}")]
    EmptyConvolution {
        /// The problem.
        problem: String,
    },
    /// A convolution whose numbers do not fit together.
    #[error("impossible convolution {problem}: {reason}")]
    ConvolutionShape {
        /// The problem.
        problem: String,
        /// What is wrong.
        reason: String,
    },
    /// No plan meets the wishes.
    #[error(
        "cuDNN has no plan for {problem} within {limit} bytes of workspace ({refused} refused; last: {last}); raise --budget"
    )]
    NoPlan {
        /// The problem.
        problem: String,
        /// The workspace limit.
        limit: u64,
        /// How many were tried in vain.
        refused: usize,
        /// Why the last one was refused.
        last: String,
    },
    /// A plan name that cannot be read or that this cuDNN does not know.
    #[error("convolution plan `{name}`: {reason}; profile again with this cuDNN")]
    UnknownPlan {
        /// The name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Less workspace than a kernel needs.
    #[error("{what} needs {needed} bytes of workspace, {given} were given")]
    Workspace {
        /// The kernel.
        what: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
    /// An address that a kernel cannot use.
    #[error("{what} at address {address:#x} is not aligned to {alignment} bytes")]
    Misaligned {
        /// The operand.
        what: &'static str,
        /// Its address.
        address: u64,
        /// The alignment promised.
        alignment: u64,
    },
}
