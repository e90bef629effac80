//! Devices by name, and what copies cost on them.

use std::str::FromStr;
use vdnn_runtime::{CpuDevice, Device, DeviceError};
use vdnn_sim::{DiskRates, Links};

/// `cpu`, `cuda` or `cuda:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor, with its memory as the device's.
    Cpu,
    /// An NVIDIA GPU by ordinal.
    Cuda(usize),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(DeviceName::Cpu),
            None if text == "cuda" => Ok(DeviceName::Cuda(0)),
            Some(("cuda", ordinal)) => {
                ordinal.parse().map(DeviceName::Cuda).map_err(|_| format!("expected cuda:NUMBER, found {text}"))
            }
            _ => Err(format!("expected cpu, cuda or cuda:NUMBER, found {text}")),
        }
    }
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl DeviceName {
    /// The first GPU if there is one, else the CPU.
    pub fn best() -> Self {
        match vdnn_cuda::driver::device_count() {
            Ok(count) if count > 0 => DeviceName::Cuda(0),
            _ => DeviceName::Cpu,
        }
    }

    /// What copies between the device and its lower tier cost, for planning: measured figures of an H200's link for CUDA, with
    /// what launches lose beside copies, a processor's copy rate for the CPU. Of the disk nothing is known: the rates of a typical NVMe drive on PCIe 4 are
    /// assumed.
    pub fn links(self) -> Links {
        let disk = Some(DiskRates { write: 3.0e9, read: 6.0e9, latency: 100e-6 });
        match self {
            DeviceName::Cpu => Links { latency: 5e-6, disk, ..Links::new(6e9, 6e9, 4e9) },
            DeviceName::Cuda(_) => Links {
                latency: 9e-6,
                launch_delay_d2h: 0.5e-6,
                launch_delay_h2d: 5.4e-6,
                disk,
                ..Links::new(55.0e9, 55.2e9, 47.8e9)
            },
        }
    }
}

/// Opens a device.
///
/// # Errors
/// [`DeviceError::Unavailable`] with what is missing and what to do.
pub fn open_device(name: DeviceName) -> Result<Box<dyn Device>, DeviceError> {
    match name {
        DeviceName::Cpu => Ok(Box::new(CpuDevice::new()?)),
        DeviceName::Cuda(ordinal) => Ok(Box::new(vdnn_cuda::CudaDevice::open(ordinal)?)),
    }
}
