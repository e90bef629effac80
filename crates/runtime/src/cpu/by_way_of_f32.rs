//! Half precision and channels-last order, for every op at once: operands are converted into f32 in the order that kernels
//! read, the f32 kernel runs, and its results are rounded back.
//!
//! ```text
//!   workspace   │ x f32 NCHW │ w f32 OIHW │ y f32 NCHW │ the f32 kernel's own │
//!   x bf16 NHWC ──────┘            kernel ────┘ └──────► y bf16 NHWC
//! ```
//!
//! The copies lie in the launch's workspace, so they are planned like any other bytes. Elementwise ops see the elements in the
//! order of memory, so masks are of that order; the mask of a fused op is brought into it. An output that lies over an input
//! starts as that input's copy. Slow, and meant to be: it is what the fast kernels of another device are compared with.

use super::cast::Number;
use super::launch::{self, Launch};
use super::operand::{Input, Output};
use super::order::{reorder, reorder_mask};
use crate::{DeviceError, View, ViewMut};
use vdnn_graph::Op;
use vdnn_tensor::{Bytes, DType, Layout, MemoryOrder, TensorType};

/// Copies start at multiples of this.
const ALIGNMENT: Bytes = 64;

/// How a launch goes by way of f32.
pub(super) struct Plan {
    inputs: Vec<Way>,
    outputs: Vec<Way>,
    /// Types that the kernel sees.
    pub input_types: Vec<TensorType>,
    /// As above.
    pub output_types: Vec<TensorType>,
    /// Bytes of all copies, before the kernel's own workspace.
    pub scratch: Bytes,
}

/// How one operand gets to the kernel.
enum Way {
    /// As it is.
    Direct,
    /// As a copy of another type: f32 for numbers, bytes for indices.
    Copy { from: TensorType, to: TensorType },
    /// As a mask in the logical order of this image.
    Mask { image: TensorType, bytes: Bytes },
}

