use std::collections::HashMap;
use std::ffi::OsString;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// How an agent behaves.
///
/// Each setting is a keyword here and a variable `KVFERRY_...` in the environment, with the same text:
/// `Settings(threads="4", forbid="tcp")`. What is not given comes from the environment, and what is not there has its
/// default. docs/config.md lists them.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Settings {
    pub(crate) settings: kvferry::Settings,
}

#[pymethods]
impl Settings {
    #[new]
    #[pyo3(signature = (**given))]
    fn new(py: Python<'_>, given: Option<HashMap<String, Py<PyAny>>>) -> PyResult<Self> {
        let mut values: HashMap<String, OsString> = HashMap::new();
        for (name, value) in given.unwrap_or_default() {
            let variable = format!("KVFERRY_{}", name.to_uppercase());
            let known = kvferry::Settings::documentation().iter().any(|doc| doc.variable == variable);
            if !known || variable == "KVFERRY_LOG" || name != name.to_lowercase() {
                return Err(PyTypeError::new_err(format!("there is no setting {name:?}")));
            }
            values.insert(variable, value.bind(py).str()?.to_string().into());
        }
        let lookup =
            |variable: &'static str| values.get(variable).cloned().or_else(|| std::env::var_os(variable));
        Ok(Self { settings: kvferry::Settings::from_lookup(lookup).or_raise(py)? })
    }

    /// The longest that cancel, release, deregister and disconnect wait, in seconds.
    #[getter]
    fn cancel_timeout(&self) -> f64 {
        self.settings.cancel_timeout.as_secs_f64()
    }

    /// The paths and mechanisms that may not carry data.
    #[getter]
    fn forbid(&self) -> String {
        self.settings.forbid.to_string()
    }

    /// The only paths and mechanisms that may carry data, or `none` where any may.
    #[getter]
    fn require(&self) -> String {
        self.settings.require.to_string()
    }

    /// Whether a token is set. The token itself is never shown.
    #[getter]
    fn has_token(&self) -> bool {
        self.settings.token.is_some()
    }

    fn __str__(&self) -> String {
        self.settings.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<kvferry.Settings {}>", self.settings)
    }
}

/// All error codes, each with what it means and what to do about it.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<(&'static str, &'static str, &'static str)> {
    kvferry::Code::all().iter().map(|code| (code.code, code.summary, code.remedy)).collect()
}
