//! Sizes as people write them: `12GiB`, `3.5 GiB`, `512MB`, `4096`.

use crate::Bytes;
use thiserror::Error;

/// A size that could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "cannot read {found:?} as a size: expected a number with an optional unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), for example 12GiB"
)]
pub struct BytesError {
    /// The text as given.
    pub found: String,
}

const UNITS: [(&str, u64); 15] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("bytes", 1),
    ("", 1),
];

/// Reads a size in bytes. Whole numbers are exact; fractions are rounded down to a byte.
///
/// # Errors
/// [`BytesError`] when the text is not a non-negative number followed by a known unit, or does not fit 64 bits.
pub fn parse_bytes(text: &str) -> Result<Bytes, BytesError> {
    let refuse = || BytesError { found: text.to_string() };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number = number.replace('_', "");
    let unit = unit.trim().to_ascii_lowercase();
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, scale)| scale).ok_or_else(refuse)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(refuse);
    }
    let fraction: f64 = number.parse().map_err(|_| refuse())?;
    let bytes = fraction * scale as f64;
    if bytes.is_finite() && (0.0..1.8e19).contains(&bytes) { Ok(bytes as u64) } else { Err(refuse()) }
}

/// Prints a size with a binary unit and three significant digits, and exactly below 1 KiB.
pub fn format_bytes(bytes: Bytes) -> String {
    for (unit, scale) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= scale {
            let value = bytes as f64 / scale as f64;
            let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
            return format!("{value:.digits$} {unit}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_bytes("12GiB"), Ok(12 << 30));
        assert_eq!(parse_bytes(" 3.5 GiB "), Ok(3_758_096_384));
        assert_eq!(parse_bytes("512MB"), Ok(512_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("1_000kb"), Ok(1_000_000));
        for bad in ["", "GiB", "12 parsecs", "-1", "1e3", "99999999TiB", "1.2.3GB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prints_three_digits() {
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(3_758_096_384), "3.50 GiB");
        assert_eq!(format_bytes(150 << 20), "150 MiB");
    }
}
