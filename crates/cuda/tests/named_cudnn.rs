//! A cuDNN named by option that cannot be used is refused; nothing else is taken in its place.

use std::path::PathBuf;

use vdnn_cuda::CudaError;
use vdnn_cuda::doctor::{Status, doctor};
use vdnn_cuda::library::{LibraryOptions, cudnn};

#[test]
fn a_named_file_that_is_no_library_is_refused_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("libcudnn.so.9");
    std::fs::write(&file, b"not a library").unwrap();
    let options = LibraryOptions { cudnn: Some(folder.path().to_path_buf()), folders: Vec::new() };
    let error = cudnn(&options).unwrap_err();
    assert!(matches!(&error, CudaError::Library(vdnn_cudnn_sys::OpenError::Unopenable { path, .. }) if *path == file));
    let report = doctor(&options);
    let line = report.iter().find(|l| l.name == "cuDNN").unwrap();
    assert_eq!(line.status, Status::Missing);
    assert!(line.advice.contains("libcudnn.so.9"), "{line:?}");
}
