//! What bounds the time of one order: a mixed-integer program of what leaves, when, and which algorithms run.
//!
//! ```text
//!  compute   … A(s) ── waits ──► K(s) ──── kernel s, Σ seconds · pick ────► A(s+1) …
//!  offload       └ K(from) or its end ─► D(gap), one after the other        A(s) ≥ D   where the bytes are not held at s
//!  prefetch                              A(fetch) + copy ≤ K(to)            A(s+1) + copy ≤ K(to) where not yet taken at s
//! ```
//! Binaries: `away` a gap, `pick` an algorithm a node, `held` and `taken` a gap and step in its middle: the bytes are still
//! there, or there again. Memory is exact but for addresses. Time is what the simulator finds if each direction of the link
//! has its full rate and copies up need not queue, so never more: a bound. Solutions found before are cut off.

use super::space::{Arrangement, Pick, Space};
use crate::Gap;
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint, microlp,
    variable,
};
use std::collections::BTreeSet;
use vdnn_tensor::Bytes;

/// What sums of bytes may be off by, in rooms. The search counts them again, as integers.
const ROUNDING: f64 = 1e-9;

/// One integer solution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Visit {
    /// No plan with these decisions takes less seconds.
    pub bound: f64,
    /// By gap of the arrangement.
    pub away: Vec<bool>,
    /// By node: the place of its pick.
    pub picks: Vec<usize>,
}

/// The solver gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsolved;

/// The solution of the least bound that is none of `visited`, if there is one of at most `horizon` seconds.
pub(super) fn solve(
    space: &Space<'_>,
    arrangement: &Arrangement,
    room: Bytes,
    horizon: f64,
    visited: &[Visit],
) -> Result<Option<Visit>, Unsolved> {
    let Some(left) = arrangement.left(room) else { return Ok(None) };
    let Some(mut model) = Model::new(space, arrangement, &left, horizon) else { return Ok(None) };
    model.memory(room);
    model.kernels();
    for gap in 0..model.gaps.len() {
        model.copy(gap);
        model.windows(gap);
    }
    model.queues();
    if !visited.iter().all(|visit| model.cut(visit)) {
        return Ok(None);
    }
    model.solve()
}

/// A gap that may leave.
struct Leaving {
    away: Variable,
    /// A copy down is made in it.
    down: Variable,
    /// Seconds of a copy down and of one up.
    seconds: [f64; 2],
    /// The steps of its middle at which bytes may be short.
    middle: Vec<Middle>,
}

/// A step in the middle of a gap.
struct Middle {
    step: usize,
    held: Variable,
    taken: Variable,
}

/// Algorithms of a node that may run: their places, and a binary each where there are several.
type Open = Vec<(usize, Option<Variable>)>;

/// Seconds are counted in horizons, so that 1 is later than everything.
struct Model<'a> {
    space: &'a Space<'a>,
    arrangement: &'a Arrangement,
    left: &'a [Bytes],
    horizon: f64,
    vars: ProblemVariables,
    rules: Vec<Constraint>,
    picks: Vec<Open>,
    gaps: Vec<Leaving>,
    /// By step: when it begins (and the end), and when its kernel does.
    begins: Vec<Variable>,
    launches: Vec<Variable>,
}

impl<'a> Model<'a> {
    /// The variables. `None` where not even the least workspace of some kernel fits.
    fn new(space: &'a Space<'a>, arrangement: &'a Arrangement, left: &'a [Bytes], horizon: f64) -> Option<Self> {
        let picks = open_picks(space, arrangement, left)?;
        let mut vars = ProblemVariables::new();
        let binaries = |open: Vec<usize>, vars: &mut ProblemVariables| {
            let several = open.len() > 1;
            open.into_iter().map(|place| (place, several.then(|| vars.add(variable().binary())))).collect()
        };
        let picks: Vec<Open> = picks.into_iter().map(|open| binaries(open, &mut vars)).collect();
        let n = arrangement.n_steps();
        let mut times =
            |count: usize| -> Vec<Variable> { (0..count).map(|_| vars.add(variable().clamp(0.0, 1.0))).collect() };
        let (begins, launches) = (times(n + 1), times(n));
        let rules = Vec::new();
        let mut model =
            Model { space, arrangement, left, horizon, vars, rules, picks, gaps: Vec::new(), begins, launches };
        let short: Vec<bool> = (0..n).map(|step| model.most(step) > left[step]).collect();
        model.gaps =
            arrangement.gaps.iter().map(|gap| model_gap(space, gap, horizon, &short, &mut model.vars)).collect();
        Some(model)
    }

    /// Bytes of a step if every gap across it is kept and its kernel takes what it can.
    fn most(&self, step: usize) -> Bytes {
        let across = self.arrangement.gaps.iter().filter(|gap| crosses(gap, step));
        let picks = &self.space.picks[self.arrangement.node(step).index()];
        let open = self.picks[self.arrangement.node(step).index()].iter();
        let workspace = open.map(|&(place, _)| picks[place].bytes).max().unwrap_or(0);
        across.map(|gap| self.space.bytes(gap)).sum::<Bytes>() + workspace
    }

