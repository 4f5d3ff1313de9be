//! The table of clients, and putting it into a page.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::run::Verdict;

const COLUMNS: [&str; 6] = ["client", "version", "mode", "stock wheel", "kvferry", "time"];
/// The column of the stock package.
const STOCK: usize = 3;
/// Longest reason that a cell holds; the log has it all.
const MOST_CHARS: usize = 100;

/// One mode of one client.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) client: &'static str,
    pub(crate) version: &'static str,
    pub(crate) mode: String,
    pub(crate) stock: Verdict,
    pub(crate) ours: Verdict,
    /// How long the run with kvferry took, imports and all.
    pub(crate) took: Duration,
}

type Cells = [String; 6];

impl Row {
    pub(crate) fn passed(&self) -> bool {
        self.ours == Verdict::Passed
    }

    pub(crate) fn failed(&self) -> bool {
        matches!(self.ours, Verdict::Failed(_))
    }

    fn cells(&self) -> Cells {
        let took = match self.ours {
            Verdict::Passed | Verdict::Failed(_) => format!("{:.0} s", self.took.as_secs_f64()),
            Verdict::NotRun(_) | Verdict::Unknown => String::new(),
        };
        let verdicts = [&self.stock, &self.ours].map(cell);
        let [stock, ours] = verdicts;
        [self.client.to_owned(), self.version.to_owned(), self.mode.clone(), stock, ours, took]
    }
}

fn cell(verdict: &Verdict) -> String {
    let reason = |why: &str| {
        let one_line: String =
            why.chars().map(|c| if c == '|' || c.is_control() { ' ' } else { c }).collect();
        match one_line.char_indices().nth(MOST_CHARS) {
            Some((end, _)) => format!("{}…", &one_line[..end]),
            None => one_line,
        }
    };
    match verdict {
        Verdict::Passed => "pass".to_owned(),
        Verdict::Failed(why) if why == "FAIL" => "FAIL".to_owned(),
        Verdict::Failed(why) => format!("FAIL: {}", reason(why.trim_start_matches("FAIL: "))),
        Verdict::NotRun(why) => format!("not run: {}", reason(why)),
        Verdict::Unknown => String::new(),
    }
}

/// The table in Markdown, its columns straight.
pub(crate) fn render(rows: &[Row]) -> String {
    straight(&rows.iter().map(Row::cells).collect::<Vec<_>>())
}

fn straight(rows: &[Cells]) -> String {
    let header = COLUMNS.map(str::to_owned);
    let widths: [usize; 6] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&header]).map(|cells| cells[column].chars().count());
        cells.max().unwrap_or_default()
    });
    let line = |cells: &Cells| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", padded.collect::<String>())
    };
    let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let body: String = rows.iter().map(line).collect();
    format!("{}|{rule}\n{body}", line(&header))
}

/// A page with the rows in its table: those of the same client, version and mode are replaced, others are added behind
/// their client's. Of the clients in `whole` (title, version), rows that are not among the new ones go, and the others
/// take the order of the new ones.
/// Where the stock package was not asked this time, its cell stays.
///
/// # Errors
/// The page has no such table.
pub(crate) fn put(page: &str, rows: &[Row], whole: &[[&str; 2]]) -> Result<String> {
    let lines: Vec<&str> = page.lines().collect();
    let start = lines.iter().position(|line| cells(line).is_some_and(|cells| cells == COLUMNS));
    ensure!(start.is_some(), "it has no table with the columns {}", COLUMNS.join(", "));
    let start = start.unwrap_or_default();
    let table: Vec<_> = lines[start..].iter().map_while(|line| cells(line)).collect();
    let end = start + table.len();
    let mut old: Vec<Cells> = table.into_iter().skip(2).collect();

    let new: Vec<Cells> = rows.iter().map(Row::cells).collect();
    let same = |a: &Cells, b: &Cells, columns: usize| a[..columns] == b[..columns];
    old.retain(|row| {
        !whole.iter().any(|client| row[..2] == *client) || new.iter().any(|other| same(row, other, 3))
    });
    for mut row in new.iter().cloned() {
        if let Some(at) = old.iter().position(|other| same(other, &row, 3)) {
            if row[STOCK].is_empty() {
                row[STOCK] = std::mem::take(&mut old[at][STOCK]);
            }
            old[at] = row;
        } else {
            let behind = |columns| old.iter().rposition(|other| same(other, &row, columns));
            let at = behind(2).or_else(|| behind(1)).map_or(old.len(), |at| at + 1);
            old.insert(at, row);
        }
    }
    for client in whole {
        let places: Vec<_> = (0..old.len()).filter(|at| old[*at][..2] == *client).collect();
        let mut rows: Vec<_> = places.iter().map(|at| std::mem::take(&mut old[*at])).collect();
        rows.sort_by_key(|row| new.iter().position(|other| same(other, row, 3)));
        places.into_iter().zip(rows).for_each(|(at, row)| old[at] = row);
    }
    let part = |lines: &[&str]| lines.iter().flat_map(|line| [*line, "\n"]).collect::<String>();
    Ok(format!("{}{}{}", part(&lines[..start]), straight(&old), part(&lines[end..])))
}

/// The cells of a table's line with as many columns as ours.
fn cells(line: &str) -> Option<Cells> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<_> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
    cells.try_into().ok()
}

#[cfg(test)]
mod tests;
