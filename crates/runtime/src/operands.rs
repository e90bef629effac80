//! From a launch's regions to a kernel's operands: what is read, what is written, what is the same bytes.
//!
//! ```text
//!   read = write          in place, where the op allows it
//!   concat's input        at its place in the output: nothing moves
//!   split's output        at its place in the input: nothing moves
//!   anything else         apart, or refused
//! ```

use crate::ByteRegion;
use crate::cpu::{Input, Output};
use crate::{DeviceError, Opened, Reading, Writing};
use vdnn_graph::Op;
use vdnn_graph::op::{Axis, Concat, Split};
use vdnn_tensor::{DType, TensorType};

/// Where a kernel finds an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Read(usize),
    InPlace(usize),
}

/// Where a kernel leaves an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Index of the written region; `fresh` when nothing of it is an input.
    Write {
        index: usize,
        fresh: bool,
    },
    InPlace(usize),
}

/// A launch's operands, each region named once.
#[derive(Debug)]
pub(crate) struct Operands {
    /// Regions only read.
    pub reads: Vec<ByteRegion>,
    /// Regions written; the workspace last.
    pub writes: Vec<ByteRegion>,
    inputs: Vec<Source>,
    outputs: Vec<Target>,
    workspace: bool,
    /// True when the launch is a copy of each read over the write of the same index, without a kernel.
    pub moves: bool,
}

/// Regions, in normal form, and types of a launch.
pub(crate) struct Regions<'a> {
    pub op: &'a Op,
    /// Of the inputs and of the outputs.
    pub types: [&'a [TensorType]; 2],
    pub inputs: &'a [ByteRegion],
    pub outputs: &'a [ByteRegion],
    pub workspace: Option<ByteRegion>,
}

impl Operands {
    /// Finds what is in place and names every other region once.
    ///
    /// # Errors
    /// Why the op cannot run on these regions.
    pub(crate) fn bind(regions: &Regions<'_>) -> Result<Self, String> {
        let sources: Vec<Option<usize>> = (0..regions.inputs.len()).map(|index| regions.over_output(index)).collect();
        if let Op::Concat(Concat { axis }) = regions.op
            && regions.copies_within_output(&sources)
        {
            return regions.moves(&sources, *axis);
        }
        let mut bound = Operands::empty();
        for (index, source) in sources.iter().enumerate() {
            let found = match source {
                Some(output) => Source::InPlace(*output),
                None => bound.read(regions.inputs[index]),
            };
            bound.inputs.push(found);
            if let Some(output) = source
                && !regions.allows(index, *output)
            {
                let op = regions.op.kind();
                return Err(format!("input {index} and output {output} are the same bytes, which {op} does not allow"));
            }
        }
        for (index, &region) in regions.outputs.iter().enumerate() {
            if regions.is_part_of_input(index) {
                bound.outputs.push(Target::InPlace(0));
                continue;
            }
            let fresh = !sources.contains(&Some(index));
            bound.outputs.push(Target::Write { index: bound.writes.len(), fresh });
            bound.writes.push(region);
        }
        bound.workspace = regions.workspace.is_some();
        bound.writes.extend(regions.workspace);
        Ok(bound)
    }

    fn empty() -> Self {
        let (reads, writes, inputs, outputs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Operands { reads, writes, inputs, outputs, workspace: false, moves: false }
    }

    fn read(&mut self, region: ByteRegion) -> Source {
        self.reads.push(region);
        Source::Read(self.reads.len() - 1)
    }

    /// Indices of written regions that hold nothing yet when the launch starts.
    pub(crate) fn fresh(&self) -> impl Iterator<Item = usize> + '_ {
        let outputs = self.outputs.iter().filter_map(|target| match *target {
            Target::Write { index, fresh: true } => Some(index),
            _ => None,
        });
        outputs.chain(self.workspace.then(|| self.writes.len() - 1))
    }

    /// The kernel's view of opened regions.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] for regions that do not divide into elements.
    pub(crate) fn views<'b>(
        &self,
        opened: Opened<'b>,
        input_types: &[TensorType],
        output_types: &[TensorType],
    ) -> Result<Views<'b>, DeviceError> {
        let Opened { reads, writes } = opened;
        let mut writes: Vec<Option<Writing<'b>>> = writes.into_iter().map(Some).collect();
        let inputs = self.inputs.iter().zip(input_types).map(|(source, ty)| match *source {
            Source::Read(index) => input(&reads[index], ty.dtype),
            Source::InPlace(output) => Ok(Input::InPlace(output)),
        });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (target, ty) in self.outputs.iter().zip(output_types) {
            outputs.push(match *target {
                Target::Write { index, .. } => output(take(&mut writes, index)?, ty.dtype)?,
                Target::InPlace(input) => Output::InPlace(input),
            });
        }
        let workspace = match self.workspace {
            true => take(&mut writes, self.writes.len() - 1)?.view::<u8>()?.into_slice(),
            false => None,
        };
        Ok(Views { inputs, outputs, workspace })
    }
}

