//! What kernels and copies cost, for planning: a machine description, or a recorded profile.

use super::resolve;
use anyhow::{Context, Result};
use std::path::Path;
use vdnn_graph::Program;
use vdnn_schedule::{KernelTable, Profile};
use vdnn_sim::{Links, Machine, ProfileCost};

/// Where costs come from.
pub enum Costs {
    /// A machine description's formulas.
    Modelled(Box<Machine>),
    /// Measurements, completed by a machine description when one is named.
    Recorded(Box<ProfileCost>),
}

/// Choices of a program's nodes, and where their costs come from. Nodes that move nothing count on neither side of a profile.
pub struct Priced {
    /// The choices.
    pub table: KernelTable,
    /// Nodes priced by measurement.
    pub measured: usize,
    /// Nodes priced by a machine description.
    pub modelled: usize,
}

impl Costs {
    /// A machine description by name or file.
    pub fn of_machine(name: &str) -> Result<Self> {
        Ok(Costs::Modelled(Box::new(resolve::machine(name)?)))
    }

    /// A profile from a file; `fallback` names the machine that prices kernels it does not have.
    pub fn of_profile(path: &Path, fallback: Option<&str>) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read the profile {}", path.display()))?;
        let profile = Profile::parse(&text).with_context(|| format!("in the profile {}", path.display()))?;
        let cost = ProfileCost::new(profile)?;
        let cost = match fallback {
            Some(machine) => cost.with_fallback(resolve::machine(machine)?),
            None => cost,
        };
        Ok(Costs::Recorded(Box::new(cost)))
    }

    /// Name of the machine or device.
    pub fn name(&self) -> &str {
        match self {
            Costs::Modelled(machine) => &machine.name,
            Costs::Recorded(cost) => &cost.profile().device,
        }
    }

    /// True when nothing of it was measured kernel by kernel.
    pub fn is_modelled(&self) -> bool {
        matches!(self, Costs::Modelled(_))
    }

    /// Every node's choices, and how many nodes each kind of cost priced.
    pub fn estimate(&self, program: &Program) -> Result<Priced> {
        match self {
            Costs::Modelled(machine) => {
                let table = machine.kernel_table(program)?;
                Ok(Priced { measured: 0, modelled: table.choices.len(), table })
            }
            Costs::Recorded(cost) => {
                let estimate = cost.kernel_table(program)?;
                Ok(Priced { measured: estimate.measured, modelled: estimate.modelled_nodes(), table: estimate.table })
            }
        }
    }

    /// Rates of copies, those of the link multiplied by `scale`; latencies, delays of launches and the disk stay.
    pub fn links(&self, scale: f64) -> Links {
        let links = match self {
            Costs::Modelled(machine) => machine.links(),
            Costs::Recorded(cost) => cost.links(),
        };
        Links { d2h: links.d2h * scale, h2d: links.h2d * scale, duplex_each: links.duplex_each * scale, ..links }
    }
}