impl Plan {
    /// The way of a launch that has half-precision or channels-last operands; `None` for others, for casts, and where an
    /// operand has no way.
    pub fn of(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Option<Self> {
        let all = || inputs.iter().chain(outputs);
        if matches!(op, Op::Cast(_)) || all().all(is_plain) {
            return None;
        }
        let keeps_order = is_elementwise(op) && all().all(|ty| ty.layout.channel_padding == 0);
        let way = |index: usize, ty: &TensorType, is_input: bool| {
            if mask_operand(op, is_input) == Some(index) && inputs[0].layout.order == MemoryOrder::Nhwc {
                return Some(Way::Mask { image: inputs[0].clone(), bytes: ty.bytes() });
            }
            Way::of(ty, keeps_order)
        };
        let ways = |types: &[TensorType], is_input| -> Option<Vec<Way>> {
            types.iter().enumerate().map(|(index, ty)| way(index, ty, is_input)).collect()
        };
        let (inputs_by, outputs_by) = (ways(inputs, true)?, ways(outputs, false)?);
        let seen = |ways: &[Way], types: &[TensorType]| ways.iter().zip(types).map(|(way, ty)| way.seen(ty)).collect();
        Some(Plan {
            input_types: seen(&inputs_by, inputs),
            output_types: seen(&outputs_by, outputs),
            scratch: inputs_by.iter().chain(&outputs_by).map(Way::scratch).sum(),
            inputs: inputs_by,
            outputs: outputs_by,
        })
    }

    /// Bytes converted, there and back.
    pub fn converted(&self) -> f64 {
        2.0 * self.scratch as f64
    }

    /// Converts, runs the kernel, and rounds back.
    pub fn run(&self, mut launch: Launch<'_>) -> Result<(), DeviceError> {
        let workspace = launch.workspace.take().unwrap_or_default();
        if (workspace.len() as Bytes) < self.scratch {
            let (expected, found) = (self.scratch, workspace.len());
            return Err(launch.refuse(format!("expected a workspace of {expected} bytes or more, found {found}")));
        }
        let (mut scratch, own) = workspace.split_at_mut(self.scratch as usize);
        let (direct, mut copies) = self.copy_outputs(&mut launch, &mut scratch)?;
        let inputs = self.copy_inputs(&mut launch, &mut scratch)?;
        let mut through = copies.iter_mut().map(|copied| copied.way.output(copied.copy));
        let outputs = direct.into_iter().map(|own| own.or_else(|| through.next()).expect("one copy for each"));
        launch::launch(Launch {
            node: launch.node,
            op: launch.op,
            input_types: &self.input_types,
            output_types: &self.output_types,
            algorithm: launch.algorithm,
            inputs,
            outputs: outputs.collect(),
            workspace: (!own.is_empty()).then_some(own),
        })?;
        for Copied { index, way, output, copy } in copies {
            way.write(copy, output).ok_or_else(|| launch.refuse(format!("output {index} does not fit its type")))?;
        }
        Ok(())
    }

    /// The kernel's inputs; those that are converted as copies.
    fn copy_inputs<'a>(
        &self,
        launch: &mut Launch<'a>,
        scratch: &mut &'a mut [u8],
    ) -> Result<Vec<Input<'a>>, DeviceError> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (index, input) in std::mem::take(&mut launch.inputs).into_iter().enumerate() {
            inputs.push(match (&self.inputs[index], input) {
                (Way::Direct, input) | (_, input @ Input::InPlace(_)) => input,
                (way, input) => {
                    let copy = take(scratch, way.scratch());
                    let read = way.read(&input, copy);
                    read.ok_or_else(|| launch.refuse(format!("input {index} does not fit its type")))?;
                    way.input(copy)
                }
            });
        }
        Ok(inputs)
    }

    /// The kernel's outputs, `None` for those that go by a copy, and the copies; full where an input lies under the output.
    fn copy_outputs<'p, 'a>(
        &'p self,
        launch: &mut Launch<'a>,
        scratch: &mut &'a mut [u8],
    ) -> Result<Outputs<'p, 'a>, DeviceError> {
        let (mut direct, mut copies) = (Vec::with_capacity(self.outputs.len()), Vec::new());
        for (index, output) in std::mem::take(&mut launch.outputs).into_iter().enumerate() {
            match (&self.outputs[index], output) {
                (Way::Direct, output) | (_, output @ Output::InPlace(_)) => direct.push(Some(output)),
                (way, output) => {
                    let copy = take(scratch, way.scratch());
                    if is_over(&launch.inputs, index) {
                        let read = way.read(&output.as_input(), copy);
                        read.ok_or_else(|| launch.refuse(format!("output {index} does not fit its type")))?;
                    }
                    direct.push(None);
                    copies.push(Copied { index, way, output, copy });
                }
            }
        }
        Ok((direct, copies))
    }
}

