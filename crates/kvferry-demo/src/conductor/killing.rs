//! The run with `--kill`: one side dies in the middle of the transfers, the other has to tell.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{nothing_moved, split};
use crate::cli::Side;
use crate::control::{Report, Role};
use crate::outcome::{KillOutcome, Outcome};
use crate::plan::Plan;
use crate::show::Show;
use crate::stamp::{Stamp, millis};

/// What the engine promises for the death of a peer: from its death on the same host, from the end of its connections on a wire.
const BOUND: Duration = Duration::from_millis(10);
/// What is let pass here: prefill keeps all cores busy, and the survivor has to be scheduled.
const ALLOWED: Duration = Duration::from_millis(100);
/// The same on a wire: connections end once the memory of the dead process, with its weights, is taken apart.
const ALLOWED_ON_A_WIRE: Duration = Duration::from_millis(500);

/// The code of an error that says so.
const LOST: &str = "peer.lost";
/// On a wire, a transfer that ran may end with its connection, before it is known that the peer is gone.
const BROKEN: &str = "link.lost";

/// Kills `side` when half of the transfers are posted. Good is that the other side notices in
/// time, ends all its requests with a typed error, and lives on.
pub(super) fn run(plan: &Plan, side: Side, show: &mut Show) -> Result<(bool, Outcome)> {
    let (killed, survivor) = match side {
        Side::Prefill => (Role::Prefill, Role::Decode),
        Side::Decode => (Role::Decode, Role::Prefill),
    };
    let mut crew = split::pair(plan)?;
    split::order(&mut crew)?;
    let mut posted = 0;
    let middle = plan.transfers() / 2;
    while posted < middle {
        match crew.next(&[Role::Prefill])? {
            (_, Report::Posted { .. }) => posted += 1,
            (_, Report::Chunk { .. } | Report::Token { .. }) => {}
            (_, Report::Received { .. } | Report::Prefilled { .. } | Report::Answered { .. }) => {}
            (role, report) => bail!("the {role} process reported out of turn: {report:?}"),
        }
    }
    let at = Stamp::now();
    crew.worker(killed)?.kill()?;
    crew.closed.push(killed);
    show.line(&format!(
        "killed the {killed} process (SIGKILL) with {posted} of {} transfers posted",
        plan.transfers()
    ))?;

    let mut noticed = None;
    let mut failure = None;
    while noticed.is_none() || failure.is_none() {
        match crew.next(&[survivor])? {
            (_, Report::Lost { cause, at: when, .. }) => {
                noticed.get_or_insert_with(|| (when.since(at), cause));
            }
            (_, Report::Failed { request, code, message }) => {
                failure.get_or_insert((request, code, message));
            }
            _ => {}
        }
    }
    crew.finish()?;
    let (Some((after, cause)), Some((request, code, message))) = (noticed, failure) else {
        bail!("the {survivor} process did not tell");
    };
    let wire = crew.links.iter().any(|link| link.path == "tcp");
    let allowed = if wire { ALLOWED_ON_A_WIRE } else { ALLOWED };
    let ok = after <= allowed && (code == LOST || wire && code == BROKEN);
    show.line(&format!(
        "the {survivor} process noticed after {:.2} ms (promised: {} ms; let pass on busy cores: {} ms): {cause}",
        millis(after),
        BOUND.as_millis(),
        allowed.as_millis()
    ))?;
    show.line(&format!("request {request} there ended with {code}: {message}"))?;
    show.line(match ok {
        true => "the survivor told in time, lived on and ended in good order",
        false => "FAILED: the survivor told too late, or not that its peer was lost",
    })?;
    let kill = KillOutcome {
        killed: killed.to_string(),
        survivor: survivor.to_string(),
        code: Some(code),
        cause: Some(cause),
        noticed_ms: Some(millis(after)),
        bound_ms: millis(BOUND),
        allowed_ms: millis(allowed),
        ok,
    };
    let links = std::mem::take(&mut crew.links);
    Ok((ok, Outcome { kill: Some(kill), links, ..nothing_moved(plan) }))
}
