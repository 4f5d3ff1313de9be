//! One error of the catalogue, in the schema of the public error knowledge base, version 2.
//!
//! The schema is strict: unknown fields are refused, and so are missing ones, also those that may be null.

use serde::{Deserialize, Deserializer, Serialize};

mod check;
mod formula;

pub use self::check::{Fault, check, check_stored};
pub(crate) use self::formula::pieces;
pub use self::formula::{id, pattern, slug};

/// The name under which errors of kvferry itself are stored; an export replaces it by the real repository.
pub const OWN_REPO: &str = "kvferry/kvferry";

/// One error: where it comes from, what it means and what to do about it. Fields in the schema's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// 16 hex digits, see [`id`].
    pub id: String,
    /// `owner/name` of the repository.
    pub repo: String,
    /// Name for people and links, see [`slug`]; unique within the repository.
    pub slug: String,
    /// The error's code, where the running text shows one.
    #[serde(deserialize_with = "nullable")]
    pub error_code: Option<String>,
    /// The message as the source has it, with its placeholders.
    pub error_message: String,
    /// A regular expression for the message, see [`pattern`].
    pub message_pattern: String,
    /// How the error shows.
    pub error_type: ErrorType,
    /// Class of the exception.
    #[serde(deserialize_with = "nullable")]
    pub error_class: Option<String>,
    /// HTTP status, 100 to 599.
    #[serde(deserialize_with = "nullable")]
    pub http_status: Option<u16>,
    /// How bad it is.
    pub severity: Severity,
    /// Path in the repository.
    pub file_path: String,
    /// Line of the message, from 1.
    #[serde(deserialize_with = "nullable")]
    pub line_number: Option<u32>,
    /// An excerpt of the source, at most 40 lines.
    #[serde(deserialize_with = "nullable")]
    pub source_code: Option<String>,
    /// First line of the excerpt.
    #[serde(deserialize_with = "nullable")]
    pub source_code_start: Option<u32>,
    /// Last line of the excerpt.
    #[serde(deserialize_with = "nullable")]
    pub source_code_end: Option<u32>,
    /// Where to read it, at `analyzed_sha`. Null only in stored records of our own.
    #[serde(deserialize_with = "nullable")]
    pub github_url: Option<String>,
    /// What the error means, markdown.
    pub documentation: String,
    /// What makes it appear, markdown.
    pub trigger_scenarios: String,
    /// Where people meet it, markdown.
    pub common_situations: String,
    /// What to do, most likely first.
    pub solutions: Vec<String>,
    /// A piece of code before and after.
    #[serde(deserialize_with = "nullable")]
    pub example_fix: Option<ExampleFix>,
    /// How a caller deals with it.
    #[serde(deserialize_with = "nullable")]
    pub handling_strategy: Option<HandlingStrategy>,
    /// Code that checks beforehand.
    #[serde(deserialize_with = "nullable")]
    pub validation_code: Option<String>,
    /// Code that narrows a type.
    #[serde(deserialize_with = "nullable")]
    pub type_guard: Option<String>,
    /// Code that catches it.
    #[serde(deserialize_with = "nullable")]
    pub try_catch_pattern: Option<String>,
    /// How not to meet it again.
    pub prevention_tips: Vec<String>,
    /// Lower-case kebab words.
    pub tags: Vec<String>,
    /// The family of errors across libraries; in our records the kind of cause.
    #[serde(deserialize_with = "nullable")]
    pub background_tag: Option<String>,
    /// The commit that was read, 40 hex digits. Null only in stored records of our own.
    #[serde(deserialize_with = "nullable")]
    pub analyzed_sha: Option<String>,
    /// When, ISO 8601 in UTC.
    pub analyzed_at: String,
    /// 2.
    pub schema_version: u32,
}

/// How an error shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorType {
    /// Raised or thrown.
    Exception,
    /// A status value.
    ErrorCode,
    /// A line of a log.
    Console,
    /// An HTTP status.
    Http,
    /// Configuration or input that is refused.
    Validation,
    /// The process ends.
    Panic,
}

/// How bad an error is, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// The service does not run.
    Critical,
    /// An operation fails.
    Error,
    /// Something is worse than it could be.
    Warning,
    /// To know.
    Info,
}

/// How a caller deals with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HandlingStrategy {
    /// Catch it.
    TryCatch,
    /// Narrow a type first.
    TypeGuard,
    /// Check first.
    Validation,
    /// Try again.
    Retry,
    /// Do it another way.
    Fallback,
}

/// A piece of code before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleFix {
    /// As it fails.
    pub before: String,
    /// As it works.
    pub after: String,
}

impl Record {
    /// What the id and the slug are made of: the code, else the message.
    pub fn key(&self) -> &str {
        self.error_code.as_deref().unwrap_or(&self.error_message)
    }

    /// Whether this is an error of kvferry itself, stored without its location.
    pub fn is_own(&self) -> bool {
        self.repo == OWN_REPO && self.analyzed_sha.is_none()
    }

    /// The record with its location filled in: repository, commit, line, URL, and the id that follows.
    #[must_use]
    pub fn located(&self, repo: &str, sha: &str, line: Option<u32>) -> Self {
        let anchor = line.map(|line| format!("#L{line}")).unwrap_or_default();
        Self {
            id: id(repo, self.key(), &self.file_path),
            repo: repo.to_owned(),
            line_number: line,
            github_url: Some(format!("https://github.com/{repo}/blob/{sha}/{}{anchor}", self.file_path)),
            analyzed_sha: Some(sha.to_owned()),
            ..self.clone()
        }
    }
}

/// A field that may be null but not left out: serde takes a missing `Option` for null unless told so.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

#[cfg(test)]
mod tests;
