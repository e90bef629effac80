//! A small timeline as text, for teaching and for tests.
//!
//! ```text
//! compute  |aabbbbbbcc|
//! offload  |..dddd....|
//!           0 s    5 s
//! a n0, b n1, c n2, d offload x
//! ```

use super::{Timeline, format_seconds, label, role_name};
use crate::{Schedule, Span};
use std::fmt::Write;

/// Spans told apart by a letter; beyond that all are drawn as `#`, without a legend.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

impl Timeline {
    /// Draws one row a stream, `width` characters (at least 16) for the whole iteration.
    ///
    /// A character stands for what runs in the middle of its stretch of time, so spans shorter than a character may not
    /// show; `.` is idle. Up to 52 spans of some length get letters in issue order and a legend.
    pub fn render_ascii(&self, schedule: &Schedule, width: usize) -> String {
        let width = width.max(16);
        let shown = self.commands(schedule).filter(|(span, _)| span.end > span.start).count();
        let mut rows = vec![vec!['.'; width]; schedule.streams.len()];
        let mut legend = Vec::new();
        let mut letters = LETTERS.chars().filter(|_| shown <= LETTERS.len());
        for (span, command) in self.commands(schedule).filter(|(span, _)| span.end > span.start) {
            let letter = letters.next();
            if let Some(letter) = letter {
                legend.push(format!("{letter} {}", label(schedule, command)));
            }
            if let Some(row) = rows.get_mut(command.stream.index()) {
                self.draw(row, span, letter.unwrap_or('#'));
            }
        }
        let mut text = String::new();
        for (role, row) in schedule.streams.iter().zip(&rows) {
            let _ = writeln!(text, "{:8} |{}|", role_name(*role), row.iter().collect::<String>());
        }
        let end = format_seconds(self.seconds);
        let _ = writeln!(text, "{:10}0 s{end:>1$}", "", width - 3);
        wrap(&mut text, &legend, width + 11);
        text
    }

    /// Marks the characters whose middle lies in the span.
    fn draw(&self, row: &mut [char], span: &Span, mark: char) {
        let step = self.seconds / row.len() as f64;
        for (index, cell) in row.iter_mut().enumerate() {
            let middle = (index as f64 + 0.5) * step;
            if span.start <= middle && middle < span.end {
                *cell = mark;
            }
        }
    }
}

/// Appends items separated by commas, in lines of about `width` characters.
fn wrap(text: &mut String, items: &[String], width: usize) {
    let mut column = 0;
    for (index, item) in items.iter().enumerate() {
        if column > 0 && column + item.len() + 1 > width {
            text.push('\n');
            column = 0;
        }
        let comma = if index + 1 < items.len() { ", " } else { "\n" };
        text.push_str(item);
        text.push_str(comma);
        column += item.len() + 2;
    }
    // A line that was broken after a comma ends in a space.
    *text = text.replace(" \n", "\n");
}
