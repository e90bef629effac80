//! Train networks larger than the GPU's memory: the front door.
//!
//! ```
//! use vdnn::prelude::*;
//!
//! // What does VGG-16 at batch 64 need in the paper's 12 GB, and what does moving its feature maps cost?
//! let build = |batch_size, mode| vdnn::models::build("vgg16", &ModelOptions { batch_size, mode, ..Default::default() }).map_err(Into::into);
//! let net = program::network(&build, 64, Mode::Train)?;
//! let program = program::training(net, &Optimization::sgd(0.9, 0.0))?;
//! let machine = Machine::named("titan-x")?;
//! let kernels = machine.kernel_table(&program)?;
//! let homes = HomeLayout::for_graphs(&[&program.graph], 256);
//! let settings = Settings::new(policies::find("conv").unwrap(), machine.links());
//! let planned = vdnn::train::plan::plan(Subject::new(program.into(), kernels), &homes, &settings)?;
//! assert!(planned.schedule.peak_bytes(Space::Device) < 12 << 30);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The command line is `vdnn`; see its `--help`.

pub mod device;

pub use vdnn_autograd as autograd;
pub use vdnn_check as check;
pub use vdnn_cuda as cuda;
pub use vdnn_datasets as datasets;
pub use vdnn_graph as graph;
pub use vdnn_layers as layers;
pub use vdnn_memory as memory;
pub use vdnn_models as models;
pub use vdnn_runtime as runtime;
pub use vdnn_schedule as schedule;
pub use vdnn_sim as sim;
pub use vdnn_tensor as tensor;
pub use vdnn_train as train;

/// What most programs need. `vdnn::memory::Sync` is not here, since it would hide the standard library's trait.
pub mod prelude {
    pub use crate::device::{DeviceName, open_device};
    pub use vdnn_autograd::{Optimizer, UpdateAt};
    pub use vdnn_datasets::registry::OpenOptions;
    pub use vdnn_datasets::{LastBatch, Loader, LoaderOptions, Order, Sampler, Source, registry as datasets};
    pub use vdnn_graph::op::{Adam, Normalise, Sgd};
    pub use vdnn_graph::{Graph, Program, Step, Use, ValueId};
    pub use vdnn_layers::{Layer, Mode, Net, NetOptions};
    pub use vdnn_memory::policies;
    pub use vdnn_memory::{
        Budgets, HomeLayout, Infeasible, MemoryPlan, MemoryPolicy, Options as MemoryOptions, Placement, Prefetch,
        Problem, fit_to_budget,
    };
    pub use vdnn_models::Options as ModelOptions;
    pub use vdnn_schedule::{Direction, KernelTable, Schedule, Space};
    pub use vdnn_sim::{Links, Machine, simulate};
    pub use vdnn_tensor::{DType, HostTensor, format_bytes, parse_bytes};
    pub use vdnn_train::{
        BuildError, Checkpoint, Encodings, Evaluation, EvaluationSum, Feed, Images, LearningRate, LossScale, Network,
        Optimization, Recipe, Settings, StepResult, Subject, Trainer, plan, program,
    };
}
