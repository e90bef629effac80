//! Initial values of parameters and states.
//!
//! Every number is a function of (seed, name, index) and of nothing else: Philox keyed by the seed, its stream the hash of
//! the parameter's name. So the values do not depend on the order of layers, on the policy, or on who draws first.
//! Numbers are drawn in f64 and rounded once to the parameter's type.

use half::{bf16, f16};
use vdnn_tensor::{DType, Element, HostTensor, Philox, TensorType};

/// How a parameter or state starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// One number everywhere.
    Constant(f64),
    /// Uniform in [−bound, bound).
    Uniform {
        /// Half the width.
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Normal with variance 2 / fan-in (He et al., 2015).
    KaimingNormalFanIn,
    /// Normal with variance 2 / fan-out.
    KaimingNormalFanOut,
    /// Uniform with bound 1 / √fan-in, the default of PyTorch's layers (`kaiming_uniform_(a=√5)`).
    KaimingUniform,
}

impl Init {
    /// The initial value of the parameter `name`. Integer types are zero.
    pub fn fill(&self, seed: u64, name: &str, ty: &TensorType) -> HostTensor {
        match ty.dtype {
            DType::F64 => self.draw(seed, name, ty, |x| x),
            DType::F32 => self.draw(seed, name, ty, |x| x as f32),
            DType::F16 => self.draw(seed, name, ty, f16::from_f64),
            DType::BF16 => self.draw(seed, name, ty, bf16::from_f64),
            DType::I32 | DType::U64 | DType::U8 => HostTensor::zeros(ty.shape.clone(), ty.dtype),
        }
    }

    fn draw<T: Element>(&self, seed: u64, name: &str, ty: &TensorType, round: impl Fn(f64) -> T) -> HostTensor {
        let mut philox = Philox::new(seed, stable_hash(name));
        let (fan_in, fan_out) = fans(ty);
        let mut next = || match *self {
            Init::Zeros => 0.0,
            Init::Ones => 1.0,
            Init::Constant(value) => value,
            Init::Uniform { bound } => uniform(&mut philox, bound),
            Init::Normal { std } => std * philox.normal(),
            Init::KaimingNormalFanIn => (2.0 / fan_in).sqrt() * philox.normal(),
            Init::KaimingNormalFanOut => (2.0 / fan_out).sqrt() * philox.normal(),
            Init::KaimingUniform => uniform(&mut philox, 1.0 / fan_in.sqrt()),
        };
        let elements: Vec<T> = (0..ty.shape.elements()).map(|_| round(next())).collect();
        HostTensor::from_slice(ty.shape.clone(), &elements).expect("as many elements as the shape holds were drawn")
    }
}

fn uniform(philox: &mut Philox, bound: f64) -> f64 {
    bound * (2.0 * f64::from(philox.uniform()) - 1.0)
}

/// Fan-in and fan-out of weights `[out, in, …]`, at least 1.
fn fans(ty: &TensorType) -> (f64, f64) {
    let taps: u64 = ty.shape.dims().iter().skip(2).product();
    let fan = |dim| (ty.shape.dim(dim) * taps).max(1) as f64;
    (fan(1), fan(0))
}

/// A 64-bit hash of a name that never changes (FNV-1a).
pub fn stable_hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(init: Init, ty: &TensorType) -> (f64, f64) {
        let values = init.fill(3, "w", ty).to_vec::<f64>().unwrap();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn variances_follow_the_fans() {
        let ty = TensorType::new([64, 32, 3, 3], DType::F64);
        for (init, variance) in [
            (Init::Normal { std: 0.01 }, 1e-4),
            (Init::KaimingNormalFanIn, 2.0 / 288.0),
            (Init::KaimingNormalFanOut, 2.0 / 576.0),
            (Init::KaimingUniform, 1.0 / (3.0 * 288.0)),
            (Init::Uniform { bound: 0.5 }, 0.25 / 3.0),
        ] {
            let (mean, found) = moments(init, &ty);
            assert!(mean.abs() < 4.0 * (variance / 18_432.0f64).sqrt(), "{init:?}: mean {mean}");
            assert!((found / variance - 1.0).abs() < 0.05, "{init:?}: variance {found}, expected {variance}");
        }
    }

    #[test]
    fn depends_on_seed_and_name_only() {
        let ty = TensorType::new([5, 7], DType::F32);
        let init = Init::KaimingUniform;
        assert_eq!(init.fill(1, "a.weight", &ty), init.fill(1, "a.weight", &ty));
        assert_ne!(init.fill(1, "a.weight", &ty), init.fill(1, "b.weight", &ty));
        assert_ne!(init.fill(1, "a.weight", &ty), init.fill(2, "a.weight", &ty));
    }

    #[test]
    fn types_share_the_draw() {
        let draw = |dtype| Init::Normal { std: 1.0 }.fill(1, "w", &TensorType::new([9], dtype));
        let exact = draw(DType::F64).to_vec::<f64>().unwrap();
        let halves = draw(DType::BF16).to_vec::<bf16>().unwrap();
        assert!(exact.iter().zip(&halves).all(|(x, half)| bf16::from_f64(*x) == *half));
        assert_eq!(Init::Ones.fill(0, "n", &TensorType::new([2], DType::I32)), HostTensor::zeros([2], DType::I32));
    }

    /// The published FNV-1a vector of "foobar".
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(stable_hash("foobar"), 0x8594_4171_F739_67E8);
    }
}
