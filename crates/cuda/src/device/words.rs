//! The device in words: what it is, what went wrong, what a command is called.

use vdnn_graph::Node;
use vdnn_runtime::DeviceError;
use vdnn_schedule::{Action, Choice, Direction, Schedule};
use vdnn_tensor::{Bytes, DType};

use super::bench::Failure;
use super::chain::LaunchTimes;
use super::gpu::Gpu;
use crate::CudaError;
use crate::driver::cuda_version_text;
use crate::library::Libraries;

/// Card, driver and libraries: what measurements depend on.
pub(super) fn details(gpu: &Gpu) -> String {
    let Libraries { nvrtc, cublas, cudnn, .. } = gpu.libraries;
    let (major, minor, patch) = cublas.version;
    format!(
        "{}, driver for CUDA {}, cuDNN {} ({}), cuBLAS {major}.{minor}.{patch}, NVRTC {}.{}",
        gpu.context.name,
        cuda_version_text(gpu.context.driver_version),
        vdnn_cudnn_sys::version_text(cudnn.version),
        cudnn.opened.path.display(),
        nvrtc.version.0,
        nvrtc.version.1,
    )
}

/// How kernels were timed, once it is known.
pub(super) fn chained(launch: Option<LaunchTimes>) -> String {
    launch.map_or_else(String::new, |launch| {
        let [chained, overhead] = [launch.chained, launch.overhead()].map(|seconds| seconds * 1e6);
        format!(", launches from {chained:.2} us in a chain, timed by themselves {overhead:.2} us more")
    })
}

/// What cannot be opened is not available, whatever the reason.
pub(super) fn unavailable(ordinal: usize, error: CudaError) -> DeviceError {
    DeviceError::Unavailable {
        what: format!("cuda:{ordinal}"),
        reason: error.to_string(),
        advice: "`vdnn doctor` lists what was looked for and where; --device cpu needs no GPU".to_string(),
    }
}

/// An error of this crate in the runtime's words.
pub(crate) fn backend(error: CudaError) -> DeviceError {
    match error {
        CudaError::DeviceMemory { requested, free, total } => {
            let reason = format!(
                "{free} of {total} bytes are free; lower --budget or --batch-size, or end other programs on the GPU"
            );
            DeviceError::OutOfMemory { space: "device", bytes: requested, reason }
        }
        CudaError::HostMemory { requested, reason, limits } => {
            let reason = format!("{reason}; {limits}; lower --host-budget or raise the container's memory");
            DeviceError::OutOfMemory { space: "pinned host", bytes: requested, reason }
        }
        CudaError::Driver { call, .. } | CudaError::Cublas { call, .. } | CudaError::Nvrtc { call, .. } => {
            DeviceError::Backend { call: call.to_string(), message: error.to_string() }
        }
        _ => DeviceError::Backend { call: "CUDA".to_string(), message: error.to_string() },
    }
}

pub(super) fn misuse(place: &str, reason: &str) -> DeviceError {
    DeviceError::Schedule { place: place.to_string(), reason: reason.to_string() }
}

/// What to try where a card of such a capability, or our kernels, do not take a type; `None` where they do.
pub(super) fn no_type(dtype: DType, capability: (u32, u32)) -> Option<&'static str> {
    match dtype {
        DType::F64 => Some("use --dtype f32 or tf32"),
        DType::BF16 if capability < (8, 0) => {
            Some("this card has no bf16 (compute capability 8.0 or later has); use --dtype f16 or f32")
        }
        _ => None,
    }
}

/// A node's choices, or why it has none.
pub(super) fn in_words(node: &Node, choices: Result<Vec<Choice>, Failure>) -> Result<Vec<Choice>, DeviceError> {
    choices.map_err(|failure| broken(&node.name, failure))
}

/// Why nothing was measured.
pub(super) fn broken(place: &str, failure: Failure) -> DeviceError {
    match failure {
        Failure::Refused(reason) => no_choice(place, reason),
        Failure::Broken(error) => DeviceError::Backend { call: place.to_string(), message: error.to_string() },
    }
}

fn no_choice(node: &str, reason: String) -> DeviceError {
    DeviceError::Kernel { node: node.to_string(), algorithm: "any".to_string(), reason }
}

/// The choices within a workspace limit.
pub(super) fn within(node: &str, mut choices: Vec<Choice>, limit: Option<Bytes>) -> Result<Vec<Choice>, DeviceError> {
    let least = choices.iter().map(|choice| choice.workspace).min().unwrap_or(0);
    choices.retain(|choice| limit.is_none_or(|limit| choice.workspace <= limit));
    if choices.is_empty() {
        let reason = format!("expected a kernel within the workspace limit, the least wants {least} bytes");
        return Err(no_choice(node, reason));
    }
    Ok(choices)
}

/// A command in words, for messages.
pub(super) fn label(schedule: &Schedule, command: usize) -> String {
    let buffer = |index: usize| schedule.buffers.get(index).map_or("a buffer", |buffer| buffer.name.as_str());
    let event = |index: usize| schedule.events.get(index).map_or("an event", |event| event.name.as_str());
    match schedule.commands.get(command).map(|command| &command.action) {
        None => format!("command {command}"),
        Some(Action::Alloc(id)) => format!("alloc {}", buffer(id.index())),
        Some(Action::Free(id)) => format!("free {}", buffer(id.index())),
        Some(Action::Record(id)) => format!("record {}", event(id.index())),
        Some(Action::Wait(id)) => format!("wait {}", event(id.index())),
        Some(Action::Transfer { direction: Direction::Offload, src, .. }) => {
            format!("offload {}", buffer(src.buffer.index()))
        }
        Some(Action::Transfer { direction: Direction::Prefetch, dst, .. }) => {
            format!("prefetch {}", buffer(dst.buffer.index()))
        }
        Some(Action::Launch { node, run, .. }) => {
            let name = schedule.nodes.get(node.index()).map_or("a node", String::as_str);
            if *run == 0 { name.to_string() } else { format!("{name} (run {run})") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_a_card_lacks_come_with_advice() {
        assert!(no_type(DType::BF16, (7, 5)).is_some_and(|advice| advice.contains("--dtype f16")));
        assert_eq!(no_type(DType::BF16, (9, 0)), None);
        assert_eq!(no_type(DType::F16, (7, 5)), None);
        assert!(no_type(DType::F64, (9, 0)).is_some());
    }
}
