//! What every kernel costs at least within the budget, step by step of the program's own order.

use crate::Problem;

/// One way to run a step's kernel that fits the budget together with its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitting {
    /// Time beyond the fastest that fits.
    pub extra: f64,
    /// Operands and workspace.
    pub bytes: f64,
}

/// The least times of all steps.
pub(super) struct Kernels<'a> {
    problem: &'a Problem<'a>,
    /// Bytes beside the homes that cannot leave; infinite without a budget.
    pub room: f64,
    /// Operands of each step's kernel, homes that cannot leave not counted, nor bytes that an output may take over.
    pub operands: Vec<f64>,
    /// The fastest choice of each step that fits.
    pub seconds: Vec<f64>,
    /// Sum of `seconds` before each step, and of all at the end.
    pub before: Vec<f64>,
}

impl<'a> Kernels<'a> {
    /// `None` when a kernel fits in no way: then no plan exists.
    pub fn of(problem: &'a Problem<'a>) -> Option<Self> {
        let homes = problem.home_bytes();
        let room = problem.budgets.device.map_or(f64::INFINITY, |budget| budget as f64 - homes as f64);
        let order = &problem.program.order;
        let bytes = problem.operand_bytes();
        let operands: Vec<f64> = order.iter().map(|&id| bytes(id) as f64).collect();
        let mut kernels = Kernels { problem, room, operands, seconds: Vec::new(), before: vec![0.0] };
        for step in 0..order.len() {
            let fastest = kernels.choices(step).map(|(_, seconds)| seconds).min_by(f64::total_cmp)?;
            kernels.seconds.push(fastest);
            kernels.before.push(kernels.before[step] + fastest);
        }
        Some(kernels)
    }

    /// Bytes and seconds of each choice that fits. A kernel without choices takes no time.
    fn choices(&self, step: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
        let (node, kernels) = (self.problem.program.order[step], self.problem.kernels);
        let all = kernels.all(node).map(|choice| (choice.workspace as f64, choice.seconds));
        let none = kernels.of(node).is_empty().then_some((0.0, 0.0));
        let operands = self.operands[step];
        all.chain(none).map(move |(workspace, seconds)| (operands + workspace, seconds)).filter(|c| c.0 <= self.room)
    }

    /// The choices worth considering: each takes more time and fewer bytes than the one before it.
    pub fn fitting(&self, step: usize) -> Vec<Fitting> {
        let extra = |(bytes, seconds)| Fitting { extra: seconds - self.seconds[step], bytes };
        let mut all: Vec<Fitting> = self.choices(step).map(extra).collect();
        all.sort_by(|a, b| a.extra.total_cmp(&b.extra).then(a.bytes.total_cmp(&b.bytes)));
        let mut kept: Vec<Fitting> = Vec::new();
        for choice in all {
            if kept.last().is_none_or(|last| choice.bytes < last.bytes) {
                kept.push(choice);
            }
        }
        kept
    }

    /// Least time of the steps in `from..to`.
    pub fn between(&self, from: usize, to: usize) -> f64 {
        self.before[to] - self.before[from]
    }

    /// Least time of the whole program.
    pub fn total(&self) -> f64 {
        self.before.last().copied().unwrap_or(0.0)
    }
}
