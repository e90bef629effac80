//! Small graphs under construction: inputs whose names say what fills them (`single.rs`), ops over them, results read back.

use crate::Outcome;
use vdnn_graph::op::Cast;
use vdnn_graph::{Graph, LayerId, Op, Phase, ValueId};
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

/// In which type a case's maps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    /// f32 in NCHW order.
    Plain,
    /// A half type or f32, images in NHWC order: cast from f32 before, to f32 in NCHW order after.
    Inner(DType),
    /// f32 of numbers that the type has: what the type is compared with.
    Rounded(DType),
}

/// A graph under construction whose inputs are filled by their names.
pub struct Build {
    pub graph: Graph,
    pub maps: Maps,
    /// Values read back, in the order of calls.
    pub outputs: Vec<ValueId>,
    named: usize,
    /// Persistents of all cases live on one device, so no two have the same name.
    case: usize,
    nodes: usize,
    /// Outputs that must be the same to the last bit on the GPU.
    pub pairs: Vec<(ValueId, ValueId)>,
}

impl Build {
    pub fn new(name: &str, case: usize) -> Self {
        let mut graph = Graph::new(name);
        graph.begin_layer("layer");
        Build { graph, maps: Maps::Plain, outputs: Vec::new(), named: 0, case, nodes: 0, pairs: Vec::new() }
    }

    /// A value as the case's maps are: cast to their type with so many padding channels, or as it is.
    fn cast(&mut self, id: ValueId, padding: u32) -> ValueId {
        let Maps::Inner(dtype) = self.maps else { return id };
        let ty = &self.graph.value(id).ty;
        let layout = match ty.shape.rank() {
            4 => Layout { order: MemoryOrder::Nhwc, channel_padding: padding },
            _ => Layout::default(),
        };
        if (ty.dtype, ty.layout) == (dtype, layout) {
            return id;
        }
        self.cast_to("cast", id, Cast { dtype, layout })
    }

    fn cast_to(&mut self, what: &str, id: ValueId, to: Cast) -> ValueId {
        let name = format!("{what}{}", self.graph.values().len());
        self.graph.push_at(&name, Op::Cast(to), &[id], Phase::Forward, LayerId(0)).expect("floats can be cast")[0]
    }

    /// The kind of an input whose numbers the type has, where they must be.
    fn kind(&self, kind: &str) -> String {
        match self.maps {
            Maps::Plain => kind.to_string(),
            Maps::Inner(dtype) | Maps::Rounded(dtype) => format!("{dtype}.{kind}"),
        }
    }

    /// Reads a value back, as f32 in NCHW order.
    pub fn back(&mut self, id: ValueId) {
        let ty = &self.graph.value(id).ty;
        let moved = ty.dtype == DType::F32 && ty.layout != Layout::default();
        let id = match ty.dtype.is_half() || moved {
            true => self.cast_to("back", id, Cast { dtype: DType::F32, layout: Layout::default() }),
            false => id,
        };
        self.graph.read_back(id);
        self.outputs.push(id);
    }

    /// Reads bytes back where they lie as the CPU has them.
    pub fn bytes(&mut self, id: ValueId) {
        if self.maps == Maps::Plain {
            self.graph.read_back(id);
        }
    }

    /// Normal numbers in f32, whatever maps are.
    pub fn plain(&mut self, dims: &[u64]) -> ValueId {
        let kind = self.kind("x");
        self.input(&kind, TensorType::new(dims, DType::F32))
    }

    /// Normal numbers with padding channels, where the maps have channels innermost.
    pub fn padded(&mut self, dims: &[u64], padding: u32) -> ValueId {
        let kind = self.kind("x");
        let id = self.input(&kind, TensorType::new(dims, DType::F32));
        self.cast(id, padding)
    }

    /// Normal numbers.
    pub fn x(&mut self, dims: &[u64]) -> ValueId {
        self.padded(dims, 0)
    }

    /// Numbers in 0.5..1.5.
    pub fn positive(&mut self, dims: &[u64]) -> ValueId {
        let kind = self.kind("positive");
        let id = self.input(&kind, TensorType::new(dims, DType::F32));
        self.cast(id, 0)
    }

    /// Normal numbers over 512.
    pub fn small(&mut self, dims: &[u64]) -> ValueId {
        let kind = self.kind("small");
        let id = self.input(&kind, TensorType::new(dims, DType::F32));
        self.cast(id, 0)
    }

    /// Few different numbers: ties, zeros of both signs, infinities and not-a-numbers.
    pub fn awkward(&mut self, dims: &[u64]) -> ValueId {
        let kind = self.kind("awkward");
        let id = self.input(&kind, TensorType::new(dims, DType::F32));
        self.cast(id, 0)
    }

    /// Reads both values back and has them compared bit for bit on the GPU.
    pub fn same(&mut self, a: ValueId, b: ValueId) {
        [a, b].into_iter().for_each(|id| self.back(id));
        if let [.., a, b] = self.outputs[..] {
            self.pairs.push((a, b));
        }
    }

    /// Labels below 10.
    pub fn labels(&mut self, n: u64) -> ValueId {
        self.input("labels", TensorType::new([n], DType::I32))
    }

    /// An image of bytes.
    pub fn pixels(&mut self, dims: &[u64]) -> ValueId {
        self.input("pixels", TensorType::new(dims, DType::U8))
    }

    /// The iteration, 3.
    pub fn iteration(&mut self) -> ValueId {
        self.input("iteration", TensorType::new([1], DType::U64))
    }

    pub fn rate(&mut self) -> ValueId {
        self.input("rate", TensorType::new([1], DType::F32))
    }

    pub fn parameter(&mut self, dims: &[u64]) -> ValueId {
        self.named += 1;
        let matrix = dims.len() > 1;
        let kind = if matrix { self.kind("parameter") } else { "parameter".to_string() };
        let name = format!("{kind}{}.{}", self.case, self.named);
        let id = self.graph.parameter(&name, TensorType::new(dims, DType::F32)).expect("names differ");
        if matrix { self.cast(id, 0) } else { id }
    }

    /// A state of numbers in 0.5..1.5.
    pub fn state(&mut self, dims: &[u64]) -> ValueId {
        self.named += 1;
        let name = format!("positive{}.{}", self.case, self.named);
        self.graph.state(&name, TensorType::new(dims, DType::F32)).expect("names differ")
    }

    /// A counter of steps.
    pub fn count(&mut self) -> ValueId {
        self.named += 1;
        let name = format!("count{}.{}", self.case, self.named);
        self.graph.state(&name, TensorType::new([1], DType::I32)).expect("names differ")
    }

    fn input(&mut self, kind: &str, ty: TensorType) -> ValueId {
        self.named += 1;
        let name = format!("{kind}{}", self.named);
        self.graph.input(&name, ty).expect("names differ")
    }

    pub fn push(&mut self, op: Op, inputs: &[ValueId]) -> Outcome<Vec<ValueId>> {
        self.nodes += 1;
        let name = format!("{}{}", op.kind(), self.nodes);
        let phase = if op.has_effect() { Phase::Update } else { Phase::Forward };
        Ok(self.graph.push_at(&name, op, inputs, phase, LayerId(0))?)
    }

    /// Pushes and reads back all results.
    pub fn read(&mut self, op: Op, inputs: &[ValueId]) -> Outcome {
        let effect = op.has_effect();
        for output in self.push(op, inputs)? {
            if !effect {
                self.back(output);
            }
        }
        Ok(())
    }
}
