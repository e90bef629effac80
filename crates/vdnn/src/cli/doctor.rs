//! `vdnn doctor`: what the CUDA device needs, and what of it is here.

use super::Report;
use serde_json::json;
use vdnn_cuda::doctor::{Status, doctor};
use vdnn_cuda::library::LibraryOptions;
use vdnn_tensor::format_bytes;

/// Runs all checks. Without a GPU the report says so; the CPU device needs none of it.
pub fn run() -> Report {
    let checks = doctor(&LibraryOptions::default());
    let ok = checks.iter().all(|check| check.status != Status::Missing);
    let mut text = String::new();
    for check in &checks {
        let status = match check.status {
            Status::Ok => "ok     ",
            Status::Warn => "warn   ",
            Status::Missing => "missing",
        };
        let found = check.found.as_deref().unwrap_or("not found");
        text.push_str(&format!("{status} {}: {found}\n", check.name));
        if check.status == Status::Missing && !check.looked_in.is_empty() {
            text.push_str(&format!("        looked in: {}\n", check.looked_in.join(", ")));
        }
        if !check.advice.is_empty() {
            text.push_str(&format!("        {}\n", check.advice));
        }
    }
    let disk = disk_room();
    text.push_str(&format!("{disk}\n"));
    text.push_str(if ok {
        "\nCUDA can be used.\n"
    } else {
        "\nCUDA cannot be used here; `--device cpu` always can.\n"
    });
    let checks: Vec<_> = checks
        .iter()
        .map(|c| {
            json!({
                "name": c.name, "status": c.status, "found": c.found, "version": c.version,
                "looked_in": c.looked_in, "advice": c.advice,
            })
        })
        .collect();
    Report { json: json!({ "ok": ok, "checks": checks, "disk": disk }), text, failed: !ok }
}

/// What `--disk-budget` could take in the folder that `--disk-dir` has unless given.
fn disk_room() -> String {
    let folder = std::env::temp_dir();
    match vdnn_runtime::free_bytes(&folder) {
        Ok(free) => format!("{} free in {} for values that rest on disk", format_bytes(free), folder.display()),
        Err(error) => format!("{}: {error}; name another folder with --disk-dir", folder.display()),
    }
}
