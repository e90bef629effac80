//! With NVIDIA's wheels but without a GPU: plans are listed, sized, named and made again; kernels compile.
//!
//! Runs when `VDNN_TEST_CUDA_LIBS` names a `site-packages/nvidia` folder with cuDNN 9.19, cuBLAS and NVRTC; says that
//! it did not otherwise.

#[path = "shared/layers.rs"]
mod layers;

use layers::SUMMED;
use std::collections::BTreeSet;

use vdnn_cuda::cudnn::{
    ConvolutionProblem, DeviceProperties, Direction, Epilogue, Order, Plan, PlanName, Precision, Target, Wanted,
    enumerate,
};
use vdnn_cuda::library::{LibraryOptions, cublas, cudnn, nvrtc};
use vdnn_cuda::nvrtc::{CubinCache, KernelSource, check_compiles};
use vdnn_cuda::{CudaError, doctor};
use vdnn_tensor::DType;

const H200: &str = include_str!("data/h200_deviceprop_cudnn919.json");

fn wheels() -> Option<LibraryOptions> {
    let folder = std::env::var_os("VDNN_TEST_CUDA_LIBS");
    if folder.is_none() {
        eprintln!("not run: VDNN_TEST_CUDA_LIBS names no wheels");
    }
    folder.map(|f| LibraryOptions { cudnn: None, folders: vec![f.into()] })
}

fn h200() -> Option<DeviceProperties> {
    let cudnn = cudnn(&wheels()?).expect("cuDNN from the wheels");
    Some(DeviceProperties::from_json(cudnn, H200).expect("the description of an H200"))
}

fn resnet_3x3(direction: Direction) -> ConvolutionProblem {
    ConvolutionProblem::dense(direction, [32, 64, 56, 56], 64, 3, 1, 1)
}

#[test]
fn the_doctor_names_versions_files_and_reasons() {
    let Some(options) = wheels() else { return };
    let report = doctor::doctor(&options);
    for (name, version) in [("NVRTC", "13."), ("cuBLAS", "13."), ("cuDNN", "9.")] {
        let line = report.iter().find(|l| l.name == name).unwrap();
        assert_eq!(line.status, doctor::Status::Ok, "{line:?}");
        assert!(line.version.as_deref().unwrap().starts_with(version), "{line:?}");
        assert!(line.found.as_deref().unwrap().contains("named by option"), "{line:?}");
    }
    assert!(report.iter().all(|l| l.name != "one cuDNN"), "{report:?}");
    assert!(cublas(&options).is_ok());
}

/// The weight gradient of VGG-16's second convolution in strict f32: the same plan for a quarter of the batch wants about a
/// quarter of the workspace.
#[test]
fn a_plan_for_a_piece_of_the_batch_wants_a_piece_of_the_workspace() {
    let Some(device) = h200() else { return };
    let plans = |n: u64| {
        let problem = ConvolutionProblem::dense(Direction::WeightGradient, [n, 64, 224, 224], 64, 3, 1, 1);
        enumerate(Target::Described(&device), &problem, &Wanted::default()).unwrap()
    };
    let (whole, piece) = (plans(64), plans(16));
    let mut shrunk = 0;
    for plan in whole.iter().filter(|plan| plan.workspace_bytes > 256 << 20) {
        let Some(same) = piece.iter().find(|same| same.name == plan.name) else { continue };
        assert!(same.workspace_bytes <= plan.workspace_bytes, "{} wants {}", same.name, same.workspace_bytes);
        shrunk += u32::from(same.workspace_bytes < plan.workspace_bytes / 3);
    }
    assert!(shrunk > 0, "{:?}", whole.iter().map(|plan| (&plan.name, plan.workspace_bytes)).collect::<Vec<_>>());
}

