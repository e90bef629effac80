//! Parts of another cuDNN in `LD_LIBRARY_PATH` must not be mixed with the one that was named.
//!
//! Runs when `VDNN_TEST_CUDA_LIBS` names a `site-packages/nvidia` folder with cuDNN and cuBLAS. The dynamic linker reads
//! `LD_LIBRARY_PATH` when a process starts, so the test starts itself again with it.

use std::path::PathBuf;
use std::process::Command;

use vdnn_cudnn_sys::search::Surroundings;

const CHILD: &str = "VDNN_TEST_IS_CHILD";

#[test]
fn a_named_cudnn_opens_its_own_parts() {
    let Some(wheels) = std::env::var_os("VDNN_TEST_CUDA_LIBS").map(PathBuf::from) else {
        eprintln!("not run: VDNN_TEST_CUDA_LIBS names no wheels");
        return;
    };
    if std::env::var_os(CHILD).is_some() {
        let around = Surroundings { named: vec![wheels.clone()], ..Surroundings::of_process() };
        let cudnn = vdnn_cudnn_sys::open(&around, Some(&wheels.join("cudnn"))).unwrap();
        assert!(cudnn.version >= 90_000);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let parts = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).filter(|p| p.contains("/libcudnn"));
        assert!(parts.into_iter().all(|p| p.starts_with(wheels.to_str().unwrap())), "{maps}");
        return;
    }
    // Files of the right names that are no libraries: whoever opens one of them fails.
    let other = tempfile::tempdir().unwrap();
    for part in ["", "_graph", "_ops", "_cnn", "_heuristic", "_engines_precompiled", "_engines_runtime_compiled"] {
        std::fs::write(other.path().join(format!("libcudnn{part}.so.9")), b"another version").unwrap();
    }
    let this = std::env::current_exe().unwrap();
    let status = Command::new(this).env(CHILD, "1").env("LD_LIBRARY_PATH", other.path()).status().unwrap();
    assert!(status.success());
}
