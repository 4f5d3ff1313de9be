//! Pairs of releases that are known to fail together, `catalogue/versions.toml`.

use serde::{Deserialize, Serialize};

/// One known bad pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Pair {
    /// The first component, such as `vllm`.
    pub component: String,
    /// Its releases, such as `< 0.10.1`.
    pub releases: String,
    /// What it fails with, such as `nixl`.
    pub with: String,
    /// Releases of that, or a condition.
    pub with_releases: String,
    /// What happens.
    pub symptom: String,
    /// What works.
    pub instead: String,
    /// The kind of cause.
    pub kind: String,
    /// confirmed, likely or open.
    pub status: String,
    /// Where that is said.
    pub source: String,
}
