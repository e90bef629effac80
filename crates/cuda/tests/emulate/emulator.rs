//! Builds each source once as a shared library and runs launch plans in it.

use libloading::Library;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use vdnn_cuda::kernels::{self, KernelLaunch, LaunchPlan};

type Run = unsafe extern "C" fn(*const u8, u32, u32, *const u64, u32) -> i32;

/// One library a source. A kernel keeps its fibers in statics, so one launch runs at a time.
struct Emulator {
    libraries: HashMap<&'static str, Library>,
    _folder: tempfile::TempDir,
}

fn emulator() -> Option<&'static Mutex<Emulator>> {
    static BUILT: OnceLock<Option<Mutex<Emulator>>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref()
}

fn compiler() -> Option<&'static str> {
    ["g++", "clang++", "c++"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

fn build() -> Option<Mutex<Emulator>> {
    let Some(compiler) = compiler() else {
        eprintln!("no C++ compiler found (g++, clang++ or c++): kernels are not run on the CPU");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder for built kernels");
    let build_one = |&(name, text): &(&'static str, &'static str)| {
        let path = folder.path().join(name);
        let (source, library) = (path.with_extension("cpp"), path.with_extension("so"));
        std::fs::write(&source, translation_unit(text)).expect("a source can be written");
        compile(compiler, &source, &library);
        // SAFETY: the library was just built from our source and runs nothing when loaded.
        (name, unsafe { Library::new(&library) }.expect("a built library loads"))
    };
    let libraries = std::thread::scope(|scope| {
        let builds: Vec<_> = kernels::ALL.iter().map(|source| scope.spawn(|| build_one(source))).collect();
        builds.into_iter().map(|build| build.join().expect("a source builds")).collect()
    });
    Some(Mutex::new(Emulator { libraries, _folder: folder }))
}

/// Shim, kernels, and a table from names to kernels.
fn translation_unit(text: &str) -> String {
    let row = |name| {
        format!(
            "  if (!strcmp(name, \"{name}\")) return run_grid([](const u64* s) {{ call({name}, s); }}, arity({name}), blocks, threads, args, given);\n"
        )
    };
    let table: String = kernels::functions(text).map(row).collect();
    format!(
        "{}\n{text}\nextern \"C\" int run(const char* name, unsigned blocks, unsigned threads, const u64* args, unsigned \
         given) {{\n{table}  return 1;\n}}\n",
        include_str!("shim.h")
    )
}

fn compile(compiler: &str, source: &Path, library: &Path) {
    let options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-ffp-contract=off"];
    let output = Command::new(compiler).args(options).arg(source).arg("-o").arg(library).output();
    let output = output.expect("the compiler starts");
    assert!(output.status.success(), "{}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
}

/// Runs a plan whose addresses are this process's; false when there is no compiler.
pub fn run(plan: &LaunchPlan) -> bool {
    let Some(emulator) = emulator() else { return false };
    let emulator = emulator.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for launch in &plan.launches {
        run_one(&emulator, launch);
    }
    true
}

fn run_one(emulator: &Emulator, launch: &KernelLaunch) {
    assert_eq!((&launch.grid[1..], &launch.block[1..]), (&[1, 1][..], &[1, 1][..]));
    assert!(launch.shared_bytes <= 48 << 10 && launch.block[0] <= 256 && launch.grid[0] > 0);
    // As the driver has them: the last argument may be a struct, which begins at its slot and takes the words from there on.
    let slots: Vec<u64> = launch.args.iter().map(|arg| arg.slot()).chain(launch.table.iter().copied()).collect();
    let given = launch.args.len() + usize::from(!launch.table.is_empty());
    let name = format!("{}\0", launch.function);
    // SAFETY: `run` has this signature (translation_unit) and checks name and number of arguments; operands are live
    // buffers of the test, padded so that a kernel that leaves them is seen.
    let status = unsafe {
        let run = emulator.libraries[launch.file].get::<Run>(b"run\0").expect("every library has `run`");
        run(name.as_ptr(), launch.grid[0], launch.block[0], slots.as_ptr(), given as u32)
    };
    assert_eq!(status, 0, "{}: 1 is an unknown function, 2 a wrong number of arguments", launch.function);
}
