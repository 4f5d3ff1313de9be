//! `cargo xtask soak`: build, run.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The soak's program, and that of its workers, which it looks for beside its own.
const PROGRAMS: [&str; 2] = ["kvferry-soak", "kvferry-test-child"];

/// Builds the soak in release and becomes it, so that its output, signals and exit code are its own.
pub(crate) fn exec(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    let binary = workspace.release_binary(PROGRAMS[0]);
    if !binary.exists() {
        eprintln!("soak: building in release, a few minutes the first time");
    }
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--release", "-p", "kvferry-testkit", "--locked"]);
    for program in PROGRAMS {
        cargo.args(["--bin", program]);
    }
    let status = cargo.stdout(Stdio::from(io::stderr())).status().context("can't run cargo")?;
    if !status.success() {
        bail!("kvferry-soak did not build");
    }
    let mut soak = Command::new(&binary);
    workspace.clean(&mut soak);
    Err(soak.args(args).exec()).with_context(|| format!("can't run {}", binary.display()))
}