/// Outputs as they are and those that go by a copy.
type Outputs<'p, 'a> = (Vec<Option<Output<'a>>>, Vec<Copied<'p, 'a>>);

/// An output and its copy.
struct Copied<'p, 'a> {
    index: usize,
    way: &'p Way,
    output: Output<'a>,
    copy: &'a mut [u8],
}

impl Way {
    fn of(ty: &TensorType, keeps_order: bool) -> Option<Self> {
        let dtype = match ty.dtype {
            _ if is_plain(ty) => return Some(Way::Direct),
            DType::F16 | DType::BF16 | DType::F32 => DType::F32,
            DType::U8 => DType::U8,
            _ => return None,
        };
        let padded = ty.layout.channel_padding > 0;
        if padded && ty.layout.order == MemoryOrder::Nchw {
            return None;
        }
        let layout = if keeps_order { ty.layout } else { Layout::default() };
        Some(Way::Copy { from: ty.clone(), to: TensorType { shape: ty.shape.clone(), dtype, layout } })
    }

    /// The type of the operand that the kernel sees.
    fn seen(&self, ty: &TensorType) -> TensorType {
        match self {
            Way::Direct | Way::Mask { .. } => ty.clone(),
            Way::Copy { to, .. } => TensorType { layout: Layout::default(), ..to.clone() },
        }
    }

    fn scratch(&self) -> Bytes {
        let bytes = match self {
            Way::Direct => 0,
            Way::Copy { to, .. } => to.bytes(),
            Way::Mask { bytes, .. } => *bytes,
        };
        bytes.next_multiple_of(ALIGNMENT)
    }

    fn bytes(&self) -> usize {
        match self {
            Way::Direct => 0,
            Way::Copy { to, .. } => to.bytes() as usize,
            Way::Mask { bytes, .. } => *bytes as usize,
        }
    }

    /// Fills the copy; `None` when the operand is not of the way's type.
    fn read(&self, input: &Input<'_>, copy: &mut [u8]) -> Option<()> {
        let copy = &mut copy[..self.bytes()];
        match (self, input) {
            (Way::Mask { image, bytes }, Input::U8(x)) if x.len() as Bytes == *bytes => {
                reorder_mask(image, true, *x, ViewMut::from_slice(copy));
                Some(())
            }
            (Way::Copy { from, to }, input) if input.len() == Some(from.stored_elements() as usize) => {
                let (types, wide) = ([from, to], |copy| ViewMut::from_slice(floats(copy)));
                match input {
                    Input::F32(x) => reorder(types, *x, wide(copy), |x| x),
                    Input::F16(x) => reorder(types, *x, wide(copy), |x| x.to_f32()),
                    Input::BF16(x) => reorder(types, *x, wide(copy), |x| x.to_f32()),
                    Input::U8(x) => reorder(types, *x, ViewMut::from_slice(copy), |x| x),
                    _ => return None,
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Writes the copy to the output; `None` as for [`Way::read`].
    fn write(&self, copy: &mut [u8], output: Output<'_>) -> Option<()> {
        let copy = &mut copy[..self.bytes()];
        match (self, output) {
            (Way::Mask { image, bytes }, Output::U8(y)) if y.len() as Bytes == *bytes => {
                reorder_mask(image, false, View::from_slice(copy), y);
                Some(())
            }
            (Way::Copy { from, to }, output) if output.len() == Some(from.stored_elements() as usize) => {
                let (types, wide) = ([to, from], |copy| View::from_slice(&*floats(copy)));
                match output {
                    Output::F32(y) => reorder(types, wide(copy), y, |x| x),
                    Output::F16(y) => reorder(types, wide(copy), y, |x| Number::nearest(x.wide())),
                    Output::BF16(y) => reorder(types, wide(copy), y, |x| Number::nearest(x.wide())),
                    Output::U8(y) => reorder(types, View::from_slice(copy), y, |x| x),
                    _ => return None,
                }
                Some(())
            }
            _ => None,
        }
    }

    fn is_floats(&self) -> bool {
        matches!(self, Way::Copy { to, .. } if to.dtype == DType::F32)
    }

    fn input<'a>(&self, copy: &'a mut [u8]) -> Input<'a> {
        let copy = &mut copy[..self.bytes()];
        if self.is_floats() { Input::F32(View::from_slice(floats(copy))) } else { Input::U8(View::from_slice(copy)) }
    }

    fn output<'a>(&self, copy: &'a mut [u8]) -> Output<'a> {
        let copy = &mut copy[..self.bytes()];
        match self.is_floats() {
            true => Output::F32(ViewMut::from_slice(floats(copy))),
            false => Output::U8(ViewMut::from_slice(copy)),
        }
    }
}

/// A type that kernels take as it is.
fn is_plain(ty: &TensorType) -> bool {
    ty.layout == Layout::default() && !ty.dtype.is_half()
}

/// Ops to which the order of elements means nothing.
fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Relu
            | Op::ReluGrad
            | Op::ReluMask
            | Op::ReluMaskGrad
            | Op::Add
            | Op::Dropout(_)
            | Op::DropoutGrad(_)
            | Op::Flatten
            | Op::Unflatten(_)
    )
}

/// The mask among the inputs or outputs of an op that is not elementwise.
fn mask_operand(op: &Op, is_input: bool) -> Option<usize> {
    match op {
        Op::BatchNormAddRelu(_) if !is_input => Some(1),
        Op::BatchNormAddReluGrad(_) if is_input => Some(2),
        _ => None,
    }
}

fn is_over(inputs: &[Input<'_>], output: usize) -> bool {
    inputs.iter().any(|input| matches!(input, Input::InPlace(over) if *over == output))
}

fn take<'a>(rest: &mut &'a mut [u8], bytes: Bytes) -> &'a mut [u8] {
    let (taken, left) = std::mem::take(rest).split_at_mut(bytes as usize);
    *rest = left;
    taken
}

/// A copy's bytes as numbers. A workspace is aligned to 8 bytes, and copies start at multiples of 64 in it; one without bytes lies
/// anywhere.
fn floats(bytes: &mut [u8]) -> &mut [f32] {
    if bytes.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(bytes) }
}
