//! Reads golden cases and runs kernels on them, in every form a schedule may ask for. See `tests/golden/make_golden.py`.

use safetensors::{Dtype, SafeTensors};
use vdnn_graph::{Graph, Op};
use vdnn_runtime::cpu::{Input, Launch, Output, launch};
use vdnn_runtime::{DeviceError, View, ViewMut};
use vdnn_schedule::Choice;
use vdnn_tensor::{DType, Element, Shape, TensorType};

/// What stands between the rows of a sliced operand; kernels must leave it alone.
const GAP: f64 = 77.0;
/// Elements between rows of a sliced operand.
const GAP_LEN: usize = 5;

/// One operand's logical elements.
#[derive(Clone)]
pub struct Operand {
    pub shape: Shape,
    pub elements: Elements,
}

#[derive(Clone)]
pub enum Elements {
    Real(Vec<f64>),
    Labels(Vec<i32>),
    Counter(Vec<u64>),
}

/// An op with operands and what it must make of them.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Vec<f64>>,
}

/// Where operands lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// All adjacent.
    Plain,
    /// Feature maps and their gradients are slices of wider values.
    Sliced,
    /// These outputs lie over these inputs, as (input, output).
    InPlace(Vec<(usize, usize)>),
    /// Both of the above.
    SlicedInPlace(Vec<(usize, usize)>),
}

impl Form {
    /// Every form an op with so many inputs must accept.
    pub fn all(op: &Op, n_inputs: usize) -> Vec<Form> {
        let mut forms = vec![Form::Plain, Form::Sliced];
        for &pair in op.in_place().iter().filter(|(input, _)| *input < n_inputs) {
            forms.push(Form::InPlace(vec![pair]));
            forms.push(Form::SlicedInPlace(vec![pair]));
        }
        if !op.updates().is_empty() {
            forms.push(Form::InPlace(op.updates().to_vec()));
        }
        forms
    }

    fn pairs(&self) -> &[(usize, usize)] {
        match self {
            Form::InPlace(pairs) | Form::SlicedInPlace(pairs) => pairs,
            _ => &[],
        }
    }

    fn is_sliced(&self) -> bool {
        matches!(self, Form::Sliced | Form::SlicedInPlace(_))
    }
}

/// The cases of a file whose names start with `prefix`; at least one.
pub fn cases(file: &str, prefix: &str) -> Vec<Case> {
    let path = format!("{}/tests/golden/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let tensors = SafeTensors::deserialize(&bytes).expect("a golden file");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a golden file");
    let metadata = header.metadata().clone().expect("a golden file names its cases");
    let mut names: Vec<_> = metadata.keys().filter(|name| *name != "torch" && name.starts_with(prefix)).collect();
    names.sort();
    assert!(!names.is_empty(), "{file} has no case {prefix}");
    let operands = |name: &str, side: &str| -> Vec<Operand> {
        let tensors = (0..).map_while(|i| tensors.tensor(&format!("{name}/{side}{i}")).ok());
        tensors.map(|tensor| operand(&tensor)).collect()
    };
    let case = |name: &&String| Case {
        name: name.to_string(),
        op: serde_json::from_str(&metadata[*name]).unwrap_or_else(|error| panic!("{name}: {error}")),
        inputs: operands(name, "in"),
        outputs: operands(name, "out").iter().map(Operand::reals).collect(),
    };
    names.iter().map(case).collect()
}

