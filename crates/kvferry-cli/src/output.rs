//! Printing that survives a reader who has seen enough.

use std::io::{self, Write};

use anyhow::{Context, Result};

/// Writes text to stdout. A closed pipe, as `| head` leaves it, is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("can't write to stdout"),
    }
}

/// Writes a line to stderr, if there still is one.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Rows as columns of equal width, two blanks between them; no blanks at the ends of lines.
pub(crate) fn columns<const N: usize>(rows: &[[&str; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let blanks = width - cell.chars().count() + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let text = columns(&[["name", "value", ""], ["a", "é", "end"], ["longer", "", ""]]);
        assert_eq!(text, "name    value\na       é      end\nlonger\n");
    }
}
