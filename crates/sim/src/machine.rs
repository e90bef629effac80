//! Machine descriptions: the handful of constants from which kernels and copies are priced.
//!
//! A description is a JSON file with a format number. Built in are `titan-x` (the paper's), `h200` (measured), `toy` (round
//! numbers for teaching and golden tests), and cards modelled from their makers' data sheets. Constants are given, not
//! tuned: results are compared against them. Left to others: the formulas ([`Machine::kernel_table`]), and reading files.

use crate::{CostError, DiskRates, Links, machine_file};
use serde::{Deserialize, Serialize};
use vdnn_tensor::Bytes;

/// The format of machine descriptions this program reads.
pub const MACHINE_FORMAT: u32 = 1;

/// The built-in machines, by name.
const BUILT_IN: [(&str, &str); 10] = [
    ("titan-x", include_str!("../machines/titan-x.json")),
    ("v100-16", include_str!("../machines/v100-16.json")),
    ("a100-40", include_str!("../machines/a100-40.json")),
    ("a100-80", include_str!("../machines/a100-80.json")),
    ("h100", include_str!("../machines/h100.json")),
    ("h200", include_str!("../machines/h200.json")),
    ("gh200", include_str!("../machines/gh200.json")),
    ("rtx-3060-12", include_str!("../machines/rtx-3060-12.json")),
    ("rtx-4090", include_str!("../machines/rtx-4090.json")),
    ("toy", include_str!("../machines/toy.json")),
];

/// One device, its host and the link between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// File format, [`MACHINE_FORMAT`].
    pub format: u32,
    /// Name.
    pub name: String,
    /// Where the numbers come from, for people.
    pub source: String,
    /// Device memory.
    pub device_bytes: Bytes,
    /// Host memory.
    pub host_bytes: Bytes,
    /// Arithmetic rates.
    pub peak_flops: PeakFlops,
    /// Peak rate of device memory, bytes a second.
    pub dram: f64,
    /// Share of it that kernels reach.
    pub dram_efficiency: f64,
    /// Fixed time of a launch, microseconds.
    pub launch_us: f64,
    /// Device to host and back.
    pub link: Link,
    /// The host's disk, where a description has figures for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Drive>,
    /// Share of the arithmetic peak that matrix products reach.
    pub gemm_efficiency: f64,
    /// Convolution algorithms.
    pub convolution: Convolution,
}

/// Peak arithmetic by type, FLOP a second; one multiply-add is two FLOP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakFlops {
    /// Double precision; half of `f32` where a description does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f64: Option<f64>,
    /// Single precision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f32: Option<f64>,
    /// Products of f32 operands rounded to 10 mantissa bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32: Option<f64>,
    /// Half precision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f16: Option<f64>,
    /// bfloat16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<f64>,
}

/// The link between device and host: bytes a second, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Device to host alone.
    pub d2h: f64,
    /// Host to device alone.
    pub h2d: f64,
    /// Each direction while both run.
    pub duplex_each: f64,
    /// Fixed time of a transfer.
    pub latency_us: f64,
    /// How much later a launch begins while a copy to the host runs; 0 where a description does not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub launch_delay_d2h_us: f64,
    /// The same while a copy to the device runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub launch_delay_h2d_us: f64,
    /// Number of copy engines. With one, the directions take turns.
    pub copy_engines: u32,
}

fn is_zero(time: &f64) -> bool {
    *time == 0.0
}

/// A disk: bytes a second, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Where these numbers come from, for people.
    pub source: String,
    /// Sequential writes.
    pub write: f64,
    /// Sequential reads.
    pub read: f64,
    /// Fixed time of a transfer.
    pub latency_us: f64,
}

/// How convolutions run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolution {
    /// Factor on the efficiency of weight gradients.
    pub weight_gradient: f64,
    /// The algorithms.
    pub algorithms: Vec<ConvolutionAlgorithm>,
}

/// One convolution algorithm, for all three directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvolutionAlgorithm {
    /// Name, as launches carry it.
    pub name: String,
    /// Which convolutions it can run.
    pub when: When,
    /// FLOP of the direct algorithm a second, as a share of the peak. May exceed 1 for algorithms that save arithmetic.
    pub efficiency: f64,
    /// What it borrows.
    pub workspace: WorkspaceRule,
}

/// A condition on a convolution; what is left out is not asked. Each pair is (height, width).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Exactly this kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<[u64; 2]>,
    /// A kernel of at least this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_kernel: Option<[u64; 2]>,
    /// Exactly this stride.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<[u64; 2]>,
    /// Exactly this dilation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilation: Option<[u64; 2]>,
}

/// Bytes an algorithm borrows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceRule {
    /// Nothing.
    None,
    /// Four bytes for each tap of each output pixel: 4·kh·kw·oh·ow.
    Index,
    /// This fraction of the bytes of X and Y together.
    Maps(f64),
}

impl Machine {
    /// Names of the built-in machines.
    pub fn list() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// A built-in machine.
    ///
    /// # Errors
    /// [`CostError::UnknownMachine`] with the nearest names.
    pub fn named(name: &str) -> Result<Self, CostError> {
        match BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            Some((built_in, text)) => Self::parse_file(&format!("{built_in}.json"), text),
            None => Err(CostError::UnknownMachine { name: name.to_string(), nearest: nearest(name) }),
        }
    }

    /// Reads a description. Errors speak of it as "machine description"; see [`Machine::parse_file`].
    ///
    /// # Errors
    /// As [`Machine::parse_file`].
    pub fn parse(text: &str) -> Result<Self, CostError> {
        Self::parse_file("machine description", text)
    }

    /// Reads the text of a description that came from `file`, which errors then name.
    ///
    /// # Errors
    /// [`CostError::MachineFormat`] for another format number; [`CostError::MachineField`] for a field that is missing,
    /// unknown, of the wrong type or out of range.
    pub fn parse_file(file: &str, text: &str) -> Result<Self, CostError> {
        machine_file::read(file, text)
    }

    /// The description as JSON; [`Machine::parse`] reads it back.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The rates of copies between device and host, what launches lose beside them, and the rates of the host's disk.
    ///
    /// No copy is faster than device memory, of which it uses its bytes once. A single copy engine serves both
    /// directions in turns, which is half the rate for each.
    pub fn links(&self) -> Links {
        let memory = self.dram * self.dram_efficiency;
        let (d2h, h2d) = (self.link.d2h.min(memory), self.link.h2d.min(memory));
        let turns = if self.link.copy_engines < 2 { d2h.min(h2d) / 2.0 } else { f64::INFINITY };
        let duplex_each = self.link.duplex_each.min(memory / 2.0).min(turns);
        let rates = |disk: &Drive| DiskRates { write: disk.write, read: disk.read, latency: disk.latency_us * 1e-6 };
        Links {
            latency: self.link.latency_us * 1e-6,
            launch_delay_d2h: self.link.launch_delay_d2h_us * 1e-6,
            launch_delay_h2d: self.link.launch_delay_h2d_us * 1e-6,
            disk: self.disk.as_ref().map(rates),
            ..Links::new(d2h, h2d, duplex_each)
        }
    }
}

fn nearest(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let mut names = Machine::list();
    names.sort_by(|a, b| strsim::jaro_winkler(&lower, b).total_cmp(&strsim::jaro_winkler(&lower, a)));
    names.into_iter().take(3).map(str::to_string).collect()
}
