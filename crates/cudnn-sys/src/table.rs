//! Function tables: the symbols we call, resolved once from one library.
//!
//! A status comes back as a plain integer, not as the binding's enum: a newer library may return a number that the
//! enum does not have, and holding such a value in a Rust enum would be undefined behaviour.

use core::ffi::{c_char, c_void};

use crate::sys::{cudaStream_t, cudnnBackendDescriptor_t, cudnnHandle_t};

/// A cuDNN status as the library returned it; 0 is success.
pub type Status = u32;

/// A library lacks a function that we call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the library has no function `{symbol}`")]
pub struct MissingSymbol {
    /// Name of the function.
    pub symbol: &'static str,
}

/// Declares a struct of C function pointers and its `resolve`, which fills it from an open library.
///
/// ```text
/// function_table! {
///     /// What the table is for.
///     pub struct Clock { /// Doc. now = "clock_now": fn() -> u32; }
/// }
/// ```
#[macro_export]
macro_rules! function_table {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident = $symbol:literal : fn($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl $name {
            /// Looks every function up in `library`, which must stay open for as long as the table is used.
            pub fn resolve(
                library: &$crate::libloading::os::unix::Library,
            ) -> Result<Self, $crate::MissingSymbol> {
                $(
                    // SAFETY: the signature is the one in the vendor's header for this symbol; the pointer is
                    // copied out of a library that its opener leaks, so it never dangles.
                    let $field = unsafe {
                        *library
                            .get::<unsafe extern "C" fn($($arg),*) $(-> $ret)?>($symbol.as_bytes())
                            .map_err(|_| $crate::MissingSymbol { symbol: $symbol })?
                    };
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

function_table! {
    /// The cuDNN 9 functions that the workspace calls. All of them exist since 9.0.
    pub struct Functions {
        /// `size_t cudnnGetVersion()`: 91900 for 9.19.0.
        get_version = "cudnnGetVersion": fn() -> usize;
        /// `size_t cudnnGetCudartVersion()`: the CUDA that cuDNN was built with, 13010 for 13.1.
        get_cudart_version = "cudnnGetCudartVersion": fn() -> usize;
        /// Writes the text of the last error of the calling thread.
        get_last_error_string = "cudnnGetLastErrorString": fn(*mut c_char, usize);
        /// A constant text for a status.
        get_error_string = "cudnnGetErrorString": fn(Status) -> *const c_char;
        /// Makes a handle in the current CUDA context.
        create = "cudnnCreate": fn(*mut cudnnHandle_t) -> Status;
        /// Frees a handle.
        destroy = "cudnnDestroy": fn(cudnnHandle_t) -> Status;
        /// Binds a handle to a stream.
        set_stream = "cudnnSetStream": fn(cudnnHandle_t, cudaStream_t) -> Status;
        /// Makes a descriptor of the type given by number.
        backend_create = "cudnnBackendCreateDescriptor": fn(u32, *mut cudnnBackendDescriptor_t) -> Status;
        /// Frees a descriptor.
        backend_destroy = "cudnnBackendDestroyDescriptor": fn(cudnnBackendDescriptor_t) -> Status;
        /// Sets an attribute: descriptor, attribute, element type, element count, elements.
        backend_set = "cudnnBackendSetAttribute":
            fn(cudnnBackendDescriptor_t, u32, u32, i64, *const c_void) -> Status;
        /// Reads an attribute: descriptor, attribute, element type, capacity, count written, elements.
        backend_get = "cudnnBackendGetAttribute":
            fn(cudnnBackendDescriptor_t, u32, u32, i64, *mut i64, *mut c_void) -> Status;
        /// Checks a descriptor and makes it usable.
        backend_finalize = "cudnnBackendFinalize": fn(cudnnBackendDescriptor_t) -> Status;
        /// Runs a plan on the handle's stream with the addresses of a variant pack.
        backend_execute = "cudnnBackendExecute":
            fn(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) -> Status;
    }
}
