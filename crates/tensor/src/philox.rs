//! Philox4x32-10: counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! A draw is a function of (key, counter) and nothing else, so a mask made again on any device, in any order, is the
//! same mask. No crate on the registry keeps this generator maintained, hence the forty lines here, checked against the
//! paper's published vectors.

use rand::rand_core::{Infallible, TryRng};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// One block of four 32-bit words for `counter` under `key`.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let low = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
    }
    counter
}

/// A stream of random words: the key is the seed, the upper half of the counter the stream, the lower half the position.
#[derive(Clone, Debug)]
pub struct Philox {
    key: [u32; 2],
    stream: u64,
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Philox {
    /// The stream `stream` of the generator seeded with `seed`, at its first word.
    pub fn new(seed: u64, stream: u64) -> Self {
        Philox { key: [seed as u32, (seed >> 32) as u32], stream, block: 0, words: [0; 4], used: 4 }
    }

    /// The next 32 random bits.
    pub fn word(&mut self) -> u32 {
        if self.used == 4 {
            let counter =
                [self.block as u32, (self.block >> 32) as u32, self.stream as u32, (self.stream >> 32) as u32];
            self.words = philox4x32_10(counter, self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// A uniform number in [0, 1) with 24 random bits.
    pub fn uniform(&mut self) -> f32 {
        (self.word() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// A standard normal number (Box–Muller on two uniforms, in f64).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - f64::from(self.uniform())).ln()).sqrt();
        radius * (std::f64::consts::TAU * f64::from(self.uniform())).cos()
    }
}

impl TryRng for Philox {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.word())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from(self.word()) | u64::from(self.word()) << 32)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(4) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the paper's reference code.
    #[test]
    fn published_vectors() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32_10([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut philox = Philox::new(seed, stream);
            (0..9).map(|_| philox.word()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn normal_has_unit_variance() {
        let mut philox = Philox::new(7, 0);
        let draws: Vec<f64> = (0..40_000).map(|_| philox.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
