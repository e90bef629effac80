//! Elementwise work, cut into stretches: equal lengths of all elements when every operand is adjacent in memory, else
//! one stretch a sample. No result depends on the cut.

use super::operand::Source;
use super::real::Real;
use crate::{View, ViewMut};
use rayon::prelude::*;

/// Elements of a stretch of adjacent operands; a multiple of 4, so that a stretch starts at a block of random words.
const STRETCH: usize = 1 << 14;

/// The stretches of an output. `whole` says that every operand of the kernel is adjacent.
pub(super) fn stretches<T>(y: ViewMut<'_, T>, samples: usize, whole: bool) -> Vec<&mut [T]> {
    if whole {
        y.into_parts(1).into_iter().flat_map(|all| all.chunks_mut(STRETCH)).collect()
    } else {
        y.into_parts(samples)
    }
}

/// The stretch of an input that belongs to output elements `start..start + len`.
pub(super) fn stretch<'a, T>(x: &View<'a, T>, start: usize, len: usize) -> &'a [T] {
    match x.as_slice() {
        Some(all) => &all[start..start + len],
        None => x.part(start / len, x.len() / len),
    }
}

/// True when an input's elements are adjacent, or are the output's.
pub(super) fn adjacent<T>(source: &Source<'_, T>) -> bool {
    source.as_ref().is_none_or(|view| view.as_slice().is_some())
}

/// `f(start, x, y)` over all stretches, `x` absent in place.
pub(super) fn visit<T: Real>(
    samples: usize,
    x: Source<'_, T>,
    mut y: ViewMut<'_, T>,
    f: impl Fn(usize, Option<&[T]>, &mut [T]) + Sync,
) {
    let whole = adjacent(&x) && y.as_slice().is_some();
    let parts = stretches(y, samples, whole);
    let step = parts.first().map_or(0, |part| part.len());
    parts.into_par_iter().enumerate().for_each(|(index, part)| {
        let start = index * step;
        f(start, x.as_ref().map(|x| stretch(x, start, part.len())), part);
    });
}

/// `y = f(x)`.
pub(super) fn map<T: Real>(samples: usize, x: Source<'_, T>, y: ViewMut<'_, T>, f: impl Fn(T) -> T + Sync) {
    visit(samples, x, y, |_, x, y| match x {
        Some(x) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x)),
        None => y.iter_mut().for_each(|y| *y = f(*y)),
    });
}

/// `y = f(a, b)`, where `b` may lie under `y`.
pub(super) fn zip<T: Real>(
    samples: usize,
    a: View<'_, T>,
    b: Source<'_, T>,
    mut y: ViewMut<'_, T>,
    f: impl Fn(T, T) -> T + Sync,
) {
    let whole = a.as_slice().is_some() && adjacent(&b) && y.as_slice().is_some();
    let parts = stretches(y, samples, whole);
    let step = parts.first().map_or(0, |part| part.len());
    parts.into_par_iter().enumerate().for_each(|(index, y)| {
        let (start, len) = (index * step, y.len());
        let a = stretch(&a, start, len);
        match &b {
            Some(b) => y.iter_mut().zip(a).zip(stretch(b, start, len)).for_each(|((y, &a), &b)| *y = f(a, b)),
            None => y.iter_mut().zip(a).for_each(|(y, &a)| *y = f(a, *y)),
        }
    });
}

/// A persistent an op moves on: what it was (absent when it lies under the output) and where it goes.
pub(super) type State<'a, T> = (Source<'a, T>, ViewMut<'a, T>);

/// `f(states, gradient)` over all stretches; each state's stretch holds the former elements on entry.
pub(super) fn advance<T: Real, const K: usize>(
    rows: usize,
    states: [State<'_, T>; K],
    gradient: View<'_, T>,
    f: impl Fn([&mut [T]; K], &[T]) + Sync,
) {
    let mut states = states;
    let whole =
        gradient.as_slice().is_some() && states.iter_mut().all(|(from, to)| adjacent(from) && to.as_slice().is_some());
    let sources: [Source<'_, T>; K] = std::array::from_fn(|state| states[state].0);
    let lists = states.map(|(_, to)| stretches(to, rows, whole));
    let count = lists[0].len();
    let step = lists[0].first().map_or(0, |part| part.len());
    let mut lists = lists.map(Vec::into_iter);
    let parts: Vec<[&mut [T]; K]> =
        (0..count).map(|_| lists.each_mut().map(|list| list.next().unwrap_or_default())).collect();
    parts.into_par_iter().enumerate().for_each(|(index, mut parts)| {
        let (start, len) = (index * step, parts[0].len());
        for (part, source) in parts.iter_mut().zip(&sources) {
            if let Some(source) = source {
                part.copy_from_slice(stretch(source, start, len));
            }
        }
        f(parts, stretch(&gradient, start, len));
    });
}
