//! The run that the split one is compared with: one process, one request after the other.

use std::time::Instant;

use anyhow::{Result, bail};

use super::{Crew, Progress};
use crate::control::{Order, Report, Role};
use crate::plan::Plan;
use crate::show::Show;
use crate::table;

/// Runs all requests through one process.
pub(super) fn run(plan: &Plan, show: &mut Show) -> Result<Progress> {
    let mut crew = Crew::start(plan, &[Role::Alone])?;
    crew.gather(|report| matches!(report, Report::Ready { .. }).then_some(()))?;
    let mut progress = Progress::new(plan.prompts.len());
    let begin = Instant::now();
    show.start_bar("alone", plan.prompt_tokens())?;
    for (request, prompt) in plan.prompts.iter().enumerate() {
        progress.started[request] = Some(Instant::now());
        crew.order(Role::Alone, &Order::Answer { request, prompt: prompt.clone() })?;
        answer(&mut crew, request, &mut progress, show)?;
    }
    show.end_bar();
    crew.finish()?;
    show.line(&format!(
        "alone: the same {} request(s) by one process in {:.1} s, {} tokens of answer",
        plan.prompts.len(),
        begin.elapsed().as_secs_f64(),
        table::count(progress.tracks.iter().map(|track| track.tokens.len()).sum())
    ))?;
    Ok(progress)
}

fn answer(crew: &mut Crew<'_>, request: usize, progress: &mut Progress, show: &mut Show) -> Result<()> {
    let mut before = 0;
    loop {
        match crew.next(&[Role::Alone])? {
            (_, Report::Chunk { done, .. }) => {
                show.advance_bar(done.saturating_sub(before));
                before = done;
            }
            (_, Report::Token { token, .. }) => {
                progress.token(crew.plan, request, token)?;
                let tokens = progress.tracks[request].tokens.len();
                show.say_on_bar(format!("answer: {tokens} of {}", crew.plan.tokens));
            }
            (_, Report::Prefilled { page_hashes, .. }) => progress.track(request)?.computed = page_hashes,
            (_, Report::Answered { logits, finite, .. }) => {
                let track = progress.track(request)?;
                (track.logits, track.finite) = (Some(logits), finite);
                return Ok(());
            }
            (role, _) => bail!("the {role} process reported out of turn"),
        }
    }
}
