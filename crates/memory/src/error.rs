//! Plans that cannot be, with what would be needed.

use thiserror::Error;
use vdnn_tensor::{Bytes, format_bytes};

/// One of the largest buffers live at a peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestBuffer {
    /// Name of the value or workspace.
    pub name: String,
    /// Size.
    pub bytes: Bytes,
}

/// A budget that a policy cannot keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    /// Name of the policy.
    pub policy: String,
    /// The budget asked for.
    pub budget: Bytes,
    /// The least budget at which this policy returns a plan.
    pub floor: Bytes,
    /// Name of the node that runs at the peak of the floor's plan.
    pub step: String,
    /// The largest buffers live there.
    pub largest: Vec<LargestBuffer>,
    /// Set where the policy does not plan problems of this size unless everything fits: the floor is then what that needs.
    pub too_large: Option<Box<TooLarge>>,
}

/// A problem that is too large for a policy which proves its plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// What is counted.
    pub what: &'static str,
    /// The most that the policy takes.
    pub most: usize,
    /// How many there are; `None` where the count only shows in the middle of a proof.
    pub found: Option<usize>,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TooLarge { what, most, .. } = self;
        match self.found {
            Some(found) => write!(f, "expected at most {most} {what}, found {found}")?,
            None => write!(f, "expected a proof within {most} {what}, found none")?,
        }
        f.write_str("; use `hybrid`, or a budget in which everything fits")
    }
}

impl std::fmt::Display for Infeasible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(too_large) = &self.too_large {
            return write!(f, "policy {} plans small programs only: {too_large}", self.policy);
        }
        write!(
            f,
            "policy {} needs at least {} ({} bytes) of device memory, the budget is {} ({} bytes); the peak is at {} with ",
            self.policy,
            format_bytes(self.floor),
            self.floor,
            format_bytes(self.budget),
            self.budget,
            self.step
        )?;
        for (i, buffer) in self.largest.iter().enumerate() {
            write!(f, "{}{} {}", if i > 0 { ", " } else { "" }, buffer.name, format_bytes(buffer.bytes))?;
        }
        f.write_str("; try a larger budget, a smaller batch, or a policy that keeps less")
    }
}

impl std::error::Error for Infeasible {}

/// Why a schedule could not be compiled.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The device budget is too small for the policy.
    #[error(transparent)]
    Infeasible(Infeasible),
    /// The policy plans small programs only.
    #[error("policy {policy} plans small programs only: {limit}")]
    TooLarge {
        /// Its name.
        policy: String,
        /// What there is too much of.
        limit: TooLarge,
    },
    /// The offloaded bytes do not fit the host budget.
    #[error(
        "the plan keeps {} ({needed} bytes) in host memory, the host budget is {} ({budget} bytes); raise the host budget \
         or use a policy that offloads less, or have fewer parameters and states stream, or let values rest on disk with a \
         disk budget",
        format_bytes(*needed),
        format_bytes(*budget)
    )]
    HostBudget {
        /// Bytes of host memory the plan needs.
        needed: Bytes,
        /// The budget.
        budget: Bytes,
    },
    /// The offloaded bytes fit neither the host budget nor, resting on disk, both budgets.
    #[error(
        "the plan's copies need {} ({host_needed} bytes) of host memory and {} ({disk_needed} bytes) on disk, the budgets \
         are {} ({host_budget} bytes) and {} ({disk_budget} bytes); raise the one that is too small (each value that rests \
         on disk passes through host memory whole), or use a smaller batch or a policy that offloads less",
        format_bytes(*host_needed), format_bytes(*disk_needed), format_bytes(*host_budget), format_bytes(*disk_budget)
    )]
    LowerBudgets {
        /// Bytes of host memory with as much on disk as can be, or as little as must be where the disk is too small.
        host_needed: Bytes,
        /// The host budget.
        host_budget: Bytes,
        /// Bytes of the file then.
        disk_needed: Bytes,
        /// The disk budget.
        disk_budget: Bytes,
    },
    /// There is a disk budget, but nothing says how fast the disk is.
    #[error(
        "there is a disk budget of {} ({budget} bytes), but no rate of a disk to plan with; name a machine whose description \
         has a `disk`, or leave the budget out",
        format_bytes(*budget)
    )]
    NoDiskRate {
        /// The disk budget.
        budget: Bytes,
    },
    /// A policy returned a plan that breaks a rule.
    #[error("the plan is not legal: {reason}")]
    IllegalPlan {
        /// Which rule, and where.
        reason: String,
    },
}

impl From<Infeasible> for PlanError {
    fn from(refusal: Infeasible) -> Self {
        match refusal.too_large {
            Some(limit) => PlanError::TooLarge { policy: refusal.policy, limit: *limit },
            None => PlanError::Infeasible(refusal),
        }
    }
}
