//! What is wrong with a setting.

use std::fmt;

use crate::codes;

/// A setting whose value is not allowed.
///
/// Displayed as `KVFERRY_THREADS=many: not a whole number; allowed: 1 to 32 (settings.invalid)`. The value of
/// a secret is never part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct SettingsError {
    /// The environment variable of the setting, whether the value came from it or from the program.
    pub variable: &'static str,
    /// The value as given; `None` if it is a secret.
    pub value: Option<String>,
    /// What is wrong with it.
    pub problem: String,
    /// What would be right.
    pub allowed: String,
}

impl SettingsError {
    pub(crate) fn new(
        variable: &'static str,
        value: impl Into<String>,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self { variable, value: Some(value.into()), problem: problem.into(), allowed: allowed.into() }
    }

    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        "settings.invalid"
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, value, problem, allowed } = self;
        let value = value.as_deref().unwrap_or("(hidden)");
        let code = self.code();
        write!(f, "{variable}={value}: {problem}; allowed: {allowed} ({code})")
    }
}
