//! A plan: one engine of cuDNN with its knobs set, for one problem, with a known workspace.
//!
//! Its fixed life: made (from a list or a name), sized, bound to the addresses of a launch site, run every iteration.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use vdnn_cudnn_sys::sys::{
    cudnnBackendAttributeName_t as A, cudnnBackendAttributeType_t as T, cudnnBackendBehaviorNote_t as Behavior,
    cudnnBackendDescriptorType_t as D, cudnnBackendNumericalNote_t as Numerical,
};

use super::descriptor::{Descriptor, Handle, Target};
use super::operation::{BIAS, OperationGraph, SQUARES, SUM, SUMS_ALIGNMENT, W, X, Y};
use super::problem::{ConvolutionProblem, Epilogue, Precision};
use crate::CudaError;

/// Engine and knobs: `eng12{k3=1,k7=2}`. Stable for one cuDNN version, and enough to make the plan again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanName {
    /// Index of the engine among all that cuDNN has for the operation.
    pub engine: i64,
    /// Type and value of each knob, by type; knobs not named keep the engine's defaults.
    pub knobs: Vec<(u32, i64)>,
}

impl fmt::Display for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eng{}", self.engine)?;
        if self.knobs.is_empty() {
            return Ok(());
        }
        let knobs: Vec<String> = self.knobs.iter().map(|(k, v)| format!("k{k}={v}")).collect();
        write!(f, "{{{}}}", knobs.join(","))
    }
}

impl FromStr for PlanName {
    type Err = CudaError;

    fn from_str(name: &str) -> Result<Self, CudaError> {
        let unreadable =
            || CudaError::UnknownPlan { name: name.into(), reason: "a plan is named like eng12{k3=1,k7=2}".into() };
        let rest = name.strip_prefix("eng").ok_or_else(unreadable)?;
        let (engine, knobs) = match rest.split_once('{') {
            Some((engine, knobs)) => (engine, knobs.strip_suffix('}').ok_or_else(unreadable)?),
            None => (rest, ""),
        };
        let knob = |text: &str| -> Option<(u32, i64)> {
            let (kind, value) = text.strip_prefix('k')?.split_once('=')?;
            Some((kind.parse().ok()?, value.parse().ok()?))
        };
        let parts = knobs.split(',').filter(|k| !k.is_empty());
        let mut knobs: Vec<(u32, i64)> = parts.map(|k| knob(k).ok_or_else(unreadable)).collect::<Result<_, _>>()?;
        knobs.sort_unstable();
        Ok(Self { engine: engine.parse().map_err(|_| unreadable())?, knobs })
    }
}

/// What cuDNN says about an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Two runs may differ in the last bits.
    pub nondeterministic: bool,
    /// Uses tensor cores.
    pub tensor_core: bool,
    /// Rounds its inputs to a shorter type.
    pub down_converts: bool,
    /// Sums in less than f32.
    pub reduced_sums: bool,
    /// Multiplies in the frequency domain.
    pub fft: bool,
    /// Winograd's transform.
    pub winograd: bool,
    /// Compiled when the plan is made, which takes up to two seconds.
    pub runtime_compiled: bool,
}

impl Notes {
    pub(super) fn of(engine: &Descriptor) -> Self {
        let numbers = |attribute, element| engine.get_numbers(attribute, element, 32).unwrap_or_default();
        let numerical = numbers(A::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, T::CUDNN_TYPE_NUMERICAL_NOTE);
        let behavior = numbers(A::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, T::CUDNN_TYPE_BEHAVIOR_NOTE);
        let has = |note: Numerical| numerical.contains(&(note as u32));
        Self {
            nondeterministic: has(Numerical::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC),
            tensor_core: has(Numerical::CUDNN_NUMERICAL_NOTE_TENSOR_CORE),
            down_converts: has(Numerical::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS),
            reduced_sums: has(Numerical::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION),
            fft: has(Numerical::CUDNN_NUMERICAL_NOTE_FFT),
            winograd: has(Numerical::CUDNN_NUMERICAL_NOTE_WINOGRAD),
            runtime_compiled: behavior.contains(&(Behavior::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32)),
        }
    }

    /// The same for a problem. Sums of the output come out in the order in which blocks end, which cuDNN does not note: on an H200
    /// two runs of most such plans differ in the last bits.
    pub(super) fn told(self, problem: &ConvolutionProblem) -> Self {
        Self { nondeterministic: self.nondeterministic || problem.epilogue == Epilogue::Statistics, ..self }
    }

