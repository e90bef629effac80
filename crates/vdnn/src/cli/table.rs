//! Tables of results: as Markdown for people, as comma-separated values with full precision for programs.

use serde_json::Value;

/// One column.
pub struct Column {
    /// Its name in files for programs, with the unit.
    pub key: &'static str,
    /// Its name for people.
    pub head: &'static str,
    /// How numbers are shown to people.
    pub show: Show,
}

/// How a number of a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// As it is; text too.
    Plain,
    /// Bytes, in 10⁹ of them.
    Gb,
    /// So many digits after the point.
    Digits(usize),
}

/// Rows under columns. What is not known is null.
pub struct Table {
    /// Heads.
    pub columns: Vec<Column>,
    /// As many values a row as there are columns.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// An empty table: (key, head, how numbers are shown) of each column.
    pub fn new(columns: &[(&'static str, &'static str, Show)]) -> Self {
        let column = |&(key, head, show): &(&'static str, &'static str, Show)| Column { key, head, show };
        Table { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// A table for people.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|column| column.head.to_string()).collect());
        text.push_str(&line(vec!["---".to_string(); self.columns.len()]));
        for row in &self.rows {
            text.push_str(&line(
                row.iter().zip(&self.columns).map(|(value, column)| shown(value, column.show)).collect(),
            ));
        }
        text
    }

    /// All values with full precision.
    pub fn csv(&self) -> String {
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let heads = line(self.columns.iter().map(|column| column.key.to_string()).collect());
        self.rows.iter().fold(heads, |text, row| text + &line(row.iter().map(csv_field).collect()))
    }

    /// A document: one object a row.
    pub fn document(&self) -> Value {
        let object = |row: &Vec<Value>| -> Value {
            self.columns.iter().zip(row).map(|(column, value)| (column.key.to_string(), value.clone())).collect()
        };
        self.rows.iter().map(object).collect()
    }
}

fn shown(value: &Value, show: Show) -> String {
    match (value, value.as_f64(), show) {
        (Value::Null, ..) => String::new(),
        (_, Some(bytes), Show::Gb) => format!("{:.2}", bytes / 1e9),
        (_, Some(number), Show::Digits(digits)) => format!("{number:.digits$}"),
        (Value::String(text), ..) => text.clone(),
        (other, ..) => other.to_string(),
    }
}

/// A value as a field of comma-separated values; nothing for null.
pub fn csv_field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
