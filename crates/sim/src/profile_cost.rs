//! What a kernel costs by measurement: a recorded profile, with a machine's formulas where it has gaps.
//!
//! An encoded kernel that was not measured costs what its plain kernel was measured at, and more in proportion where it
//! moves more bytes: both are bound by memory. Where it moves fewer it is not taken to be faster until it is measured.

use crate::cost::default_choice;
use crate::{CostError, Links, Machine, moves_nothing, traffic_bytes};
use std::collections::{BTreeMap, HashMap};
use vdnn_graph::{NodeId, Program};
use vdnn_schedule::{Choice, FORMAT, KernelTable, Profile, kernel_key, kernel_key_of};
use vdnn_tensor::TensorType;

/// Prices nodes by a profile. Strict unless given a machine to fall back on.
#[derive(Clone, Debug)]
pub struct ProfileCost {
    profile: Profile,
    by_key: HashMap<String, usize>,
    fallback: Option<Machine>,
}

/// A table, and which of it was not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Choices of every node.
    pub table: KernelTable,
    /// Kernels priced by the fallback machine: key, and the nodes that run it.
    pub modelled: BTreeMap<String, Vec<NodeId>>,
    /// Number of nodes priced by measurement, be it of the plain kernel. Nodes that move nothing count on neither side.
    pub measured: usize,
}

impl Estimate {
    /// Number of nodes priced by the fallback machine.
    pub fn modelled_nodes(&self) -> usize {
        self.modelled.values().map(Vec::len).sum()
    }
}

impl ProfileCost {
    /// Takes a profile after checking it; choices are put fastest first.
    ///
    /// # Errors
    /// [`CostError::Profile`] for another format, a kernel recorded twice or without choices, or senseless numbers.
    pub fn new(mut profile: Profile) -> Result<Self, CostError> {
        let by_key = check(&profile).map_err(|reason| CostError::Profile { device: profile.device.clone(), reason })?;
        for entry in &mut profile.kernels {
            entry.choices.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.workspace.cmp(&b.workspace)));
        }
        Ok(ProfileCost { profile, by_key, fallback: None })
    }

    /// Refuses a profile of another device.
    ///
    /// # Errors
    /// [`CostError::ProfileDevice`].
    pub fn for_device(self, device: &str) -> Result<Self, CostError> {
        if self.profile.device == device {
            return Ok(self);
        }
        Err(CostError::ProfileDevice { expected: device.to_string(), found: self.profile.device })
    }

    /// Lets a machine price kernels that were not measured.
    pub fn with_fallback(mut self, machine: Machine) -> Self {
        self.fallback = Some(machine);
        self
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Measured rates, and launch delays where the profile has them. What it does not record (a latency, a disk) is the fallback
    /// machine's, or 0 and none.
    pub fn links(&self) -> Links {
        let Profile { d2h, h2d, duplex_each, launch_delay_d2h, launch_delay_h2d, .. } = self.profile;
        let of_machine = self.fallback.as_ref().map_or_else(|| Links::new(d2h, h2d, duplex_each), Machine::links);
        Links {
            d2h,
            h2d,
            duplex_each,
            launch_delay_d2h: launch_delay_d2h.unwrap_or(of_machine.launch_delay_d2h),
            launch_delay_h2d: launch_delay_h2d.unwrap_or(of_machine.launch_delay_h2d),
            ..of_machine
        }
    }

    /// Prices every node of a program.
    ///
    /// # Errors
    /// Without a fallback [`CostError::NotProfiled`] when any kernel is missing; with one, what the machine refuses.
    pub fn kernel_table(&self, program: &Program) -> Result<Estimate, CostError> {
        let mut table = KernelTable::default();
        let mut modelled: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
        let mut measured = 0;
        for id in program.graph.node_ids() {
            let mut pieces = Vec::new();
            let choices = if moves_nothing(program, id) {
                vec![default_choice(0.0)]
            } else {
                let key = kernel_key(&program.graph, program.graph.node(id));
                let recorded = self.recorded(&key).map(<[Choice]>::to_vec);
                match recorded.or_else(|| self.as_plain(program, id)) {
                    Some(choices) => {
                        measured += 1;
                        pieces = self.pieces(program, id, &choices);
                        choices
                    }
                    None => {
                        modelled.entry(key).or_default().push(id);
                        let estimated = self.estimated(program, id)?;
                        let of = |machine: &Machine| machine.pieces(program, id, &estimated);
                        pieces = self.fallback.as_ref().map_or(Ok(Vec::new()), of)?;
                        estimated
                    }
                }
            };
            table.choices.push(choices);
            table.pieces.push(pieces);
        }
        if self.fallback.is_none() && !modelled.is_empty() {
            return Err(self.missing(program, &modelled));
        }
        Ok(Estimate { table, modelled, measured })
    }

    pub(crate) fn fallback(&self) -> Option<&Machine> {
        self.fallback.as_ref()
    }

    pub(crate) fn recorded(&self, key: &str) -> Option<&[Choice]> {
        self.by_key.get(key).map(|&index| self.profile.kernels[index].choices.as_slice())
    }

    /// An encoded node's choices by its plain kernel's.
    fn as_plain(&self, program: &Program, id: NodeId) -> Option<Vec<Choice>> {
        let (graph, node) = (&program.graph, program.graph.node(id));
        let types: Vec<&TensorType> = node.inputs.iter().map(|&input| &graph.value(input).ty).collect();
        let (op, inputs) = node.op.plain(&types)?;
        let recorded = self.recorded(&kernel_key_of(&op, &inputs, graph.precision))?;
        let moved = inputs.iter().chain([&graph.value(node.outputs[0]).ty]).map(|ty| ty.bytes() as f64);
        let more = (traffic_bytes(program, id) as f64 / moved.sum::<f64>().max(1.0)).max(1.0);
        Some(recorded.iter().map(|choice| Choice { seconds: choice.seconds * more, ..choice.clone() }).collect())
    }

    /// The fallback's choices; none in strict mode, where the caller refuses the whole table.
    fn estimated(&self, program: &Program, id: NodeId) -> Result<Vec<Choice>, CostError> {
        self.fallback.as_ref().map_or(Ok(Vec::new()), |machine| machine.choices(program, id))
    }

    fn missing(&self, program: &Program, modelled: &BTreeMap<String, Vec<NodeId>>) -> CostError {
        let mut first: Vec<NodeId> = modelled.values().map(|nodes| nodes[0]).collect();
        first.sort_unstable();
        let examples = first.iter().take(3).map(|&id| program.graph.node(id).name.clone()).collect();
        CostError::NotProfiled { device: self.profile.device.clone(), count: modelled.len(), examples }
    }
}

