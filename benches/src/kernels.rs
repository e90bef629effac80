//! Where a step's time goes: launches by op, with the bytes they move and the arithmetic they do.

use serde::Serialize;
use std::collections::BTreeMap;
use vdnn::graph::{Phase, Program};
use vdnn::schedule::{Action, Schedule, Timeline};
use vdnn::sim::{flops, traffic_bytes};

/// All launches of one op in one phase.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The op's kind, and `update` or `backward` before it outside the forward phase.
    pub op: String,
    /// Launch commands, recomputation included.
    pub launches: u64,
    /// Milliseconds between the events around each, summed.
    pub ms: f64,
    /// Bytes of all operands, each counted once a launch; what a kernel reads twice counts once.
    pub bytes: u64,
    /// FLOP of the direct algorithm, two a multiply-add.
    pub flop: f64,
    /// Bytes a second reached, in GB/s.
    pub gb_per_second: f64,
    /// FLOP a second reached, in TFLOP/s; 0 for what is bound by memory.
    pub tflop_per_second: f64,
}

/// The launches of a timeline by op, longest first.
pub fn kernel_table(program: &Program, schedule: &Schedule, timeline: &Timeline) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for span in &timeline.spans {
        let command = schedule.commands.get(span.command as usize);
        let Some(Action::Launch { node: id, .. }) = command.map(|command| &command.action) else { continue };
        let node = program.graph.node(*id);
        let op = match node.phase {
            Phase::Forward => node.op.kind().to_string(),
            Phase::Backward => format!("backward {}", node.op.kind()),
            Phase::Update => format!("update {}", node.op.kind()),
        };
        let row = rows.entry(op.clone()).or_default();
        row.op = op;
        row.launches += 1;
        row.ms += span.seconds() * 1e3;
        row.bytes += traffic_bytes(program, *id);
        row.flop += flops(program, *id);
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    for row in &mut rows {
        row.gb_per_second = row.bytes as f64 / row.ms / 1e6;
        row.tflop_per_second = row.flop / row.ms / 1e9;
    }
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rows
}
