//! Filling a profile: a graph's distinct kernels measured until a deadline, then rehearsed together.

use std::collections::HashMap;
use std::time::Instant;

use vdnn_graph::{Graph, Op};
use vdnn_runtime::DeviceError;
use vdnn_schedule::{Choice, KernelTable, Profile};

use super::bench::{self, Pattern};
use super::{CudaDevice, broken, in_words};

/// Kernels measured between two looks at the clock.
const STEP: usize = 8;

impl CudaDevice {
    /// Records the choices of a graph's distinct kernels of the ops wanted that a profile does not hold, until the deadline, at the
    /// pace that they have among each other. Returns how many are still missing.
    pub(crate) fn measure_into(
        &mut self,
        graph: &Graph,
        deterministic: bool,
        profile: &mut Profile,
        deadline: Instant,
        wanted: fn(&Op) -> bool,
    ) -> Result<usize, DeviceError> {
        self.check_types(graph)?;
        let mut patterns = bench::patterns(graph);
        patterns.retain(|pattern| wanted(&pattern.node.op) && profile.find(&pattern.key).is_none());
        let mut distinct = HashMap::new();
        let new = |pattern: &&Pattern<'_>| {
            let number = distinct.len();
            *distinct.entry(pattern.key.clone()).or_insert(number) == number
        };
        let firsts: Vec<Pattern<'_>> = patterns.iter().filter(new).cloned().collect();
        let mut all: Vec<Vec<Choice>> = Vec::with_capacity(firsts.len());
        for some in firsts.chunks(STEP) {
            if Instant::now() >= deadline {
                break;
            }
            let found: Result<Vec<Vec<Choice>>, DeviceError> = self.loading(|device| {
                let found = device.bench.choices(&mut device.gpu, some, deterministic);
                some.iter().zip(found).map(|(pattern, choices)| in_words(pattern.node, choices)).collect()
            });
            all.extend(found?);
        }
        patterns.retain(|pattern| distinct[&pattern.key] < all.len());
        let of_patterns: Vec<Vec<Choice>> =
            patterns.iter().map(|pattern| all[distinct[&pattern.key]].clone()).collect();
        let paces = self.loading(|device| Ok(device.bench.paces(&mut device.gpu, &patterns, &of_patterns)))?;
        let paces = paces.map_err(|failure| broken(&graph.name, failure))?;
        let paces =
            means(&patterns.iter().map(|pattern| distinct[&pattern.key]).collect::<Vec<_>>(), &paces, all.len());
        let missing = firsts.len() - all.len();
        for (pattern, choices) in firsts.iter().zip(KernelTable::new(all).at_paces(&paces).choices) {
            profile.record(pattern.key.clone(), choices);
        }
        Ok(missing)
    }
}

/// The mean of the values that belong to each of so many kinds; 1 for one without any.
fn means(kinds: &[usize], values: &[f64], count: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); count];
    for (&kind, value) in kinds.iter().zip(values) {
        sums[kind].0 += value;
        sums[kind].1 += 1.0;
    }
    sums.into_iter().map(|(sum, many)| if many > 0.0 { sum / many } else { 1.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_occur_often_have_their_mean_pace() {
        assert_eq!(means(&[0, 1, 0], &[1.0, 1.5, 2.0], 3), [1.5, 1.5, 1.0]);
    }
}
