//! Runs a program node by node, in order, in plain vectors: no schedule, no arena, no policy.
//!
//! Every storage of the program's aliasing is one vector, so that what is overwritten is really gone. Bytes never written
//! are NaN. Kernels get copies of their operands, in place where the aliasing says so.

use std::collections::BTreeMap;
use vdnn_graph::{Graph, InPlace, Location, Node, Program, ValueId};
use vdnn_runtime::cpu::{Input, Launch, Output, choices, launch};
use vdnn_runtime::{View, ViewMut};
use vdnn_tensor::{DType, HostTensor, TensorType};

/// The bytes of one storage, by element.
#[derive(Clone, Debug)]
enum Storage {
    F64(Vec<f64>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    U8(Vec<u8>),
}

impl Storage {
    fn new(dtype: DType, n: usize) -> Self {
        match dtype {
            DType::I32 => Storage::I32(vec![0; n]),
            DType::U64 => Storage::U64(vec![0; n]),
            DType::U8 => Storage::U8(vec![0xa5; n]),
            _ => Storage::F64(vec![f64::NAN; n]),
        }
    }

    fn input(&self) -> Input<'_> {
        match self {
            Storage::F64(x) => Input::F64(View::from_slice(x)),
            Storage::I32(x) => Input::I32(View::from_slice(x)),
            Storage::U64(x) => Input::U64(View::from_slice(x)),
            Storage::U8(x) => Input::U8(View::from_slice(x)),
        }
    }

    fn output(&mut self) -> Output<'_> {
        match self {
            Storage::F64(y) => Output::F64(ViewMut::from_slice(y)),
            Storage::I32(y) => Output::I32(ViewMut::from_slice(y)),
            Storage::U64(y) => Output::U64(ViewMut::from_slice(y)),
            Storage::U8(y) => Output::U8(ViewMut::from_slice(y)),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Interpreter {
    pub program: Program,
    storages: BTreeMap<ValueId, Storage>,
    /// Which of a node's algorithms is run, counted from the fastest; the last one where there are fewer.
    pub algorithm: usize,
    /// Where a node has an algorithm of one of these names, that one instead.
    pub named: &'static [&'static str],
}

impl Interpreter {
    pub fn new(graph: Graph, in_place: InPlace) -> Self {
        let program = Program::linearize(graph, in_place).expect("test programs are legal");
        let mut storages = BTreeMap::new();
        for id in program.graph.value_ids().filter(|&id| program.aliases.root(id) == id) {
            let ty = &program.graph.value(id).ty;
            let storage = Storage::new(ty.dtype, ty.shape.elements() as usize);
            storages.insert(id, storage);
        }
        Interpreter { program, storages, algorithm: 0, named: &[] }
    }

    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    fn id(&self, name: &str) -> ValueId {
        self.graph().find_value(name).unwrap_or_else(|| panic!("no value {name} in\n{}", self.graph()))
    }

    /// Writes an input or persistent.
    pub fn set(&mut self, name: &str, elements: &[f64]) {
        let id = self.id(name);
        self.scatter(id, elements);
    }

    pub fn set_tensor(&mut self, name: &str, tensor: &HostTensor) {
        self.set(name, &tensor.to_vec::<f64>().expect("tests compute in f64"));
    }

    pub fn set_labels(&mut self, labels: &[i32]) {
        self.storages.insert(self.id("label"), Storage::I32(labels.to_vec()));
    }

    pub fn set_iteration(&mut self, iteration: u64) {
        self.storages.insert(self.id("iteration"), Storage::U64(vec![iteration]));
    }

    /// Reads what a value's bytes hold now.
    pub fn get(&self, name: &str) -> Vec<f64> {
        self.gather(self.id(name))
    }

    /// Runs every node once.
    pub fn run(&mut self) {
        for step in 0..self.program.order.len() {
            let node = self.program.graph.node(self.program.order[step]).clone();
            self.launch(&node);
        }
    }

