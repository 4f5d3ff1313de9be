//! Choosing groups of checks, running them one after another, reporting.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::report::{self, Outcome, Row};
use crate::workspace::Workspace;

/// Checks that are run, timed and reported together.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// What it checks, in one line.
    pub(crate) about: &'static str,
    /// An error counts as one failure.
    pub(crate) run: fn(&Workspace) -> Result<Outcome>,
}

/// The groups with these names, in the suite's order; all of them if no name is given.
///
/// # Errors
/// A name is not known.
pub(crate) fn choose(groups: Vec<Group>, names: &[String]) -> Result<Vec<Group>> {
    if let Some(unknown) = names.iter().find(|name| !groups.iter().any(|g| g.name == **name)) {
        let known: Vec<_> = groups.iter().map(|group| group.name).collect();
        bail!("no group is called {unknown:?}; there are {}", known.join(", "));
    }
    let wanted = |group: &Group| names.is_empty() || names.iter().any(|name| name == group.name);
    Ok(groups.into_iter().filter(wanted).collect())
}

/// The groups, one a line.
pub(crate) fn list(groups: &[Group]) -> String {
    groups.iter().fold(String::new(), |mut text, group| {
        let _ = writeln!(text, "{:<11} {}", group.name, group.about);
        text
    })
}

/// Runs the groups and prints the report. The code is 1 if anything failed.
pub(crate) fn run(workspace: &Workspace, groups: &[Group]) -> ExitCode {
    let rows = run_groups(workspace, groups);
    print!("\n{}", report::render(&rows));
    if report::any_failed(&rows) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs each group, whatever became of those before it.
fn run_groups(workspace: &Workspace, groups: &[Group]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Group { name, about, run } in groups {
        println!("== {name}: {about}");
        let started = Instant::now();
        let outcome = run(workspace).unwrap_or_else(|error| Outcome::failed(format!("{error:#}")));
        let took = started.elapsed();
        println!("== {name}: {}", outcome.summary(took));
        rows.push((*name, outcome, took));
    }
    rows
}

#[cfg(test)]
mod tests;
