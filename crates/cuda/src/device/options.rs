//! What a device is told when it is opened.

use std::path::PathBuf;

use super::measure::MeasureOptions;
use crate::nvrtc::cache_folder;

/// How the device works, besides what a schedule says.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaOptions {
    /// How kernels are measured.
    pub measure: MeasureOptions,
    /// Where compiled kernels and measurements are kept between runs; `None` keeps nothing.
    pub cache: Option<PathBuf>,
    /// Wait after every command, so that a failure is reported with the command that caused it. Slow; to find defects.
    pub synchronous: bool,
}

impl Default for CudaOptions {
    /// Measures for a minute at most, keeps results in the user's cache folder.
    fn default() -> Self {
        CudaOptions { measure: MeasureOptions::default(), cache: cache_folder(), synchronous: false }
    }
}