    fn launch(&mut self, node: &Node) {
        let choices = choices(self.graph(), node).expect("every op has a kernel");
        let named = choices.iter().find(|choice| self.named.contains(&choice.algorithm.as_str()));
        let choice = named.unwrap_or(&choices[self.algorithm.min(choices.len() - 1)]);
        let types = |ids: &[ValueId]| ids.iter().map(|&id| self.graph().value(id).ty.clone()).collect::<Vec<_>>();
        let (input_types, output_types) = (types(&node.inputs), types(&node.outputs));
        let sources: Vec<Storage> = node.inputs.iter().map(|&id| self.storage_of(id)).collect();
        let over: Vec<Option<usize>> = (0..node.inputs.len()).map(|input| self.output_over(node, input)).collect();
        let mut results: Vec<Storage> = Vec::new();
        for (index, ty) in output_types.iter().enumerate() {
            let source = over.iter().position(|output| *output == Some(index));
            let fresh = || Storage::new(ty.dtype, ty.shape.elements() as usize);
            results.push(source.map_or_else(fresh, |input| sources[input].clone()));
        }
        let mut workspace = vec![0u64; choice.workspace.div_ceil(8) as usize];
        let operands = sources.iter().zip(&over).map(|(source, over)| match over {
            Some(output) => Input::InPlace(*output),
            None => source.input(),
        });
        let launched = launch(Launch {
            node: &node.name,
            op: &node.op,
            input_types: &input_types,
            output_types: &output_types,
            algorithm: &choice.algorithm,
            inputs: operands.collect(),
            outputs: results.iter_mut().map(Storage::output).collect(),
            workspace: Some(bytemuck_bytes(&mut workspace)),
        });
        launched.unwrap_or_else(|error| panic!("{}: {error}", node.name));
        for (&id, result) in node.outputs.iter().zip(results) {
            match result {
                Storage::F64(elements) => self.scatter(id, &elements),
                other => drop(self.storages.insert(self.program.aliases.root(id), other)),
            }
        }
    }

    /// The output that lies exactly over an input, where the op can run in place.
    fn output_over(&self, node: &Node, input: usize) -> Option<usize> {
        let location = |id: ValueId| self.program.aliases.location(id);
        let updates = node.op.updates();
        let pairs = node.op.in_place().iter().chain(updates.iter());
        pairs
            .filter(|(from, _)| *from == input)
            .find_map(|&(_, output)| (location(node.inputs[input]) == location(node.outputs[output])).then_some(output))
    }

    fn storage_of(&self, id: ValueId) -> Storage {
        match &self.storages[&self.program.aliases.root(id)] {
            Storage::F64(_) => Storage::F64(self.gather(id)),
            other => other.clone(),
        }
    }

    fn gather(&self, id: ValueId) -> Vec<f64> {
        let Storage::F64(storage) = &self.storages[&self.program.aliases.root(id)] else {
            panic!("{} is no floating-point value", self.graph().value(id).name)
        };
        let rows = rows(self.program.aliases.location(id));
        rows.flat_map(|row| storage[row].iter().copied()).collect()
    }

    fn scatter(&mut self, id: ValueId, elements: &[f64]) {
        let name = &self.program.graph.value(id).name;
        let location = self.program.aliases.location(id);
        let Some(Storage::F64(storage)) = self.storages.get_mut(&location.root) else {
            panic!("{name} is no floating-point value")
        };
        let expected = location.rows * location.row_bytes / 8;
        assert_eq!(elements.len() as u64, expected, "elements of {name}");
        let mut rest = elements;
        for row in rows(location) {
            let (head, tail) = rest.split_at(row.len());
            storage[row].copy_from_slice(head);
            rest = tail;
        }
    }
}

fn rows(location: Location) -> impl Iterator<Item = std::ops::Range<usize>> {
    let element = |bytes: u64| (bytes / 8) as usize;
    (0..location.rows).map(move |row| {
        let start = element(location.offset + row * location.row_stride);
        start..start + element(location.row_bytes)
    })
}

fn bytemuck_bytes(words: &mut [u64]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

/// Numbers of unit variance that depend on nothing but the name.
pub fn noise(name: &str, ty: &TensorType) -> Vec<f64> {
    let tensor = vdnn_layers::Init::Normal { std: 1.0 }.fill(11, name, ty);
    tensor.to_vec::<f64>().expect("tests compute in f64")
}
