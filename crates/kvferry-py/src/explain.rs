use kvferry_doctor::{explain::Explainer, kind::Environment, report};
use pyo3::prelude::*;

use crate::gil;

/// What a message or a log says, as JSON: `primary`, `others`, `secondary`, `recovered`.
#[pyfunction]
pub(crate) fn explain_json(py: Python<'_>, text: &str) -> String {
    gil::detach(py, || {
        let explainer = Explainer::built_in();
        report::json(&explainer.text(text), explainer.catalogue(), Environment::detect()).to_string()
    })
}
