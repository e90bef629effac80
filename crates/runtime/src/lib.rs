//! Devices and the loop that runs a schedule on them.
//!
//! ```text
//!  Schedule ──► Executor ──issue(command)──► Device   Null │ Chaos │ Cpu │ (cuda::CudaDevice)
//! ```
//!
//! The executor takes no decision: it issues every command in order and joins at the end. It knows no policy.

mod arena;
mod chaos;
pub mod cpu;
mod cpu_device;
mod device;
mod disk_file;
mod error;
mod executor;
mod memory;
mod null;
mod operands;
mod prepared;

pub use arena::{Access, Arena, Borrow, ByteRegion, Opened, Reading, View, ViewMut, Writing};
pub use chaos::ChaosDevice;
pub use cpu_device::CpuDevice;
pub use device::{Description, Device, KernelRequest, PreparedId};
pub use disk_file::{DiskFile, free_bytes};
pub use error::DeviceError;
pub use executor::{Executor, ScheduleId};
pub use null::{Counts, NullDevice};
