//! The elements of a tensor in another order of memory, each converted on the way.
//!
//! ```text
//!   NCHW   sample │ channel │ pixel                NHWC   sample │ pixel │ channel … padding
//! ```
//!
//! Operands may be slices: a view's rows are samples in NCHW order and pixels in NHWC order.

use super::stretch::{stretch, stretches};
use crate::{View, ViewMut};
use rayon::prelude::*;
use vdnn_tensor::{MemoryOrder, TensorType};

/// Pixels that are one piece of work.
const PIXELS: usize = 256;

/// Writes X, which is of type `from`, as `to`, which has the same shape. Padding becomes the default, and is left out where
/// `to` has none.
pub(super) fn reorder<S: Copy + Sync, D: Copy + Default + Send>(
    [from, to]: [&TensorType; 2],
    x: View<'_, S>,
    y: ViewMut<'_, D>,
    convert: impl Fn(S) -> D + Sync,
) {
    if y.is_empty() {
        return;
    }
    let [n, c, h, w] = from.shape.nchw().unwrap_or([1; 4]).map(|dim| dim as usize);
    let (pixels, image) = (h * w, n * h * w);
    match [from, to].map(|ty| ty.layout.order) {
        _ if from.layout == to.layout => in_order(from.rows() as usize, x, y, convert),
        [MemoryOrder::Nchw, _] => {
            y.into_parts(image).into_par_iter().enumerate().with_min_len(PIXELS).for_each(|(pixel, y)| {
                let x = x.part(pixel / pixels, n).iter().skip(pixel % pixels).step_by(pixels);
                fill(y, x.map(|&x| convert(x)));
            });
        }
        [_, MemoryOrder::Nchw] => y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
            for pixel in 0..pixels {
                let x = &x.part(sample * pixels + pixel, image)[..c];
                y.iter_mut().skip(pixel).step_by(pixels).zip(x).for_each(|(y, &x)| *y = convert(x));
            }
        }),
        _ => y.into_parts(image).into_par_iter().enumerate().with_min_len(PIXELS).for_each(|(pixel, y)| {
            fill(y, x.part(pixel, image)[..c].iter().map(|&x| convert(x)));
        }),
    }
}

/// Element by element.
fn in_order<S: Copy + Sync, D: Send>(
    rows: usize,
    x: View<'_, S>,
    mut y: ViewMut<'_, D>,
    convert: impl Fn(S) -> D + Sync,
) {
    let whole = x.as_slice().is_some() && y.as_slice().is_some();
    let parts = stretches(y, rows, whole);
    let step = parts.first().map_or(0, |part| part.len());
    parts.into_par_iter().enumerate().for_each(|(index, y)| {
        let x = stretch(&x, index * step, y.len());
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = convert(x));
    });
}

/// What there is, then the default.
fn fill<D: Default>(to: &mut [D], from: impl Iterator<Item = D>) {
    let rest = std::iter::repeat_with(D::default);
    to.iter_mut().zip(from.chain(rest)).for_each(|(to, from)| *to = from);
}

/// The bits of a mask of an image: from the order of a channels-last image to the logical one, or back.
pub(super) fn reorder_mask(image: &TensorType, to_logical: bool, x: View<'_, u8>, y: ViewMut<'_, u8>) {
    let [n, c, h, w] = image.shape.nchw().unwrap_or([0; 4]).map(|dim| dim as usize);
    if y.is_empty() {
        return;
    }
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        let x = x.part(sample, n);
        y.fill(0);
        for channel in 0..c {
            for pixel in 0..h * w {
                let (logical, physical) = (channel * h * w + pixel, pixel * c + channel);
                let (from, to) = if to_logical { (physical, logical) } else { (logical, physical) };
                y[to / 8] |= (x[from / 8] >> (from % 8) & 1) << (to % 8);
            }
        }
    });
}
