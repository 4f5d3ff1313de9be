use std::fmt::Write;

use crate::conditions::Conditions;
use crate::options::{BenchPath, Memory};
use crate::pattern::Pattern;
use crate::progress::Watch;
use crate::row::{Measure, Row, RowOp};

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The rows, in the order asked for.
    pub rows: Vec<Row>,
    /// The rows that are not there.
    pub missing: Vec<Missing>,
    /// What the rows of a setup have in common, and the first wrong byte of those that have one.
    pub notes: Vec<String>,
    /// The machine.
    pub conditions: Conditions,
}

/// A row that was asked for and could not be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What would have been moved.
    pub pattern: Pattern,
    /// Blocks, where that tells rows apart.
    pub blocks: Option<u64>,
    /// Which way.
    pub op: RowOp,
    /// Over which path.
    pub path: BenchPath,
    /// In whose memory.
    pub memory: Memory,
    /// Why it was not.
    pub cause: String,
}

impl Report {
    /// Whether every row is there and every byte of it was right.
    pub fn is_good(&self) -> bool {
        self.missing.is_empty() && self.rows.iter().all(|row| row.verified)
    }

    /// The rows as a table for people.
    pub fn table(&self) -> String {
        let head = [
            "row",
            "op",
            "path",
            "mechanism",
            "memory",
            "kvferry",
            "",
            "raw loop",
            "",
            "ratio",
            "CPU s/GB",
            "",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(cells));
        aligned(&lines)
    }

    pub(crate) fn add(&mut self, row: Row, watch: &mut dyn Watch) {
        watch.measured(&row);
        self.rows.push(row);
    }

    pub(crate) fn miss(&mut self, missing: Missing, watch: &mut dyn Watch) {
        watch.missed(&missing);
        self.missing.push(missing);
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pattern, op, path, memory, cause, .. } = self;
        write!(f, "missing: {path} {memory} {pattern}")?;
        if let Some(blocks) = self.blocks {
            write!(f, " of {blocks} blocks")?;
        }
        write!(f, " {op}: {cause}")
    }
}

const COLUMNS: usize = 12;

/// Those that hold numbers.
const TO_THE_RIGHT: [usize; 4] = [5, 7, 9, 10];

fn cells(row: &Row) -> [String; COLUMNS] {
    let (value, spread, limit) = match row.measure {
        Measure::Rate { gbps_median, gbps_min, gbps_max } => (
            format!("{} GB/s", digits(gbps_median)),
            format!("{} to {}", digits(gbps_min), digits(gbps_max)),
            format!("{} GB/s", digits(row.limit_median)),
        ),
        Measure::Time { p50_us, p99_us } => (
            format!("{} us", digits(p50_us)),
            format!("p99 {}", digits(p99_us)),
            format!("{} us", digits(row.limit_median)),
        ),
    };
    let pattern = match row.blocks {
        Some(blocks) => format!("{} {blocks}", row.pattern),
        None => row.pattern.to_string(),
    };
    [
        pattern,
        row.op.to_string(),
        row.path.clone(),
        row.mechanism.clone(),
        row.memory.to_string(),
        value,
        spread,
        limit,
        row.limit.name().to_owned(),
        digits(row.ratio),
        row.cpu_s_per_gb.map_or_else(String::new, digits),
        if row.verified { String::new() } else { "WRONG BYTES".to_owned() },
    ]
}

/// Three digits or so.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn aligned(lines: &[[String; COLUMNS]]) -> String {
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Writing to a string does not fail.
            let _ = if TO_THE_RIGHT.contains(&column) {
                write!(row, "{cell:>width$}  ")
            } else {
                write!(row, "{cell:<width$}  ")
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
