//! Explaining logs: which of their lines is the cause, and of what kind.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde::Serialize;

use crate::catalogue::Catalogue;
use crate::log::{Scan, Scanner};

mod correlate;

static BUILT_IN: LazyLock<Explainer> = LazyLock::new(|| Explainer::new(Arc::clone(Catalogue::built_in())));

/// Explains by one catalogue. Making one takes some milliseconds; explaining shares it.
#[derive(Debug)]
pub struct Explainer {
    catalogue: Arc<Catalogue>,
    scanner: Scanner,
}

/// What some logs say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The cause, if anything was found.
    pub primary: Option<Verdict>,
    /// Other causes that the text allows, or that the logs speak of as well, most likely first.
    pub others: Vec<Verdict>,
    /// Consequences.
    pub secondary: Vec<Verdict>,
    /// Failures that were over by the end of the logs: what was tried again until it worked.
    pub recovered: Vec<Recovered>,
    /// Lines read.
    pub lines: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// A record that the logs speak of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The record's id.
    pub id: String,
    /// The record's slug.
    pub slug: String,
    /// The kind of cause; the most likely one where the text can't decide, none if nothing is known.
    pub kind: Option<String>,
    /// How sure that is.
    pub confidence: Confidence,
    /// Where it stands; the first places.
    pub evidence: Vec<Evidence>,
    /// What decided.
    #[serde(skip)]
    pub basis: Basis,
    /// How often in all.
    #[serde(skip)]
    pub count: u64,
    /// All kinds that remain possible, with what to look at, most likely first; empty if one is decided.
    #[serde(skip)]
    pub candidates: Vec<crate::side::Cause>,
}

/// A failure that was over by the end of the logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recovered {
    /// What failed.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The line after it that shows success.
    pub by: Evidence,
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Confidence {
    /// The text decides.
    High,
    /// The most likely of several causes.
    Medium,
    /// Only words alike, or only consequences were found.
    Low,
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Basis {
    /// An exact code.
    Code,
    /// The message.
    Message,
    /// The same failure in other words.
    Alike,
    /// The message, with a system error or other words that decide between its causes.
    Discriminated,
    /// The message, of which several causes remain.
    Undecided,
    /// Words alike.
    Fuzzy,
}

/// A place in the logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Name of the input.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// The message without its prefix.
    pub text: String,
}

impl Explainer {
    /// Prepares a catalogue.
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        let scanner = Scanner::new(&catalogue);
        Self { catalogue, scanner }
    }

    /// By the catalogue that is built in.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// The catalogue.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Explains a text: a message, or a whole log.
    pub fn text(&self, text: &str) -> Explanation {
        self.bytes(text.as_bytes())
    }

    /// Explains bytes, of which some may be no text.
    pub fn bytes(&self, bytes: &[u8]) -> Explanation {
        // Reading from memory fails never.
        self.inputs([("<text>".to_owned(), bytes)]).unwrap_or_else(|_| Explanation::nothing())
    }

    /// Explains several inputs together, each with its name; memory is bounded whatever their size.
    ///
    /// # Errors
    /// Those of reading, with the input's name.
    pub fn inputs<R: Read>(&self, inputs: impl IntoIterator<Item = (String, R)>) -> io::Result<Explanation> {
        let mut scan = Scan::default();
        let mut names = Vec::new();
        for (file, (name, mut input)) in inputs.into_iter().enumerate() {
            let read = self.scanner.read(file, &mut input, &mut scan);
            read.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
            names.push(name);
        }
        Ok(correlate::correlate(&self.catalogue, &self.scanner, scan, &names))
    }

    /// Explains several files together.
    ///
    /// # Errors
    /// Those of opening and reading, with the file's name.
    pub fn files<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) -> io::Result<Explanation> {
        let mut inputs = Vec::new();
        for path in paths {
            let name = path.as_ref().display().to_string();
            let file = File::open(&path)
                .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
            inputs.push((name, file));
        }
        self.inputs(inputs)
    }
}

impl Explanation {
    fn nothing() -> Self {
        Self {
            primary: None,
            others: Vec::new(),
            secondary: Vec::new(),
            recovered: Vec::new(),
            lines: 0,
            bytes: 0,
        }
    }

    /// Whether a cause was found. What recovered is none.
    pub fn is_found(&self) -> bool {
        self.primary.is_some()
    }

    /// The kinds in their order, each once: the primary's, then the others'.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for verdict in self.primary.iter().chain(&self.others) {
            if let Some(kind) = verdict.kind.as_deref().filter(|kind| !kinds.contains(kind)) {
                kinds.push(kind);
            }
        }
        kinds
    }
}

/// Explains a text by the catalogue that is built in.
pub fn text(text: &str) -> Explanation {
    Explainer::built_in().text(text)
}

/// Explains files together by the catalogue that is built in.
///
/// # Errors
/// Those of opening and reading, with the file's name.
pub fn files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> io::Result<Explanation> {
    Explainer::built_in().files(paths)
}

#[cfg(test)]
mod tests;
