//! The catalogue of stable error codes.
//!
//! Every error of kvferry has a `code()` such as `register.unmapped`. The table behind it, `codes.tsv`, says
//! in one sentence what each code means and in another what to do about it.

use std::sync::LazyLock;

/// One record of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code {
    /// The stable name, `family.cause`.
    pub code: &'static str,
    /// What it means, one sentence.
    pub summary: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The columns of the table, its first line.
const HEADER: &str = "code\tsummary\tremedy";
const TABLE: &str = include_str!("codes.tsv");

static CODES: LazyLock<Vec<Code>> = LazyLock::new(|| parse(TABLE));

impl Code {
    /// All codes, in the order of the table: by operation.
    pub fn all() -> &'static [Self] {
        &CODES
    }

    /// The remedy's first clause as it goes into the middle of a sentence: up to its semicolon, without full
    /// stop.
    pub fn hint(&self) -> String {
        let clause = self.remedy.split(';').next().unwrap_or_default();
        let clause = clause.trim_end_matches('.');
        let mut letters = clause.chars();
        match letters.next() {
            // KVFERRY_REQUIRE stays as it is.
            Some(first) if !letters.clone().next().is_some_and(char::is_uppercase) => {
                first.to_lowercase().chain(letters).collect()
            }
            _ => clause.to_owned(),
        }
    }

    /// The record of `code`, if there is such a code.
    pub fn find(code: &str) -> Option<&'static Self> {
        CODES.iter().find(|record| record.code == code)
    }
}

/// What to do about `code`; empty for a code that the catalogue does not have.
pub(crate) fn remedy(code: &str) -> &'static str {
    Code::find(code).map_or("", |record| record.remedy)
}

fn parse(table: &'static str) -> Vec<Code> {
    table
        .lines()
        .filter(|line| *line != HEADER)
        .filter_map(|line| {
            let mut columns = line.split('\t');
            Some(Code { code: columns.next()?, summary: columns.next()?, remedy: columns.next()? })
        })
        .collect()
}

#[cfg(test)]
mod tests;
