//! From a node with operands at addresses to its work: convolutions to cuDNN, products to cuBLAS, the rest to own kernels.
//!
//! The same way is taken to measure a kernel on scratch memory and to prepare a launch of a schedule.

use std::collections::HashMap;
use std::sync::Arc;

use vdnn_graph::Op;
use vdnn_graph::op::Cast;
use vdnn_schedule::{piece_sum_bytes, split_pieces};
use vdnn_tensor::{DType, TensorType};

use super::convolution::{self, Convolution, Cut, epilogue_places, split_epilogue};
use super::gpu::{Bytes, Gpu, Work};
use super::product;
use super::transposed::split_transposed;
use crate::cudnn::{Addresses, ConvolutionProblem, Epilogue, Plan, PlanName, Precision, Target};
use crate::kernels::{self, KernelError, LaunchPlan, Operand};

/// The algorithm of ops that run as own kernels.
pub(super) const OWN: &str = "nvrtc";
/// The algorithm of convolutions and products over nothing.
pub(super) const EMPTY: &str = "empty";

/// A launch: op, operands and workspace at their addresses.
#[derive(Clone, Debug)]
pub(super) struct Site<'a> {
    pub op: &'a Op,
    pub precision: Precision,
    pub inputs: Vec<Operand<'a>>,
    pub outputs: Vec<Operand<'a>>,
    pub algorithm: &'a str,
    pub workspace: Bytes,
}

/// Finalised convolution plans, by problem and name.
#[derive(Debug, Default)]
pub(super) struct Plans {
    made: HashMap<(ConvolutionProblem, String), Arc<Plan>>,
}

impl Plans {
    /// Keeps a plan.
    pub fn keep(&mut self, plan: Arc<Plan>) {
        self.made.insert((plan.problem, plan.name.to_string()), plan);
    }

    /// The plan of that name, made if it is not there.
    pub(super) fn find(&mut self, gpu: &Gpu, problem: &ConvolutionProblem, name: &str) -> Result<Arc<Plan>, String> {
        let key = (*problem, name.to_string());
        if let Some(plan) = self.made.get(&key) {
            return Ok(plan.clone());
        }
        let parsed: PlanName = name.parse().map_err(|e: crate::CudaError| e.to_string())?;
        let plan = Plan::from_name(Target::Device(&gpu.cudnn), problem, &parsed);
        let plan = Arc::new(plan.map_err(|e| format!("for {problem}: {e}"))?);
        self.made.insert(key, plan.clone());
        Ok(plan)
    }
}

