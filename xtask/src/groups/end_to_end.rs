//! The demo as a user runs it: release build, real model, report checked.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::check;
use crate::demo;
use crate::model::{self, Model};
use crate::process::{self, Finished};
use crate::report::Outcome;
use crate::workspace::Workspace;

/// Longest that one run may take: three processes share two cores.
const RUN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Runs the demo whole, then with each side killed in the middle.
pub(super) fn run(workspace: &Workspace) -> Result<Outcome> {
    let model = match model::fetch(&workspace.target.join("model"))? {
        Model::Ready(path) => path,
        Model::Unavailable(reason) => {
            return Ok(Outcome::skipped("prefill and decode with the real model", reason));
        }
    };
    let built = check(&mut demo::build_command(workspace), "cargo build -p kvferry-demo")?;
    if !built.failed.is_empty() {
        return Ok(built);
    }

    let mut outcome = Outcome::default();
    let whole = run_demo(workspace, &model, &["--json"])?;
    outcome.merge(judge(&whole));
    for side in ["prefill", "decode"] {
        let name = format!("--kill {side}");
        let killed = run_demo(workspace, &model, &["--kill", side, "--json"])?;
        outcome.check(&name, judge_kill(&killed));
    }
    Ok(outcome)
}

fn run_demo(workspace: &Workspace, model: &Path, args: &[&str]) -> Result<Finished> {
    let mut command = Command::new(workspace.release_binary("kvferry-demo"));
    workspace.clean(&mut command);
    command.current_dir(&workspace.root).arg("--model").arg(model).args(args);
    println!("-- kvferry-demo {}", args.join(" "));
    process::run(&mut command, RUN_LIMIT).context("can't run kvferry-demo")
}

fn exit(finished: &Finished) -> Result<(), String> {
    if finished.timed_out {
        return Err("killed: it took too long".to_owned());
    }
    match finished.status.code() {
        Some(0) => Ok(()),
        _ => Err(format!("ended with {}", finished.status)),
    }
}

/// Checks that the survivor reported the death with its code, in time.
fn judge_kill(finished: &Finished) -> Result<(), String> {
    exit(finished)?;
    let kill = report(finished)?.get("kill").cloned().unwrap_or_default();
    if kill["ok"] == true && kill["code"] == "peer.lost" {
        Ok(())
    } else {
        Err(format!("the survivor's report is {kill}"))
    }
}

/// The object that `--json` promises as the last line.
fn report(finished: &Finished) -> Result<Value, String> {
    let last = finished.stdout.last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    last.filter(Value::is_object).ok_or_else(|| "the last line of stdout is no JSON object".to_owned())
}

/// Checks exit code and report of a whole run.
fn judge(finished: &Finished) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.check("exit code", exit(finished));
    let report = match report(finished) {
        Ok(report) => report,
        Err(fault) => {
            outcome.failed.push(fault);
            return outcome;
        }
    };
    let is = |key: &str, wanted: Value| match report.get(key) {
        Some(found) if *found == wanted => Ok(()),
        Some(found) => Err(format!("{found}, not {wanted}")),
        None => Err("missing in the report".to_owned()),
    };
    for key in ["tokens_equal", "logits_equal", "pages_equal"] {
        outcome.check(key, is(key, true.into()));
    }
    outcome.check("weights", is("weights", "smollm2".into()));
    outcome.check("path", is("path", "same_host".into()));
    let positive = |key: &str| match report.get(key).and_then(Value::as_f64) {
        Some(number) if number > 0.0 => Ok(()),
        found => Err(format!("{found:?} is not a positive number")),
    };
    for key in ["prompt_tokens", "kv_bytes", "blocks", "transfer_ms", "gbps", "ttft_ms"] {
        outcome.check(key, positive(key));
    }
    outcome
}

#[cfg(test)]
mod tests;
