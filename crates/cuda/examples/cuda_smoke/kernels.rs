//! A kernel from source to result, and the same in a captured graph.

use serde_json::json;
use vdnn_cuda::CudaError;
use vdnn_cuda::memory::{DeviceArena, PinnedArena, Rows, offload};
use vdnn_cuda::nvrtc::{Argument, CubinCache, Grid, KernelSource, Launch, Module, cache_folder};

use crate::{Bench, download, numbers, upload};

const SOURCE: KernelSource<'_> = KernelSource {
    name: "scale.cu",
    text: r#"extern "C" __global__ void scale(float* y, const float* x, float a, unsigned long long n) {
        for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
             i += (unsigned long long)gridDim.x * blockDim.x) y[i] = a * x[i];
    }"#,
    options: &[],
};

pub fn run(bench: &mut Bench) -> Result<(), CudaError> {
    let architecture = bench.context.architecture();
    let cubin = CubinCache::new(cache_folder()).cubin(bench.libraries.nvrtc, &SOURCE, &architecture)?;
    let module = Module::load(&bench.context, SOURCE.name, &cubin)?;
    let scale = module.function("scale")?;
    let missing = matches!(module.function("other"), Err(CudaError::MissingFunction { .. }));
    bench.report("missing function", missing, json!({}));
    let n = 100_003u64;
    let arena = DeviceArena::new(&bench.context, 8 * n)?;
    let host = PinnedArena::new(&bench.context, 4 * n)?;
    let x = numbers(1, n as usize);
    let stream = bench.streams.compute.clone();
    upload(&arena, &stream, 0, &x)?;
    let (y, x_at) = (Argument::U64(arena.address(4 * n)), Argument::U64(arena.address(0)));
    let arguments = [y, x_at, Argument::F32(3.0), Argument::U64(n)];
    // SAFETY: the arguments are those of `scale`; both halves of the arena hold n numbers.
    let launch = unsafe { Launch::new(&scale, Grid::linear(n, 256, 64), &arguments) };
    launch.run(&stream)?;
    let expected: Vec<f32> = x.iter().map(|v| 3.0 * v).collect();
    let same = download(&arena, &stream, 4 * n, n as usize)? == expected;
    bench.report("kernel", same, json!({"cubin_bytes": cubin.len()}));
    let result = Rows::contiguous(4 * n, 4 * n);
    let graph = stream.capture(|| {
        launch.run(&stream)?;
        offload(&stream, &arena, result, &host, Rows::contiguous(0, 4 * n))
    })?;
    arena.fill(&stream, 4 * n, 4 * n, 0)?;
    graph.launch(&stream)?;
    stream.synchronize()?;
    let mut copied = vec![0f32; n as usize];
    host.read(0, bytemuck::cast_slice_mut(&mut copied))?;
    bench.report("graph", copied == expected, json!({}));
    let failing = stream.capture(|| stream.synchronize());
    let usable = failing.is_err() && stream.synchronize().is_ok();
    bench.report("failed capture leaves the stream usable", usable, json!({}));
    Ok(())
}
