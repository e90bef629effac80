//! Dropout: the very bits of the mask (case B29), in one piece and in rows that Philox blocks straddle.

use crate::tensor::{PLACES, Tensor, integers, normal, run};
use vdnn_graph::op::{Dropout, Op};
use vdnn_tensor::{DType, TensorType, philox4x32_10};

fn expected(op: &Dropout, iteration: u64, x: &[f32]) -> Vec<f32> {
    let keep = |(e, &v): (usize, &f32)| {
        let block = e as u64 / 4;
        let counter = [block as u32, (block >> 32) as u32, iteration as u32, (iteration >> 32) as u32];
        let word = philox4x32_10(counter, op.key())[e % 4];
        if word < op.threshold() { 0.0 } else { v * op.scale() as f32 }
    };
    x.iter().enumerate().map(keep).collect()
}

#[test]
fn masks_are_the_bits_of_philox() {
    let op = Dropout { p: 0.3, seed: 0x1234_5678_9abc_def0, stream: 7 };
    let counter = TensorType::new([1], DType::U64);
    for (dims, place) in
        [[2u64, 3, 5, 7], [3, 8, 4, 4], [2, 5, 45, 45], [1, 1, 1, 3]].iter().flat_map(|d| PLACES.map(|p| (d, p)))
    {
        for iteration in [[0u64], [(5 << 32) + 3]] {
            let values = normal(dims.iter().product(), 1);
            let (x, y) = (Tensor::new(dims, place, &values), Tensor::filled(dims, place, 0.0));
            let inputs = [x.operand(), integers(&counter, &iteration)];
            if !run(&Op::Dropout(op), &inputs, &[y.operand()]) {
                return;
            }
            assert_eq!(y.values(), expected(&op, iteration[0], &values), "{dims:?} {place:?}");
            run(&Op::DropoutGrad(op), &inputs, &[x.operand()]);
            assert_eq!(x.values(), y.values());
        }
    }
}