    /// Whether such an engine computes what the problem's type and precision promise.
    pub(super) fn keep_promise(&self, problem: &ConvolutionProblem) -> bool {
        let f32 = problem.dtype == vdnn_tensor::DType::F32;
        let strict = f32 && problem.precision == Precision::Fp32;
        let shortens = self.reduced_sums || (!f32 && self.down_converts);
        !shortens && !(strict && (self.tensor_core || self.down_converts))
    }
}

/// Where a plan's operands and workspace lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// X, or dX of a data gradient.
    pub x: u64,
    /// W, or dW of a weight gradient.
    pub w: u64,
    /// Y, or dY of the gradients.
    pub y: u64,
    /// What the epilogue reads or writes: the bias; or the sums, and those of squares. Anything where there is none.
    pub epilogue: [u64; 2],
    /// First byte of the workspace; anything when there is none.
    pub workspace: u64,
    /// Bytes of the workspace.
    pub workspace_bytes: u64,
}

/// A way to compute one problem.
#[derive(Debug)]
pub struct Plan {
    /// Makes this plan again.
    pub name: PlanName,
    /// What it computes.
    pub problem: ConvolutionProblem,
    /// Bytes that it borrows while it runs.
    pub workspace_bytes: u64,
    /// What cuDNN says about it.
    pub notes: Notes,
    plan: Descriptor,
    // What the plan was made from; kept, as cuDNN does not say that it need not be.
    _configuration: Descriptor,
    _graph: Arc<OperationGraph>,
}

impl Plan {
    /// Makes the plan of that name again, or says that this cuDNN cannot.
    pub fn from_name(target: Target<'_>, problem: &ConvolutionProblem, name: &PlanName) -> Result<Self, CudaError> {
        let graph = Arc::new(OperationGraph::new(target, problem)?);
        let unknown = |e: CudaError| CudaError::UnknownPlan { name: name.to_string(), reason: e.to_string() };
        let engine = engine(target, &graph, name.engine).map_err(unknown)?;
        let notes = Notes::of(&engine).told(problem);
        let configuration = configuration(target, &engine, &name.knobs).map_err(unknown)?;
        Self::new(target, problem, name.clone(), notes, configuration, graph).map_err(unknown)
    }

