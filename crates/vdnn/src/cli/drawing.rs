//! What drawings have in common: colours, ticks, numbers without needless digits, and text that may stand in markup.

/// Colours that stay apart for all kinds of eyes (Okabe and Ito), less the yellow.
pub const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];

/// A distance between ticks that people can read: 1, 2 or 5 times a power of ten, some five of them.
pub fn step(most: f64) -> f64 {
    if most.is_nan() || most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|&step| most / step <= 5.0).unwrap_or(10.0 * power)
}

/// The largest unit that so many bytes are at least one of, and its size.
pub fn byte_unit(most: f64) -> (&'static str, f64) {
    let units = [("GiB", (1u64 << 30) as f64), ("MiB", (1u64 << 20) as f64), ("KiB", 1024.0)];
    units.into_iter().find(|&(_, bytes)| most >= bytes).unwrap_or(("bytes", 1.0))
}

/// Without digits that say nothing.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Text as it may stand between tags and in quotes, of HTML as well as of XML.
pub fn escape(text: &str) -> String {
    let entity = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".to_string(),
        '>' => "&gt;".to_string(),
        '"' => "&quot;".to_string(),
        // Not allowed in XML, even as entities.
        c if c.is_control() => " ".to_string(),
        c => c.to_string(),
    };
    text.chars().map(entity).collect()
}
