//! Encoded gradient rules against the plain ones, bit for bit: ties, zeros of both signs, infinities and not-a-numbers,
//! windows of every kind, slices, in place, on one thread and on three.

use crate::golden::{Form, Operand, Real, Stored, cases, run, types};
use crate::{bits, in_pool};
use vdnn_graph::Op;
use vdnn_graph::op::{MaxPool2d, MaxPool2dIndicesGrad, NO_PLACE, Window};
use vdnn_runtime::cpu::{Input, Launch, Output, choices_of, launch};
use vdnn_runtime::{View, ViewMut};
use vdnn_tensor::{DType, Philox, Shape, TensorType};

/// Few distinct values, some of them awkward.
fn awkward(shape: &[u64], stream: u64) -> Operand {
    let values = [0.0, -0.0, 1.0, 1.0, -1.0, 2.5, -3.0, 1e-40, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5];
    let mut random = Philox::new(17, stream);
    let count = shape.iter().product::<u64>();
    let pick = |_| values[(random.uniform() * values.len() as f32) as usize % values.len()];
    Operand::new(shape, (0..count).map(pick).collect())
}

/// Every window in one value, so that only the first may win.
fn constant(shape: &[u64], value: f64) -> Operand {
    Operand::new(shape, vec![value; shape.iter().product::<u64>() as usize])
}

fn normal(shape: &[u64], stream: u64) -> Operand {
    let mut random = Philox::new(18, stream);
    let count = shape.iter().product::<u64>();
    Operand::new(shape, (0..count).map(|_| f64::from(random.normal() as f32)).collect())
}

fn plain<T: Real>(op: &Op, inputs: &[Operand]) -> Vec<f64> {
    let (ins, outs) = types::<T>(op, inputs);
    let choice = choices_of(op, &ins, &outs).unwrap().remove(0);
    run::<T>(op, inputs, &choice, &Form::Plain).unwrap().remove(0)
}

fn elements(operand: &Operand) -> Vec<f64> {
    let crate::golden::Elements::Real(elements) = &operand.elements else { panic!("real operands only") };
    elements.clone()
}

/// (X) → Y and bytes.
fn forward<T: Real>(op: &Op, x: &Operand, form: &Form) -> (Vec<f64>, Vec<u8>) {
    let (input_types, output_types) = types::<T>(op, std::slice::from_ref(x));
    assert!(choices_of(op, &input_types, &output_types).unwrap().iter().all(|choice| choice.workspace == 0));
    let (sliced, over) = (matches!(form, Form::Sliced | Form::SlicedInPlace(_)), is_over(form));
    let given = elements(x);
    let held = Stored::<T>::new(&x.shape, sliced, |at| given[at]);
    let mut y = Stored::<T>::new(&output_types[0].shape, sliced, |at| if over { given[at] } else { f64::NAN });
    let mut bytes = vec![0xa5; output_types[1].shape.elements() as usize];
    let input = if over { Input::InPlace(0) } else { T::input(held.view()) };
    let outputs = vec![T::output(y.view_mut()), Output::U8(ViewMut::from_slice(&mut bytes))];
    call(op, [&input_types, &output_types], vec![input], outputs);
    (y.read(), bytes)
}

/// (bytes, dY) → dX.
fn backward<T: Real>(op: &Op, x: &Shape, bytes: (&TensorType, &[u8]), dy: &Operand, form: &Form) -> Vec<f64> {
    let types = [bytes.0.clone(), TensorType::new(dy.shape.clone(), T::DTYPE)];
    let output_types = [TensorType::new(x.clone(), T::DTYPE)];
    let (sliced, over) = (matches!(form, Form::Sliced | Form::SlicedInPlace(_)), is_over(form));
    let given = elements(dy);
    let held = Stored::<T>::new(&dy.shape, sliced, |at| given[at]);
    let mut dx = Stored::<T>::new(x, sliced, |at| if over { given[at] } else { f64::NAN });
    let gradient = if over { Input::InPlace(0) } else { T::input(held.view()) };
    let inputs = vec![Input::U8(View::from_slice(bytes.1)), gradient];
    call(op, [&types, &output_types], inputs, vec![T::output(dx.view_mut())]);
    dx.read()
}

fn is_over(form: &Form) -> bool {
    matches!(form, Form::InPlace(_) | Form::SlicedInPlace(_))
}

fn call(op: &Op, types: [&[TensorType]; 2], inputs: Vec<Input<'_>>, outputs: Vec<Output<'_>>) {
    let [input_types, output_types] = types;
    let (algorithm, workspace) = ("loop", None);
    launch(Launch { node: "node", op, input_types, output_types, algorithm, inputs, outputs, workspace }).unwrap();
}

fn check_relu<T: Real>(x: &Operand, dy: &Operand) {
    let y = plain::<T>(&Op::Relu, std::slice::from_ref(x));
    let dx = plain::<T>(&Op::ReluGrad, &[Operand::new(x.shape.clone(), y.clone()), dy.clone()]);
    let ty = vdnn_graph::op::mask_type(&TensorType::new(x.shape.clone(), T::DTYPE));
    let per_sample = x.shape.elements_per_sample() as usize;
    for threads in [1, 3] {
        for form in Form::all(&Op::ReluMask, 1) {
            let (found, mask) = in_pool(threads, || forward::<T>(&Op::ReluMask, x, &form));
            assert_eq!(bits(std::slice::from_ref(&found)), bits(std::slice::from_ref(&y)), "Y as {form:?}");
            for (index, &y) in y.iter().enumerate() {
                let (sample, at) = (index / per_sample, index % per_sample);
                let byte = mask[sample * per_sample.div_ceil(8) + at / 8];
                assert_eq!(byte >> (at % 8) & 1 == 1, y > 0.0 || y.is_nan(), "element {index}");
            }
            let spare = per_sample.div_ceil(8) * 8 - per_sample;
            let rows = mask.chunks(per_sample.div_ceil(8).max(1));
            assert!(rows.into_iter().all(|row| row.last().unwrap().leading_zeros() as usize >= spare));
            for form in Form::all(&Op::ReluMaskGrad, 2) {
                let op = Op::ReluMaskGrad;
                let found = in_pool(threads, || backward::<T>(&op, &x.shape, (&ty, &mask), dy, &form));
                assert_eq!(bits(std::slice::from_ref(&found)), bits(std::slice::from_ref(&dx)), "dX as {form:?}");
            }
        }
    }
}

