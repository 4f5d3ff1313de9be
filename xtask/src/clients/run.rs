//! One run of a client in one mode: bounded, logged, judged.

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Client, Mode, Owner, Program, Setup};
use crate::process::{self, Finished};
use crate::workspace::Workspace;

/// Variables of the caller's shell that would make a run another one.
const FOREIGN: [&str; 6] = ["UCX_", "NIXL_", "SGLANG_", "VLLM_", "LMCACHE_", "PYTHON"];

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    /// It can't be run, and why.
    NotRun(String),
    /// Nobody asked.
    Unknown,
}

/// The file that a mode runs, if it runs one.
pub(super) fn path(workspace: &Workspace, clients: &Path, program: Program) -> Option<PathBuf> {
    match program {
        Program::Shared(name) => Some(clients.join(name)),
        Program::Own(name) => Some(workspace.root.join("python/clients").join(name)),
        Program::Missing(_) => None,
    }
}

/// Runs a mode to its end, the output in its log, and judges it.
///
/// # Errors
/// It can't even be started, or the log can't be written.
pub(super) fn run(setup: &Setup<'_>, client: &Client, mode: &Mode) -> Result<(Verdict, Duration)> {
    let work = setup.work(&mode.name)?;
    let log = setup.log(&mode.name);
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("can't make {}", dir.display()))?;
    }
    let mut file =
        BufWriter::new(File::create(&log).with_context(|| format!("can't write {}", log.display()))?);
    let mut python = command(setup, mode, &work);
    println!("-- {} {}, {}, with {}", client.title, client.version, mode.name, setup.owner().name());
    writeln!(file, "{python:?}")?;
    let started = Instant::now();
    let finished = process::run_with(&mut python, mode.limit, |line| {
        // A log that can't be written is no reason to stop the run.
        let _ = writeln!(file, "{}", line.text()).and_then(|()| file.flush());
    });
    let took = started.elapsed();
    let finished = finished.with_context(|| format!("can't run {}", python.get_program().display()))?;
    writeln!(file, "ended with {} after {:.1} s", finished.status, took.as_secs_f64())?;
    let verdict = judge(mode.verdict, setup.owner(), &finished);
    let seconds = took.as_secs_f64();
    match &verdict {
        Verdict::Failed(why) => println!("   FAILED in {seconds:.1} s: {why}; see {}", log.display()),
        Verdict::NotRun(why) => println!("   can't run here: {why}"),
        _ => println!("   passed in {seconds:.1} s"),
    }
    Ok((verdict, took))
}

fn command(setup: &Setup<'_>, mode: &Mode, work: &Path) -> Command {
    let mut python = Command::new(setup.python());
    setup.workspace().clean(&mut python);
    for (name, _) in env::vars_os() {
        if FOREIGN.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            python.env_remove(&name);
        }
    }
    let directory =
        mode.directory.as_ref().map_or_else(|| work.to_path_buf(), |dir| setup.fill(dir, work).into());
    python.current_dir(directory);
    python.args(path(setup.workspace(), setup.clients(), mode.program));
    python.args(mode.args.iter().map(|arg| setup.fill(arg, work)));
    // Processes of this machine find each other without a proxy.
    python.env("NO_PROXY", "127.0.0.1,localhost").env("no_proxy", "127.0.0.1,localhost");
    python.env("TMPDIR", work).env("PYTHONUNBUFFERED", "1");
    let own = if setup.owner() == Owner::Ours { &mode.ours } else { &mode.stock };
    for (name, value) in mode.variables.iter().chain(own) {
        python.env(name, setup.fill(value, work));
    }
    python
}

/// Whether a run was good: the line, and with kvferry the code too.
fn judge(verdict: &str, owner: Owner, finished: &Finished) -> Verdict {
    let status = finished.status;
    if finished.timed_out {
        return Verdict::Failed("killed: it took too long".to_owned());
    }
    let good_end = owner == Owner::Stock || status.success();
    let result = finished.stdout.iter().rev().find_map(|line| line.trim().strip_prefix("RESULT "));
    if finished.stdout.iter().any(|line| line.trim() == verdict) {
        return match good_end {
            true => Verdict::Passed,
            false => Verdict::Failed(format!("its work was good, but it ended with {status}")),
        };
    }
    match result.map(|result| (result, result.strip_prefix("SKIP: "))) {
        Some((_, Some(why))) if good_end => Verdict::NotRun(why.to_owned()),
        Some((result, _)) => Verdict::Failed(result.to_owned()),
        None => Verdict::Failed(format!("no verdict, ended with {status}")),
    }
}

#[cfg(test)]
mod tests;
