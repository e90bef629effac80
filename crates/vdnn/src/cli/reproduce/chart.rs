//! Bars by group, side by side or on top of each other, as one SVG file that needs nothing else.

use crate::cli::drawing::{COLOURS, escape, number, step};
use std::fmt::Write;

/// Values of one name, one a group.
pub struct Series {
    /// What stands in the legend.
    pub name: String,
    /// By group; `None` where there is nothing to draw.
    pub values: Vec<Option<f64>>,
    /// By group: drawn as an outline. Groups beyond the end are not.
    pub hollow: Vec<bool>,
}

impl Series {
    /// A series without outlines.
    pub fn of(name: &str, values: Vec<Option<f64>>) -> Self {
        Series { name: name.to_string(), values, hollow: Vec::new() }
    }
}

/// A drawing.
pub struct Chart {
    y_label: &'static str,
    groups: Vec<String>,
    series: Vec<Series>,
    stacked: bool,
}

const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 110.0;

impl Chart {
    /// Bars side by side.
    pub fn grouped(y_label: &'static str, groups: Vec<String>, series: Vec<Series>) -> Self {
        Chart { y_label, groups, series, stacked: false }
    }

    /// Bars on top of each other.
    pub fn stacked(y_label: &'static str, groups: Vec<String>, series: Vec<Series>) -> Self {
        Chart { y_label, groups, series, stacked: true }
    }

    /// The file. Each bar says its group, series and value.
    pub fn svg(&self, title: &str) -> String {
        let bar = if self.stacked { 26.0 } else { 12.0 };
        let beside = if self.stacked { 1 } else { self.series.len().max(1) };
        let group = bar * beside as f64 + 18.0;
        let width = (LEFT + 24.0 + group * self.groups.len() as f64).max(640.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{HEIGHT}\" viewBox=\"0 0 {width} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n<rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n",
            escape(title)
        );
        let most = self.most();
        self.frame(&mut svg, width, most);
        for (at, name) in self.groups.iter().enumerate() {
            let x = LEFT + 12.0 + group * at as f64;
            self.group(&mut svg, at, x, bar, most);
            let (x, y) = (x + group / 2.0, HEIGHT - BOTTOM + 14.0);
            let _ = writeln!(
                svg,
                "<text transform=\"translate({x:.1},{y}) rotate(-40)\" text-anchor=\"end\">{}</text>",
                escape(name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The highest bar.
    fn most(&self) -> f64 {
        let value = |series: &Series, at: usize| series.values.get(at).copied().flatten().unwrap_or(0.0);
        let of_group = |at: usize| {
            let values = self.series.iter().map(|series| value(series, at));
            if self.stacked { values.sum() } else { values.fold(0.0, f64::max) }
        };
        (0..self.groups.len()).map(of_group).fold(0.0, f64::max)
    }

    /// Axis, grid, and the legend above.
    fn frame(&self, svg: &mut String, width: f64, most: f64) {
        let every = step(most);
        for value in (0..=10).map(|i| f64::from(i) * every).take_while(|value| *value <= most.max(every)) {
            let y = height(value, most);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT},{y:.1}H{}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                width - 12.0,
                LEFT - 6.0,
                y + 4.0,
                number(value)
            );
        }
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let _ = writeln!(
            svg,
            "<text transform=\"translate(16,{middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            self.y_label
        );
        let mut x = LEFT;
        for (index, series) in self.series.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"14\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{}\" y=\"24\">{}</text>",
                COLOURS[index % COLOURS.len()],
                x + 16.0,
                escape(&series.name)
            );
            x += 34.0 + 7.0 * series.name.len() as f64;
        }
    }

    fn group(&self, svg: &mut String, at: usize, x: f64, bar: f64, most: f64) {
        let mut below = 0.0;
        for (index, series) in self.series.iter().enumerate() {
            let Some(value) = series.values.get(at).copied().flatten() else { continue };
            let x = if self.stacked { x } else { x + bar * index as f64 };
            let (y, foot) = (height(below + value, most), height(below, most));
            let colour = COLOURS[index % COLOURS.len()];
            let fill = if series.hollow.get(at) == Some(&true) { "#ffffff" } else { colour };
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.2}\" width=\"{}\" height=\"{:.2}\" fill=\"{fill}\" stroke=\"{colour}\"><title>{}, {}: {}</title></rect>",
                bar - 2.0,
                foot - y,
                escape(&self.groups[at]),
                escape(&series.name),
                number(value)
            );
            if self.stacked {
                below += value;
            }
        }
    }
}

fn height(value: f64, most: f64) -> f64 {
    let share = if most > 0.0 { value / most } else { 0.0 };
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}