/// A kernel's operands as views.
pub(crate) struct Views<'b> {
    pub inputs: Vec<Input<'b>>,
    pub outputs: Vec<Output<'b>>,
    pub workspace: Option<&'b mut [u8]>,
}

fn take<'b>(writes: &mut [Option<Writing<'b>>], index: usize) -> Result<Writing<'b>, DeviceError> {
    writes.get_mut(index).and_then(Option::take).ok_or_else(|| DeviceError::Schedule {
        place: "a launch".to_string(),
        reason: format!("expected written region {index} once"),
    })
}

fn input<'b>(reading: &Reading<'b>, dtype: DType) -> Result<Input<'b>, DeviceError> {
    match dtype {
        DType::F32 => reading.view().map(Input::F32),
        DType::F64 => reading.view().map(Input::F64),
        DType::I32 => reading.view().map(Input::I32),
        DType::U64 => reading.view().map(Input::U64),
        DType::U8 => reading.view().map(Input::U8),
        DType::F16 => reading.view().map(Input::F16),
        DType::BF16 => reading.view().map(Input::BF16),
    }
}

fn output(writing: Writing<'_>, dtype: DType) -> Result<Output<'_>, DeviceError> {
    match dtype {
        DType::F32 => writing.view().map(Output::F32),
        DType::F64 => writing.view().map(Output::F64),
        DType::I32 => writing.view().map(Output::I32),
        DType::U64 => writing.view().map(Output::U64),
        DType::U8 => writing.view().map(Output::U8),
        DType::F16 => writing.view().map(Output::F16),
        DType::BF16 => writing.view().map(Output::BF16),
    }
}

impl Regions<'_> {
    /// The output that this input already is, or already lies at its place in.
    fn over_output(&self, input: usize) -> Option<usize> {
        let region = self.inputs[input];
        if region.bytes() == 0 {
            return None;
        }
        if let Op::Concat(Concat { axis }) = self.op {
            let place = section(&self.outputs[0], &self.types[1][0], self.types[0], (input, *axis));
            return (place == Some(region)).then_some(0);
        }
        self.outputs.iter().position(|output| *output == region)
    }

    /// True for a split's output that lies at its place in the input.
    fn is_part_of_input(&self, output: usize) -> bool {
        let region = self.outputs[output];
        let Op::Split(Split { axis, .. }) = self.op else { return false };
        let place = || section(&self.inputs[0], &self.types[0][0], self.types[1], (output, *axis));
        region.bytes() > 0 && place() == Some(region)
    }

    fn allows(&self, input: usize, output: usize) -> bool {
        let pair = (input, output);
        matches!(self.op, Op::Concat(_)) || self.op.in_place().contains(&pair) || self.op.updates().contains(&pair)
    }

    /// True when an input has to move, from one place in the output to another (the same value concatenated twice).
    fn copies_within_output(&self, sources: &[Option<usize>]) -> bool {
        let moves =
            |(input, source): (&ByteRegion, &Option<usize>)| source.is_none() && input.overlaps(&self.outputs[0]);
        self.inputs.iter().zip(sources).any(moves)
    }

    /// A concat as copies, one for each input that is not in place.
    fn moves(&self, sources: &[Option<usize>], axis: Axis) -> Result<Operands, String> {
        let mut bound = Operands { moves: true, ..Operands::empty() };
        for (index, source) in sources.iter().enumerate() {
            if source.is_none() {
                let place = section(&self.outputs[0], &self.types[1][0], self.types[0], (index, axis));
                bound.reads.push(self.inputs[index]);
                bound.writes.push(place.ok_or("the rows of the output are not its samples")?);
            }
        }
        Ok(bound)
    }
}

