//! Passes: from a forward graph to another that computes the same, faster or in fewer bytes, before it is differentiated.
//!
//! ```text
//!   fuse     batch_norm ─► relu                     batch_norm_relu
//!            batch_norm ─► add(·, R) ─► relu        batch_norm_add_relu          the same bits
//!            two batch_norms ─► add ─► relu         batch_norm_pair_relu
//!            conv2d ─► relu                         conv2d_relu
//!            max_pool2d                             max_pool2d_indices
//!   fuse_pools  batch_norm_relu ─► max_pool2d_indices                 batch_norm_relu_max_pool2d, in half precision
//!   stem     conv2d of an image of few channels     conv2d of the unfolded image
//!   mixed    f32 NCHW                               half-precision or f32 maps, channels last; f32 weights, statistics, sums
//!   split_batch      conv2d ─► relu ─► … of N samples                 the same of one part of them after the other
//!   fuse_gradients   max_pool2d_indices_grad ─► relu_bias_grad     max_pool2d_relu_bias_grad      ┐ the passes that come
//!   fuse_statistics  conv2d ─► batch_norm_stats, in f16            conv2d_stats                   │ after differentiation
//!   group    cast, sgd, batch_norm_update           several in one launch               ┘
//! ```
//!
//! A pass takes the finished graph of a network and builds a new one beside it. Layers, inputs, parameters and states keep
//! their names and order, and so does every value that is in both graphs. Backward is not a pass's concern: what is
//! differentiated is what came out of the last one.

mod fuse;
mod fuse_gradients;
mod fuse_pools;
mod fuse_statistics;
mod group;
mod mixed;
mod rebuild;
mod split_batch;
mod stem;

pub use fuse::fuse;
pub use fuse_gradients::fuse_gradients;
pub use fuse_pools::fuse_pools;
pub use fuse_statistics::fuse_statistics;
pub use group::{GROUP_BYTES, GROUP_MEMBERS, group};
pub use mixed::{CHANNEL_MULTIPLE, mixed};
pub use split_batch::{Frontiers, SplitBatch, frontiers, split_batch, whole_batch};
pub use stem::stem;

use crate::{Graph, GraphError, ValueId};
use vdnn_tensor::DType;

/// Which passes a network goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Whether batch norm takes the ReLU, and the residual before it, into one op, a residual's
    /// batch norm with it; convolutions take the ReLU likewise. In half precision pools take in the batch norm before them.
    pub fuse: bool,
    /// The type that feature maps and the convolutions' weights are stored in, channels last: half precision, or f32. `None`
    /// leaves them as they were built. Trained weights, statistics, biases and sums stay in f32.
    pub storage: Option<DType>,
    /// Whether the batch norms of the largest residuals are left nodes of their own all the same. The op of both norms saves passes
    /// over memory, but its gradient holds four maps at once where that of one holds three.
    pub apart: bool,
}

/// A graph that a pass made.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewritten {
    /// The new graph.
    pub graph: Graph,
    /// By the index of a value before: the value that takes its place; `None` for one that is no longer made.
    pub values: Vec<Option<ValueId>>,
}

impl Rewritten {
    /// What takes the place of a value of the graph before.
    pub fn value(&self, before: ValueId) -> Option<ValueId> {
        self.values.get(before.index()).copied().flatten()
    }

    /// The same as one step from the graph that `first` was made of.
    fn after(self, first: &Rewritten) -> Rewritten {
        let values = first.values.iter().map(|&value| self.value(value?)).collect();
        Rewritten { graph: self.graph, values }
    }
}

impl Passes {
    /// No pass: the graph stays as it was built.
    pub const NONE: Passes = Passes { fuse: false, storage: None, apart: false };

    /// True when the graph stays as it was built.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Runs the passes, fusion first; stems are unfolded where maps are stored in half precision. In f32 kernels for few
    /// channels are quicker than those for an unfolded image, which takes twice the bytes there.
    ///
    /// # Errors
    /// [`GraphError::Pass`] when the graph is not one of forward nodes in f32, or holds an op that a pass cannot take.
    pub fn apply(&self, graph: &Graph) -> Result<Rewritten, GraphError> {
        let mut done = if self.fuse { fuse(graph, self.apart)? } else { rebuild::same(graph) };
        if let Some(dtype) = self.storage {
            if dtype.is_half() {
                done = if self.fuse { fuse_pools(&done.graph)?.after(&done) } else { done };
                done = stem(&done.graph)?.after(&done);
            }
            done = mixed(&done.graph, dtype)?.after(&done);
        }
        Ok(done)
    }
}
