//! Reading a machine description: format first, then fields, then their values. Every refusal names file and field.

use crate::{CostError, MACHINE_FORMAT, Machine, WorkspaceRule};
use std::collections::HashSet;

pub(crate) fn read(file: &str, text: &str) -> Result<Machine, CostError> {
    check_format(file, text)?;
    let machine: Machine = serde_json::from_str(text).map_err(|error| field_error(file, text, &error))?;
    let refuse = |(field, reason): (String, String)| CostError::MachineField { file: file.to_string(), field, reason };
    check_numbers(&machine).map_err(refuse)?;
    check_algorithms(&machine).map_err(refuse)?;
    Ok(machine)
}

/// Reads the format number alone, so that a description of another format is called that and not a bad field.
fn check_format(file: &str, text: &str) -> Result<(), CostError> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: u64,
    }
    let head: Head = serde_json::from_str(text).map_err(|error| field_error(file, text, &error))?;
    if head.format == u64::from(MACHINE_FORMAT) {
        return Ok(());
    }
    Err(CostError::MachineFormat { file: file.to_string(), expected: MACHINE_FORMAT, found: head.format })
}

/// Names the field a JSON error is about: the one in the message, else the last one begun before the error.
fn field_error(file: &str, text: &str, error: &serde_json::Error) -> CostError {
    let message = error.to_string();
    let quoted = message.split('`').nth(1).filter(|_| message.contains(" field `"));
    let field = match quoted {
        Some(name) => name.to_string(),
        None => last_key(text, error.line(), error.column()).unwrap_or_else(|| "(none)".to_string()),
    };
    CostError::MachineField { file: file.to_string(), field, reason: message }
}

/// The last `"name":` before a position (lines and columns from 1).
fn last_key(text: &str, line: usize, column: usize) -> Option<String> {
    let line_start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let before = text.as_bytes().get(..(line_start + column).min(text.len()))?;
    let before = String::from_utf8_lossy(before);
    let colon = before.match_indices(':').map(|(at, _)| at).rfind(|&at| before[..at].trim_end().ends_with('"'))?;
    let name = before[..colon].trim_end().strip_suffix('"')?;
    Some(name.rsplit('"').next()?.to_string())
}

type Refusal = (String, String);

fn check_numbers(machine: &Machine) -> Result<(), Refusal> {
    let peak = machine.peak_flops;
    let peaks = [("f64", peak.f64), ("f32", peak.f32), ("tf32", peak.tf32), ("f16", peak.f16), ("bf16", peak.bf16)];
    if peaks.iter().all(|(_, rate)| rate.is_none()) {
        return Err(("peak_flops".to_string(), "expected a rate for at least one type, found none".to_string()));
    }
    for (name, rate) in peaks {
        positive(&format!("peak_flops.{name}"), rate.unwrap_or(1.0))?;
    }
    let link = &machine.link;
    for (field, value) in [
        ("device_bytes", machine.device_bytes as f64),
        ("dram", machine.dram),
        ("link.d2h", link.d2h),
        ("link.h2d", link.h2d),
        ("link.duplex_each", link.duplex_each),
        ("link.copy_engines", f64::from(link.copy_engines)),
        ("convolution.weight_gradient", machine.convolution.weight_gradient),
    ] {
        positive(field, value)?;
    }
    if let Some(disk) = &machine.disk {
        positive("disk.write", disk.write)?;
        positive("disk.read", disk.read)?;
        let time = disk.latency_us;
        require("disk.latency_us", time >= 0.0 && time.is_finite(), "a time of at least 0", time)?;
    }
    for (field, share) in [("dram_efficiency", machine.dram_efficiency), ("gemm_efficiency", machine.gemm_efficiency)] {
        require(field, share > 0.0 && share <= 1.0, "a share above 0 and at most 1", share)?;
    }
    for (field, time) in [
        ("launch_us", machine.launch_us),
        ("link.latency_us", link.latency_us),
        ("link.launch_delay_d2h_us", link.launch_delay_d2h_us),
        ("link.launch_delay_h2d_us", link.launch_delay_h2d_us),
    ] {
        require(field, time >= 0.0 && time.is_finite(), "a time of at least 0", time)?;
    }
    Ok(())
}

/// Names are distinct and survive a schedule's text form; at least one algorithm runs any convolution.
fn check_algorithms(machine: &Machine) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    for (index, algorithm) in machine.convolution.algorithms.iter().enumerate() {
        let field = |what: &str| format!("convolution.algorithms[{index}].{what}");
        let name = &algorithm.name;
        if name.is_empty() || name.contains(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))) {
            return Err((field("name"), format!("expected letters, digits, _ - or ., found {name:?}")));
        }
        if !names.insert(name) {
            return Err((field("name"), format!("{name} is there twice; algorithms are told apart by name")));
        }
        positive(&field("efficiency"), algorithm.efficiency)?;
        if let WorkspaceRule::Maps(fraction) = algorithm.workspace {
            let fits = fraction >= 0.0 && fraction.is_finite();
            require(&field("workspace.maps"), fits, "a fraction of at least 0", fraction)?;
        }
    }
    if machine.convolution.algorithms.iter().all(|algorithm| algorithm.when != crate::When::default()) {
        let reason = "expected one algorithm with an empty `when`, which runs any convolution, found none";
        return Err(("convolution.algorithms".to_string(), reason.to_string()));
    }
    Ok(())
}

fn positive(field: &str, value: f64) -> Result<(), Refusal> {
    require(field, value > 0.0 && value.is_finite(), "a positive number", value)
}

fn require(field: &str, holds: bool, expected: &str, found: f64) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err((field.to_string(), format!("expected {expected}, found {found}"))) }
}
