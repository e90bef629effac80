//! Images of bytes against PyTorch: bit for bit in double precision and rounded from it, closely in single; in half precision
//! what the f32 numbers round to.

use crate::golden::{Real, Stored};
use crate::in_pool;
use half::bf16;
use safetensors::SafeTensors;
use vdnn_graph::Op;
use vdnn_graph::op::Normalise;
use vdnn_runtime::cpu::{Input, Launch, Output, choices_of, launch};
use vdnn_runtime::{View, ViewMut};
use vdnn_tensor::{DType, TensorType};

struct Golden {
    name: String,
    op: Normalise,
    dims: Vec<u64>,
    bytes: Vec<u8>,
    f32: Vec<f32>,
    f64: Vec<f64>,
}

fn golden() -> Vec<Golden> {
    let path = format!("{}/tests/golden/normalise.safetensors", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let tensors = SafeTensors::deserialize(&file).expect("a golden file");
    let (_, header) = SafeTensors::read_metadata(&file).expect("a golden file");
    let cases = header.metadata().as_ref().expect("metadata").iter().filter(|(name, _)| *name != "torch");
    let case = |(name, op): (&String, &String)| {
        let op: serde_json::Value = serde_json::from_str(op).unwrap();
        let numbers = |of: &str| op[of].as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect();
        let tensor = |part: &str| tensors.tensor(&format!("{name}/{part}")).unwrap();
        let image = tensor("in");
        let f32s = tensor("f32").data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let f64s = tensor("f64").data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        Golden {
            name: name.clone(),
            op: Normalise { mean: numbers("mean"), std: numbers("std"), dtype: DType::F32 },
            dims: image.shape().iter().map(|&dim| dim as u64).collect(),
            bytes: image.data().to_vec(),
            f32: f32s,
            f64: f64s,
        }
    };
    cases.map(case).collect()
}

fn run<T: Real>(case: &Golden, sliced: bool) -> Vec<f64> {
    let [x, y] = [DType::U8, T::DTYPE].map(|dtype| TensorType::new(case.dims.clone(), dtype));
    let op = Op::Normalise(Normalise { dtype: T::DTYPE, ..case.op.clone() });
    let mut out = Stored::<T>::new(&y.shape, sliced, |_| f64::NAN);
    let outputs = vec![T::output(out.view_mut())];
    call(&op, [x, y], Input::U8(View::from_slice(&case.bytes)), outputs, None);
    out.read()
}

fn call(op: &Op, [x, y]: [TensorType; 2], input: Input<'_>, outputs: Vec<Output<'_>>, workspace: Option<&mut [u8]>) {
    let made = Launch {
        node: "normalise",
        op,
        input_types: &[x],
        output_types: &[y],
        algorithm: "loop",
        inputs: vec![input],
        outputs,
        workspace,
    };
    launch(made).unwrap();
}

#[test]
fn numbers_are_pytorchs() {
    let cases = golden();
    assert_eq!(cases.len(), 4);
    for case in &cases {
        for sliced in [false, true] {
            let wide = in_pool(3, || run::<f64>(case, sliced));
            assert_eq!(bits(&wide), bits(&case.f64), "{} in f64", case.name);
            let single = in_pool(3, || run::<f32>(case, sliced));
            let rounded: Vec<f64> = case.f64.iter().map(|&wide| f64::from(wide as f32)).collect();
            assert_eq!(bits(&single), bits(&rounded), "{} in f32", case.name);
        }
        for (at, (&torch, &wide)) in case.f32.iter().zip(&case.f64).enumerate() {
            // PyTorch in f32 rounds three times; what cancels keeps the error of byte / 255 − mean.
            let error = (f64::from(torch) - wide).abs();
            assert!(error <= 3e-7 * (1.0 + 1.0 / f64::from(case.op.std[at_channel(case, at)]).abs()), "{}", case.name);
        }
    }
}

fn at_channel(case: &Golden, at: usize) -> usize {
    let plane = (case.dims[2] * case.dims[3]) as usize;
    at / plane % case.dims[1] as usize
}

#[test]
fn half_precision_is_what_single_precision_rounds_to() {
    for case in golden() {
        let [x, y] = [DType::U8, DType::BF16].map(|dtype| TensorType::new(case.dims.clone(), dtype));
        let op = Op::Normalise(Normalise { dtype: DType::BF16, ..case.op.clone() });
        let choice = choices_of(&op, std::slice::from_ref(&x), std::slice::from_ref(&y)).unwrap().remove(0);
        let (mut out, mut workspace) = (vec![bf16::NAN; case.bytes.len()], vec![0u64; choice.workspace as usize / 8]);
        let workspace = bytemuck::cast_slice_mut(&mut workspace);
        let outputs = vec![Output::BF16(ViewMut::from_slice(&mut out))];
        call(&op, [x, y], Input::U8(View::from_slice(&case.bytes)), outputs, Some(workspace));
        let expected: Vec<bf16> = case.f64.iter().map(|&wide| bf16::from_f32(wide as f32)).collect();
        assert_eq!(out, expected, "{}", case.name);
    }
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}
