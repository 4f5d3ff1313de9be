use std::ffi::OsString;
use std::process::ExitCode;

use crate::gil;
use pyo3::prelude::*;

/// Runs the `kvferry` command and returns its exit code. `program` is how to start this same command once more.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>, program: Vec<OsString>) -> u8 {
    let code = gil::detach(py, || kvferry_cli::run(args, Some(program)));
    // The standard library gives no number for it, but compares.
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(1)
}
