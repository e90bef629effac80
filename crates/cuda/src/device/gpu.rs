//! What runs on the GPU: handles, streams, loaded kernels, and one node's work settled at its addresses.

use std::collections::HashMap;
use std::sync::Arc;

use crate::CudaError;
use crate::blas::{Blas, Product};
use crate::context::{Context, Streams};
use crate::cudnn::{BoundPlan, Handle, Plan};
use crate::kernels::{self, KernelArg, KernelLaunch};
use crate::library::{Libraries, LibraryOptions};
use crate::memory::fill_address;
use crate::nvrtc::{Argument, CubinCache, Function, Grid, KernelSource, Launch, Module};

/// Libraries, context, streams and handles. Both handles run on the compute stream, nothing on the default one.
#[derive(Debug)]
pub(super) struct Gpu {
    pub blas: Blas,
    pub cudnn: Handle,
    pub streams: Streams,
    functions: Functions,
    pub libraries: Libraries,
    pub context: Arc<Context>,
}

/// Own kernels that are loaded, by file and function.
#[derive(Debug)]
struct Functions {
    images: CubinCache,
    modules: HashMap<&'static str, Arc<Module>>,
    loaded: HashMap<(&'static str, &'static str), Function>,
}

impl Gpu {
    pub fn open(ordinal: usize, libraries: &LibraryOptions, images: CubinCache) -> Result<Self, CudaError> {
        let libraries = Libraries::open(libraries)?;
        let context = Context::open(ordinal)?;
        let streams = Streams::new(&context)?;
        let cudnn = Handle::new(libraries.cudnn, &streams.compute)?;
        let blas = Blas::new(libraries.cublas, &streams.compute)?;
        let functions = Functions { images, modules: HashMap::new(), loaded: HashMap::new() };
        Ok(Gpu { blas, cudnn, streams, functions, libraries, context })
    }

    /// Bytes of device memory free now.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        self.context.memory().map(|(free, _)| free)
    }

    /// An own kernel's launch with its function loaded.
    pub fn settle(&mut self, launch: &KernelLaunch) -> Result<Launch, CudaError> {
        let function = self.function(launch.file, launch.function)?;
        let grid = Grid { blocks: launch.grid, threads: launch.block, shared_bytes: launch.shared_bytes };
        let arguments: Vec<Argument> = launch.args.iter().map(|arg| argument(*arg)).collect();
        // SAFETY: the launch plan lists the arguments that its source declares (tested against the sources), and its
        // addresses are operands of the arena, which outlives every launch made for it.
        Ok(unsafe { Launch::with_table(&function, grid, &arguments, &launch.table) })
    }

    fn function(&mut self, file: &'static str, name: &'static str) -> Result<Function, CudaError> {
        if let Some(function) = self.functions.loaded.get(&(file, name)) {
            return Ok(function.clone());
        }
        let module = match self.functions.modules.get(file) {
            Some(module) => module.clone(),
            None => self.load(file, name)?,
        };
        let function = module.function(name)?;
        self.functions.loaded.insert((file, name), function.clone());
        Ok(function)
    }

    fn load(&mut self, file: &'static str, function: &str) -> Result<Arc<Module>, CudaError> {
        let missing = || CudaError::MissingFunction { module: file.into(), function: function.into() };
        let text = kernels::source(file).ok_or_else(missing)?;
        let source = KernelSource { name: file, text, options: &[] };
        let image = self.functions.images.cubin(self.libraries.nvrtc, &source, &self.context.architecture())?;
        let module = Module::load(&self.context, file, &image)?;
        self.functions.modules.insert(file, module.clone());
        Ok(module)
    }
}

fn argument(arg: KernelArg) -> Argument {
    match arg {
        KernelArg::U64(v) => Argument::U64(v),
        KernelArg::I64(v) => Argument::I64(v),
        KernelArg::U32(v) => Argument::U32(v),
        KernelArg::I32(v) => Argument::I32(v),
        KernelArg::F32(v) => Argument::F32(v),
        KernelArg::F64(v) => Argument::F64(v),
    }
}

/// Bytes on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub address: u64,
    pub bytes: u64,
}

/// One thing a node does on the compute stream, with everything settled.
#[derive(Debug)]
pub(super) enum Work {
    Kernel(Launch),
    Convolution { plan: Arc<Plan>, site: BoundPlan },
    Product { product: Product, workspace: Bytes },
    Zero(Bytes),
}

impl Work {
    /// Queues it.
    pub fn run(&self, gpu: &Gpu) -> Result<(), CudaError> {
        match self {
            Work::Kernel(launch) => launch.run(&gpu.streams.compute),
            Work::Convolution { plan, site } => plan.execute(&gpu.cudnn, site),
            Work::Product { product, workspace } => {
                // SAFETY: operands and workspace are regions of the arena (or of scratch memory while measuring) that
                // the schedule gives to this launch alone; it was checked, and only one stream runs products.
                unsafe {
                    gpu.blas.set_workspace(workspace.address, workspace.bytes)?;
                    gpu.blas.gemm(product)
                }
            }
            Work::Zero(place) => {
                // SAFETY: as above.
                unsafe { fill_address(&gpu.streams.compute, place.address, place.bytes, 0) }
            }
        }
    }

    /// True for kernels of libraries, which are loaded by their first run.
    pub fn loads_when_run(&self) -> bool {
        matches!(self, Work::Convolution { .. } | Work::Product { .. })
    }
}
