//! SGD and Adam against the published cases (B21, B23) and against formulas on longer vectors.

use crate::tensor::{Place, Tensor, assert_close, integers, normal, run};
use vdnn_graph::op::{Adam, Op, Sgd};
use vdnn_tensor::{DType, TensorType};

/// Three steps from w = 1 with g = 1 and lr = 0.1; `None` without a compiler.
fn three_steps(op: Sgd) -> Option<Vec<f32>> {
    let one = |v| Tensor::filled(&[1], Place::Dense, v);
    let (w, g, m, lr, counter) = (one(1.0), one(1.0), one(f32::NAN), one(0.1), TensorType::new([1], DType::U64));
    let mut trace = vec![];
    for step in 0..3u64 {
        let at = [step];
        let iteration = integers(&counter, &at);
        let ran = if op.has_momentum() {
            let inputs = [w.operand(), g.operand(), m.operand(), lr.operand(), iteration];
            run(&Op::Sgd(op), &inputs, &[w.operand(), m.operand()])
        } else {
            run(&Op::Sgd(op), &[w.operand(), g.operand(), lr.operand(), iteration], &[w.operand()])
        };
        if !ran {
            return None;
        }
        trace.extend(w.values());
    }
    Some(trace)
}

/// Case B21.
#[test]
fn sgd_decays_without_momentum_and_leaves_the_first_step_undamped() {
    let sgd = |momentum, dampening| Sgd { momentum, dampening, weight_decay: 0.1, nesterov: false };
    for (op, expected) in [
        (sgd(0.0, 0.0), [0.89, 0.7811, 0.673_289]),
        (sgd(0.9, 0.0), [0.89, 0.6821, 0.388_169]),
        (sgd(0.9, 0.5), [0.89, 0.736_55, 0.544_762_25]),
    ] {
        let Some(trace) = three_steps(op) else { return };
        assert_close("w", &trace, &expected, 1e-6);
    }
    let nesterov = Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: true };
    let Some(trace) = three_steps(nesterov) else { return };
    // m = 1, 1.9, 2.71; the step is 1 + 0.9 m.
    assert_close("w", &trace, &[0.81, 0.539, 0.1951], 1e-6);
}

fn adam(op: Adam, iteration: u64, place: Place, count: u64) -> Option<([Tensor; 3], [Vec<f32>; 4])> {
    let start =
        [normal(count, 1), normal(count, 2), normal(count, 3), normal(count, 4).iter().map(|v| v * v).collect()];
    let all = start.each_ref().map(|values| Tensor::new(&[1, count], place, values));
    let (lr, counter, at) = (Tensor::filled(&[1], Place::Dense, 0.01), TensorType::new([1], DType::U64), [iteration]);
    let [w, g, m, v] = all;
    let inputs = [w.operand(), g.operand(), m.operand(), v.operand(), lr.operand(), integers(&counter, &at)];
    let ran = run(&Op::Adam(op), &inputs, &[w.operand(), m.operand(), v.operand()]);
    ran.then_some(([w, m, v], start))
}

#[test]
fn adam_follows_its_formula() {
    for (decoupled, iteration, place, count) in
        [(false, 0, Place::Dense, 5000), (true, 9, Place::Dense, 4099), (true, 100_000, Place::Odd, 2100)]
    {
        let op = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, decoupled };
        let Some((found, [w, g, m, v])) = adam(op, iteration, place, count) else { return };
        let t = (iteration + 1) as f64;
        let mut expected = [vec![], vec![], vec![]];
        for i in 0..count as usize {
            let [w, g, m, v] = [w[i], g[i], m[i], v[i]].map(f64::from);
            let g = if decoupled { g } else { g + 0.1 * w };
            let (m, v) = (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g);
            let step = m / (1.0 - 0.9f64.powf(t)) / ((v / (1.0 - 0.999f64.powf(t))).sqrt() + 1e-8);
            let kept = if decoupled { w * (1.0 - 0.01 * 0.1) } else { w };
            [kept - 0.01 * step, m, v].into_iter().zip(&mut expected).for_each(|(x, to)| to.push(x));
        }
        for ((name, found), expected) in ["w", "m", "v"].iter().zip(&found).zip(&expected) {
            assert_close(name, &found.values(), expected, 2e-6);
        }
    }
}

/// Case B23: with g = eps the first step is half the learning rate.
#[test]
fn adams_epsilon_is_added_to_the_corrected_root() {
    let one = |v| Tensor::filled(&[1], Place::Dense, v);
    let (w, g, m, v, lr) = (one(0.0), one(1e-8), one(0.0), one(0.0), one(1.0));
    let (counter, at) = (TensorType::new([1], DType::U64), [0u64]);
    let op = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
    let inputs = [w.operand(), g.operand(), m.operand(), v.operand(), lr.operand(), integers(&counter, &at)];
    if run(&Op::Adam(op), &inputs, &[w.operand(), m.operand(), v.operand()]) {
        assert_close("w", &w.values(), &[-0.5], 1e-5);
    }
}

#[test]
fn a_guard_that_is_not_finite_leaves_everything_as_it_was() {
    let one = |v| Tensor::filled(&[1], Place::Dense, v);
    let (counter, at) = (TensorType::new([1], DType::U64), [0u64]);
    for (guard, updated) in [(f32::NAN, false), (f32::INFINITY, false), (-2.0, true)] {
        let (w, g, m, v, lr, guard) = (one(1.0), one(1.0), one(0.0), one(0.0), one(0.1), one(guard));
        let counter = || integers(&counter, &at);
        let sgd = Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false };
        let inputs = [w.operand(), g.operand(), lr.operand(), counter(), guard.operand()];
        if !run(&Op::Sgd(sgd), &inputs, &[w.operand()]) {
            return;
        }
        assert_close("sgd", &w.values(), &[if updated { 0.9 } else { 1.0 }], 1e-6);
        let inputs = [w.operand(), g.operand(), m.operand(), lr.operand(), counter(), guard.operand()];
        run(&Op::Sgd(Sgd { momentum: 0.9, ..sgd }), &inputs, &[w.operand(), m.operand()]);
        assert_close("momentum", &m.values(), &[if updated { 1.0 } else { 0.0 }], 1e-6);
        let adam = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
        let inputs = [w.operand(), g.operand(), m.operand(), v.operand(), lr.operand(), counter(), guard.operand()];
        run(&Op::Adam(adam), &inputs, &[w.operand(), m.operand(), v.operand()]);
        assert_eq!(v.values()[0] != 0.0, updated, "adam");
    }
}
