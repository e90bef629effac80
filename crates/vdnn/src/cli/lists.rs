//! `vdnn models`, `policies`, `machines` and `data`.

use super::Report;
use anyhow::Result;
use serde_json::json;
use vdnn_memory::policies;
use vdnn_sim::Machine;
use vdnn_tensor::format_bytes;

/// The networks.
pub fn models() -> Report {
    let specs = vdnn_models::models();
    let document: Vec<_> = specs
        .iter()
        .map(|spec| {
            json!({
                "name": spec.name, "description": spec.description, "image_size": spec.image_size,
                "channels": spec.channels, "classes": spec.classes,
            })
        })
        .collect();
    let rows = specs.iter().map(|spec| {
        (spec.name.clone(), format!("{}x{0}, {} classes: {}", spec.image_size, spec.classes, spec.description))
    });
    Report::new(json!(document), table(rows))
}

/// The memory policies.
pub fn policies() -> Report {
    let document: Vec<_> = policies::REGISTRY
        .iter()
        .map(|entry| json!({ "name": entry.name, "description": entry.description }))
        .collect();
    let rows = policies::REGISTRY.iter().map(|entry| (entry.name.to_string(), entry.description.to_string()));
    Report::new(json!(document), table(rows))
}

/// The machine descriptions.
pub fn machines() -> Result<Report> {
    let machines = Machine::list().into_iter().map(Machine::named).collect::<Result<Vec<_>, _>>()?;
    let document: Vec<_> = machines
        .iter()
        .map(|machine| {
            json!({
                "name": machine.name, "device_bytes": machine.device_bytes, "host_bytes": machine.host_bytes,
                "source": machine.source,
            })
        })
        .collect();
    let rows = machines.iter().map(|m| (m.name.clone(), format!("{}: {}", format_bytes(m.device_bytes), m.source)));
    Ok(Report::new(json!(document), table(rows)))
}

/// The data sets.
pub fn data() -> Report {
    let entries = vdnn_datasets::registry::entries();
    let document: Vec<_> = entries
        .iter()
        .map(|entry| {
            json!({ "name": entry.name, "description": entry.description, "licence": entry.licence, "advice": entry.advice })
        })
        .collect();
    let rows = entries.iter().map(|entry| (entry.name.to_string(), entry.description.to_string()));
    Report::new(json!(document), table(rows))
}

fn table(rows: impl Iterator<Item = (String, String)>) -> String {
    let rows: Vec<(String, String)> = rows.collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, text)| format!("{name:width$}  {text}\n")).collect()
}
