//! The loss's scale moves on, over its former value; see the op for the rule.

use super::launch::Launch;
use super::operand::{Input, Output};
use super::real::Real;
use crate::{DeviceError, ViewMut};
use vdnn_graph::op::LossScaleUpdate;

/// (scale, good steps, skipped steps, guard, iteration) → the first three, steps taken.
pub(super) fn update<T: Real>(op: &LossScaleUpdate, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let finite = launch.guard::<T>(3)?;
    let iteration = launch.iteration(4)?;
    let before = launch.source::<T>(0, 0)?.map(|scale| scale.part(0, 1)[0]);
    let mut scale = launch.output::<T>(0)?;
    let scale = &mut scale.part(0, 1)[0];
    let now = before.unwrap_or(*scale).wide();
    let (mut good, mut skipped) = (count(&mut launch, 1)?, count(&mut launch, 2)?);
    let (good, skipped) = (&mut good.part(0, 1)[0], &mut skipped.part(0, 1)[0]);
    let taken = iteration.saturating_sub(u64::try_from(*skipped).unwrap_or(0));
    let next = if !finite {
        (*good, *skipped) = (0, skipped.saturating_add(1));
        now * op.backoff
    } else if i64::from(*good) + 1 >= i64::from(op.interval) {
        *good = 0;
        now * op.growth
    } else {
        *good += 1;
        now
    };
    *scale = T::of(next.max(op.least).min(op.most));
    steps(&mut launch)?.part(0, 1)[0] = taken;
    Ok(())
}

/// A counter's output, holding what the counter was.
fn count<'a>(launch: &mut Launch<'a>, index: usize) -> Result<ViewMut<'a, i32>, DeviceError> {
    let before = match &launch.inputs[index] {
        Input::I32(view) => Some(view.part(0, 1)[0]),
        _ => None,
    };
    match launch.take_output(index)? {
        Output::I32(mut view) if view.len() == 1 => {
            if let Some(before) = before {
                view.part(0, 1)[0] = before;
            }
            Ok(view)
        }
        _ => Err(launch.refuse(format!("expected output {index} as one i32 counter"))),
    }
}

fn steps<'a>(launch: &mut Launch<'a>) -> Result<ViewMut<'a, u64>, DeviceError> {
    match launch.take_output(3)? {
        Output::U64(view) if view.len() == 1 => Ok(view),
        _ => Err(launch.refuse("expected output 3 as one u64 counter")),
    }
}
