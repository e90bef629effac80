//! Small launches in a chain: what a launch timed by itself takes longer, and what to measure launches beside.
//!
//! ```text
//!  by itself    chain ─► record ─► launch ─► record        `alone`: the least that a measurement says of a launch
//!  in a chain   chain ─► record ─► chain  ─► record        `chained`: a launch's share of that
//! ```
//! In a captured iteration launches follow each other as in the chain, so their difference is taken off whatever is measured by
//! itself. The chain that runs before a measurement lets the host get ahead of the device: what the host takes to
//! queue the work, some microseconds for a convolution, is no time of the work.
//!
//! Left to others: which works are timed, and how often (`measure`).

use serde::{Deserialize, Serialize};
use vdnn_graph::Op;
use vdnn_tensor::{DType, TensorType};

use super::bench::Failure;
use super::gpu::{Bytes, Gpu, Work};
use super::site::{OWN, Plans, Site};
use crate::CudaError;
use crate::context::{Graph, Stream};
use crate::cudnn::Precision;
use crate::kernels::Operand;
use crate::memory::DeviceArena;

/// Launches of the chain.
pub(crate) const LAUNCHES: usize = 64;
/// Elements of each of its tensors.
const ELEMENTS: u64 = 32;

/// Seconds that the smallest launch takes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchTimes {
    /// Timed by itself, between two events.
    pub alone: f64,
    /// In a chain of such launches that was captured as one graph.
    pub chained: f64,
}

impl LaunchTimes {
    /// Seconds that measuring a launch by itself adds; none where a chain is not quicker.
    pub fn overhead(&self) -> f64 {
        (self.alone - self.chained).max(0.0)
    }

    /// What work that was timed by itself takes in a chain: no less than the smallest launch does there, and no more than was
    /// measured.
    pub fn in_chain(&self, seconds: f64) -> f64 {
        (seconds - self.overhead()).max(self.chained.min(seconds))
    }
}

/// What a launch of the chain reads and writes.
fn link_type() -> TensorType {
    TensorType::new([ELEMENTS], DType::F32)
}

/// Small launches of an own kernel, one after the other, captured as one graph.
#[derive(Debug)]
pub(crate) struct Chain {
    graph: Graph,
    link: Vec<Work>,
    /// What the launches read and write.
    _arena: DeviceArena,
}

impl Chain {
    /// Captures it on the compute stream.
    pub(super) fn new(gpu: &mut Gpu, plans: &mut Plans) -> Result<Self, Failure> {
        let ty = link_type();
        let arena = DeviceArena::new(&gpu.context, 2 * ty.bytes())?;
        arena.fill(&gpu.streams.compute, 0, 2 * ty.bytes(), 0)?;
        let [x, y] = [0, ty.bytes()].map(|offset| Operand::contiguous(&ty, arena.address(offset)));
        let (inputs, outputs, workspace) = (vec![x], vec![y], Bytes::default());
        let site = Site { op: &Op::Relu, precision: Precision::Fp32, inputs, outputs, algorithm: OWN, workspace };
        let link = site.works(gpu, plans)?;
        // Its function is loaded before anything is captured.
        link.iter().try_for_each(|work| work.run(gpu))?;
        let links = || (0..LAUNCHES).try_for_each(|_| link.iter().try_for_each(|work| work.run(gpu)));
        let graph = gpu.streams.compute.capture(links)?;
        gpu.streams.compute.synchronize()?;
        Ok(Chain { graph, link, _arena: arena })
    }

    /// Queues all launches.
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.graph.launch(stream)
    }

    /// One launch of it.
    pub(super) fn link(&self) -> &[Work] {
        &self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microseconds.
    fn times(alone: f64, chained: f64) -> LaunchTimes {
        LaunchTimes { alone: alone * 1e-6, chained: chained * 1e-6 }
    }

    #[test]
    fn a_link_is_one_small_launch() {
        let ty = link_type();
        let [x, y] = [0, ty.bytes()].map(|address| Operand::contiguous(&ty, address));
        let plan = crate::kernels::prepare(&Op::Relu, &[x], &[y], 0).unwrap();
        assert_eq!(plan.launches.len(), 1);
        assert_eq!((plan.launches[0].file, plan.launches[0].grid), ("relu.cu", [1, 1, 1]));
    }

    #[test]
    fn what_a_launch_takes_longer_by_itself_is_taken_off() {
        let found = times(4.75, 2.25);
        assert!((found.overhead() - 2.5e-6).abs() < 1e-15);
        assert!((found.in_chain(100e-6) - 97.5e-6).abs() < 1e-15);
        assert!((found.in_chain(5e-6) - 2.5e-6).abs() < 1e-15);
    }

    #[test]
    fn nothing_takes_less_than_the_smallest_launch_of_a_chain() {
        let found = times(4.75, 2.25);
        assert_eq!(found.in_chain(4.5e-6), 2.25e-6);
        assert_eq!(found.in_chain(2.5e-6), 2.25e-6);
        // What was measured even shorter is not made longer.
        assert_eq!((found.in_chain(1e-6), found.in_chain(0.0)), (1e-6, 0.0));
    }

    #[test]
    fn a_chain_that_is_no_quicker_changes_nothing() {
        let found = times(2.0, 3.0);
        assert_eq!((found.overhead(), found.in_chain(1e-6), found.in_chain(7e-6)), (0.0, 1e-6, 7e-6));
    }

    #[test]
    fn taking_it_off_keeps_the_order_of_plans() {
        let found = times(4.75, 2.25);
        let chained: Vec<f64> = (0..200).map(|i| found.in_chain(f64::from(i) * 0.1e-6)).collect();
        assert!(chained.is_sorted());
    }
}
