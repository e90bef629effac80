//! Without the cuBLASLt it was built for, cuDNN ends the whole process at its first use: it must be refused before.
//!
//! Runs when `VDNN_TEST_CUDA_LIBS` names a `site-packages/nvidia` folder with cuDNN. A process of its own, because a
//! library that is open anywhere in the process would be found by name.

use std::path::PathBuf;

use vdnn_cudnn_sys::OpenError;
use vdnn_cudnn_sys::search::Surroundings;

#[test]
fn cudnn_alone_is_refused_and_the_error_names_what_it_needs() {
    let Some(wheels) = std::env::var_os("VDNN_TEST_CUDA_LIBS").map(PathBuf::from) else {
        eprintln!("not run: VDNN_TEST_CUDA_LIBS names no wheels");
        return;
    };
    let empty = tempfile::tempdir().unwrap();
    let around = Surroundings { root: empty.path().to_path_buf(), ..Default::default() };
    match vdnn_cudnn_sys::open(&around, Some(&wheels.join("cudnn"))) {
        Err(OpenError::NoCublasLt { needs, cuda_major, .. }) => {
            assert_eq!(needs, format!("libcublasLt.so.{cuda_major}"));
        }
        other => panic!("expected NoCublasLt, got {other:?}"),
    }
}
