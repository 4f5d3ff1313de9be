//! The bodies of the fuzz targets, which the tests run as well.

use crate::dataset;
use crate::explain::Explainer;
use crate::kind::Environment;
use crate::report::{json, text};

/// Explains `data` as a log and writes both reports.
///
/// # Panics
/// The reports contradict the explanation.
pub fn explain(data: &[u8]) {
    let explainer = Explainer::built_in();
    let explanation = explainer.bytes(data);
    assert_eq!(explanation.bytes, data.len() as u64);
    assert!(explanation.is_found() || explanation.others.is_empty() && explanation.secondary.is_empty());
    let report = json(&explanation, explainer.catalogue(), Environment::Bare);
    assert_eq!(report["primary"].is_null(), !explanation.is_found());
    assert!(!text(&explanation, explainer.catalogue(), Environment::K8s).is_empty());
}

/// Reads `data` as a data set.
///
/// # Panics
/// A record that was read is not the same after it is written and read again.
pub fn dataset(data: &[u8]) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    dataset::parse("input", &String::from_utf8_lossy(data), &mut found, &mut errors);
    for one in found {
        let written = serde_json::to_string(&one.record).unwrap_or_default();
        let (mut again, mut refused) = (Vec::new(), Vec::new());
        dataset::parse("written", &written, &mut again, &mut refused);
        assert_eq!(again.first().map(|again| &again.record), Some(&one.record));
    }
}

#[cfg(test)]
mod tests;