#[test]
fn every_direction_has_plans_with_distinct_names_in_both_precisions() {
    let Some(device) = h200() else { return };
    for direction in Direction::ALL {
        for precision in [Precision::Fp32, Precision::Tf32] {
            let problem = ConvolutionProblem { precision, ..resnet_3x3(direction) };
            let plans = enumerate(Target::Described(&device), &problem, &Wanted::default()).unwrap();
            let names: BTreeSet<PlanName> = plans.iter().map(|p| p.name.clone()).collect();
            assert_eq!(names.len(), plans.len());
            assert!(plans.iter().all(|p| !p.notes.nondeterministic && !p.notes.runtime_compiled));
            let strict = precision == Precision::Fp32;
            assert!(!strict || plans.iter().all(|p| !p.notes.tensor_core && !p.notes.down_converts));
            assert!(strict || plans.iter().any(|p| p.notes.tensor_core), "no tensor cores for {problem}");
            eprintln!(
                "{problem}: {} plans, {:?}",
                plans.len(),
                plans.iter().map(|p| p.workspace_bytes).collect::<Vec<_>>()
            );
        }
    }
}

/// Case B28: the gradients of a convolution have plans that sum with atomics, and deterministic mode offers none of them.
#[test]
fn deterministic_mode_leaves_out_plans_that_differ_from_run_to_run() {
    let Some(device) = h200() else { return };
    for direction in Direction::ALL {
        let plans = |deterministic| {
            let wanted = Wanted { deterministic, ..Wanted::default() };
            enumerate(Target::Described(&device), &resnet_3x3(direction), &wanted).unwrap()
        };
        let noted = plans(false).iter().filter(|plan| plan.notes.nondeterministic).count();
        assert_eq!(noted > 0, direction != Direction::Forward, "{direction:?}: {noted}");
        assert!(plans(true).iter().all(|plan| !plan.notes.nondeterministic), "{direction:?}");
    }
}

#[test]
fn a_plan_is_made_again_from_its_name_with_the_same_workspace() {
    let Some(device) = h200() else { return };
    let target = Target::Described(&device);
    for direction in Direction::ALL {
        let problem = ConvolutionProblem { precision: Precision::Tf32, ..resnet_3x3(direction) };
        for plan in enumerate(target, &problem, &Wanted::default()).unwrap() {
            let name: PlanName = plan.name.to_string().parse().unwrap();
            let again = Plan::from_name(target, &problem, &name).unwrap_or_else(|e| panic!("{}: {e}", plan.name));
            assert_eq!((again.workspace_bytes, again.notes), (plan.workspace_bytes, plan.notes), "{}", plan.name);
        }
    }
}

#[test]
fn the_workspace_limit_is_kept_and_missing_plans_are_an_error() {
    let Some(device) = h200() else { return };
    let target = Target::Described(&device);
    let problem = resnet_3x3(Direction::WeightGradient);
    let all = enumerate(target, &problem, &Wanted::default()).unwrap();
    let none = Wanted { workspace_limit: 0, ..Wanted::default() };
    let small = enumerate(target, &problem, &none).unwrap();
    assert!(small.iter().all(|p| p.workspace_bytes == 0) && small.len() < all.len());
    // The graph interface convolves f32 in no other order than cuDNN has kernels for; an odd alignment leaves none.
    let unknown = PlanName { engine: 99_999, knobs: Vec::new() };
    assert!(matches!(Plan::from_name(target, &problem, &unknown), Err(CudaError::UnknownPlan { .. })));
}

#[test]
fn slices_groups_dilation_and_other_types_have_plans() {
    let Some(device) = h200() else { return };
    let base = resnet_3x3(Direction::Forward);
    for direction in Direction::ALL {
        let problems = [
            ConvolutionProblem {
                x_batch_stride: 2 * 64 * 56 * 56,
                y_batch_stride: 3 * 64 * 56 * 56,
                direction,
                ..base
            },
            ConvolutionProblem { groups: 64, direction, ..base },
            ConvolutionProblem { dilation: [2, 2], padding: [2, 2], direction, ..base },
            ConvolutionProblem { alignment: 4, direction, ..base },
            ConvolutionProblem { dtype: DType::BF16, order: Order::Nhwc, direction, ..base },
            ConvolutionProblem { dtype: DType::F16, direction, ..base },
        ];
        for problem in problems {
            let plans = enumerate(Target::Described(&device), &problem, &Wanted::default());
            let plans = plans.unwrap_or_else(|e| panic!("{e}"));
            eprintln!("{problem}: {} plans", plans.len());
        }
    }
}

