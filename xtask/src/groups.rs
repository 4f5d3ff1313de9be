//! The suite's groups and how each is run.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::demo;
use crate::junit;
use crate::libtest;
use crate::model::{self, Model};
use crate::pages;
use crate::process::{self, Finished};
use crate::report::Outcome;
use crate::suite::Group;
use crate::workspace::Workspace;

mod end_to_end;
mod python;

/// Longest that a build or a check may take; a cold one takes minutes on two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Longest that a group of tests may take with its build. Single tests are bounded by nextest.
const TEST_LIMIT: Duration = Duration::from_secs(45 * 60);

/// All groups in their order: what fails fast comes first.
pub(crate) fn all() -> Vec<Group> {
    let group = |name, about, run| Group { name, about, run };
    vec![
        group("format", "cargo fmt --check", format),
        group("pages", "commands, links and named tests in README and docs", pages),
        group("clippy", "lints of all crates, warnings denied", clippy),
        group("docs", "cargo doc of all crates, warnings denied", docs),
        group("tests", "unit, integration and process tests", tests),
        group("doctests", "examples in the API's documentation and README", doctests),
        group("python", "both wheels in an empty environment, and the Python tests", python::run),
        group("loom", "the shared words under every interleaving", loom),
        group("demo-tests", "the demo's own tests, in release", demo_tests),
        group("demo", "the demo with the real model, end to end", end_to_end::run),
    ]
}

fn format(workspace: &Workspace) -> Result<Outcome> {
    if !has_subcommand(workspace, "fmt") {
        return Ok(Outcome::skipped("rustfmt", "not installed: rustup component add rustfmt"));
    }
    let mut cargo = workspace.cargo();
    cargo.args(["fmt", "--all", "--check"]);
    check(&mut cargo, "cargo fmt --all --check")
}

fn pages(workspace: &Workspace) -> Result<Outcome> {
    pages::check(&workspace.root)
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    if !has_subcommand(workspace, "clippy") {
        return Ok(Outcome::skipped("clippy", "not installed: rustup component add clippy"));
    }
    let mut cargo = workspace.cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    check(&mut cargo, "cargo clippy")
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = workspace.cargo();
    cargo.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-Dwarnings");
    check(&mut cargo, "cargo doc")
}

/// All but the demo's, which would build its tensor library once more in this profile.
fn tests(workspace: &Workspace) -> Result<Outcome> {
    run_tests(workspace, &["--workspace", "--exclude", "kvferry-demo"], None)
}

/// Those that need the real model skip themselves if it can't be fetched.
fn demo_tests(workspace: &Workspace) -> Result<Outcome> {
    let model = match model::fetch(&workspace.target.join("model"))? {
        Model::Ready(path) => Some(path),
        Model::Unavailable(reason) => {
            println!("no model: {reason}");
            None
        }
    };
    run_tests(workspace, &["--release", "-p", "kvferry-demo"], model)
}

fn doctests(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--doc", "--workspace", "--exclude", "kvferry-demo", "--locked", "--no-fail-fast"]);
    let mut outcome = libtests(&mut cargo)?;

    // Built as part of the workspace, for the features that the tests were built with.
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--workspace", "--exclude", "kvferry-demo", "--locked", "--example", "two_agents"]);
    let built = check(&mut cargo, "cargo build --example two_agents")?;
    if built.failed.is_empty() {
        let mut example = Command::new(workspace.target.join("debug/examples/two_agents"));
        workspace.clean(&mut example);
        outcome.merge(check(&mut example, "the example two_agents")?);
    } else {
        outcome.merge(built);
    }
    Ok(outcome)
}

fn loom(workspace: &Workspace) -> Result<Outcome> {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let mut cargo = workspace.cargo();
    cargo
        .args(["test", "-p", "kvferry-sys", "--release", "--lib", "--locked", "--target-dir"])
        .arg(workspace.target.join("loom"))
        .arg("loom")
        .env("RUSTFLAGS", format!("{flags} --cfg loom").trim_start());
    libtests(&mut cargo)
}

/// Runs the tests of some packages with nextest, or without it where it is not installed.
fn run_tests(workspace: &Workspace, packages: &[&str], model: Option<PathBuf>) -> Result<Outcome> {
    let model = model.map(|path| (demo::MODEL, path));
    if !has_subcommand(workspace, "nextest") {
        println!("cargo-nextest is not installed: cargo test runs one test at a time instead");
        let mut cargo = workspace.cargo();
        cargo.args(["test", "--no-fail-fast", "--locked", "--lib", "--bins", "--tests"]);
        cargo.args(packages).args(["--", "--show-output", "--test-threads=1"]).envs(model);
        return libtests(&mut cargo);
    }
    let report = workspace.target.join("nextest/default/junit.xml");
    if report.exists() {
        fs::remove_file(&report).with_context(|| format!("can't remove {}", report.display()))?;
    }
    let mut cargo = workspace.cargo();
    cargo.args(["nextest", "run", "--no-fail-fast", "--locked"]).args(packages).envs(model);
    let finished = process::run(&mut cargo, TEST_LIMIT).context("can't run cargo")?;
    let mut outcome = match fs::read_to_string(&report) {
        Ok(xml) => junit::parse(&xml).unwrap_or_else(Outcome::failed),
        // It did not come to running tests.
        Err(_) => Outcome::default(),
    };
    let left_out = junit::left_out(&finished.output);
    if left_out > 0 {
        outcome.note = format!("{left_out} left out by default");
    }
    Ok(settle(outcome, &finished, "cargo nextest run"))
}

/// Runs a `cargo test` and counts from what it prints.
fn libtests(cargo: &mut Command) -> Result<Outcome> {
    let finished = process::run(cargo, TEST_LIMIT).context("can't run cargo")?;
    Ok(settle(libtest::parse(&finished.output), &finished, "cargo test"))
}

/// Sees to it that no counts look good when the command did not end well, or ran nothing.
fn settle(mut outcome: Outcome, finished: &Finished, command: &str) -> Outcome {
    if finished.timed_out {
        outcome.failed.push(format!("{command} was killed: it took too long"));
    } else if !finished.status.success() && outcome.failed.is_empty() {
        outcome.failed.push(format!("{command} ended with {}", finished.status));
    } else if outcome == Outcome::default() {
        outcome.failed.push(format!("{command} ran no test"));
    }
    outcome
}

/// One check that is a command: good if it exits with 0.
fn check(command: &mut Command, name: &str) -> Result<Outcome> {
    let finished = process::run(command, BUILD_LIMIT).with_context(|| format!("can't run {name}"))?;
    Ok(if finished.timed_out {
        Outcome::failed(format!("{name} was killed: it took too long"))
    } else if finished.status.success() {
        Outcome::passed(1)
    } else {
        Outcome::failed(name)
    })
}

fn has_subcommand(workspace: &Workspace, name: &str) -> bool {
    workspace
        .cargo()
        .args([name, "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests;
