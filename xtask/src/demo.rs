//! `cargo xtask demo`: model, build, run.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::model::{self, Model};
use crate::workspace::Workspace;

/// The variable by which the demo is told its model. An argument would get in the way of the caller's own.
pub(crate) const MODEL: &str = "KVFERRY_DEMO_MODEL";

/// Fetches the model, builds the demo in release and becomes it, so that its output, signals and
/// exit code are its own. Our own lines go to stderr.
pub(crate) fn exec(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    let mut model = None;
    if env::var_os(MODEL).is_none() && wants_model(args) {
        match model::fetch(&workspace.target.join("model"))? {
            Model::Ready(path) => model = Some(path),
            Model::Unavailable(reason) => {
                eprintln!("demo: no model ({reason}); going on with random weights of its shape");
            }
        }
    }
    let binary = build(workspace)?;
    let error = Command::new(&binary).args(args).envs(model.map(|path| (MODEL, path))).exec();
    Err(error).with_context(|| format!("can't run {}", binary.display()))
}

/// Builds the demo's binary and returns its path.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let binary = workspace.release_binary("kvferry-demo");
    if !binary.exists() {
        eprintln!("demo: building in release, a few minutes the first time");
    }
    let status =
        build_command(workspace).stdout(Stdio::from(io::stderr())).status().context("can't run cargo")?;
    if !status.success() {
        bail!("kvferry-demo did not build");
    }
    Ok(binary)
}

/// The build of the demo as it is shipped: by itself, so that no other crate's features get in.
pub(crate) fn build_command(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--release", "-p", "kvferry-demo", "--locked"]);
    cargo
}

/// Whether these arguments lead to a run without a model of their own.
fn wants_model(args: &[OsString]) -> bool {
    !args.iter().any(|arg| {
        let text = arg.to_string_lossy();
        matches!(&*text, "--model" | "--tiny" | "--help" | "-h" | "--version" | "-V")
            || text.starts_with("--model=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(args: &[&str]) -> bool {
        wants_model(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_model_is_fetched_only_when_the_run_needs_ours() {
        assert!(wants(&[]));
        assert!(wants(&["--json", "--tokens", "8"]));
        assert!(!wants(&["--model", "other.gguf"]));
        assert!(!wants(&["--model=other.gguf"]));
        assert!(!wants(&["--tiny", "--json"]));
        assert!(!wants(&["--help"]));
    }
}
