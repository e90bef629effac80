//! Without a GPU: which choices are worth keeping, and the patterns of a graph with slices.

use super::*;
use vdnn_graph::op::{Concat, Conv2d};
use vdnn_graph::{LayerId, Op, Phase, Role};
use vdnn_tensor::DType;

fn choice(seconds: f64, workspace: u64) -> Choice {
    Choice { algorithm: format!("{seconds} {workspace}"), workspace, seconds, deterministic: true }
}

#[test]
fn slower_and_hungrier_choices_are_dropped() {
    let all = vec![choice(3.0, 0), choice(1.0, 50), choice(2.0, 50), choice(2.5, 10), choice(4.0, 0), choice(1.0, 90)];
    assert_eq!(worthwhile(all), [choice(1.0, 50), choice(2.5, 10), choice(3.0, 0)]);
    assert_eq!(worthwhile(Vec::new()), []);
}
