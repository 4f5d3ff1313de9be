//! Evidence of success: what a log shows once a failure that was tried again is over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Lines that show that something works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Evidence {
    /// What works, half a sentence.
    pub meaning: String,
    /// Regular expressions on a line without its prefix.
    pub rules: Vec<String>,
}

/// The evidence that a line speaks of no failure, whatever its words.
pub(crate) const HARMLESS: &str = "harmless";

/// All kinds of evidence by name.
pub type Evidences = BTreeMap<String, Evidence>;
