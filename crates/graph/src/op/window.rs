//! Sliding windows: the output size rule shared by convolution and pooling.

use serde::{Deserialize, Serialize};

/// A window sliding over an image; each pair is (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Size of the window.
    pub kernel: [u64; 2],
    /// Distance between windows.
    pub stride: [u64; 2],
    /// Implicit border on each side.
    pub padding: [u64; 2],
    /// Distance between the taps of a window.
    pub dilation: [u64; 2],
    /// Round the number of windows up instead of down.
    pub ceil_mode: bool,
}

impl Window {
    /// A square window with `stride == kernel`, without padding, as pooling layers default to.
    pub fn square(kernel: u64) -> Self {
        Window { kernel: [kernel; 2], stride: [kernel; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false }
    }

    /// The output's height and width for an input's.
    ///
    /// # Errors
    /// A sentence saying what does not fit.
    pub fn output(&self, input: [u64; 2]) -> Result<[u64; 2], String> {
        let mut output = [0; 2];
        for axis in 0..2 {
            output[axis] = output_size(
                input[axis],
                self.kernel[axis],
                self.stride[axis],
                self.padding[axis],
                self.dilation[axis],
                self.ceil_mode,
            )
            .map_err(|reason| format!("{}: {reason}", ["height", "width"][axis]))?;
        }
        Ok(output)
    }
}

/// Number of windows along one axis: `⌊(in + 2p − d(k − 1) − 1) / s⌋ + 1`, or rounded up in ceil mode, where a last
/// window that would start in the far padding is dropped (PyTorch's rule).
///
/// # Errors
/// A sentence when the window is empty, does not move, or does not fit.
pub fn output_size(
    input: u64,
    kernel: u64,
    stride: u64,
    padding: u64,
    dilation: u64,
    ceil_mode: bool,
) -> Result<u64, String> {
    if kernel == 0 || stride == 0 || dilation == 0 {
        return Err(format!(
            "expected kernel, stride and dilation of at least 1, found {kernel}, {stride} and {dilation}"
        ));
    }
    let extent = dilation * (kernel - 1) + 1;
    let padded = input + 2 * padding;
    if input == 0 || padded < extent {
        return Err(format!(
            "a window of {extent} does not fit an input of {input} with padding {padding}; use larger images or a \
             smaller kernel"
        ));
    }
    let slack = padded - extent;
    if !ceil_mode {
        return Ok(slack / stride + 1);
    }
    let count = slack.div_ceil(stride) + 1;
    Ok(if (count - 1) * stride >= input + padding { count - 1 } else { count })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case B06: a window that lies only in padding is no window.
    #[test]
    fn ceil_mode_drops_a_window_in_padding() {
        assert_eq!(output_size(5, 2, 2, 1, 1, true), Ok(3));
        assert_eq!((output_size(6, 1, 2, 0, 1, true), output_size(7, 1, 2, 0, 1, true)), (Ok(3), Ok(4)));
        assert_eq!(output_size(32, 1, 2, 0, 1, true), Ok(16));
        for (input, count) in [(8, 2), (10, 3)] {
            let windows = output_size(input, 3, 4, 0, 1, true).unwrap();
            assert_eq!(windows, count);
            assert!((windows - 1) * 4 < input);
        }
    }

    #[test]
    fn stems_of_known_networks() {
        assert_eq!(output_size(224, 7, 2, 3, 1, false), Ok(112));
        assert_eq!(output_size(112, 3, 2, 1, 1, false), Ok(56));
        assert_eq!(output_size(224, 11, 4, 2, 1, false), Ok(55));
        assert!(output_size(2, 3, 1, 0, 1, false).unwrap_err().contains("does not fit"));
    }
}
