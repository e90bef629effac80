//! The page: figures, pictures and tables in one file that needs nothing else.

use super::axis::Axis;
use super::{decisions, kernels, memory, streams};
use crate::cli::drawing::escape;
use crate::cli::explain::Clock;
use crate::cli::occupancy::KINDS;
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write;
use vdnn_schedule::{Timeline, TimelineDiff};
use vdnn_tensor::Bytes;
use vdnn_train::{Planned, Settings};

/// What a page is made of.
pub struct Page<'a> {
    /// What it is of: network, batch, arithmetic.
    pub title: String,
    /// Policy, machine, and how much there is of it.
    pub subtitle: String,
    /// Name and value of each figure.
    pub figures: Vec<(&'static str, String)>,
    /// The same figures for programs, as the command's `--json` has them.
    pub document: &'a Value,
    /// The plan.
    pub planned: &'a Planned,
    /// How it was planned.
    pub settings: &'a Settings,
    /// The simulated iteration.
    pub predicted: &'a Timeline,
    /// A measured one of the same schedule.
    pub measured: Option<&'a Timeline>,
    /// Bytes to be drawn as lines, by name.
    pub lines: Vec<(&'static str, Bytes)>,
}

const STYLE: &str = include_str!("style.css");

/// The whole file.
///
/// # Errors
/// As [`decisions::values`].
pub fn page(page: &Page<'_>) -> Result<String> {
    let Page { planned, settings, predicted, .. } = *page;
    let clock = Clock::of(planned, predicted);
    let mut html = head(page);
    timelines(&mut html, page);
    html.push_str("<h2>Device memory</h2>\n");
    legend(&mut html, "dot", KINDS.iter().map(|(name, colour)| (*name, format!("background: {colour}"))));
    let shown = page.measured.unwrap_or(predicted);
    let axis = Axis { seconds: shown.seconds };
    html.push_str(&memory::draw(&planned.schedule, &planned.program.graph, shown, axis, &page.lines));
    html.push_str("<h2>Decisions</h2>\n<p>Values that share bytes move together and count once.</p>\n");
    html.push_str(&decisions::summary(planned));
    html.push_str("<h3>Largest values</h3>\n");
    html.push_str(&decisions::values(planned, settings, &clock)?);
    html.push_str("<h2>Kernels</h2>\n");
    html.push_str(&kernels::kernels(planned, page.measured));
    let _ = writeln!(
        html,
        "<script type=\"application/json\" id=\"figures\">{}</script>\n</body>\n</html>",
        script(page.document)
    );
    Ok(html)
}

fn head(page: &Page<'_>) -> String {
    let (title, subtitle) = (escape(&page.title), escape(&page.subtitle));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}: {subtitle}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{subtitle}</p>\n<table class=\"figures\">\n"
    );
    for (name, value) in &page.figures {
        let _ = writeln!(html, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
    }
    html.push_str("</table>\n");
    html
}

/// What the streams do: as measured, where that is known, and as simulated.
fn timelines(html: &mut String, page: &Page<'_>) {
    let Page { planned, predicted, .. } = *page;
    let (schedule, graph) = (&planned.schedule, &planned.program.graph);
    html.push_str("<h2>Streams</h2>\n");
    legend(html, "dot", streams::SORTS.iter().map(|(class, name)| (*name, format!("background: var(--{class})"))));
    if let Some(measured) = page.measured {
        // Both to one scale.
        let axis = Axis { seconds: measured.seconds.max(predicted.seconds) };
        html.push_str("<h3>Measured</h3>\n");
        html.push_str(&streams::draw(schedule, graph, measured, axis, "measured"));
        html.push_str("<h3>Predicted</h3>\n");
        html.push_str(&streams::draw(schedule, graph, predicted, axis, "predicted"));
        let difference: TimelineDiff = Timeline::diff(predicted, measured, schedule);
        let _ = writeln!(html, "<pre>{}</pre>", escape_lines(&difference.to_string()));
    } else {
        let axis = Axis { seconds: predicted.seconds };
        html.push_str(&streams::draw(schedule, graph, predicted, axis, "predicted"));
    }
    let shown = page.measured.unwrap_or(predicted);
    let hidden = match shown.hidden_copy_share(schedule) {
        Some(share) => format!("{:.1} % of the time of copies passes beside kernels", share * 100.0),
        None => "nothing is copied".to_string(),
    };
    let idle = shown.compute_idle(schedule) * 1e3;
    let _ = writeln!(html, "<p>{hidden}; no kernel runs for {idle:.3} ms of {:.3}.</p>", shown.seconds * 1e3);
}

fn legend(html: &mut String, class: &str, entries: impl Iterator<Item = (&'static str, String)>) {
    html.push_str("<p class=\"legend\">");
    for (name, style) in entries {
        let _ = write!(html, "<span><i class=\"{class}\" style=\"{style}\"></i>{name}</span> ");
    }
    html.push_str("</p>\n");
}

/// As [`escape`], with lines as they are.
fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

/// JSON as it may stand in a script: nothing in it can end the element.
fn script(document: &Value) -> String {
    document.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