    /// What a step holds beside what it must is at most what is left.
    fn memory(&mut self, room: Bytes) {
        let unit = room.max(1) as f64;
        for step in 0..self.arrangement.n_steps() {
            if self.most(step) <= self.left[step] {
                continue;
            }
            let node = self.arrangement.node(step).index();
            let workspace = |place: usize| self.space.picks[node][place].bytes as f64 / unit;
            let mut held = weighed(&self.picks[node], workspace);
            for (gap, leaving) in self.arrangement.gaps.iter().zip(&self.gaps) {
                if let Some(middle) = leaving.middle.iter().find(|middle| middle.step == step) {
                    let bytes = self.space.bytes(gap) as f64 / unit;
                    held += bytes * (1.0 - leaving.away + middle.held + middle.taken);
                }
            }
            self.rules.push(constraint!(held <= self.left[step] as f64 / unit + ROUNDING));
        }
    }

    /// Kernels run one after the other, each with one algorithm.
    fn kernels(&mut self) {
        for open in self.picks.iter().filter(|open| open.len() > 1) {
            let one: Expression = open.iter().filter_map(|(_, var)| *var).sum();
            self.rules.push(constraint!(one == 1));
        }
        for step in 0..self.arrangement.n_steps() {
            let end = self.end(step);
            self.rules.push(constraint!(self.launches[step] >= self.begins[step]));
            self.rules.push(constraint!(self.begins[step + 1] >= end));
        }
    }

    /// When a step's kernel ends.
    fn end(&self, step: usize) -> Expression {
        let node = self.arrangement.node(step).index();
        let seconds = |place: usize| self.space.picks[node][place].seconds / self.horizon;
        self.launches[step] + weighed(&self.picks[node], seconds)
    }

    /// When a gap's copy down can begin.
    fn ready(&self, gap: usize) -> Expression {
        let from = self.arrangement.gaps[gap].from;
        if from.writes { self.end(from.step.index()) } else { self.launches[from.step.index()].into() }
    }

    /// Down before the last step of the middle begins, up before the gap ends, and one after the other.
    fn copy(&mut self, index: usize) {
        let (gap, leaving) = (&self.arrangement.gaps[index], &self.gaps[index]);
        let (from, to) = (gap.from.step.index(), gap.to.step.index());
        let [down, up] = leaving.seconds;
        let (away, copied) = (leaving.away, leaving.down);
        let earlier =
            self.arrangement.gaps[..index].iter().zip(&self.gaps).filter(|(other, _)| still_valid(other, gap));
        let valid: Expression = earlier.map(|(_, other)| other.away).sum();
        let ready = self.ready(index);
        let launch = self.launches[to];
        self.rules.push(constraint!(copied >= away - valid));
        self.rules.push(constraint!(copied <= away));
        let (none, both) = ((1.0 + down) * (1.0 - copied), (1.0 + down + up) * (1.0 - copied));
        self.rules.push(constraint!(self.begins[to - 1] >= ready.clone() + down - none));
        self.rules.push(constraint!(launch >= ready + (down + up) - both));
        self.rules.push(constraint!(launch >= self.begins[(from + 2).min(to)] + up * away));
    }

    /// Where bytes are short: not held at a step means that the copy down is done, not taken yet that the one up begins later.
    fn windows(&mut self, index: usize) {
        let gap = &self.arrangement.gaps[index];
        let to = gap.to.step.index();
        let ready = self.ready(index);
        let Leaving { away, down, seconds, middle } = &self.gaps[index];
        for Middle { step, held, taken } in middle {
            let (held, taken, away) = (*held, *taken, *away);
            self.rules.push(constraint!(held + taken <= away));
            let (free, late) = ((1.0 + seconds[0]) * (1.0 - *down + held), (1.0 + seconds[1]) * (1.0 - away + taken));
            self.rules.push(constraint!(self.begins[*step] >= ready.clone() + seconds[0] - free));
            self.rules.push(constraint!(self.launches[to] >= self.begins[step + 1] + seconds[1] - late));
        }
        for pair in middle.windows(2) {
            self.rules.push(constraint!(pair[1].held <= pair[0].held));
            self.rules.push(constraint!(pair[1].taken >= pair[0].taken));
        }
    }