/// Checks format, rates and kernels, and indexes the kernels by key.
fn check(profile: &Profile) -> Result<HashMap<String, usize>, String> {
    if profile.format != FORMAT {
        return Err(format!("expected format {FORMAT}, found {}; record it again", profile.format));
    }
    for (field, rate) in [("d2h", profile.d2h), ("h2d", profile.h2d), ("duplex_each", profile.duplex_each)] {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(format!("{field}: expected a positive rate in bytes a second, found {rate}"));
        }
    }
    let times = [
        ("launch_delay_d2h", profile.launch_delay_d2h),
        ("launch_delay_h2d", profile.launch_delay_h2d),
        ("launch_overhead", profile.launch_overhead),
    ];
    for (field, time) in times {
        if let Some(time) = time.filter(|time| !(*time >= 0.0 && time.is_finite())) {
            return Err(format!("{field}: expected a time of at least 0 in seconds, found {time}"));
        }
    }
    let mut by_key = HashMap::with_capacity(profile.kernels.len());
    for (index, entry) in profile.kernels.iter().enumerate() {
        if entry.choices.is_empty() {
            return Err(format!("expected at least one choice for kernel {}, found none", entry.key));
        }
        if let Some(choice) = entry.choices.iter().find(|c| !(c.seconds >= 0.0 && c.seconds.is_finite())) {
            let (name, found) = (&choice.algorithm, choice.seconds);
            return Err(format!("expected a time of at least 0 for {name} of kernel {}, found {found}", entry.key));
        }
        if by_key.insert(entry.key.clone(), index).is_some() {
            return Err(format!("expected each kernel once, found {} twice", entry.key));
        }
    }
    Ok(by_key)
}
