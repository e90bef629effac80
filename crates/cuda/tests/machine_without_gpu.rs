//! On a machine without a driver every entry point answers with an error that says so; nothing panics.

use vdnn_cuda::context::Context;
use vdnn_cuda::doctor::{Status, doctor};
use vdnn_cuda::driver::{device_count, driver};
use vdnn_cuda::library::{Libraries, LibraryOptions};
use vdnn_cuda::{CudaDevice, CudaError};
use vdnn_runtime::DeviceError;

/// Whether the machine that runs the tests has a usable GPU.
fn has_gpu() -> bool {
    driver().and_then(|d| d.device_count()).is_ok()
}

#[test]
fn opening_a_device_that_is_not_there_is_an_error_with_advice() {
    let error = Context::open(1000).unwrap_err();
    let text = error.to_string();
    match (&error, has_gpu()) {
        (CudaError::NoSuchDevice { asked: 1000, .. }, true) => {}
        (CudaError::Library(_), false) => assert!(text.contains("libcuda"), "{text}"),
        (CudaError::NoDevice { .. }, false) => assert!(text.contains("--device cpu"), "{text}"),
        _ => panic!("{text}"),
    }
}

#[test]
fn the_libraries_open_together_or_say_which_is_missing() {
    match Libraries::open(&LibraryOptions::default()) {
        Ok(libraries) => assert!(has_gpu() && libraries.driver.version > 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[test]
fn the_doctor_agrees_with_the_device() {
    let report = doctor(&LibraryOptions::default());
    let gpu = report.iter().find(|l| l.name == "GPU").unwrap();
    assert_eq!(gpu.status == Status::Ok, has_gpu(), "{gpu:?}");
    let driver = report.iter().find(|l| l.name == "NVIDIA driver").unwrap();
    if driver.status == Status::Missing {
        assert!(driver.looked_in.iter().any(|p| p.contains("system path")), "{driver:?}");
        assert!(driver.advice.contains("--device cpu"), "{driver:?}");
    }
}

/// Cases B49 to B51: what is missing, where it was looked for, what to do.
#[test]
fn a_device_that_cannot_be_opened_says_what_is_missing_and_what_to_do() {
    let Err(error) = CudaDevice::open(1000) else { panic!("there is no GPU 1000") };
    let DeviceError::Unavailable { what, reason, advice } = &error else { panic!("{error}") };
    assert_eq!(what, "cuda:1000");
    assert!(!reason.is_empty() && advice.contains("vdnn doctor") && advice.contains("--device cpu"), "{error}");
    if !has_gpu() {
        assert!(reason.contains("libcuda") || reason.contains("no GPU"), "{reason}");
        assert!(device_count().is_err());
    }
}
