//! The split run: prefill computes and sends, decode answers.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::{Crew, Progress};
use crate::control::{Order, Report, Role, Summary};
use crate::ferry::{Card, Route};
use crate::outcome::Link;
use crate::plan::Plan;
use crate::show::Show;
use crate::table;

/// Runs all requests through the two processes. Returns what is known of each, what moved, and how the two met.
pub(super) fn run(plan: &Plan, show: &mut Show) -> Result<(Progress, Summary, Vec<Link>)> {
    let mut crew = pair(plan)?;
    let progress = order(&mut crew)?;
    show.start_bar("prefill", plan.prompt_tokens())?;
    let mut split = Split {
        plan,
        show,
        progress,
        computed: vec![0; plan.prompts.len()],
        begin: Instant::now(),
        announced: false,
        sent: 0,
        prefilled: 0,
        answered: 0,
    };
    while split.prefilled < plan.prompts.len() || split.answered < plan.prompts.len() {
        let awaited = match split.prefilled < plan.prompts.len() {
            true => Role::Prefill,
            false => Role::Decode,
        };
        let (role, report) = crew.next(&[awaited])?;
        match report {
            Report::Lost { code, cause, .. } => {
                let error = anyhow!("the {role} process lost its peer: {cause} ({code})");
                return Err(crew.blame_the_dead(role, error));
            }
            Report::Failed { request, message, .. } => {
                let error = anyhow!("the {role} process gave up request {request}: {message}");
                return Err(crew.blame_the_dead(role, error));
            }
            report => split.take(role, report)?,
        }
    }
    let progress = split.progress;
    let summaries = crew.finish()?;
    let summary = summaries.into_iter().find(|(role, _)| *role == Role::Prefill);
    let (_, summary) = summary.context("prefill did not sum up")?;
    Ok((progress, summary, crew.links))
}

/// What the parent knows and shows while the two processes work.
struct Split<'a> {
    plan: &'a Plan,
    show: &'a mut Show,
    progress: Progress,
    /// Tokens of each prompt that prefill has computed.
    computed: Vec<usize>,
    begin: Instant,
    /// Whether the end of prefill was shown.
    announced: bool,
    /// Pages on their way or there.
    sent: usize,
    /// Requests whose pages have all landed.
    prefilled: usize,
    /// Requests whose answer is complete.
    answered: usize,
}

impl Split<'_> {
    fn take(&mut self, role: Role, report: Report) -> Result<()> {
        match report {
            Report::Chunk { request, done } => self.chunk(request, done),
            Report::Posted { pages, .. } => {
                self.sent += pages;
                self.show.say_on_bar(format!("{} of {} pages sent", self.sent, self.plan.moved_pages()));
                Ok(())
            }
            Report::Prefilled { request, page_hashes } => {
                self.progress.track(request)?.computed = page_hashes;
                self.prefilled += 1;
                Ok(())
            }
            Report::Received { request, page_hashes } => {
                self.progress.track(request)?.received = page_hashes;
                Ok(())
            }
            Report::Token { request, token } => self.token(request, token),
            Report::Answered { request, logits, finite } => {
                let track = self.progress.track(request)?;
                (track.logits, track.finite) = (Some(logits), finite);
                self.answered += 1;
                self.show_answer(request)
            }
            _ => bail!("the {role} process reported out of turn"),
        }
    }

    fn chunk(&mut self, request: usize, done: usize) -> Result<()> {
        let before = self.computed.get_mut(request).context("a chunk of no request")?;
        self.show.advance_bar(done.saturating_sub(*before));
        *before = done;
        match self.computed.iter().sum::<usize>() == self.plan.prompt_tokens() {
            true => self.announce(),
            false => Ok(()),
        }
    }

    fn token(&mut self, request: usize, token: u32) -> Result<()> {
        let piece = self.progress.token(self.plan, request, token)?;
        // Several answers at once are shown one by one when they are complete.
        if self.plan.prompts.len() > 1 {
            return Ok(());
        }
        if self.progress.tracks[request].tokens.len() == 1 {
            // The news of the last chunk comes through another pipe, perhaps later.
            self.announce()?;
            self.show.line("decode:")?;
        }
        self.show.text(&piece)
    }

    fn announce(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.announced, true) {
            return Ok(());
        }
        self.show.end_bar();
        let seconds = self.begin.elapsed().as_secs_f64();
        let tokens = table::count(self.plan.prompt_tokens());
        self.show.line(&format!("prefill: {tokens} tokens in {seconds:.1} s"))
    }

    fn show_answer(&mut self, request: usize) -> Result<()> {
        if self.plan.prompts.len() == 1 {
            return Ok(());
        }
        let text = self.plan.tokenizer.decode(&self.progress.tracks[request].tokens)?;
        self.show.line(&format!("decode, request {request}:\n{text}"))
    }
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
    let met = crew.gather(|report| match report {
        Report::Met { route } => Some(route),
        _ => None,
    })?;
    let link = |(from, route): (Role, Option<Route>)| {
        let to = if from == Role::Prefill { Role::Decode } else { Role::Prefill };
        route.map(|Route { path, mechanism }| Link {
            from: from.to_string(),
            to: to.to_string(),
            path,
            mechanism,
            address: plan.address(to),
        })
    };
    crew.links = met.into_iter().filter_map(link).collect();
    crew.links.sort_by_key(|link| link.from != Role::Prefill.to_string());
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
