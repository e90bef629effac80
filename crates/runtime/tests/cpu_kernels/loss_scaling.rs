//! Loss scaling against PyTorch's `GradScaler`: scale, good steps and weights over scripted steps, some of which overflow; and
//! gradients of all kinds unscaled at once.

use safetensors::SafeTensors;
use serde_json::Value;
use vdnn_graph::Op;
use vdnn_graph::op::{Adam, LossScaleUpdate, Sgd, Unscale};
use vdnn_runtime::cpu::{Input, LOOP, Launch, Output, launch};
use vdnn_runtime::{View, ViewMut};
use vdnn_tensor::{DType, TensorType};

/// A training state of three weights under a scale.
struct Run {
    update: LossScaleUpdate,
    optimizer: Op,
    scale: Vec<f32>,
    good: Vec<i32>,
    skipped: Vec<i32>,
    w: Vec<f32>,
    states: Vec<Vec<f32>>,
}

fn f32s(len: u64) -> TensorType {
    TensorType::new([len], DType::F32)
}

fn kernel(op: &Op, types: [&[TensorType]; 2], inputs: Vec<Input<'_>>, outputs: Vec<Output<'_>>) {
    let [input_types, output_types] = types;
    let (node, algorithm, workspace) = ("node", LOOP, None);
    launch(Launch { node, op, input_types, output_types, algorithm, inputs, outputs, workspace }).unwrap();
}

fn read(numbers: &[f32]) -> Input<'_> {
    Input::F32(View::from_slice(numbers))
}

fn write(numbers: &mut [f32]) -> Output<'_> {
    Output::F32(ViewMut::from_slice(numbers))
}

impl Run {
    /// One iteration after backward: the kernels of the update, in the order in which autograd has them.
    fn step(&mut self, iteration: u64, gradient: &[f32]) {
        let (one, three) = (f32s(1), f32s(3));
        let (mut found, mut unscaled) = (vec![9.0f32], gradient.to_vec());
        let types = [vec![one.clone(), one.clone(), three.clone()], vec![one.clone(), three.clone()]];
        // In place, as a schedule has it.
        kernel(
            &Op::Unscale(Unscale { gradients: 1 }),
            [&types[0], &types[1]],
            vec![read(&self.scale), read(&[2.5]), Input::InPlace(1)],
            vec![write(&mut found), write(&mut unscaled)],
        );
        let taken = self.advance(iteration, &found);
        let mut types = vec![three.clone(); 2 + self.states.len()];
        types.extend([one.clone(), TensorType::new([1], DType::U64), one]);
        let (rate, steps) = (vec![0.1f32], vec![taken]);
        let mut inputs = vec![Input::InPlace(0), read(&unscaled)];
        inputs.extend((1..=self.states.len()).map(Input::InPlace));
        inputs.extend([read(&rate), Input::U64(View::from_slice(&steps)), read(&found)]);
        let mut outputs = vec![write(&mut self.w)];
        outputs.extend(self.states.iter_mut().map(|state| write(state)));
        kernel(&self.optimizer, [&types, &vec![three; outputs.len()]], inputs, outputs);
    }

    /// Moves the scale; steps taken before.
    fn advance(&mut self, iteration: u64, found: &[f32]) -> u64 {
        let (one, count, counter) = (f32s(1), TensorType::new([1], DType::I32), TensorType::new([1], DType::U64));
        let inputs = [one.clone(), count.clone(), count.clone(), one.clone(), counter.clone()];
        let (at, mut taken) = ([iteration], [0u64]);
        kernel(
            &Op::LossScaleUpdate(self.update),
            [&inputs, &[one, count.clone(), count, counter]],
            vec![
                Input::InPlace(0),
                Input::InPlace(1),
                Input::InPlace(2),
                read(found),
                Input::U64(View::from_slice(&at)),
            ],
            vec![
                write(&mut self.scale),
                Output::I32(ViewMut::from_slice(&mut self.good)),
                Output::I32(ViewMut::from_slice(&mut self.skipped)),
                Output::U64(ViewMut::from_slice(&mut taken)),
            ],
        );
        taken[0]
    }
}