#[test]
fn a_mask_gives_the_bits_of_y() {
    for (index, shape) in [[2, 3, 5, 7], [3, 8, 4, 4], [1, 1, 1, 1], [2, 5, 90, 90], [1, 3, 100, 90]].iter().enumerate()
    {
        let (x, dy) = (awkward(shape, index as u64), awkward(shape, 50 + index as u64));
        check_relu::<f32>(&x, &dy);
        check_relu::<f64>(&x, &dy);
    }
    check_relu::<f32>(&awkward(&[7, 13], 90), &awkward(&[7, 13], 91));
    check_relu::<f32>(&Operand::new([0, 13], vec![]), &Operand::new([0, 13], vec![]));
}

fn check_pool<T: Real>(window: Window, x: &Operand) {
    let pool = MaxPool2d { window };
    let (forward_op, plain_op) = (Op::MaxPool2dIndices(pool), Op::MaxPool2d(pool));
    let y = plain::<T>(&plain_op, std::slice::from_ref(x));
    let y_type = types::<T>(&plain_op, std::slice::from_ref(x)).1.remove(0);
    let dy = awkward(y_type.shape.dims(), 7);
    let held = Operand::new(y_type.shape.clone(), y.clone());
    let dx = plain::<T>(&Op::MaxPool2dGrad(pool), &[x.clone(), held, dy.clone()]);
    let ty = TensorType::new(y_type.shape.dims(), DType::U8);
    let input = [x.shape.dim(2), x.shape.dim(3)];
    let backward_op = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input });
    for threads in [1, 3] {
        for form in [Form::Plain, Form::Sliced] {
            let (found, indices) = in_pool(threads, || forward::<T>(&forward_op, x, &form));
            assert_eq!(bits(std::slice::from_ref(&found)), bits(std::slice::from_ref(&y)), "{window:?} Y as {form:?}");
            let places = (window.kernel[0] * window.kernel[1]) as u8;
            assert!(indices.iter().all(|&index| index < places || index == NO_PLACE), "{window:?}");
            let found = in_pool(threads, || backward::<T>(&backward_op, &x.shape, (&ty, &indices), &dy, &form));
            assert_eq!(
                bits(std::slice::from_ref(&found)),
                bits(std::slice::from_ref(&dx)),
                "{window:?} dX as {form:?}"
            );
        }
    }
}

#[test]
fn indices_give_the_bits_of_x_and_y() {
    let w = |kernel, stride, padding, dilation, ceil_mode| Window { kernel, stride, padding, dilation, ceil_mode };
    let windows = [
        Window::square(2),
        w([3, 3], [2, 2], [1, 1], [1, 1], false),
        w([3, 3], [2, 2], [0, 0], [1, 1], true),
        w([3, 3], [2, 2], [1, 1], [1, 1], true),
        w([3, 3], [1, 1], [1, 1], [1, 1], false),
        w([2, 3], [1, 2], [1, 0], [2, 1], false),
        w([3, 2], [2, 3], [1, 1], [1, 2], true),
        w([2, 2], [2, 2], [1, 1], [1, 1], true),
        w([1, 1], [2, 2], [0, 0], [1, 1], true),
        w([2, 2], [1, 1], [1, 1], [3, 9], false),
        w([5, 5], [3, 2], [2, 2], [2, 1], true),
    ];
    for window in windows {
        for size in [[9, 8], [11, 13]] {
            let shape = [2, 3, size[0], size[1]];
            let images = [awkward(&shape, 1), normal(&shape, 2), constant(&shape, 0.0), constant(&shape, f64::NAN)];
            for x in images.iter().chain([&constant(&shape, f64::NEG_INFINITY)]) {
                check_pool::<f32>(window, x);
                check_pool::<f64>(window, x);
            }
        }
    }
    check_pool::<f32>(Window::square(2), &Operand::new([0, 3, 8, 8], vec![]));
}

#[test]
fn indices_give_the_bits_of_every_golden_case() {
    let mut seen = 0;
    for case in cases("max_pool2d", "") {
        if let Op::MaxPool2d(pool) = case.op {
            check_pool::<f32>(pool.window, &case.inputs[0]);
            check_pool::<f64>(pool.window, &case.inputs[0]);
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen} cases");
}

#[test]
fn a_window_of_more_places_than_a_byte_has_is_refused() {
    let pool = MaxPool2d { window: Window::square(16) };
    let mut graph = vdnn_graph::Graph::new("large");
    let x = graph.input("x", TensorType::new([1, 1, 16, 16], DType::F32)).unwrap();
    let error = graph.push("pool", Op::MaxPool2dIndices(pool), &[x]).unwrap_err().to_string();
    assert!(error.contains("at most 255 places for indices, found 16x16"), "{error}");
}
