//! Which way an iteration goes quicker: as one graph, or command by command.

use std::time::Duration;

/// Iterations before any is timed: the first ones load and allocate.
const UNTIMED: usize = 2;
/// Timed iterations of each way, of which the quickest counts.
const TIMED: usize = 3;

/// The two ways of an iteration that has copies beside its launches, timed in turn from its third one on; the quicker one is
/// kept. Both compute the same bits.
#[derive(Debug, Default)]
pub(super) struct Trial {
    seen: usize,
    /// Least time as a graph, and one by one.
    least: [Option<Duration>; 2],
}

impl Trial {
    /// Whether the next iteration is to be a graph.
    pub fn as_graph(&self) -> bool {
        self.found().map_or(self.seen.is_multiple_of(2), |[graph, issued]| graph <= issued)
    }

    /// Both ways' times, once every one has had its turns.
    pub fn found(&self) -> Option<[Duration; 2]> {
        let [graph, issued] = self.least;
        (self.seen >= UNTIMED + 2 * TIMED).then_some([graph?, issued?])
    }

    /// An iteration of its choosing took so long.
    pub fn took(&mut self, time: Duration) {
        if (UNTIMED..UNTIMED + 2 * TIMED).contains(&self.seen) {
            let least = &mut self.least[usize::from(!self.as_graph())];
            *least = Some(least.map_or(time, |before| before.min(time)));
        }
        self.seen += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(graph: u64, issued: u64) -> Vec<bool> {
        let mut trial = Trial::default();
        let one = |_| {
            let as_graph = trial.as_graph();
            // The first iteration of all is slow.
            let ms = if trial.seen == 0 {
                1000
            } else if as_graph {
                graph
            } else {
                issued
            };
            trial.took(Duration::from_millis(ms));
            as_graph
        };
        (0..10).map(one).collect()
    }

    #[test]
    fn a_trial_takes_turns_and_keeps_the_quicker_way() {
        let turns = [true, false, true, false, true, false, true, false];
        assert_eq!(ways(30, 40), [&turns[..], &[true, true]].concat());
        assert_eq!(ways(40, 30), [&turns[..], &[false, false]].concat());
    }
}