/// Also where the first steps are skipped: dampening starts at the first step taken, and so does Adam's correction.
#[test]
fn scale_and_weights_are_those_of_pytorchs_grad_scaler() {
    let path = format!("{}/tests/golden/loss_scale.safetensors", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let metadata = SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap();
    let (usual, ours) = (serde_json::from_str::<Value>(&metadata["usual"]).unwrap(), LossScaleUpdate::default());
    let rule = [&usual["growth"], &usual["backoff"], &usual["interval"]].map(|number| number.as_f64().unwrap());
    assert_eq!([ours.growth, ours.backoff, f64::from(ours.interval)], rule);
    for name in ["sgd.interval3", "sgd.first_skipped", "adam.first_skipped"] {
        let options: Value = serde_json::from_str(&metadata[name]).unwrap();
        let sgd = Sgd { momentum: 0.9, dampening: 0.5, weight_decay: 0.1, nesterov: false };
        let adam = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
        let (optimizer, states) = if name.starts_with("sgd") { (Op::Sgd(sgd), 1) } else { (Op::Adam(adam), 2) };
        let interval = options["interval"].as_u64().unwrap() as u32;
        let mut run = Run {
            update: LossScaleUpdate { interval, ..LossScaleUpdate::default() },
            optimizer,
            scale: vec![options["initial"].as_f64().unwrap() as f32],
            good: vec![0],
            skipped: vec![0],
            w: vec![1.0, -2.0, 0.5],
            states: vec![vec![0.0; 3]; states],
        };
        let numbers = file.tensor(name).unwrap().data().chunks_exact(8);
        let numbers: Vec<f64> = numbers.map(|word| f64::from_le_bytes(word.try_into().unwrap())).collect();
        let mut overflows = 0;
        for (iteration, row) in numbers.chunks_exact(8).enumerate() {
            let gradient: Vec<f32> = row[..3].iter().map(|&g| g as f32).collect();
            overflows += i32::from(gradient.iter().any(|g| !g.is_finite()));
            run.step(iteration as u64, &gradient);
            assert_eq!(f64::from(run.scale[0]), row[3], "{name}: the scale after step {iteration}");
            assert_eq!(f64::from(run.good[0]), row[4], "{name}: good steps after step {iteration}");
            assert_eq!(run.skipped[0], overflows, "{name}: skipped steps after step {iteration}");
            for (w, expected) in run.w.iter().zip(&row[5..]) {
                let close = (f64::from(*w) - expected).abs() <= 2e-6 * expected.abs().max(1.0);
                assert!(close, "{name}: expected {expected} after step {iteration}, found {w}");
            }
        }
        assert!(overflows > 5 && numbers.len() >= 8 * 40, "{name}");
    }
}

/// The scale never leaves its bounds, nor the counter its type.
#[test]
fn the_scale_has_bounds() {
    let update = LossScaleUpdate { interval: 1, ..LossScaleUpdate::default() };
    let sgd = Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false };
    let (optimizer, states) = (Op::Sgd(sgd), vec![]);
    let (good, skipped, w) = (vec![0], vec![i32::MAX - 1], vec![0.0; 3]);
    let mut run = Run { update, optimizer, scale: vec![4.0], good, skipped, w, states };
    for expected in [2.0, 1.0, 1.0] {
        run.step(0, &[f32::NAN, 0.0, 0.0]);
        assert_eq!((run.scale[0], run.skipped[0]), (expected, i32::MAX));
    }
    run.scale[0] = 4_194_304.0;
    for expected in [8_388_608.0, 16_777_216.0, 16_777_216.0] {
        run.step(0, &[f32::MAX, 0.0, 0.0]);
        assert_eq!((run.scale[0], run.good[0]), (expected, 0));
    }
}