/// VGG-16's layers with bias and ReLU taken in, in half precision and tf32: one kernel that is not compiled when the plan is made.
#[test]
fn convolutions_take_bias_and_relu_in() {
    let Some(device) = h200() else { return };
    for (dtype, x, k) in [
        (DType::BF16, [32, 64, 56, 56], 64),
        (DType::F16, [32, 64, 56, 56], 128),
        (DType::BF16, [16, 8, 64, 64], 64),
        (DType::F32, [32, 64, 56, 56], 64),
        (DType::F32, [16, 256, 28, 28], 512),
        (DType::F32, [16, 3, 64, 64], 64),
    ] {
        let problem = layers::problem((x, k, 3, 1, 1), dtype, Epilogue::BiasRelu);
        let problem = ConvolutionProblem { precision: Precision::Tf32, ..problem };
        let plans =
            enumerate(Target::Described(&device), &problem, &Wanted::default()).unwrap_or_else(|e| panic!("{e}"));
        assert!(plans.iter().any(|plan| plan.notes.tensor_core && !plan.notes.nondeterministic), "{problem}");
        let name = &plans[0].name;
        let again =
            Plan::from_name(Target::Described(&device), &problem, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(again.workspace_bytes, plans[0].workspace_bytes);
        eprintln!("{problem}: {} plans", plans.len());
    }
}

/// Layers with statistics in f16: precompiled, made again from their names, none in deterministic
/// mode. For the stem and where Y is a slice there are none, nor in bf16 any that are not compiled when the plan is made, which is why only f16
/// asks for them.
#[test]
fn convolutions_make_statistics_in_f16() {
    let Some(device) = h200() else { return };
    let target = Target::Described(&device);
    let summed = |layer| layers::problem(layer, DType::F16, Epilogue::Statistics);
    let any = Wanted { deterministic: false, ..Wanted::default() };
    let none = |problem: &ConvolutionProblem| {
        let found = enumerate(target, problem, &any);
        assert!(matches!(found, Err(CudaError::NoPlan { .. })), "{problem}: {found:?}");
    };
    for problem in SUMMED.map(summed) {
        assert!(matches!(enumerate(target, &problem, &Wanted::default()), Err(CudaError::NoPlan { .. })), "{problem}");
        let plans = enumerate(target, &problem, &any).unwrap_or_else(|e| panic!("{e}"));
        for plan in &plans {
            assert!(plan.notes.nondeterministic && !plan.notes.runtime_compiled, "{problem}: {plan:?}");
            let again = Plan::from_name(target, &problem, &plan.name).unwrap_or_else(|e| panic!("{}: {e}", plan.name));
            assert_eq!((again.workspace_bytes, again.notes), (plan.workspace_bytes, plan.notes), "{}", plan.name);
        }
        let workspace: BTreeSet<u64> = plans.iter().map(|plan| plan.workspace_bytes >> 10).collect();
        eprintln!("{problem}: {} plans, workspace in KiB {workspace:?}", plans.len());
        none(&ConvolutionProblem { dtype: DType::BF16, ..problem });
    }
    none(&summed(([32, 8, 224, 224], 64, 7, 2, 3)));
    none(&ConvolutionProblem { y_batch_stride: 14 * 14 * 64, ..summed(([4, 16, 14, 14], 24, 3, 1, 1)) });
}

/// Half precision and tf32 in NHWC order: a stem with padded channels, ResNet's and DenseNet's layers, slices of pixels, odd channels.
#[test]
fn channels_innermost_have_deterministic_plans() {
    let Some(device) = h200() else { return };
    let dense = |layer| layers::problem(layer, DType::BF16, Epilogue::None);
    let slice = dense(([8, 64, 28, 28], 32, 3, 1, 1));
    let problems = [
        dense(([32, 8, 224, 224], 64, 7, 2, 3)),
        dense(([32, 3, 224, 224], 64, 7, 2, 3)),
        dense(([32, 64, 56, 56], 64, 3, 1, 1)),
        dense(([32, 64, 56, 56], 256, 1, 1, 0)),
        dense(([32, 256, 56, 56], 512, 1, 2, 0)),
        dense(([2, 12, 9, 9], 20, 3, 1, 1)),
        dense(([2, 5, 9, 9], 7, 3, 1, 1)),
        ConvolutionProblem { x_batch_stride: 28 * 28 * 256, y_batch_stride: 28 * 28 * 256, ..slice },
        ConvolutionProblem { groups: 32, ..dense(([4, 64, 14, 14], 64, 3, 1, 1)) },
    ];
    let types = [DType::BF16, DType::F16, DType::F32];
    for (problem, dtype) in problems.iter().flat_map(|p| types.map(|t| (*p, t))) {
        for direction in Direction::ALL {
            let alignment = if problem.c % 8 == 0 && problem.k % 8 == 0 { 16 } else { dtype.size() };
            let problem = ConvolutionProblem { direction, dtype, precision: Precision::Tf32, alignment, ..problem };
            let plans = enumerate(Target::Described(&device), &problem, &Wanted::default());
            let plans = plans.unwrap_or_else(|e| panic!("{e}"));
            let workspace: BTreeSet<u64> = plans.iter().map(|p| p.workspace_bytes >> 10).collect();
            eprintln!("{problem}: {} plans, workspace in KiB {workspace:?}", plans.len());
        }
    }
}

/// What networks of the zoo and the trial on a GPU ask for, in strict f32 and always the same bits.
#[test]
fn unusual_convolutions_have_deterministic_plans() {
    let Some(device) = h200() else { return };
    let dense =
        |x, k, filter, stride, padding| ConvolutionProblem::dense(Direction::Forward, x, k, filter, stride, padding);
    let base = dense([2, 8, 12, 12], 16, 3, 1, 1);
    let mut uneven = ConvolutionProblem { kw: 2, stride: [2, 1], padding: [1, 0], ..dense([2, 5, 11, 8], 7, 3, 1, 1) };
    uneven.pack();
    let shapes = [
        uneven,
        dense([4, 16, 14, 14], 24, 3, 1, 1),
        dense([2, 3, 33, 31], 8, 7, 2, 3),
        dense([3, 32, 9, 9], 16, 1, 1, 0),
        dense([3, 32, 9, 9], 16, 1, 2, 0),
        dense([1, 4, 6, 6], 4, 3, 1, 1),
        dense([8, 1, 32, 32], 16, 3, 1, 1),
        ConvolutionProblem { groups: 4, ..base },
        ConvolutionProblem { groups: 8, ..base },
        ConvolutionProblem { dilation: [2, 2], padding: [2, 2], ..base },
        ConvolutionProblem { alignment: 4, x_batch_stride: 8 * 144 + 1, ..base },
        ConvolutionProblem { alignment: 4, y_batch_stride: 16 * 144 + 3, ..base },
        ConvolutionProblem { alignment: 4, groups: 4, ..base },
    ];
    for problem in shapes {
        for direction in Direction::ALL {
            for precision in [Precision::Fp32, Precision::Tf32] {
                let problem = ConvolutionProblem { direction, precision, ..problem };
                let start = std::time::Instant::now();
                let plans = enumerate(Target::Described(&device), &problem, &Wanted::default());
                let plans = plans.unwrap_or_else(|e| panic!("{e}"));
                eprintln!("{problem}: {} plans in {:?}", plans.len(), start.elapsed());
            }
        }
    }
}

#[test]
fn an_empty_problem_never_reaches_cudnn() {
    let Some(device) = h200() else { return };
    let empty = ConvolutionProblem { n: 0, ..resnet_3x3(Direction::Forward) };
    let error = enumerate(Target::Described(&device), &empty, &Wanted::default()).unwrap_err();
    assert!(matches!(error, CudaError::EmptyConvolution { .. }), "{error}");
}

const KERNEL: KernelSource<'_> = KernelSource {
    name: "scale.cu",
    text: r#"extern "C" __global__ void scale(float* y, const float* x, float a, unsigned long long n) {
        for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
             i += (unsigned long long)gridDim.x * blockDim.x) y[i] = a * x[i];
    }"#,
    options: &[],
};