impl Site<'_> {
    /// Everything the launch queues, in order; nothing for operands without elements or already in place.
    ///
    /// # Errors
    /// Why the op cannot run so.
    pub fn works(&self, gpu: &mut Gpu, plans: &mut Plans) -> Result<Vec<Work>, String> {
        if let Some(found) = convolution::of(self) {
            return self.convolution(&found?, gpu, plans);
        }
        if let Some(found) = product::of(self) {
            return self.product(found?, gpu);
        }
        if self.algorithm != OWN {
            return Err(format!("expected `{OWN}`, the only algorithm of this op on a GPU"));
        }
        let types: Vec<&TensorType> = self.inputs.iter().map(|o| o.ty).collect();
        self.check_workspace(kernels::workspace(self.op, &types))?;
        settled(kernels::prepare(self.op, &self.inputs, &self.outputs, self.workspace.address), gpu)
    }

    fn convolution(&self, found: &Convolution<'_>, gpu: &mut Gpu, plans: &mut Plans) -> Result<Vec<Work>, String> {
        if found.is_empty() {
            // Zeros have zeros as statistics.
            let mut works = self.outputs.iter().flat_map(zeros).collect();
            self.add_bias(&mut works, gpu)?;
            return Ok(works);
        }
        let (name, pieces) = split_pieces(self.algorithm);
        if let (Some(plan), 1) = (split_transposed(name), pieces) {
            return self.transposed(found, plan, gpu, plans);
        }
        let (name, epilogue) = split_epilogue(name);
        let in_pieces = found.adds_pieces_exactly() && epilogue != Epilogue::Statistics;
        if pieces > 1 && !in_pieces {
            let what = if epilogue == Epilogue::Statistics { "sums of the output" } else { "a weight gradient" };
            let dtype = found.problem.dtype;
            return Err(format!("expected the whole batch at once, found {pieces} pieces of {what} in {dtype}"));
        }
        let found = match epilogue {
            Epilogue::None => found.clone(),
            _ => found
                .taking_in(self)
                .filter(|found| found.problem.epilogue == epilogue)
                .ok_or("expected a convolution with bias and ReLU in NHWC order, or with statistics in f16")?,
        };
        let cut = found.cut(pieces).ok_or_else(|| format!("expected samples that divide into {pieces} pieces"))?;
        let plan = plans.find(gpu, &cut.problem, name)?;
        let mut works = self.pieces(&cut, &plan, gpu)?;
        match (epilogue, self.op) {
            (Epilogue::BiasRelu, _) => {}
            (Epilogue::Statistics, _) => works.extend(self.statistics_of_sums(&plan, gpu)?),
            (Epilogue::None, Op::Conv2dStats(_)) => works.extend(self.statistics(gpu)?),
            (Epilogue::None, _) => self.add_bias(&mut works, gpu)?,
        }
        Ok(works)
    }

    /// Mean and variance from what a plan with sums left in the workspace.
    fn statistics_of_sums(&self, plan: &Plan, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
        let [y, mean, variance] = self.output_with_statistics()?;
        let (places, _) = epilogue_places(&plan.problem);
        let sums = places.map(|place| self.workspace.address + place);
        let count = y.ty.shape.elements() / y.ty.shape.dim(1).max(1);
        settled(kernels::statistics_of_sums(sums, count, mean, variance), gpu)
    }

    /// Mean and variance from Y, by the kernel that takes them where no convolution does. The plan's workspace is free again.
    fn statistics(&self, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
        let [y, mean, variance] = self.output_with_statistics()?;
        self.check_workspace(kernels::workspace(&Op::BatchNormStats, &[y.ty]))?;
        settled(kernels::prepare(&Op::BatchNormStats, &[y], &[mean, variance], self.workspace.address), gpu)
    }

    fn output_with_statistics(&self) -> Result<[Operand<'_>; 3], String> {
        self.outputs[..].try_into().map_err(|_| format!("expected Y, mean and variance, found {}", self.outputs.len()))
    }

    /// The pieces' convolutions in order; of a weight gradient, each later one into the workspace and then added to dW.
    fn pieces(&self, cut: &Cut, plan: &Arc<Plan>, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
        let outputs: Vec<TensorType> = self.outputs.iter().map(|operand| operand.ty.clone()).collect();
        let sum_bytes = if cut.addresses.len() > 1 { piece_sum_bytes(self.op, &outputs) } else { 0 };
        let (epilogue, epilogue_bytes) = epilogue_places(&plan.problem);
        // Later pieces are of weight gradients, epilogues of forward convolutions.
        let before = sum_bytes.max(epilogue_bytes);
        self.check_workspace(plan.workspace_bytes + before)?;
        let Bytes { address, bytes } = self.workspace;
        let (workspace, workspace_bytes) = (address + before, bytes - before);
        let mut epilogue = epilogue.map(|place| address + place);
        let mut works = Vec::new();
        match (plan.problem.epilogue, plan.problem.dtype) {
            (Epilogue::BiasRelu, DType::F32) => epilogue[0] = self.inputs[2].address,
            (Epilogue::BiasRelu, _) => works = self.narrow_bias(address, gpu)?,
            (Epilogue::None | Epilogue::Statistics, _) => {}
        }
        for (piece, &[x, w, y]) in cut.addresses.iter().enumerate() {
            let later = piece > 0 && sum_bytes > 0;
            let w = if later { address } else { w };
            // SAFETY: the operands' types and strides are those of the problem, piece after piece, and the addresses lie in
            // the arena (or in scratch memory while measuring), which outlives the work; a later piece's dW, the bias in
            // half precision or the sums lie at the workspace's beginning, which the plan is not given.
            let site = unsafe { plan.bind(Addresses { x, w, y, epilogue, workspace, workspace_bytes }) };
            works.push(Work::Convolution { site: site.map_err(|e| e.to_string())?, plan: plan.clone() });
            if later {
                works.extend(self.add_to_output(address, gpu)?);
            }
        }
        Ok(works)
    }

    /// Adds what lies at `address` to the output. Only in f32: in half precision every addition would round.
    fn add_to_output(&self, address: u64, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
        let sum = self.outputs[0];
        settled(kernels::prepare(&Op::Add, &[sum, Operand::contiguous(sum.ty, address)], &[sum], 0), gpu)
    }

    fn product(&self, found: product::Found, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
        let mut works = Vec::new();
        if found.is_empty() {
            works.extend(zeros(&self.outputs[0]));
        } else {
            let needed = product::workspace_of(self.algorithm)
                .ok_or_else(|| format!("expected {} or {}", product::SMALL.name, product::LARGE.name))?;
            self.check_workspace(needed)?;
            // Exactly what the algorithm names, so that a larger region changes neither the kernel nor a bit.
            let workspace = Bytes { bytes: needed, ..self.workspace };
            works.push(Work::Product { product: found.product, workspace });
        }
        self.add_bias(&mut works, gpu)?;
        Ok(works)
    }

    /// The bias in half precision, at `address`: what a plan that takes it in reads.
    fn narrow_bias(&self, address: u64, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
        let (bias, dtype) = (self.inputs[2], self.outputs[0].ty.dtype);
        let narrow = TensorType { dtype, ..bias.ty.clone() };
        let cast = Op::Cast(Cast { dtype, layout: narrow.layout });
        settled(kernels::prepare(&cast, &[bias], &[Operand::contiguous(&narrow, address)], 0), gpu)
    }

    /// The bias of a forward convolution or linear layer, added to Y in place, and ReLU where the op has it.
    fn add_bias(&self, works: &mut Vec<Work>, gpu: &mut Gpu) -> Result<(), String> {
        let plan = match (self.op, self.inputs.get(2)) {
            (Op::Conv2dRelu(_), bias) => kernels::bias_relu(self.outputs[0], bias.copied()),
            (Op::Conv2d(_) | Op::Linear, Some(bias)) => kernels::bias_add(self.outputs[0], *bias),
            _ => return Ok(()),
        };
        works.extend(settled(plan, gpu)?);
        Ok(())
    }

    pub(super) fn check_workspace(&self, needed: u64) -> Result<(), String> {
        match self.workspace.bytes {
            given if given >= needed => Ok(()),
            given => Err(format!("expected a workspace of {needed} bytes, found {given}")),
        }
    }
}

/// The works of own kernels.
pub(super) fn settled(plan: Result<LaunchPlan, KernelError>, gpu: &mut Gpu) -> Result<Vec<Work>, String> {
    let launches = plan.map_err(|e| e.to_string())?.launches;
    launches.iter().map(|launch| gpu.settle(launch).map(Work::Kernel).map_err(|e| e.to_string())).collect()
}

/// Sets an output to zero: one stretch, or one a row when it is a slice.
fn zeros(output: &Operand<'_>) -> Vec<Work> {
    let (size, total) = (output.ty.dtype.size(), output.ty.bytes());
    if total == 0 {
        return Vec::new();
    }
    if output.is_contiguous() {
        return vec![Work::Zero(Bytes { address: output.address, bytes: total })];
    }
    let bytes = output.row() * size;
    let row = |n: u64| Work::Zero(Bytes { address: output.address + n * output.row_stride * size, bytes });
    (0..output.rows()).map(row).collect()
}
