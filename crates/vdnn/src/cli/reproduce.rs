//! `vdnn reproduce`: the paper's tables and figures, from plans for the card it describes. Nothing is measured.
//!
//! ```text
//!   what is asked for ─► the plans it needs, each once ─► planned side by side ─► tables, drawings ─► FOLDER/paper.md
//!                        as `vdnn plan` would: `cells`                           `figures`, `layers`,         *.csv
//!                                                                                `claims`, `chart`            *.svg
//! ```

mod cells;
mod chart;
mod claims;
mod figures;
mod layers;

use super::table::Table;
use super::{Report, resolve};
use anyhow::{Context, Result};
use cells::{Cells, NETWORKS, POLICIES, Wanted};
use chart::Chart;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Options of `vdnn reproduce`.
#[derive(Args)]
pub struct ReproduceCommand {
    /// Write tables (Markdown, CSV), drawings (SVG) and plans (JSON) to this folder; the tables are printed unless given.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Only these, separated by commas.
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<What>,
}

/// A table or a figure, by the paper's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum What {
    /// What the paper states in numbers, beside what comes out here.
    Claims,
    /// Every network under every policy.
    Plans,
    /// Network-wide allocation, and the part that one layer uses.
    Fig1,
    /// The baseline's memory by kind.
    Fig4,
    /// What each layer of VGG-16 (256) needs.
    Fig5,
    /// Times of its layers, and the reuse distance of X.
    Fig6,
    /// Average and largest use of memory.
    Fig11,
    /// Bytes offloaded.
    Fig12,
    /// Speed against an oracle.
    Fig14,
    /// VGG, ever deeper.
    Fig15,
}

/// A table, and a drawing of it.
struct Figure {
    title: String,
    /// What is counted, and how it differs from the paper.
    text: String,
    table: Table,
    chart: Option<Chart>,
}

impl What {
    /// The name of its files.
    fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }

    /// The plans it is made of.
    fn wanted(self) -> Vec<Wanted> {
        let all = |policies: &[&'static str]| -> Vec<Wanted> {
            NETWORKS
                .iter()
                .flat_map(|&network| policies.iter().map(move |policy| Wanted::of(network, policy)))
                .collect()
        };
        let paper: Vec<&'static str> = POLICIES.into_iter().filter(|policy| *policy != "none").collect();
        match self {
            What::Claims => claims::wanted(),
            What::Plans => all(&POLICIES),
            What::Fig11 => all(&paper),
            What::Fig1 | What::Fig4 => all(&["baseline"]),
            // One plan in all its layers, which is made where it is looked at.
            What::Fig5 | What::Fig6 => Vec::new(),
            What::Fig12 => all(&["all-p", "conv-p", "dyn"]),
            What::Fig14 => {
                let joined = NETWORKS.into_iter().flat_map(figures::joined);
                all(&paper).into_iter().chain(joined).collect()
            }
            What::Fig15 => {
                let policies = ["baseline", "all-m", "dyn"];
                figures::DEEP.iter().flat_map(|&deep| policies.map(|policy| Wanted::of(deep, policy))).collect()
            }
        }
    }

    fn figure(self, cells: &Cells) -> Result<Figure> {
        Ok(match self {
            What::Claims => claims::claims(cells),
            What::Plans => figures::plans(cells),
            What::Fig1 => figures::allocation(cells),
            What::Fig4 => figures::kinds(cells),
            What::Fig5 => layers::sizes()?,
            What::Fig6 => layers::times()?,
            What::Fig11 => figures::memory(cells),
            What::Fig12 => figures::offloaded(cells),
            What::Fig14 => figures::speed(cells),
            What::Fig15 => figures::deep(cells),
        })
    }
}

/// Plans what is needed, writes and reports.
pub fn run(args: &ReproduceCommand) -> Result<Report> {
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let asked: BTreeSet<What> = args.only.iter().copied().collect();
    let asked: BTreeSet<What> = if asked.is_empty() { What::value_variants().iter().copied().collect() } else { asked };
    let wanted: BTreeSet<Wanted> = asked.iter().flat_map(|what| what.wanted()).collect();
    let cells = cells::cells(&wanted)?;
    let figures: Vec<(What, Figure)> =
        asked.iter().map(|&what| Ok((what, what.figure(&cells)?))).collect::<Result<_>>()?;
    let text = markdown(&figures);
    let plans = plans(&cells);
    let files = match &args.out {
        Some(folder) => write(folder, &figures, &text, &plans)?,
        None => Vec::new(),
    };
    let of = |(what, figure): &(What, Figure)| {
        (what.name(), json!({ "title": figure.title, "rows": figure.table.document() }))
    };
    let tables: BTreeMap<String, Value> = figures.iter().map(of).collect();
    let written = args.out.as_ref().map(|folder| format!("wrote {} files to {}", files.len(), folder.display()));
    Ok(Report::new(json!({ "figures": tables, "plans": plans, "files": files }), written.unwrap_or(text)))
}

/// The document of each plan, with the command that prints it. How long planning took, which differs from run to run, is left out.
fn plans(cells: &Cells) -> Value {
    let plan = |(wanted, cell): (&Wanted, &cells::Cell)| {
        let mut document = cell.document.clone();
        if let Some(keys) = document.as_object_mut() {
            keys.remove("planning_seconds");
        }
        document["model"] = json!(wanted.network.0);
        document["batch"] = json!(wanted.network.1);
        document["policy"] = json!(wanted.policy);
        document["command"] = json!(wanted.command());
        document
    };
    cells.iter().map(plan).collect()
}

const HEAD: &str = "# The paper's networks on the card it describes

Made by `vdnn reproduce`: predictions for the machine `titan-x` (its card as the paper describes it), momentum 0, no budget but for
`dyn`, which has 12 GiB. Nothing here was measured. GB = 10⁹ bytes.
";

const LEFT_OUT: &str = "## Not reproduced

Figure 9, the timeline with its stalls, is `vdnn report --model vgg16 -b 256 --machine titan-x --momentum 0 --policy all-m --sync per-layer
--html FILE`. Figure 13 (bandwidth of the card's memory, layer by layer) and power were measured on the card of 2016, and so were all of the
paper's times. VGG-16 (256) under the paper's own prefetch rule (`--prefetch paper`) needs more than the card has under `dyn`, whose
prefetches then come back early; prefetches here are timed by cost.
";

fn markdown(figures: &[(What, Figure)]) -> String {
    let mut text = HEAD.to_string();
    for (what, Figure { title, text: words, table, chart }) in figures {
        let drawing = chart.as_ref().map_or(String::new(), |_| format!("\n![{title}]({}.svg)\n", what.name()));
        text.push_str(&format!("\n## {title}\n\n{words}\n{drawing}\n{}", table.markdown()));
    }
    text + "\n" + LEFT_OUT
}

/// Writes all files; their names.
fn write(folder: &Path, figures: &[(What, Figure)], text: &str, plans: &Value) -> Result<Vec<String>> {
    let mut files = vec![("paper.md".to_string(), text.to_string())];
    files.push(("plans.json".to_string(), lines(plans)));
    for (what, figure) in figures {
        files.push((format!("{}.csv", what.name()), figure.table.csv()));
        files.extend(figure.chart.as_ref().map(|chart| (format!("{}.svg", what.name()), chart.svg(&figure.title))));
    }
    for (name, text) in &files {
        resolve::write_text(&folder.join(name), text)?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// A list with an item a line.
fn lines(list: &Value) -> String {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    format!("[\n{}\n]\n", items.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n"))
}