    /// What crosses within a stretch of steps takes at least its time.
    fn queues(&mut self) {
        let gaps = &self.arrangement.gaps;
        let froms: BTreeSet<usize> = gaps.iter().map(|gap| gap.from.step.index()).collect();
        let tos: BTreeSet<usize> = gaps.iter().map(|gap| gap.to.step.index()).collect();
        for (&from, &to) in froms.iter().flat_map(|from| tos.iter().map(move |to| (from, to))) {
            let within = |gap: &Gap| gap.from.step.index() >= from && gap.to.step.index() <= to;
            let inside: Vec<&Leaving> =
                gaps.iter().zip(&self.gaps).filter(|(gap, _)| within(gap)).map(|(_, l)| l).collect();
            if inside.len() < 2 {
                continue;
            }
            let down: Expression = inside.iter().map(|leaving| leaving.seconds[0] * leaving.down).sum();
            let up: Expression = inside.iter().map(|leaving| leaving.seconds[1] * leaving.away).sum();
            self.rules.push(constraint!(self.begins[to - 1] >= self.launches[from] + down));
            self.rules.push(constraint!(self.launches[to] >= self.begins[from + 2] + up));
        }
    }

    /// Other decisions than these; false where there are none.
    fn cut(&mut self, visit: &Visit) -> bool {
        let mut others = Expression::from(0.0);
        let mut any = false;
        for (leaving, &away) in self.gaps.iter().zip(&visit.away) {
            others += if away { 1.0 - leaving.away } else { leaving.away.into() };
            any = true;
        }
        for (open, &place) in self.picks.iter().zip(&visit.picks) {
            for (_, var) in open.iter().filter(|&&(other, var)| other == place && var.is_some()) {
                others += 1.0 - var.unwrap();
                any = true;
            }
        }
        self.rules.push(constraint!(others >= 1));
        any
    }

    fn solve(self) -> Result<Option<Visit>, Unsolved> {
        let Model { arrangement, horizon, vars, rules, picks, gaps, begins, .. } = self;
        let mut problem = vars.minimise(begins[arrangement.n_steps()]).using(microlp);
        for rule in rules {
            problem.add_constraint(rule);
        }
        let solution = match problem.solve() {
            Ok(solution) => solution,
            Err(ResolutionError::Infeasible) => return Ok(None),
            Err(_) => return Err(Unsolved),
        };
        let chosen = |open: &Open| {
            let likely = |var: &Option<Variable>| var.map_or(1.0, |var| solution.value(var));
            open.iter().max_by(|a, b| likely(&a.1).total_cmp(&likely(&b.1))).map_or(0, |&(place, _)| place)
        };
        Ok(Some(Visit {
            bound: solution.value(begins[arrangement.n_steps()]) * horizon,
            away: gaps.iter().map(|leaving| solution.value(leaving.away) > 0.5).collect(),
            picks: picks.iter().map(chosen).collect(),
        }))
    }
}

/// By node: the places of the algorithms whose workspace fits in all its runs.
fn open_picks(space: &Space<'_>, arrangement: &Arrangement, left: &[Bytes]) -> Option<Vec<Vec<usize>>> {
    let mut least = vec![Bytes::MAX; space.picks.len()];
    for (step, &left) in left.iter().enumerate() {
        let node = &mut least[arrangement.node(step).index()];
        *node = left.min(*node);
    }
    let fitting = |(picks, least): (&Vec<Pick>, Bytes)| {
        let open: Vec<usize> = (0..picks.len()).filter(|&place| picks[place].bytes <= least).collect();
        (!open.is_empty()).then_some(open)
    };
    space.picks.iter().zip(least).map(fitting).collect()
}

fn model_gap(space: &Space<'_>, gap: &Gap, horizon: f64, short: &[bool], vars: &mut ProblemVariables) -> Leaving {
    let links = &space.problem.links;
    let bytes = space.problem.program.aliases.storage_bytes(gap.root) as f64;
    let seconds = [links.d2h, links.h2d].map(|rate| (links.latency + bytes / rate) / horizon);
    let (away, down) = (vars.add(variable().binary()), vars.add(variable().clamp(0.0, 1.0)));
    let middle = (0..short.len()).filter(|&step| crosses(gap, step) && short[step]);
    let middle = middle.map(|step| {
        let (held, taken) = (vars.add(variable().binary()), vars.add(variable().binary()));
        Middle { step, held, taken }
    });
    Leaving { away, down, seconds, middle: middle.collect() }
}

/// Whether a step lies in the middle of a gap.
fn crosses(gap: &Gap, step: usize) -> bool {
    gap.from.step.index() < step && step < gap.to.step.index()
}

/// Whether a copy that a gap makes still holds the bytes in a later one.
fn still_valid(earlier: &Gap, gap: &Gap) -> bool {
    earlier.root == gap.root && gap.written.is_none_or(|written| written <= earlier.from.step)
}

/// What the algorithm that is picked weighs.
fn weighed(open: &Open, weight: impl Fn(usize) -> f64) -> Expression {
    let term = |&(place, var): &(usize, Option<Variable>)| match var {
        Some(var) => weight(place) * var,
        None => Expression::from(weight(place)),
    };
    open.iter().map(term).sum()
}