#[test]
fn a_kernel_compiles_for_both_architectures_and_a_wrong_one_says_where() {
    let Some(options) = wheels() else { return };
    let nvrtc = nvrtc(&options).unwrap();
    let images = check_compiles(nvrtc, &KERNEL, &["sm_80", "sm_90"]).unwrap();
    for (image, architecture) in images.iter().zip([80, 90]) {
        // Machine code (case B51): an ELF file for NVIDIA's GPUs, with the architecture in the lowest bytes of its flags.
        assert!(image.cubin.starts_with(b"\x7fELF") && image.log.is_empty());
        assert!(image.cubin[18..20] == [190, 0] && image.cubin[48..50].contains(&architecture), "{architecture}");
    }
    let wrong = KernelSource { text: "extern \"C\" __global__ void f() { g(); }", ..KERNEL };
    match check_compiles(nvrtc, &wrong, &["sm_90"]) {
        Err(CudaError::Compile { log, .. }) => assert!(log.contains("scale.cu(1)") && log.contains('g'), "{log}"),
        other => panic!("{other:?}"),
    }
    assert!(check_compiles(nvrtc, &KERNEL, &["sm_1"]).is_err());
}

#[test]
fn a_compiled_kernel_is_kept_on_disk() {
    let Some(options) = wheels() else { return };
    let nvrtc = nvrtc(&options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let first = CubinCache::new(Some(folder.path().into())).cubin(nvrtc, &KERNEL, "sm_90").unwrap();
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let second = CubinCache::new(Some(folder.path().into())).cubin(nvrtc, &KERNEL, "sm_90").unwrap();
    assert_eq!(first, second);
}

/// One that does not compile stops none of the others, and says so when it is asked for.
#[test]
fn several_kernels_are_compiled_side_by_side() {
    let Some(options) = wheels() else { return };
    let nvrtc = nvrtc(&options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let broken = KernelSource { name: "broken.cu", text: "no code", options: &[] };
    let stems = ["add.cu", "sgd.cu", "accuracy.cu"];
    let sources =
        stems.map(|name| KernelSource { name, text: vdnn_cuda::kernels::source(name).unwrap(), options: &[] });
    let cache = CubinCache::new(Some(folder.path().into()));
    cache.compile_all(nvrtc, &[sources[0], broken, sources[1], sources[2]], "sm_90");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    let alone = CubinCache::new(None);
    for source in &sources {
        assert_eq!(cache.cubin(nvrtc, source, "sm_90").unwrap(), alone.cubin(nvrtc, source, "sm_90").unwrap());
    }
    assert!(matches!(cache.cubin(nvrtc, &broken, "sm_90"), Err(CudaError::Compile { .. })));
}

#[test]
fn every_source_compiles_without_a_word() {
    let Some(options) = wheels() else { return };
    let nvrtc = nvrtc(&options).unwrap();
    for (name, text) in vdnn_cuda::kernels::ALL {
        let source = KernelSource { name, text, options: &[] };
        for image in check_compiles(nvrtc, &source, &["sm_90"]).unwrap_or_else(|e| panic!("{e}")) {
            assert_eq!(image.log, "", "{name}");
        }
    }
}
