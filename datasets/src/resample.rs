//! Bytes of an image made smaller or larger: by a triangle as wide as a pixel of the result is in the source, so that nothing
//! between is left out.
//!
//! ```text
//!   source [h, w, 3] ──rows──► one row [columns that are wanted, 3] ──columns──► [3, size, size]
//! ```
//!
//! Rows first: there all columns of all channels are summed side by side.

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

/// Where the pixels of the result come from in one direction: each from equally many of the source, so that the loop over them
/// is always as long.
struct Taps {
    /// The first pixel of the source, for each of the result.
    first: Vec<usize>,
    /// How many from there on.
    count: usize,
    /// Their weights, `[size, count]`.
    weights: Vec<f32>,
}

impl Taps {
    fn new(cut: &Cut, axis: usize) -> Self {
        let source = cut.source[axis];
        let scale = source as f64 / cut.scaled[axis] as f64;
        let reach = scale.max(1.0);
        let count = ((2.0 * reach).ceil() as usize + 1).min(source);
        let (mut first, mut weights) = (Vec::with_capacity(cut.size), Vec::with_capacity(cut.size * count));
        for pixel in cut.first[axis]..cut.first[axis] + cut.size {
            let centre = (pixel as f64 + 0.5) * scale;
            let start = ((centre - reach + 0.5).max(0.0) as usize).min(source - count);
            let weight = |at: usize| (1.0 - ((at as f64 + 0.5 - centre) / reach).abs()).max(0.0);
            let sum: f64 = (start..start + count).map(weight).sum();
            weights.extend((start..start + count).map(|at| (weight(at) / sum) as f32));
            first.push(start);
        }
        Taps { first, count, weights }
    }

    /// The first pixel and the weights, for each pixel of the result.
    fn each(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.first.iter().copied().zip(self.weights.chunks_exact(self.count.max(1)))
    }
}

/// Writes a cut of `source` (`[h, w, 3]`) to `to` (`[3, size, size]`).
pub(crate) fn resample(source: &[u8], cut: &Cut, to: &mut [u8]) {
    let (rows, columns) = (Taps::new(cut, 0), Taps::new(cut, 1));
    let (Some(first), Some(last)) = (columns.first.first(), columns.first.last()) else { return };
    let wanted = first * 3..(last + columns.count) * 3;
    let (pitch, size) = (cut.source[1] * 3, cut.size);
    // [columns that are wanted, 3]
    let mut sums = vec![0f32; wanted.len()];
    let [red, green, blue] = planes(to, size);
    for (y, (row, weights)) in rows.each().enumerate() {
        sums.fill(0.0);
        for (weight, row) in weights.iter().zip(source[row * pitch..].chunks_exact(pitch)) {
            let row = &row[wanted.clone()];
            sums.iter_mut().zip(row).for_each(|(sum, &byte)| *sum += weight * f32::from(byte));
        }
        let lines = [&mut *red, &mut *green, &mut *blue].map(|plane| &mut plane[y * size..][..size]);
        columns_of(&sums, wanted.start, &columns, lines);
    }
}

/// One row of each channel of the result.
fn columns_of(sums: &[f32], start: usize, columns: &Taps, [red, green, blue]: [&mut [u8]; 3]) {
    let pixels = red.iter_mut().zip(green).zip(blue).zip(columns.each());
    for (((red, green), blue), (first, weights)) in pixels {
        let from = &sums[first * 3 - start..][..weights.len() * 3];
        // A half, because what follows cuts off.
        let mut sum = [0.5f32; 3];
        for (tap, weight) in weights.iter().enumerate() {
            for channel in 0..3 {
                sum[channel] += weight * from[tap * 3 + channel];
            }
        }
        (*red, *green, *blue) = (sum[0] as u8, sum[1] as u8, sum[2] as u8);
    }
}

/// The three channels of `[3, size, size]`.
fn planes(image: &mut [u8], size: usize) -> [&mut [u8]; 3] {
    let (red, rest) = image.split_at_mut(size * size);
    let (green, blue) = rest.split_at_mut(size * size);
    [red, green, blue]
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
