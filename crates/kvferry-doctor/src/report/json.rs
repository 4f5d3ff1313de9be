//! An explanation for programs.

use serde_json::{Value, json};

use crate::catalogue::Catalogue;
use crate::explain::{Explanation, Verdict};
use crate::kind::Environment;

/// `primary`, `others`, `secondary` and `recovered`, each verdict with `id`, `slug`, `kind`, `confidence` and `evidence`,
/// those that recovered also with the line `by` which that shows; and `detail` with what the text report says of the
/// primary.
pub fn json(explanation: &Explanation, catalogue: &Catalogue, environment: Environment) -> Value {
    json!({
        "primary": explanation.primary,
        "others": explanation.others,
        "secondary": explanation.secondary,
        "recovered": explanation.recovered,
        "detail": explanation.primary.as_ref().map(|primary| detail(primary, catalogue, environment)),
        "lines": explanation.lines,
        "bytes": explanation.bytes,
    })
}

fn detail(primary: &Verdict, catalogue: &Catalogue, environment: Environment) -> Value {
    let entry = catalogue.by_id(&primary.id);
    let kind = primary.kind.as_deref().and_then(|kind| catalogue.kind(kind));
    json!({
        "basis": primary.basis,
        "count": primary.count,
        "repo": entry.map(|entry| &entry.record.repo),
        "message": entry.map(|entry| &entry.record.error_message),
        "documentation": entry.map(|entry| &entry.record.documentation),
        "solutions": entry.map(|entry| &entry.record.solutions),
        "source": entry.and_then(|entry| entry.record.github_url.as_ref()),
        "checks": entry.map(|entry| &entry.side.checks),
        "meaning": kind.map(|kind| &kind.meaning),
        "side": kind.map(|kind| kind.side),
        "candidates": primary.candidates,
        "environment": environment,
        "fix": kind.map(|kind| kind.fix(environment)),
        "verify": kind.map(|kind| &kind.verify),
    })
}
