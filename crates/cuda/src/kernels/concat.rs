//! Concatenation, split, flatten and unflatten: copies of what does not already lie where it belongs. Usually nothing.

use super::elementwise::{Elementwise, elementwise};
use super::{KernelError, LaunchPlan, Operand, files, operands};
use vdnn_graph::op::Axis;

/// (A, B, …) → their channels or samples one after the other.
pub(super) fn prepare(axis: Axis, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let [whole] = operands("concat", outputs)?;
    let parts = parts(axis, inputs, &whole);
    copies("concat", inputs.iter().copied().zip(parts))
}

/// (Y) → its channels or samples cut into parts.
pub(super) fn prepare_split(
    axis: Axis,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let [whole] = operands("split", inputs)?;
    let parts = parts(axis, outputs, &whole);
    copies("split", parts.into_iter().zip(outputs.iter().copied()))
}

/// A view whose bytes lie elsewhere after all.
pub(super) fn prepare_view(
    op: &'static str,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([from], [to]) = (operands(op, inputs)?, operands(op, outputs)?);
    copies(op, [(from, to)])
}

/// The places of `parts` inside `whole`.
fn parts<'a>(axis: Axis, parts: &[Operand<'a>], whole: &Operand<'_>) -> Vec<Operand<'a>> {
    let mut address = whole.address;
    let mut place = |part: &Operand<'a>| {
        let at = address;
        let elements = match axis {
            Axis::Channels => part.row(),
            Axis::Batch => part.rows() * whole.row_stride,
        };
        address += elements * part.ty.dtype.size();
        Operand { ty: part.ty, address: at, row_stride: whole.row_stride }
    };
    parts.iter().map(&mut place).collect()
}

fn copies<'a>(
    op: &'static str,
    pairs: impl IntoIterator<Item = (Operand<'a>, Operand<'a>)>,
) -> Result<LaunchPlan, KernelError> {
    let mut plan = LaunchPlan::default();
    for (from, to) in pairs {
        let same_rows = from.rows() <= 1 || from.row_stride == to.row_stride;
        if from.address == to.address && same_rows {
            continue;
        }
        if !from.ty.dtype.is_float() {
            let (expected, found) = ("f32, f16 or bf16 where a part has to move", Box::new(from.ty.clone()));
            return Err(KernelError::Type { op, operand: "a part".to_string(), expected, found });
        }
        let functions = ["copy_rows_packed", "copy_rows_single"];
        let kernel = Elementwise { op, files: files!("concat"), functions };
        plan.launches.extend(elementwise(&[from], &to, kernel)?.launches);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::{DType, TensorType};

    #[test]
    fn parts_in_place_are_not_copied() {
        let a = TensorType::new([2, 3, 4, 4], DType::F32);
        let b = TensorType::new([2, 5, 4, 4], DType::F32);
        let whole = TensorType::new([2, 8, 4, 4], DType::F32);
        let out = [Operand::contiguous(&whole, 4096)];
        let inside = Operand { ty: &a, address: 4096, row_stride: 128 };
        let outside = Operand::contiguous(&b, 1 << 20);
        let plan = prepare(Axis::Channels, &[inside, outside], &out).unwrap();
        assert_eq!(plan.launches.len(), 1);
        let place = Operand { ty: &b, address: 4096 + 192, row_stride: 128 };
        assert!(prepare(Axis::Channels, &[inside, place], &out).unwrap().launches.is_empty());
        assert!(prepare_split(Axis::Channels, &out, &[inside, place]).unwrap().launches.is_empty());
    }

    #[test]
    fn samples_in_place_are_not_copied() {
        let [a, b, whole] = [1, 2, 3].map(|n| TensorType::new([n, 8, 4, 4], DType::F32));
        let out = [Operand::contiguous(&whole, 4096)];
        let (first, rest) = (Operand::contiguous(&a, 4096), Operand::contiguous(&b, 4096 + 512));
        assert!(prepare(Axis::Batch, &[first, rest], &out).unwrap().launches.is_empty());
        let elsewhere = Operand::contiguous(&b, 1 << 20);
        assert_eq!(prepare_split(Axis::Batch, &out, &[first, elsewhere]).unwrap().launches.len(), 1);
        // Images that come as bytes are cut where they are.
        let [a, b, whole] = [a, b, whole].map(|ty| TensorType { dtype: DType::U8, ..ty });
        let out = [Operand::contiguous(&whole, 4096)];
        let parts = [Operand::contiguous(&a, 4096), Operand::contiguous(&b, 4096 + 128)];
        assert!(prepare_split(Axis::Batch, &out, &parts).unwrap().launches.is_empty());
        let moved = [parts[0], Operand::contiguous(&b, 1 << 20)];
        assert!(matches!(prepare_split(Axis::Batch, &out, &moved), Err(KernelError::Type { .. })));
    }
}