    pub(super) fn new(
        target: Target<'_>,
        problem: &ConvolutionProblem,
        name: PlanName,
        notes: Notes,
        configuration: Descriptor,
        graph: Arc<OperationGraph>,
    ) -> Result<Self, CudaError> {
        let plan = Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .descriptors(A::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&configuration])?;
        let (by_handle, by_properties) = (A::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, A::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
        let plan = target.name_to(plan, Some(by_handle), Some(by_properties))?.finalize()?;
        let workspace_bytes = plan.get_int64(A::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?.max(0) as u64;
        let (problem, _configuration, _graph) = (*problem, configuration, graph);
        Ok(Self { name, problem, workspace_bytes, notes, plan, _configuration, _graph })
    }

    /// Prepares a launch site: everything that [`Plan::execute`] needs besides the handle.
    ///
    /// # Safety
    ///
    /// Whenever the result is executed, the addresses must hold the problem's tensors (with their batch strides) and
    /// the stated workspace, and no other work may touch them meanwhile.
    pub unsafe fn bind(&self, at: Addresses) -> Result<BoundPlan, CudaError> {
        if at.workspace_bytes < self.workspace_bytes {
            let (needed, given) = (self.workspace_bytes, at.workspace_bytes);
            return Err(CudaError::Workspace { what: format!("{} of {}", self.name, self.problem), needed, given });
        }
        let operands = self.operands(at);
        for &Bound { what, address, alignment, .. } in &operands {
            if !address.is_multiple_of(alignment) || address == 0 {
                return Err(CudaError::Misaligned { what, address, alignment });
            }
        }
        // cuDNN's kernels read their workspace in 16-byte words and more.
        if self.workspace_bytes > 0 && (!at.workspace.is_multiple_of(256) || at.workspace == 0) {
            let what = "convolution workspace";
            return Err(CudaError::Misaligned { what, address: at.workspace, alignment: 256 });
        }
        let workspace = if self.workspace_bytes > 0 { at.workspace } else { 0 };
        let pointers: Vec<u64> = operands.iter().map(|operand| operand.address).collect();
        let ids: Vec<i64> = operands.iter().map(|operand| operand.id).collect();
        let pack = Descriptor::new(self.plan.cudnn(), D::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .int64(A::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .set(A::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, T::CUDNN_TYPE_VOID_PTR, &pointers)?
            .set(A::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, T::CUDNN_TYPE_VOID_PTR, &[workspace])?
            .finalize()?;
        Ok(BoundPlan { pack })
    }

    /// The tensors of the problem, where they lie.
    fn operands(&self, at: Addresses) -> Vec<Bound> {
        let alignment = self.problem.alignment;
        let map = |id, what, address| Bound { id, what, address, alignment };
        let sums = |id, what, address| Bound { id, what, address, alignment: SUMS_ALIGNMENT };
        let [first, second] = at.epilogue;
        let mut operands =
            vec![map(X, "convolution X", at.x), map(W, "convolution W", at.w), map(Y, "convolution Y", at.y)];
        match self.problem.epilogue {
            Epilogue::None => {}
            Epilogue::BiasRelu => operands.push(map(BIAS, "bias", first)),
            Epilogue::Statistics => {
                operands.extend([sums(SUM, "sums of Y", first), sums(SQUARES, "sums of squares", second)]);
            }
        }
        operands
    }

    /// Queues the convolution on the handle's stream, at the addresses of a launch site that this plan bound.
    pub fn execute(&self, handle: &Handle, site: &BoundPlan) -> Result<(), CudaError> {
        self.plan.execute(handle, &site.pack)
    }
}

/// One tensor of a variant pack.
struct Bound {
    id: i64,
    what: &'static str,
    address: u64,
    alignment: u64,
}

/// A plan's operands at fixed addresses.
#[derive(Debug)]
pub struct BoundPlan {
    pack: Descriptor,
}

/// The engine of that index for a graph; an error when it cannot compute it.
pub(super) fn engine(target: Target<'_>, graph: &OperationGraph, index: i64) -> Result<Descriptor, CudaError> {
    let engine = Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?
        .descriptors(A::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[&graph.graph])?
        .int64(A::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[index])?;
    target.name_to(engine, None, Some(A::CUDNN_ATTR_ENGINE_DEVICEPROP))?.finalize()
}

/// An engine with some of its knobs set.
pub(super) fn configuration(
    target: Target<'_>,
    engine: &Descriptor,
    knobs: &[(u32, i64)],
) -> Result<Descriptor, CudaError> {
    let choose = |(kind, value): &(u32, i64)| {
        Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?
            .set(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, T::CUDNN_TYPE_KNOB_TYPE, &[*kind])?
            .int64(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[*value])?
            .finalize()
    };
    let choices: Vec<Descriptor> = knobs.iter().map(choose).collect::<Result<_, _>>()?;
    let configuration = Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?
        .descriptors(A::CUDNN_ATTR_ENGINECFG_ENGINE, &[engine])?;
    if choices.is_empty() {
        return configuration.finalize();
    }
    let refs: Vec<&Descriptor> = choices.iter().collect();
    configuration.descriptors(A::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &refs)?.finalize()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Direction;
    use super::*;

    #[test]
    fn names_parse_back() {
        for text in ["eng0", "eng12{k3=1}", "eng1000{k2=-1,k14=3}"] {
            assert_eq!(text.parse::<PlanName>().unwrap().to_string(), text);
        }
        assert_eq!("eng4{k9=1,k2=0}".parse::<PlanName>().unwrap().to_string(), "eng4{k2=0,k9=1}");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "eng", "12", "eng1{", "eng1{k1}", "eng1{1=2}", "eng1{k1=x}", "engx"] {
            assert!(matches!(text.parse::<PlanName>(), Err(CudaError::UnknownPlan { .. })), "{text}");
        }
    }

    #[test]
    fn strict_f32_keeps_tensor_cores_away_and_tf32_does_not() {
        let strict = ConvolutionProblem::dense(Direction::Forward, [1, 1, 4, 4], 1, 3, 1, 1);
        let tf32 = ConvolutionProblem { precision: Precision::Tf32, ..strict };
        let tensor_core = Notes { tensor_core: true, down_converts: true, ..Notes::default() };
        assert!(!tensor_core.keep_promise(&strict) && tensor_core.keep_promise(&tf32));
        let half_sums = Notes { reduced_sums: true, ..Notes::default() };
        assert!(!half_sums.keep_promise(&tf32));
    }
}