fn operand(tensor: &safetensors::tensor::TensorView<'_>) -> Operand {
    let shape = Shape::new(tensor.shape().iter().map(|&dim| dim as u64).collect::<Vec<_>>());
    let read = |width: usize| tensor.data().chunks_exact(width);
    let elements = match tensor.dtype() {
        Dtype::F32 => Elements::Real(read(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()),
        Dtype::F64 => Elements::Real(read(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()),
        Dtype::I32 => Elements::Labels(read(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()),
        Dtype::U64 => Elements::Counter(read(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()),
        other => panic!("unexpected {other:?}"),
    };
    Operand { shape, elements }
}

impl Operand {
    pub fn new(shape: impl Into<Shape>, elements: Vec<f64>) -> Self {
        Operand { shape: shape.into(), elements: Elements::Real(elements) }
    }

    fn reals(&self) -> Vec<f64> {
        match &self.elements {
            Elements::Real(elements) => elements.clone(),
            _ => panic!("outputs are real"),
        }
    }

    fn ty(&self, real: DType) -> TensorType {
        let dtype = match self.elements {
            Elements::Real(_) => real,
            Elements::Labels(_) => DType::I32,
            Elements::Counter(_) => DType::U64,
        };
        TensorType::new(self.shape.clone(), dtype)
    }
}

/// The two element types of kernels.
pub trait Real: Element {
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    fn input(view: View<'_, Self>) -> Input<'_>;
    fn output(view: ViewMut<'_, Self>) -> Output<'_>;
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn input(view: View<'_, Self>) -> Input<'_> {
        Input::F32(view)
    }
    fn output(view: ViewMut<'_, Self>) -> Output<'_> {
        Output::F32(view)
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
    fn input(view: View<'_, Self>) -> Input<'_> {
        Input::F64(view)
    }
    fn output(view: ViewMut<'_, Self>) -> Output<'_> {
        Output::F64(view)
    }
}

/// Types of an op's operands.
pub fn types<T: Real>(op: &Op, inputs: &[Operand]) -> (Vec<TensorType>, Vec<TensorType>) {
    let inputs: Vec<TensorType> = inputs.iter().map(|operand| operand.ty(T::DTYPE)).collect();
    let mut graph = Graph::new("types");
    let name = |index| format!("in{index}");
    let ids: Vec<_> =
        inputs.iter().enumerate().map(|(i, ty)| graph.input(&name(i), ty.clone()).expect("a fresh name")).collect();
    let ids = graph.push("node", op.clone(), &ids).unwrap_or_else(|error| panic!("{error}"));
    let outputs = ids.iter().map(|&id| graph.value(id).ty.clone()).collect();
    (inputs, outputs)
}

/// Elements in memory: rows at a stride.
pub struct Stored<T> {
    data: Vec<T>,
    rows: usize,
    row_len: usize,
    stride: usize,
}

impl<T: Real> Stored<T> {
    pub fn new(shape: &Shape, sliced: bool, elements: impl Fn(usize) -> f64) -> Self {
        let (count, samples) = (shape.elements() as usize, shape.samples() as usize);
        let rows = if sliced && shape.rank() > 1 && count > 0 { samples } else { 1 };
        let row_len = count / rows;
        let stride = if rows > 1 { row_len + GAP_LEN } else { row_len };
        let mut data = vec![T::of(GAP); rows * stride];
        for index in 0..count {
            data[index / row_len * stride + index % row_len] = T::of(elements(index));
        }
        Stored { data, rows, row_len, stride }
    }

    pub fn view(&self) -> View<'_, T> {
        View::from_rows(&self.data, self.rows, self.row_len, self.stride)
    }

    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::from_rows(&mut self.data, self.rows, self.row_len, self.stride)
    }

    pub fn read(&self) -> Vec<f64> {
        let rows = self.data.chunks(self.stride.max(1));
        for row in rows.clone() {
            assert!(row[self.row_len..].iter().all(|gap| gap.wide() == GAP), "wrote between the rows of a slice");
        }
        rows.flat_map(|row| row[..self.row_len].iter().map(|value| value.wide())).collect()
    }
}

/// True for operands that may be slices: not weights and their gradients.
fn may_be_sliced(op: &Op, is_input: bool, index: usize) -> bool {
    match op {
        Op::Conv2d(_) | Op::Conv2dDataGrad(_) | Op::Linear | Op::LinearDataGrad => !is_input || index != 1,
        Op::Conv2dWeightGrad(_) | Op::LinearWeightGrad => is_input,
        _ => op.updates().is_empty(),
    }
}

/// Runs one launch and returns its outputs' elements.
///
/// Outputs and workspace start as not-a-numbers, so that a kernel that reads them shows.
pub fn run<T: Real>(op: &Op, inputs: &[Operand], choice: &Choice, form: &Form) -> Result<Vec<Vec<f64>>, DeviceError> {
    let (input_types, output_types) = types::<T>(op, inputs);
    let real = |operand: &Operand, index: usize| match &operand.elements {
        Elements::Real(elements) => elements[index],
        _ => 0.0,
    };
    let stored: Vec<Stored<T>> = inputs
        .iter()
        .enumerate()
        .map(|(i, operand)| {
            Stored::new(&operand.shape, form.is_sliced() && may_be_sliced(op, true, i), |at| real(operand, at))
        })
        .collect();
    let source = |output: usize| form.pairs().iter().find(|pair| pair.1 == output).map(|pair| &inputs[pair.0]);
    let mut results: Vec<Stored<T>> = output_types
        .iter()
        .enumerate()
        .map(|(o, ty)| {
            let sliced = form.is_sliced() && may_be_sliced(op, false, o);
            Stored::new(&ty.shape, sliced, |at| source(o).map_or(f64::NAN, |from| real(from, at)))
        })
        .collect();
    let input = |index: usize| match (&inputs[index].elements, form.pairs().iter().find(|pair| pair.0 == index)) {
        (_, Some(pair)) => Input::InPlace(pair.1),
        (Elements::Labels(labels), _) => Input::I32(View::from_slice(labels)),
        (Elements::Counter(counter), _) => Input::U64(View::from_slice(counter)),
        (Elements::Real(_), _) => T::input(stored[index].view()),
    };
    let mut workspace = vec![u64::MAX; (choice.workspace as usize).div_ceil(8)];
    launch(Launch {
        node: "node",
        op,
        input_types: &input_types,
        output_types: &output_types,
        algorithm: &choice.algorithm,
        inputs: (0..inputs.len()).map(input).collect(),
        outputs: results.iter_mut().map(|stored| T::output(stored.view_mut())).collect(),
        workspace: (choice.workspace > 0)
            .then(|| &mut bytemuck::cast_slice_mut(&mut workspace)[..choice.workspace as usize]),
    })?;
    Ok(results.iter().map(Stored::read).collect())
}

/// Where outputs may lie: nowhere over an input, over each one that is there, and over all at once that go together.
pub fn overs(op: &Op, n_inputs: usize) -> Vec<Vec<(usize, usize)>> {
    let pairs = op.in_place().iter().copied().filter(|&(input, _)| input < n_inputs);
    let mut together: Vec<(usize, usize)> = Vec::new();
    for (input, output) in pairs.clone() {
        if together.iter().all(|&(i, o)| i != input && o != output) {
            together.push((input, output));
        }
    }
    let mut overs: Vec<Vec<_>> = std::iter::once(vec![]).chain(pairs.map(|pair| vec![pair])).collect();
    overs.extend((together.len() > 1).then_some(together));
    overs
}
