//! Softmax and cross-entropy in one, row by row in `f64`: the mean over the rows whose label is not ignored.
//!
//! With smoothing s and K classes a row's loss is `log Σ exp(x) − (1 − s) · x[label] − s/K · Σ x`.

use super::launch::Launch;
use super::real::Real;
use crate::{DeviceError, View};
use vdnn_graph::op::SoftmaxCrossEntropy;

/// (logits, labels) → mean loss.
pub(super) fn forward<T: Real>(op: &SoftmaxCrossEntropy, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let logits = launch.input::<T>(0)?;
    let n = launch.samples();
    let labels = targets(op, &launch)?;
    let mut total = 0.0;
    for (row, label) in labels.iter() {
        total += row_loss(op, logits.part(row, n), label);
    }
    launch.output::<T>(0)?.part(0, 1)[0] = T::of(total / labels.counted as f64);
    Ok(())
}

/// (logits, labels, scale?) → dlogits of the mean loss, times the scale; also over the logits.
pub(super) fn grad<T: Real>(op: &SoftmaxCrossEntropy, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let logits = launch.source::<T>(0, 0)?;
    let n = launch.samples();
    let labels = targets(op, &launch)?;
    let scale = if launch.inputs.len() > 2 { launch.scalar::<T>(2)?.wide() } else { 1.0 };
    let mut dlogits = launch.output::<T>(0)?;
    for row in 0..n {
        let out = dlogits.part(row, n);
        if let Some(logits) = &logits {
            out.copy_from_slice(logits.part(row, n));
        }
        match labels.at(row) {
            Some(label) => row_grad(op, out, label, scale / labels.counted as f64),
            None => out.fill(T::ZERO),
        }
    }
    Ok(())
}

fn row_loss<T: Real>(op: &SoftmaxCrossEntropy, row: &[T], label: usize) -> f64 {
    let (max, sum) = max_and_sum(row);
    let smoothing = op.label_smoothing;
    let mut loss = max + sum.ln() - (1.0 - smoothing) * row[label].wide();
    if smoothing > 0.0 {
        loss -= smoothing / row.len() as f64 * row.iter().map(|x| x.wide()).sum::<f64>();
    }
    loss
}

fn row_grad<T: Real>(op: &SoftmaxCrossEntropy, row: &mut [T], label: usize, weight: f64) {
    let (max, sum) = max_and_sum(row);
    let base = op.label_smoothing / row.len() as f64;
    for (class, value) in row.iter_mut().enumerate() {
        let target = base + if class == label { 1.0 - op.label_smoothing } else { 0.0 };
        *value = T::of(((value.wide() - max).exp() / sum - target) * weight);
    }
}

/// The largest logit and Σ exp(x − largest).
fn max_and_sum<T: Real>(row: &[T]) -> (f64, f64) {
    let max = row.iter().fold(f64::NEG_INFINITY, |max, x| max.max(x.wide()));
    (max, row.iter().map(|x| (x.wide() - max).exp()).sum())
}

/// Labels checked against the number of classes.
struct Targets<'a> {
    labels: View<'a, i32>,
    ignore: i32,
    counted: usize,
}

impl Targets<'_> {
    fn at(&self, row: usize) -> Option<usize> {
        let label = self.labels.part(row, self.labels.len())[0];
        (label != self.ignore).then_some(label as usize)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.labels.len()).filter_map(|row| self.at(row).map(|label| (row, label)))
    }
}

fn targets<'a>(op: &SoftmaxCrossEntropy, launch: &Launch<'a>) -> Result<Targets<'a>, DeviceError> {
    let classes = launch.input_types[0].shape.dim(1) as usize;
    let mut targets = Targets { labels: launch.labels(1)?, ignore: op.ignore_index, counted: 0 };
    if targets.labels.len() != launch.samples() {
        return Err(launch.refuse(format!("expected {} labels, found {}", launch.samples(), targets.labels.len())));
    }
    if let Some((row, _)) = targets.iter().find(|&(_, label)| label >= classes) {
        let label = targets.labels.part(row, targets.labels.len())[0];
        return Err(launch.refuse(format!(
            "expected labels from 0 to {} or the ignored {}, found {label} in row {row}; check the number of classes",
            classes - 1,
            op.ignore_index
        )));
    }
    targets.counted = targets.iter().count();
    if targets.counted == 0 {
        return Err(launch.refuse("every label is the ignored one; the mean over no rows is undefined"));
    }
    Ok(targets)
}
