//! Maps of any element type in this process's memory, channels innermost or not, dense or as slices, with guards.

use crate::tensor::{Place, normal};
use ::half::{bf16, f16};
use std::cell::Cell;
use vdnn_cuda::kernels::Operand;
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

/// What lies between and around rows, as bits.
const GUARD: u16 = 0x4a5b;

/// The types of maps with channels innermost.
pub const TYPES: [DType; 3] = [DType::BF16, DType::F16, DType::F32];
/// Those of them that round.
pub const HALVES: [DType; 2] = [DType::BF16, DType::F16];

/// A number rounded to a type.
pub fn round(dtype: DType, v: f32) -> f32 {
    wide(dtype, narrow(dtype, v))
}

fn narrow(dtype: DType, v: f32) -> u32 {
    match dtype {
        DType::BF16 => bf16::from_f32(v).to_bits().into(),
        DType::F16 => f16::from_f32(v).to_bits().into(),
        _ => v.to_bits(),
    }
}

fn wide(dtype: DType, bits: u32) -> f32 {
    match dtype {
        DType::BF16 => bf16::from_bits(bits as u16).to_f32(),
        DType::F16 => f16::from_bits(bits as u16).to_f32(),
        _ => f32::from_bits(bits),
    }
}

/// A type in NHWC order.
pub fn nhwc(dims: &[u64], dtype: DType, channel_padding: u32) -> TensorType {
    TensorType { layout: Layout { order: MemoryOrder::Nhwc, channel_padding }, ..TensorType::new(dims, dtype) }
}

/// A tensor whose values are given and read in logical order, padding aside.
pub struct Map {
    pub ty: TensorType,
    /// An element takes one or two.
    memory: Vec<Cell<u16>>,
    start: usize,
    stride: usize,
}

impl Map {
    pub fn new(ty: TensorType, place: Place, values: &[f32]) -> Self {
        let dense = Operand::contiguous(&ty, 0);
        let (rows, row) = (dense.rows() as usize, dense.row() as usize);
        let stride = match place {
            Place::Dense => row,
            Place::Sliced => row.next_multiple_of(8) + 16,
            Place::Odd => row + 3,
        };
        let words = ty.dtype.size() as usize / 2;
        let memory = vec![Cell::new(GUARD); (rows * stride + 32) * words];
        let aligned = memory.as_ptr().align_offset(16).div_ceil(words);
        let start = if place == Place::Odd { aligned + 5 } else { aligned + 8 };
        let tensor = Map { ty, memory, start, stride };
        for n in 0..rows {
            (0..row).for_each(|i| tensor.set(start + n * stride + i, 0));
        }
        for (e, &v) in values.iter().enumerate() {
            tensor.set(tensor.place(e), narrow(tensor.ty.dtype, v));
        }
        tensor
    }

    fn words(&self) -> usize {
        self.ty.dtype.size() as usize / 2
    }

    fn set(&self, place: usize, bits: u32) {
        let words = self.words();
        self.memory[place * words].set(bits as u16);
        self.memory[place * words + words - 1].set((bits >> (16 * (words - 1))) as u16);
    }

    fn get(&self, place: usize) -> u32 {
        let words = &self.memory[place * self.words()..][..self.words()];
        words.iter().rev().fold(0, |bits, word| bits << 16 | u32::from(word.get()))
    }

    pub fn filled(ty: TensorType, place: Place, value: f32) -> Self {
        let values = vec![value; ty.shape.elements() as usize];
        Map::new(ty, place, &values)
    }

    /// Normal numbers, and what they are rounded to.
    pub fn normal(ty: TensorType, place: Place, stream: u64) -> (Self, Vec<f32>) {
        let values: Vec<f32> = normal(ty.shape.elements(), stream).iter().map(|&v| round(ty.dtype, v)).collect();
        (Map::new(ty, place, &values), values)
    }

    /// Where logical element e lies.
    fn place(&self, e: usize) -> usize {
        let (sample, e_in) = {
            let per = self.ty.shape.elements_per_sample() as usize;
            (e / per, e % per)
        };
        match (self.ty.layout.order, self.ty.shape.nchw()) {
            (MemoryOrder::Nhwc, Some([_, _, h, w])) => {
                let hw = (h * w) as usize;
                self.start + (sample * hw + e_in % hw) * self.stride + e_in / hw
            }
            _ => self.start + sample * self.stride + e_in,
        }
    }

    pub fn operand(&self) -> Operand<'_> {
        let address = self.memory.as_ptr().wrapping_add(self.start * self.words()) as u64;
        Operand { ty: &self.ty, address, row_stride: self.stride as u64 }
    }

    /// The values in logical order, after checking guards and padding.
    pub fn values(&self) -> Vec<f32> {
        let dense = Operand::contiguous(&self.ty, 0);
        let (rows, row) = (dense.rows() as usize, dense.row() as usize);
        let stride = self.stride.max(1);
        let inside = |i: usize| i >= self.start && (i - self.start) / stride < rows && (i - self.start) % stride < row;
        for (i, v) in self.memory.iter().map(Cell::get).enumerate() {
            let i = i / self.words();
            assert!(inside(i) || v == GUARD, "a kernel wrote outside its operand, at {i}: {v:#x}");
        }
        let padding = self.ty.layout.channel_padding as usize;
        for n in 0..rows {
            let end = self.start + n * stride + row;
            assert!((end - padding..end).all(|place| self.get(place) == 0), "padding is zero");
        }
        (0..self.ty.shape.elements() as usize).map(|e| wide(self.ty.dtype, self.get(self.place(e)))).collect()
    }

    pub fn bits(&self) -> Vec<u16> {
        self.memory.iter().map(Cell::get).collect()
    }
}

/// Compares with so many units of the type's last place around 1, and relative above.
pub fn assert_near(what: &str, dtype: DType, found: &[f32], expected: &[f64], units: f64) {
    // What sums of f32 lose is no matter of its last place.
    let unit = match dtype {
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        _ => 1e-5,
    };
    crate::tensor::assert_close(&format!("{what} {dtype}"), found, expected, units * unit);
}
