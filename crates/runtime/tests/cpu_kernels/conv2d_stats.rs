//! A convolution with statistics against the two ops, bit for bit: every algorithm, slices, on one thread and on three.

use crate::golden::{Form, Operand, run, types};
use crate::in_pool;
use vdnn_graph::Op;
use vdnn_graph::op::Conv2d;
use vdnn_runtime::cpu::{choices_of, pieces_of};
use vdnn_tensor::Philox;

/// Numbers around 3, so that the statistics are not those of the mean left out.
fn numbers(shape: &[u64], stream: u64) -> Operand {
    let mut random = Philox::new(23, stream);
    let count = shape.iter().product::<u64>();
    Operand::new(shape, (0..count).map(|_| f64::from(3.0 + random.normal() as f32)).collect())
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn the_bits_of_the_two_ops() {
    let convs = [
        (Conv2d { padding: [1, 1], ..Conv2d::default() }, [4, 6, 9, 7], [8, 6, 3, 3]),
        (Conv2d { stride: [2, 1], groups: 2, ..Conv2d::default() }, [2, 4, 8, 8], [6, 2, 2, 3]),
    ];
    for (conv, x, w) in convs {
        let (op, inputs) = (Op::Conv2dStats(conv), [numbers(&x, 1), numbers(&w, 2)]);
        let (ins, outs) = types::<f32>(&op, &inputs);
        let alone = choices_of(&Op::Conv2d(conv), &ins, &outs[..1]).unwrap();
        let merged = choices_of(&op, &ins, &outs).unwrap();
        assert!(merged.len() == alone.len() && merged.len() >= 3);
        assert!(pieces_of(&op, &ins, &outs).unwrap().is_empty(), "statistics are of the whole batch");
        for (choice, alone) in merged.iter().zip(&alone) {
            assert_eq!((&choice.algorithm, choice.workspace), (&alone.algorithm, alone.workspace));
            assert!(choice.seconds > alone.seconds);
            let y = run::<f32>(&Op::Conv2d(conv), &inputs, alone, &Form::Plain).unwrap().remove(0);
            let statistics = choices_of(&Op::BatchNormStats, &outs[..1], &outs[1..]).unwrap().remove(0);
            let read = [Operand::new(outs[0].shape.clone(), y.clone())];
            let expected = run::<f32>(&Op::BatchNormStats, &read, &statistics, &Form::Plain).unwrap();
            let forms = Form::all(&op, inputs.len());
            for (form, threads) in forms.into_iter().flat_map(|form| [(form.clone(), 1), (form, 3)]) {
                let found = in_pool(threads, || run::<f32>(&op, &inputs, choice, &form).unwrap());
                let what = format!("{conv:?} by {}, {form:?}", choice.algorithm);
                assert_eq!(bits(&found[0]), bits(&y), "{what}");
                assert_eq!([bits(&found[1]), bits(&found[2])], [bits(&expected[0]), bits(&expected[1])], "{what}");
            }
        }
    }
}
