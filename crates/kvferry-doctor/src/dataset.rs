//! Records in files: one alone, one in its envelope, folders of them, and one a line.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::record::{self, Fault, Record};

/// A record as the public data set wraps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// The record.
    pub record: Record,
    /// When the data set was exported, ISO 8601 in UTC.
    pub dataset_version: String,
}

/// A record and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The file, and the line if it holds one record a line.
    pub at: String,
    /// The record.
    pub record: Record,
    /// The version of the data set, if it came in an envelope.
    pub dataset_version: Option<String>,
}

/// Why something is no data set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A file or folder that cannot be read.
    #[error("{at}: cannot be read: {reason}")]
    #[non_exhaustive]
    Unreadable {
        /// The path.
        at: String,
        /// What the system says.
        reason: String,
    },
    /// A field that the schema refuses.
    #[error("{at}: {field}: {reason}")]
    #[non_exhaustive]
    Field {
        /// The file, and the line if it holds one record a line.
        at: String,
        /// Path of the field, such as `record.exampleFix.before`; `.` for the whole.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No record at all.
    #[error("{at}: holds no record")]
    #[non_exhaustive]
    Empty {
        /// The path.
        at: String,
    },
}

/// All records below `path`, a file or a folder; what is wrong goes to the second list. Records of our own may
/// lack their location.
pub fn read(path: &Path) -> (Vec<Found>, Vec<DatasetError>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let mut files = Vec::new();
    if let Err(error) = collect(path, &mut files) {
        errors.push(error);
    }
    for file in files {
        let at = file.display().to_string();
        match fs::read_to_string(&file) {
            Ok(text) => parse(&at, &text, &mut found, &mut errors),
            Err(error) => errors.push(DatasetError::Unreadable { at, reason: error.to_string() }),
        }
    }
    if found.is_empty() && errors.is_empty() {
        errors.push(DatasetError::Empty { at: path.display().to_string() });
    }
    twice(&found, &mut errors);
    (found, errors)
}

/// The records of one text: a record, an envelope, or one of these a line.
pub fn parse(at: &str, text: &str, found: &mut Vec<Found>, errors: &mut Vec<DatasetError>) {
    // Pretty-printed JSON has lines that are no values; a first line that is one makes it one record a line.
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if lines > 1 && serde_json::from_str::<serde::de::IgnoredAny>(first).is_ok() {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            parse_one(&format!("{at}:{}", number + 1), line, found, errors);
        }
    } else {
        parse_one(at, text, found, errors);
    }
}

fn parse_one(at: &str, text: &str, found: &mut Vec<Found>, errors: &mut Vec<DatasetError>) {
    let first = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>().next();
    let in_envelope = matches!(first, Some(Ok(value)) if value.get("record").is_some());
    let parsed = if in_envelope {
        read_value::<Envelope>(text).map(|envelope| (envelope.record, Some(envelope.dataset_version)))
    } else {
        read_value::<Record>(text).map(|record| (record, None))
    };
    match parsed {
        Ok((record, dataset_version)) => {
            let faults = if record.is_own() { record::check_stored(&record) } else { record::check(&record) };
            errors.extend(faults.into_iter().map(|Fault { field, reason }| DatasetError::Field {
                at: at.to_owned(),
                field: field.to_owned(),
                reason,
            }));
            found.push(Found { at: at.to_owned(), record, dataset_version });
        }
        Err((field, reason)) => errors.push(DatasetError::Field { at: at.to_owned(), field, reason }),
    }
}

fn read_value<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, (String, String)> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let field = error.path().to_string();
        (field, error.into_inner().to_string())
    })?;
    deserializer.end().map_err(|error| (".".to_owned(), error.to_string()))?;
    Ok(value)
}

/// Ids must be unique, slugs within their repository.
fn twice(found: &[Found], errors: &mut Vec<DatasetError>) {
    let mut seen = std::collections::HashMap::new();
    for one in found {
        let Record { id, repo, slug, .. } = &one.record;
        for (field, value) in [("id", id.clone()), ("slug", format!("{repo} {slug}"))] {
            if let Some(other) = seen.insert((field, value), &one.at) {
                errors.push(DatasetError::Field {
                    at: one.at.clone(),
                    field: field.to_owned(),
                    reason: format!("is also that of {other}"),
                });
            }
        }
    }
}

/// The files of a data set, sorted; what is no record by its name is left out.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), DatasetError> {
    let unreadable = |error: std::io::Error| DatasetError::Unreadable {
        at: path.display().to_string(),
        reason: error.to_string(),
    };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(unreadable)?.collect();
    let mut paths: Vec<_> = entries.map_err(unreadable)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_record =
            ["json", "jsonl", "txt"].iter().any(|ext| path.extension().is_some_and(|e| e == *ext));
        let is_index =
            ["manifest.json", "index.json", "repos.json", "side", "repos"].contains(&name.as_str());
        if path.is_dir() && !is_index {
            collect(&path, files)?;
        } else if path.is_file() && is_record && !is_index {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
