//! B51: every kernel is machine code for the card at hand, never a text that an older driver cannot translate.
//!
//! What is said where driver and libraries do not go together is tested without a GPU (`cuda/src/library.rs`).

use crate::{Outcome, Report};
use serde_json::{Value, json};
use vdnn_cuda::context::Context;
use vdnn_cuda::kernels;
use vdnn_cuda::library::{Libraries, LibraryOptions};
use vdnn_cuda::nvrtc::{CubinCache, KernelSource, Module, cache_folder};

/// The number of NVIDIA's GPUs in an ELF header.
const EM_CUDA: [u8; 2] = [190, 0];

pub fn run(report: &mut Report) -> Outcome {
    report.outcome("B51 kernels are machine code of this card", machine_code());
    Ok(())
}

/// Fails where a source is compiled to PTX, or for another architecture: the driver then refuses the image.
fn machine_code() -> Outcome<(bool, Value)> {
    let libraries = Libraries::open(&LibraryOptions::default())?;
    let context = Context::open(0)?;
    let (images, architecture) = (CubinCache::new(cache_folder()), context.architecture());
    let source = |&(name, text): &(&'static str, &'static str)| KernelSource { name, text, options: &[] };
    let sources: Vec<KernelSource<'_>> = kernels::ALL.iter().map(source).collect();
    images.compile_all(libraries.nvrtc, &sources, &architecture);
    let (mut other, mut functions) = (Vec::new(), 0);
    for source in &sources {
        let image = images.cubin(libraries.nvrtc, source, &architecture)?;
        if !is_machine_code(&image, context.capability) {
            other.push(source.name);
        }
        let module = Module::load(&context, source.name, &image)?;
        for function in kernels::functions(source.text) {
            module.function(function)?;
            functions += 1;
        }
    }
    let facts = json!({
        "architecture": architecture, "images": sources.len(), "functions": functions, "not_machine_code": other,
        "driver": context.driver_version, "nvrtc": libraries.nvrtc.version,
    });
    Ok((other.is_empty() && functions >= sources.len(), facts))
}

/// An ELF file for NVIDIA's GPUs whose flags name this one's architecture: in the lowest byte, or since CUDA 13 the one after it.
fn is_machine_code(image: &[u8], (major, minor): (u32, u32)) -> bool {
    let named = |flags: &[u8]| flags.iter().any(|&byte| u32::from(byte) == 10 * major + minor);
    image.starts_with(b"\x7fELF") && image.get(18..20) == Some(&EM_CUDA[..]) && image.get(48..50).is_some_and(named)
}
