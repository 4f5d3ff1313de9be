//! The Python packages: both wheels, installed alone into an empty environment, and their tests there.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::settle;
use crate::junit;
use crate::process;
use crate::report::Outcome;
use crate::wheel;
use crate::workspace::Workspace;

/// What the tests themselves need.
const TOOLS: [&str; 2] = ["pytest==8.4.2", "pytest-timeout==2.4.0"];
/// Longest that all tests may take.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Builds, installs, tests.
pub(super) fn run(workspace: &Workspace) -> Result<Outcome> {
    let wheels = wheel::build(workspace)?;
    let dir = workspace.target.join("python-tests");
    let programs = wheel::environment(&dir.join("venv"))?;
    // The wheels alone: what they need comes with them.
    wheel::install(&programs, &[&wheels.native, &wheels.nixl])?;
    wheel::install(&programs, &TOOLS)?;

    let report = dir.join("junit.xml");
    let _ = fs::remove_file(&report);
    let mut pytest = Command::new(programs.join("python"));
    pytest
        .args(["-m", "pytest", "-q", "--timeout=180", "-p", "no:cacheprovider", "--junitxml"])
        .arg(&report)
        .arg("python/tests")
        .current_dir(&workspace.root);
    workspace.clean(&mut pytest);
    pytest
        .env("KVFERRY_TEST_WHEELS", workspace.target.join("wheels"))
        .env("KVFERRY_TEST_TARGET", &workspace.target)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let finished = process::run(&mut pytest, LIMIT).context("can't run pytest")?;
    let outcome = match fs::read_to_string(&report) {
        Ok(xml) => junit::parse(&xml).unwrap_or_else(Outcome::failed),
        Err(_) => Outcome::default(),
    };
    Ok(settle(outcome, &finished, "pytest"))
}
