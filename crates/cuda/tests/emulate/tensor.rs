//! Operands in this process's memory, dense or as a slice of a larger batch, with guards that nobody may change.

use crate::emulator;
use std::cell::Cell;
use vdnn_cuda::kernels::{self, Operand};
use vdnn_graph::op::Op;
use vdnn_tensor::{DType, Philox, TensorType};

/// What lies between and around rows.
const GUARD: f32 = -777.25;

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// In one piece, on 16 bytes.
    Dense,
    /// Rows at a distance that keeps packs aligned.
    Sliced,
    /// Rows on 4 bytes only.
    Odd,
}

/// All places, to run every case in.
pub const PLACES: [Place; 3] = [Place::Dense, Place::Sliced, Place::Odd];

/// A tensor of f32.
pub struct Tensor {
    pub ty: TensorType,
    /// Cells, because kernels write behind the compiler's back.
    memory: Vec<Cell<f32>>,
    start: usize,
    stride: usize,
}

impl Tensor {
    pub fn new(dims: &[u64], place: Place, values: &[f32]) -> Self {
        let ty = TensorType::new(dims, DType::F32);
        let (rows, row) = (ty.shape.samples() as usize, ty.shape.elements_per_sample() as usize);
        let stride = match place {
            Place::Dense => row,
            Place::Sliced => row.next_multiple_of(4) + 8,
            Place::Odd => row + 3,
        };
        let memory = vec![Cell::new(GUARD); rows * stride + 16];
        let aligned = memory.as_ptr().align_offset(16);
        let start = if place == Place::Odd { aligned + 5 } else { aligned + 4 };
        for n in 0..rows {
            for i in 0..row {
                memory[start + n * stride + i].set(values[n * row + i]);
            }
        }
        Tensor { ty, memory, start, stride }
    }

    pub fn filled(dims: &[u64], place: Place, value: f32) -> Self {
        Tensor::new(dims, place, &vec![value; dims.iter().product::<u64>() as usize])
    }

    pub fn operand(&self) -> Operand<'_> {
        let address = self.memory.as_ptr().wrapping_add(self.start) as u64;
        Operand { ty: &self.ty, address, row_stride: self.stride as u64 }
    }

    /// The values in logical order, after checking the guards.
    pub fn values(&self) -> Vec<f32> {
        let (rows, row) = (self.ty.shape.samples() as usize, self.ty.shape.elements_per_sample() as usize);
        let stride = self.stride.max(1);
        let inside = |i: usize| i >= self.start && (i - self.start) / stride < rows && (i - self.start) % stride < row;
        for (i, v) in self.memory.iter().map(Cell::get).enumerate() {
            assert!(inside(i) || v == GUARD, "a kernel wrote outside its operand, at {i}: {v}");
        }
        let sample = |n: usize| self.memory[self.start + n * self.stride..][..row].iter().map(Cell::get);
        (0..rows).flat_map(sample).collect()
    }
}

/// An operand of another element type, in one piece.
pub fn integers<'a, T>(ty: &'a TensorType, values: &[T]) -> Operand<'a> {
    Operand::contiguous(ty, values.as_ptr() as u64)
}

/// Bytes that kernels write, between guards.
pub struct Bytes {
    pub ty: TensorType,
    memory: Vec<Cell<u8>>,
    start: usize,
}

impl Bytes {
    /// At an odd address, since nothing asks for more.
    pub fn new(ty: TensorType) -> Self {
        Bytes::at(ty, Place::Odd)
    }

    /// At an odd address or on 16 bytes.
    pub fn at(ty: TensorType, place: Place) -> Self {
        let memory = vec![Cell::new(0xa5); ty.bytes() as usize + 48];
        let start = memory.as_ptr().align_offset(16) + if place == Place::Odd { 7 } else { 16 };
        Bytes { ty, memory, start }
    }

    pub fn operand(&self) -> Operand<'_> {
        Operand::contiguous(&self.ty, self.memory.as_ptr().wrapping_add(self.start) as u64)
    }

    pub fn values(&self) -> Vec<u8> {
        let all: Vec<u8> = self.memory.iter().map(Cell::get).collect();
        let (before, rest) = all.split_at(self.start);
        let (inside, after) = rest.split_at(self.ty.bytes() as usize);
        assert!(before.iter().chain(after).all(|&byte| byte == 0xa5), "a kernel wrote outside its bytes");
        inside.to_vec()
    }
}

/// Few distinct numbers, zeros of both signs, infinities and not-a-numbers among them.
pub fn awkward(count: u64, stream: u64) -> Vec<f32> {
    let values = [0.0, -0.0, 1.0, 1.0, -1.0, 2.5, -3.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
    let mut philox = Philox::new(43, stream);
    (0..count).map(|_| values[(philox.uniform() * values.len() as f32) as usize % values.len()]).collect()
}

pub fn assert_bits(what: &str, found: &[f32], expected: &[f32]) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(found), bits(expected), "{what}");
}

/// Normal numbers, the same in every run.
pub fn normal(count: u64, stream: u64) -> Vec<f32> {
    let mut philox = Philox::new(42, stream);
    (0..count).map(|_| philox.normal() as f32).collect()
}

/// Prepares an op with its workspace and runs it; false without a compiler.
pub fn run(op: &Op, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> bool {
    let types: Vec<&TensorType> = inputs.iter().map(|operand| operand.ty).collect();
    let bytes = kernels::workspace(op, &types) as usize;
    let workspace = vec![Cell::new(f64::NAN); bytes.div_ceil(8) + 1];
    let plan = kernels::prepare(op, inputs, outputs, workspace.as_ptr() as u64).unwrap();
    let ran = emulator::run(&plan);
    // Whoever asks for workspace must stay inside it; the last double is a guard.
    assert!(workspace.last().unwrap().get().is_nan(), "{} left its workspace", op.kind());
    ran
}

/// Compares with a tolerance relative to the largest expected magnitude around 1.
pub fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let close = (f64::from(f) - e).abs() <= tolerance * e.abs().max(1.0);
        assert!(close || f.is_nan() && e.is_nan(), "{what}[{i}]: expected {e}, found {f}");
    }
}
