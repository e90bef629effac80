//! What is on this machine, what was taken, what is missing and what to do: the lines of `vdnn doctor`.
//!
//! Every check answers; none panics, and none needs another to have succeeded.

use serde::Serialize;
use vdnn_cudnn_sys::{OpenError, Opened, search, version_text};

use crate::context::Context;
use crate::driver::{cuda_version_text, driver};
use crate::library::{self, LibraryOptions, check_driver};
use crate::memory::HostLimits;
use crate::{CudaError, nvrtc};

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Usable.
    Ok,
    /// Not there: the CUDA device cannot be used.
    Missing,
    /// Usable, but worth knowing.
    Warn,
}

/// One line of the report.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// What was looked for.
    pub name: String,
    /// The outcome.
    pub status: Status,
    /// What was taken and why, or the figure found.
    pub found: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Where it was looked for.
    pub looked_in: Vec<String>,
    /// What to do about it; empty when nothing.
    pub advice: String,
}

/// Runs all checks. The CUDA device is usable when none is [`Status::Missing`].
pub fn doctor(options: &LibraryOptions) -> Vec<Found> {
    let looked_in = search::describe(&search::places(&options.surroundings()));
    let mut report = vec![driver_check(), device_check()];
    report.push(library_check("NVRTC", nvrtc_facts(options)));
    report.push(library_check("cuBLAS", cublas_facts(options)));
    report.push(library_check("cuDNN", cudnn_facts(options)));
    for line in &mut report {
        if line.looked_in.is_empty() && line.name != "GPU" {
            line.looked_in.clone_from(&looked_in);
        }
    }
    report.extend(single_cudnn_check());
    report.push(pinning_check());
    report.push(cache_check());
    report
}

fn line(name: &str, status: Status, found: Option<String>) -> Found {
    Found { name: name.into(), status, found, version: None, looked_in: Vec::new(), advice: String::new() }
}

fn missing(name: &str, error: &CudaError) -> Found {
    let looked_in = match error {
        CudaError::Library(OpenError::NotFound { looked_in, .. } | OpenError::NoCublasLt { looked_in, .. }) => {
            looked_in.clone()
        }
        _ => Vec::new(),
    };
    Found { looked_in, advice: error.to_string(), ..line(name, Status::Missing, None) }
}

fn driver_check() -> Found {
    match driver() {
        Ok(driver) => Found {
            version: Some(cuda_version_text(driver.version)),
            ..line("NVIDIA driver", Status::Ok, Some(text_of(&driver.opened)))
        },
        Err(error) => Found {
            advice: format!("{error}; without a driver everything runs with --device cpu"),
            ..missing("NVIDIA driver", &error)
        },
    }
}

fn device_check() -> Found {
    let context = match Context::open(0) {
        Ok(context) => context,
        Err(error) => return missing("GPU", &error),
    };
    let (free, total) = context.memory().unwrap_or((0, context.total_bytes));
    let found = format!("{}, {free} of {total} bytes free", context.name);
    Found { version: Some(context.architecture()), ..line("GPU", Status::Ok, Some(found)) }
}

/// What a library check reports on success.
struct Facts {
    opened: Opened,
    version: String,
    /// The CUDA it is made for, 13000 for 13.0.
    cuda: usize,
    note: String,
}

fn nvrtc_facts(options: &LibraryOptions) -> Result<Facts, CudaError> {
    let it = library::nvrtc(options)?;
    let (major, minor) = it.version;
    let version = format!("{major}.{minor}");
    Ok(Facts { opened: it.opened.clone(), version, cuda: major * 1000 + minor * 10, note: String::new() })
}

fn cublas_facts(options: &LibraryOptions) -> Result<Facts, CudaError> {
    let it = library::cublas(options)?;
    let (major, minor, patch) = it.version;
    let version = format!("{major}.{minor}.{patch}");
    Ok(Facts { opened: it.opened.clone(), version, cuda: major * 1000 + minor * 10, note: String::new() })
}

fn cudnn_facts(options: &LibraryOptions) -> Result<Facts, CudaError> {
    let it = library::cudnn(options)?;
    let note = format!(", built with CUDA {}, with {}", cuda_version_text(it.cudart_version), text_of(&it.cublas_lt));
    Ok(Facts { opened: it.opened.clone(), version: version_text(it.version), cuda: it.cudart_version, note })
}

/// Compares a library with the driver, when there is one.
fn library_check(name: &str, facts: Result<Facts, CudaError>) -> Found {
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => return missing(name, &error),
    };
    let found = Some(format!("{}{}", text_of(&facts.opened), facts.note));
    let mut report = Found { version: Some(facts.version), ..line(name, Status::Ok, found) };
    if let Ok(driver) = driver() {
        if let Err(error) = check_driver(driver.version, name, facts.cuda) {
            report.status = Status::Missing;
            report.advice = error.to_string();
        } else if facts.cuda > driver.version && name == "NVRTC" {
            // cuDNN and cuBLAS are made to run on every driver of their major version.
            report.status = Status::Warn;
            let (theirs, ours) = (cuda_version_text(facts.cuda), cuda_version_text(driver.version));
            report.advice = format!(
                "made for CUDA {theirs}, the driver supports {ours}: machine code runs, PTX would not; \
                 update the driver if a kernel is refused"
            );
        }
    }
    report
}

/// Warns when parts of two cuDNN installations are loaded together.
fn single_cudnn_check() -> Option<Found> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).filter(|p| p.contains("/libcudnn"));
    let mut folders: Vec<String> = files.filter_map(|p| Some(p.rsplit_once('/')?.0.to_string())).collect();
    folders.sort();
    folders.dedup();
    (folders.len() > 1).then(|| Found {
        advice: "name one of them in VDNN_CUDNN_PATH and take the other out of LD_LIBRARY_PATH".into(),
        ..line("one cuDNN", Status::Warn, Some(format!("parts come from {}", folders.join(" and "))))
    })
}

fn pinning_check() -> Found {
    let limits = HostLimits::of_process();
    let mut report = line("pinned memory", Status::Ok, Some(limits.to_string()));
    if limits.pinnable().is_some_and(|most| most < 4 << 30) {
        report.status = Status::Warn;
        report.advice = "less than 4 GiB can be pinned: offloading is limited to that (--host-budget)".into();
    }
    report
}

fn cache_check() -> Found {
    match nvrtc::cache_folder() {
        Some(folder) => line("kernel cache", Status::Ok, Some(folder.display().to_string())),
        None => Found {
            advice: "kernels are compiled at every start; set VDNN_CACHE_DIR to a folder to keep them".into(),
            ..line("kernel cache", Status::Warn, None)
        },
    }
}

fn text_of(opened: &Opened) -> String {
    format!("{} ({})", opened.path.display(), opened.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_answers_on_any_machine_and_missing_ones_say_what_to_do() {
        let report = doctor(&LibraryOptions::default());
        for name in ["NVIDIA driver", "GPU", "NVRTC", "cuBLAS", "cuDNN", "pinned memory", "kernel cache"] {
            let line = report.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("no line for {name}"));
            match line.status {
                Status::Ok => assert!(line.found.is_some(), "{line:?}"),
                Status::Missing | Status::Warn => assert!(!line.advice.is_empty(), "{line:?}"),
            }
        }
        let json = serde_json::to_value(&report).unwrap();
        assert!(["ok", "missing", "warn"].contains(&json[0]["status"].as_str().unwrap()));
    }
}
