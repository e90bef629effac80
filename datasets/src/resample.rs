//! Bytes of an image made smaller or larger: by a triangle as wide as a pixel of the result is in the source, so that nothing
//! between is left out, with bytes between the two directions.
//!
//! ```text
//!   source [h, w, 3] ──columns──► [rows that are wanted, size, 3] ──rows──► [3, size, size]
//! ```

/// The part of an image that is wanted: the image is scaled to `scaled` pixels and `size` of them are taken from `first` on, in
/// each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// [height, width] of the source.
    pub source: [usize; 2],
    /// [height, width] after scaling.
    pub scaled: [usize; 2],
    /// [row, column] after scaling from which on pixels are taken.
    pub first: [usize; 2],
    /// Pixels taken in both directions.
    pub size: usize,
}

impl Cut {
    /// The middle `size` × `size` pixels of an image whose shorter side is scaled to `shorter`.
    pub(crate) fn centre(source: [usize; 2], shorter: usize, size: usize) -> Self {
        let [height, width] = source;
        let least = height.min(width).max(1);
        let scaled = source.map(|side| if side == least { shorter } else { (shorter * side / least).max(shorter) });
        // Halves go to the even number, as in Python's `round`.
        let middle = |extent: usize| {
            let rest = extent.saturating_sub(size);
            rest / 2 + usize::from(rest % 4 == 3)
        };
        debug_assert!(height > 0 && width > 0);
        Cut { source, scaled, first: scaled.map(middle), size }
    }
}

/// Where one pixel of the result comes from: weights of the source's pixels from `first` on.
struct Taps {
    first: usize,
    weights: Vec<f32>,
}

/// The taps of each wanted pixel of one direction.
fn taps(cut: &Cut, axis: usize) -> Vec<Taps> {
    let (source, scaled) = (cut.source[axis], cut.scaled[axis]);
    let scale = source as f64 / scaled as f64;
    let reach = scale.max(1.0);
    let one = |pixel: usize| {
        let centre = (pixel as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5) as usize).min(source);
        let weight = |at: usize| (1.0 - ((at as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        Taps { first, weights: weights.iter().map(|weight| (weight / sum) as f32).collect() }
    };
    (cut.first[axis]..cut.first[axis] + cut.size).map(one).collect()
}

/// Writes a cut of `source` (`[h, w, 3]`) to `to` (`[3, size, size]`).
pub(crate) fn resample(source: &[u8], cut: &Cut, to: &mut [u8]) {
    let (rows, columns) = (taps(cut, 0), taps(cut, 1));
    let wanted = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) => first.first..last.first + last.weights.len(),
        _ => return,
    };
    let (pitch, size) = (cut.source[1] * 3, cut.size);
    // [wanted rows, size, 3]
    let mut narrow = vec![0u8; wanted.len() * size * 3];
    for (row, narrow) in wanted.clone().zip(narrow.chunks_exact_mut(size * 3)) {
        let row = &source[row * pitch..][..pitch];
        for (taps, pixel) in columns.iter().zip(narrow.chunks_exact_mut(3)) {
            let from = row[taps.first * 3..].chunks_exact(3);
            let mut sum = [0.5f32; 3];
            for (weight, from) in taps.weights.iter().zip(from) {
                sum.iter_mut().zip(from).for_each(|(sum, &byte)| *sum += weight * f32::from(byte));
            }
            pixel.iter_mut().zip(sum).for_each(|(byte, sum)| *byte = sum as u8);
        }
    }
    let mut sums = vec![0f32; size * 3];
    for (y, taps) in rows.iter().enumerate() {
        sums.fill(0.5);
        let from = narrow[(taps.first - wanted.start) * size * 3..].chunks_exact(size * 3);
        for (weight, from) in taps.weights.iter().zip(from) {
            sums.iter_mut().zip(from).for_each(|(sum, &byte)| *sum += weight * f32::from(byte));
        }
        for (channel, plane) in to.chunks_exact_mut(size * size).enumerate() {
            let sums = sums.iter().skip(channel).step_by(3);
            plane[y * size..][..size].iter_mut().zip(sums).for_each(|(byte, &sum)| *byte = sum as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_where_torchvision_has_it() {
        let cut = Cut::centre([375, 500], 256, 224);
        assert_eq!((cut.scaled, cut.first), ([256, 341], [16, 58]));
        // Half a pixel goes to the even number: 117 / 2 is 58, 115 / 2 is 58 as well, 3 / 2 is 2.
        let first = |rest: usize| Cut::centre([100, 100 + rest], 100, 100).first[1];
        assert_eq!([117, 115, 116, 3, 1, 0].map(first), [58, 58, 58, 2, 0, 0]);
        assert_eq!(Cut::centre([7, 3], 30, 28).scaled, [70, 30]);
    }

    #[test]
    fn one_colour_stays_and_the_same_size_is_a_copy() {
        let cut = Cut::centre([37, 53], 20, 16);
        let mut to = vec![0; 3 * 16 * 16];
        resample(&[9, 200, 255].repeat(37 * 53), &cut, &mut to);
        assert!(to.chunks(256).zip([9, 200, 255]).all(|(plane, byte)| plane.iter().all(|&found| found == byte)));
        let source: Vec<u8> = (0..5 * 5 * 3).map(|at| (at * 7 % 256) as u8).collect();
        let mut to = vec![0; 3 * 25];
        resample(&source, &Cut::centre([5, 5], 5, 5), &mut to);
        let expected: Vec<u8> = (0..75).map(|at| source[at % 25 * 3 + at / 25]).collect();
        assert_eq!(to, expected);
    }
}
