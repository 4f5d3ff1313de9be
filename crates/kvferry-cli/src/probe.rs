//! `kvferry probe`: whether two processes of this host can move bytes, each way that there is, and how fast.

use std::process::ExitCode;

use anyhow::Result;
use kvferry::Settings;
use serde_json::json;

use crate::{NONSENSE, output};

mod message;
mod sibling;
mod side;

use message::{Message, Moved, Refusal};
use sibling::Sibling;
pub(crate) use side::{SideArgs, side};

/// The mechanisms of one host, best first.
const MECHANISMS: [&str; 2] = ["map", "cma"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// MiB to move in each direction
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What became of one mechanism.
type Outcome = Result<Moved, Refusal>;

/// Tries each mechanism with a pair of processes of its own; the code is 1 if one of them does not work.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let settings = match kvferry::init_logging().and_then(|()| Settings::from_env()) {
        Ok(settings) => settings,
        Err(error) => {
            output::complain(&format!("error: {error}"));
            return Ok(ExitCode::from(NONSENSE));
        }
    };
    let mut outcomes = Vec::new();
    for mechanism in MECHANISMS {
        let outcome = match settings.refusal("same_host", mechanism) {
            Some(reason) => Err(Refusal::new("connect.path_required", reason)),
            None => try_mechanism(mechanism, args.mib)?,
        };
        outcomes.push((mechanism, outcome));
    }
    let works = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
    output::print(&if args.json { as_json(&outcomes, works) } else { as_text(&outcomes, args.mib) })?;
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn try_mechanism(mechanism: &str, mib: u32) -> Result<Outcome> {
    let mut target = Sibling::start("target", mechanism, mib)?;
    let offer = match target.read()? {
        Message::Refused(refusal) => return Ok(Err(refusal)),
        offer => offer,
    };
    let mut initiator = Sibling::start("initiator", mechanism, mib)?;
    initiator.write(&offer)?;
    let moved = match initiator.read()? {
        Message::Moved(moved) => moved,
        Message::Refused(refusal) => return Ok(Err(refusal)),
        other => return Err(initiator.unexpected(&other)),
    };
    target.write(&Message::Compare)?;
    match target.read()? {
        Message::Compared { equal: true } => Ok(Ok(moved)),
        Message::Compared { equal: false } => Ok(Err(Refusal::wrong_bytes("written"))),
        Message::Refused(refusal) => Ok(Err(refusal)),
        other => Err(target.unexpected(&other)),
    }
}

fn as_text(outcomes: &[(&str, Outcome)], mib: u32) -> String {
    outcomes
        .iter()
        .map(|(mechanism, outcome)| match outcome {
            Ok(Moved { path, mechanism, executor, write_gbps, read_gbps }) => format!(
                "{path} {mechanism}: WRITE {write_gbps:.2} GB/s, READ {read_gbps:.2} GB/s ({mib} MiB in {} KiB \
                 blocks, copied by the {executor}, every byte compared)\n",
                side::BLOCK >> 10,
            ),
            Err(Refusal { code, cause, remedy }) => {
                let code = if cause.contains(code.as_str()) { String::new() } else { format!(" ({code})") };
                format!("same_host {mechanism}: no: {cause}{code}\n  what to do: {remedy}\n")
            }
        })
        .collect()
}

fn as_json(outcomes: &[(&str, Outcome)], works: bool) -> String {
    let rows: Vec<_> = outcomes
        .iter()
        .map(|(mechanism, outcome)| match outcome {
            Ok(moved) => json!({
                "mechanism": mechanism, "ok": true, "path": moved.path, "executor": moved.executor,
                "write_gbps": moved.write_gbps, "read_gbps": moved.read_gbps,
            }),
            Err(refusal) => json!({
                "mechanism": mechanism, "ok": false, "code": refusal.code, "cause": refusal.cause,
                "remedy": refusal.remedy,
            }),
        })
        .collect();
    format!("{}\n", json!({ "ok": works, "same_host": rows }))
}

#[cfg(test)]
mod tests;
