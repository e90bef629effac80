//! The oracle: the same program on a device with unlimited memory.

use vdnn_graph::Program;
use vdnn_schedule::KernelTable;

/// Time of one iteration with the fastest algorithm everywhere and no copies: the sum over all kernels, in seconds.
///
/// With one compute stream no schedule of this program runs every kernel once in less time.
pub fn oracle_seconds(program: &Program, table: &KernelTable) -> f64 {
    program.order.iter().filter_map(|&node| table.of(node).first()).map(|choice| choice.seconds).sum()
}
