//! What the groups found, as a table and the one line that sums it up.

use std::fmt::Write;
use std::time::Duration;

/// What one group found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many tests or checks passed.
    pub(crate) passed: usize,
    /// Names of those that failed, with the reason where one line can hold it.
    pub(crate) failed: Vec<String>,
    /// Those that can't run here.
    pub(crate) skipped: Vec<Skip>,
    /// A remark for the table, or nothing.
    pub(crate) note: String,
}

/// A test that can't run here.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Outcome {
    pub(crate) fn passed(count: usize) -> Self {
        Self { passed: count, ..Self::default() }
    }

    pub(crate) fn failed(name: impl Into<String>) -> Self {
        Self { failed: vec![name.into()], ..Self::default() }
    }

    pub(crate) fn skipped(name: impl Into<String>, reason: impl Into<String>) -> Self {
        let skip = Skip { name: name.into(), reason: reason.into() };
        Self { skipped: vec![skip], ..Self::default() }
    }

    /// Counts one check.
    pub(crate) fn check(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(reason) => self.failed.push(format!("{name}: {reason}")),
        }
    }

    /// Adds what another part of the same group found.
    pub(crate) fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        if self.note.is_empty() {
            self.note = other.note;
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.failed.is_empty(), self.passed, self.skipped.is_empty()) {
            (false, ..) => "FAILED",
            (true, 0, false) => "skipped",
            _ => "passed",
        }
    }

    /// The group's own closing line, without its name.
    pub(crate) fn summary(&self, took: Duration) -> String {
        format!("{} in {:.1} s", self.verdict(), took.as_secs_f64())
    }
}

/// A group's name, what it found and how long that took.
pub(crate) type Row = (&'static str, Outcome, Duration);

/// Whether a check of any group failed.
pub(crate) fn any_failed(rows: &[Row]) -> bool {
    rows.iter().any(|(_, outcome, _)| !outcome.failed.is_empty())
}

/// Failures, skips and the table; the last line is `N passed, N failed`, with `, N skipped` behind
/// it if something was.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    for (group, outcome, _) in rows {
        for name in &outcome.failed {
            push(&mut text, format_args!("failed  {group}: {name}"));
        }
    }
    for (group, outcome, _) in rows {
        for Skip { name, reason } in &outcome.skipped {
            push(&mut text, format_args!("skipped {group}: {name}: {reason}"));
        }
    }
    push(&mut text, format_args!(""));
    let columns = ["group", "", "passed", "failed", "skipped", "seconds"];
    push(&mut text, line(columns, ""));
    for (group, outcome, took) in rows {
        let cells = [
            (*group).to_owned(),
            outcome.verdict().to_owned(),
            outcome.passed.to_string(),
            outcome.failed.len().to_string(),
            outcome.skipped.len().to_string(),
            format!("{:.1}", took.as_secs_f64()),
        ];
        push(&mut text, line(cells.each_ref().map(String::as_str), &outcome.note));
    }
    let total: Duration = rows.iter().map(|(.., took)| *took).sum();
    let (passed, failed, skipped) = rows.iter().fold((0, 0, 0), |sum, (_, outcome, _)| {
        (sum.0 + outcome.passed, sum.1 + outcome.failed.len(), sum.2 + outcome.skipped.len())
    });
    push(&mut text, format_args!("total: {:.1} s", total.as_secs_f64()));
    push(&mut text, format_args!(""));
    let mut last = format!("{passed} passed, {failed} failed");
    if skipped > 0 {
        let _ = write!(last, ", {skipped} skipped");
    }
    push(&mut text, last);
    text
}

fn line(cells: [&str; 6], note: &str) -> String {
    let [group, verdict, numbers @ ..] = cells;
    let mut text = format!("{group:<11} {verdict:<8}");
    for number in numbers {
        let _ = write!(text, " {number:>8}");
    }
    if !note.is_empty() {
        let _ = write!(text, "   {note}");
    }
    text
}

fn push(text: &mut String, line: impl std::fmt::Display) {
    // Writing to a string can't fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests;