/// Where part `index` of `parts` along an axis lies in `whole`: a slice of each row (a sample, or a pixel where channels are
/// innermost), or along the batch a run of whole rows.
fn section(
    whole: &ByteRegion,
    ty: &TensorType,
    parts: &[TensorType],
    (index, axis): (usize, Axis),
) -> Option<ByteRegion> {
    let row = |ty: &TensorType| ty.bytes() / ty.rows().max(1);
    let stride = match whole.rows {
        1 => row(ty),
        rows if rows == ty.rows() => whole.stride,
        _ => return None,
    };
    let step = |part: &TensorType| match axis {
        Axis::Channels => row(part),
        Axis::Batch => part.rows() * stride,
    };
    let (start, part): (u64, _) = (parts[..index].iter().map(step).sum(), &parts[index]);
    let part = ByteRegion { offset: whole.offset + start, rows: part.rows(), row_bytes: row(part), stride };
    part.normalised().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: u64, c: u64) -> TensorType {
        TensorType::new([n, c, 1, 1], DType::F32)
    }

    fn at(offset: u64, bytes: u64) -> ByteRegion {
        ByteRegion::contiguous(offset, bytes)
    }

    fn bind(
        op: &Op,
        types: [&[TensorType]; 2],
        inputs: &[ByteRegion],
        outputs: &[ByteRegion],
    ) -> Result<Operands, String> {
        Operands::bind(&Regions { op, types, inputs, outputs, workspace: None })
    }

    #[test]
    fn relu_over_its_input_names_the_bytes_once() {
        let types = [image(2, 3)];
        let bound = bind(&Op::Relu, [&types, &types], &[at(8, 24)], &[at(8, 24)]).unwrap();
        assert_eq!((bound.inputs, bound.reads.len(), bound.writes.len()), (vec![Source::InPlace(0)], 0, 1));
        let apart = bind(&Op::Relu, [&types, &types], &[at(8, 24)], &[at(32, 24)]).unwrap();
        assert_eq!((apart.fresh().collect::<Vec<_>>(), apart.inputs), (vec![0], vec![Source::Read(0)]));
        let stats = [TensorType::new([3], DType::F32), TensorType::new([3], DType::F32)];
        let error = bind(&Op::BatchNormStats, [&types, &stats], &[at(8, 12)], &[at(8, 12), at(40, 12)]).unwrap_err();
        assert!(error.contains("batch_norm_stats does not allow"), "{error}");
    }

    #[test]
    fn concat_skips_what_lies_in_place_and_moves_the_rest() {
        let op = Op::Concat(Concat::default());
        let (types, z) = ([image(2, 1), image(2, 3)], [image(2, 4)]);
        let a = ByteRegion { offset: 0, rows: 2, row_bytes: 4, stride: 16 };
        let b = ByteRegion { offset: 4, rows: 2, row_bytes: 12, stride: 16 };
        let both = bind(&op, [&types, &z], &[a, b], &[at(0, 32)]).unwrap();
        assert_eq!((both.reads.len(), both.inputs), (0, vec![Source::InPlace(0); 2]));
        let one = bind(&op, [&types, &z], &[a, at(64, 24)], &[at(0, 32)]).unwrap();
        assert_eq!(one.inputs, [Source::InPlace(0), Source::Read(0)]);
        assert_eq!(one.fresh().count(), 0, "the output holds an input");
        let elsewhere = bind(&op, [&types, &z], &[a, at(4, 24)], &[at(0, 32)]).unwrap();
        assert!(elsewhere.moves);
    }

    #[test]
    fn parts_along_the_batch_are_runs_of_rows() {
        let op = Op::Concat(Concat::along(Axis::Batch));
        let (types, z) = ([image(1, 4), image(2, 4)], [image(3, 4)]);
        let both = bind(&op, [&types, &z], &[at(16, 16), at(32, 32)], &[at(16, 48)]).unwrap();
        assert_eq!((both.reads.len(), both.inputs), (0, vec![Source::InPlace(0); 2]));
        let cut = Op::Split(Split { sections: vec![1, 2], axis: Axis::Batch });
        let bound = bind(&cut, [&z, &types], &[at(16, 48)], &[at(16, 16), at(96, 32)]).unwrap();
        assert_eq!(bound.outputs, [Target::InPlace(0), Target::Write { index: 0, fresh: true }]);
        // Inside a slice of channels.
        let inside = ByteRegion { offset: 8, rows: 3, row_bytes: 16, stride: 64 };
        let last = ByteRegion { offset: 72, rows: 2, ..inside };
        let first = ByteRegion::contiguous(8, 16);
        let bound = bind(&cut, [&z, &types], &[inside], &[first, last]).unwrap();
        assert_eq!(bound.outputs, [Target::InPlace(0), Target::InPlace(0)]);
    }

    #[test]
    fn the_same_value_twice_is_copied_within_the_output() {
        let op = Op::Concat(Concat::default());
        let (types, z) = ([image(2, 2), image(2, 2)], [image(2, 4)]);
        let a = ByteRegion { offset: 0, rows: 2, row_bytes: 8, stride: 16 };
        let bound = bind(&op, [&types, &z], &[a, a], &[at(0, 32)]).unwrap();
        assert!(bound.moves);
        assert_eq!((bound.reads, bound.writes), (vec![a], vec![ByteRegion { offset: 8, ..a }]));
    }

    #[test]
    fn split_leaves_parts_that_lie_inside_the_input() {
        let op = Op::Split(Split::channels(vec![1, 3]));
        let (z, types) = ([image(2, 4)], [image(2, 1), image(2, 3)]);
        let da = ByteRegion { offset: 0, rows: 2, row_bytes: 4, stride: 16 };
        let bound = bind(&op, [&z, &types], &[at(0, 32)], &[da, at(64, 24)]).unwrap();
        assert_eq!(bound.outputs, [Target::InPlace(0), Target::Write { index: 0, fresh: true }]);
    }
}
