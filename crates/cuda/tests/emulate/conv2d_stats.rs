//! Statistics from a convolution's sums.

use crate::emulator;
use crate::tensor::{Place, Tensor, assert_close, normal};
use vdnn_cuda::kernels;

/// Sums in f32 of numbers around a channel's own: mean and variance as far as those sums tell, which lose two digits for every ten
/// deviations that the mean is away from zero.
#[test]
fn statistics_of_sums_are_those_of_the_numbers() {
    for channels in [1, 7, 256, 300] {
        let count = 512;
        let around = |channel: u64| [0.0, -3.0, 20.0][channel as usize % 3];
        let numbers = |channel: u64| normal(count, channel).into_iter().map(move |v| f64::from(v) + around(channel));
        let each = |f: &dyn Fn(u64) -> f64| (0..channels).map(f).collect::<Vec<f64>>();
        let sums = [each(&|c| numbers(c).sum()), each(&|c| numbers(c).map(|v| v * v).sum())];
        let [sum, squares] = sums.map(|sums| {
            let narrow: Vec<f32> = sums.iter().map(|&v| v as f32).collect();
            Tensor::new(&[channels], Place::Dense, &narrow)
        });
        let [mean, variance] = [0, 1].map(|_| Tensor::filled(&[channels], Place::Dense, 7.0));
        let addresses = [sum.operand().address, squares.operand().address];
        let plan = kernels::statistics_of_sums(addresses, count, mean.operand(), variance.operand()).unwrap();
        if !emulator::run(&plan) {
            return;
        }
        let means = each(&|c| numbers(c).sum::<f64>() / count as f64);
        let variances = each(&|c| numbers(c).map(|v| (v - means[c as usize]).powi(2)).sum::<f64>() / count as f64);
        assert_close("mean", &mean.values(), &means, 1e-6);
        // Twenty deviations away: rounding to f32's 24 bits, 400 times over, once for the squares and twice for the sum.
        assert_close("variance", &variance.values(), &variances, 3.0 * 400.0 * f64::exp2(-24.0));
    }
}

#[test]
fn what_rounding_left_below_zero_is_zero_and_what_is_no_number_stays_none() {
    let (sum, squares) = (vec![4.0, 4.0, f32::NAN, f32::INFINITY], vec![3.999_999, 8.0, 1.0, 1.0]);
    let [sum, squares] = [sum, squares].map(|values| Tensor::new(&[4], Place::Dense, &values));
    let [mean, variance] = [0, 1].map(|_| Tensor::filled(&[4], Place::Dense, 7.0));
    let addresses = [sum.operand().address, squares.operand().address];
    let plan = kernels::statistics_of_sums(addresses, 4, mean.operand(), variance.operand()).unwrap();
    if emulator::run(&plan) {
        let (mean, variance) = (mean.values(), variance.values());
        assert_eq!((&mean[..2], &variance[..2]), (&[1.0, 1.0][..], &[0.0, 1.0][..]));
        assert!(mean[2].is_nan() && variance[2].is_nan() && mean[3].is_infinite());
    }
    let none = Tensor::filled(&[0], Place::Dense, 0.0);
    assert!(kernels::statistics_of_sums([0, 0], 4, none.operand(), none.operand()).unwrap().launches.is_empty());
    let slice = Tensor::filled(&[2, 4], Place::Sliced, 0.0);
    assert!(kernels::statistics_of_sums(addresses, 4, slice.operand(), slice.operand()).is_err());
}
