//! The split run: prefill computes and sends, decode answers.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::{Crew, Progress};
use crate::control::{Order, Report, Role, Summary};
use crate::ferry::Card;
use crate::plan::Plan;
use crate::show::Show;
use crate::table;

/// Runs all requests through the two processes. Returns what is known of each, and what moved.
pub(super) fn run(plan: &Plan, show: &mut Show) -> Result<(Progress, Summary)> {
    let mut crew = pair(plan)?;
    let mut progress = order(&mut crew)?;
    let mut prefilled = 0;
    let mut answered = 0;
    let mut sent = 0;
    let mut done = vec![0; plan.prompts.len()];
    let begin = Instant::now();
    show.start_bar("prefill", plan.prompt_tokens());
    while prefilled < plan.prompts.len() || answered < plan.prompts.len() {
        let awaited = match prefilled < plan.prompts.len() {
            true => Role::Prefill,
            false => Role::Decode,
        };
        let (role, report) = crew.next(&[awaited])?;
        match report {
            Report::Chunk { request, done: tokens } => {
                let before = done.get_mut(request).context("a chunk of no request")?;
                show.advance_bar(tokens.saturating_sub(*before));
                *before = tokens;
                if done.iter().sum::<usize>() == plan.prompt_tokens() {
                    show.end_bar();
                    show.line(&format!(
                        "prefill: {} tokens in {:.1} s",
                        table::count(plan.prompt_tokens()),
                        begin.elapsed().as_secs_f64()
                    ))?;
                }
            }
            Report::Posted { pages, .. } => {
                sent += pages;
                show.say_on_bar(format!("{sent} of {} pages sent", plan.moved_pages()));
            }
            Report::Prefilled { request, page_hashes } => {
                progress.track(request)?.computed = page_hashes;
                prefilled += 1;
            }
            Report::Received { request, page_hashes } => progress.track(request)?.received = page_hashes,
            Report::Token { request, token } => {
                let piece = progress.token(plan, request, token)?;
                // Several answers at once are shown one by one when they are complete.
                if plan.prompts.len() == 1 {
                    if progress.tracks[request].tokens.len() == 1 {
                        show.line("decode:")?;
                    }
                    show.text(&piece)?;
                }
            }
            Report::Answered { request, logits, finite } => {
                let track = progress.track(request)?;
                (track.logits, track.finite) = (Some(logits), finite);
                answered += 1;
                if plan.prompts.len() > 1 {
                    let text = plan.tokenizer.decode(&progress.tracks[request].tokens)?;
                    show.line(&format!("decode, request {request}:\n{text}"))?;
                }
            }
            Report::Lost { code, cause, .. } => {
                let error = anyhow!("the {role} process lost its peer: {cause} ({code})");
                return Err(crew.blame_the_dead(role, error));
            }
            Report::Failed { request, code, message } => {
                let error = anyhow!("the {role} process gave up request {request}: {message} ({code})");
                return Err(crew.blame_the_dead(role, error));
            }
            Report::Ready { .. } | Report::Reserved { .. } | Report::Met | Report::Summary(_) => {
                bail!("the {role} process reported out of turn")
            }
        }
    }
    let summaries = crew.finish()?;
    let summary = summaries.into_iter().find(|(role, _)| *role == Role::Prefill);
    let (_, summary) = summary.context("prefill did not sum up")?;
    Ok((progress, summary))
}

/// Starts both processes and brings them together.
pub(super) fn pair(plan: &Plan) -> Result<Crew<'_>> {
    let mut crew = Crew::start(plan, &[Role::Prefill, Role::Decode])?;
    let cards = crew.gather(|report| match report {
        Report::Ready { card: Some(card) } => Some(card),
        _ => None,
    })?;
    let card = |of: Role| -> Result<Card> {
        let found = cards.iter().find(|(role, _)| *role == of);
        Ok(found.with_context(|| format!("the {of} process has no card"))?.1.clone())
    };
    crew.order(Role::Prefill, &Order::Meet(card(Role::Decode)?))?;
    crew.order(Role::Decode, &Order::Meet(card(Role::Prefill)?))?;
    crew.gather(|report| matches!(report, Report::Met).then_some(()))?;
    Ok(crew)
}

/// Sets pages aside at decode and hands all prompts to prefill.
pub(super) fn order(crew: &mut Crew<'_>) -> Result<Progress> {
    let plan = crew.plan;
    let mut progress = Progress::new(plan.prompts.len());
    let mut reserved = Vec::with_capacity(plan.prompts.len());
    for (request, prompt) in plan.prompts.iter().enumerate() {
        let tokens = prompt.len() + plan.tokens;
        crew.order(Role::Decode, &Order::Reserve { request, tokens })?;
        match crew.next(&[Role::Decode])? {
            (Role::Decode, Report::Reserved { request: of, pages }) if of == request => reserved.push(pages),
            (role, _) => bail!("the {role} process reported out of turn"),
        }
    }
    for (request, (prompt, pages)) in plan.prompts.iter().zip(reserved).enumerate() {
        progress.started[request] = Some(Instant::now());
        crew.order(Role::Prefill, &Order::Prefill { request, prompt: prompt.clone(), pages })?;
    }
    Ok(progress)
}
