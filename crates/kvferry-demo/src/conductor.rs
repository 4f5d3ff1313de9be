//! The parent: starts the workers, brings them together, and compares what they did.

mod alone;
mod killing;
mod split;

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Result, bail};
use indicatif::HumanBytes;
use kvferry_hosts::ADDRESSES;

use crate::child::{Heard, Said, Worker};
use crate::control::{Order, Report, Role, Summary};
use crate::outcome::{Link, Outcome};
use crate::plan::Plan;
use crate::show::Show;
use crate::stamp::thousandths;
use crate::table;
use crate::tokenizer::Stream;
use crate::verify::{self, Track};
use crate::weights::Source;

/// Runs the plan and shows it. Returns whether all is as it should be.
pub(crate) fn run(plan: &Plan) -> Result<bool> {
    let mut show = Show::new();
    introduce(plan, &mut show)?;
    let (good, outcome) = match plan.kill {
        Some(side) => killing::run(plan, side, &mut show)?,
        None => prove(plan, &mut show)?,
    };
    if plan.json {
        show.line(&serde_json::to_string(&outcome)?)?;
    }
    Ok(good)
}

/// The whole demo: split, alone, compared.
fn prove(plan: &Plan, show: &mut Show) -> Result<(bool, Outcome)> {
    let (split, summary, links) = split::run(plan, show)?;
    let alone = alone::run(plan, show)?;
    let (verdict, sentences) =
        verify::compare(&split.tracks, &alone.tracks, plan.shape.pools(), plan.page_size);
    let outcome = Outcome {
        tokens_equal: Some(verdict.tokens),
        logits_equal: Some(verdict.logits),
        pages_equal: Some(verdict.pages),
        ttft_ms: split.first_token_ms(),
        ttft_alone_ms: alone.first_token_ms(),
        answer_tokens: Some(split.tracks.iter().map(|track| track.tokens.len()).sum()),
        decode_tokens_per_s: split.tokens_per_s(),
        logits_hash: split.tracks[0].logits.map(|hash| hash.short()),
        links,
        ..moved(plan, summary)
    };
    let block_bytes = plan.shape.page_bytes(plan.page_size);
    show.line("")?;
    if plan.prompts.len() > 1 {
        show.line(&table::requests(&plan.prompts, plan.page_size, &split.tracks))?;
    }
    show.line(&table::figures(&outcome, plan.shape.layers, block_bytes))?;
    if verdict.equal() {
        show.line(&format!(
            "identical to one process alone: {} tokens, the bits of all logits, the bytes of {} moved blocks",
            table::count(outcome.answer_tokens.unwrap_or_default()),
            table::count(plan.moved_pages() * plan.shape.pools()),
        ))?;
    } else {
        for sentence in sentences {
            show.line(&format!("DIFFERENT: {sentence}"))?;
        }
    }
    Ok((verdict.equal(), outcome))
}

fn introduce(plan: &Plan, show: &mut Show) -> Result<()> {
    let shape = &plan.shape;
    let sizes = format!("{} layers, {} KV heads of {}, f32", shape.layers, shape.kv_heads, shape.head_dim);
    show.line(&match &plan.source {
        Source::Gguf(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("kvferry demo: weights: smollm2 ({name}), {sizes}")
        }
        Source::Random { seed, .. } => format!(
            "kvferry demo: weights: random (seed {seed}, no model file was given, so the answer is noise), {sizes}"
        ),
    })?;
    show.line(&format!(
        "{} prompt tokens in {} request(s), pages of {} tokens, blocks of {}, answers of up to {} tokens",
        table::count(plan.prompt_tokens()),
        plan.prompts.len(),
        plan.page_size,
        HumanBytes(shape.page_bytes(plan.page_size) as u64),
        plan.tokens
    ))?;
    match &plan.hosts {
        None => Ok(()),
        Some(_) => show.line(&format!(
            "two hosts, each a network namespace: prefill at {}, decode at {}",
            ADDRESSES[0], ADDRESSES[1]
        )),
    }
}

/// What a summary of prefill says of the transfers.
fn moved(plan: &Plan, summary: Summary) -> Outcome {
    let (path, mechanism) = match summary.route {
        Some(route) => (Some(route.path), Some(route.mechanism)),
        None => (None, None),
    };
    let gbps = thousandths(summary.bytes as f64 / summary.transfer_ms / 1e6);
    Outcome {
        prompt_tokens: plan.prompt_tokens(),
        kv_bytes: Some(summary.bytes),
        blocks: Some(summary.blocks),
        path,
        mechanism,
        transfer_ms: Some(summary.transfer_ms),
        hidden_ms: Some(summary.hidden_ms),
        gbps: gbps.is_finite().then_some(gbps),
        transfers: Some(summary.transfers),
        merged_blocks: Some(summary.merged),
        copy_ms: Some(summary.copy_ms),
        ..nothing_moved(plan)
    }
}

/// What is known before anything runs.
fn nothing_moved(plan: &Plan) -> Outcome {
    Outcome {
        weights: match plan.source {
            Source::Gguf(_) => "smollm2",
            Source::Random { .. } => "random",
        },
        prompt_tokens: plan.prompt_tokens(),
        requests: plan.prompts.len(),
        pages: plan.moved_pages(),
        page_size: plan.page_size,
        ..Outcome::default()
    }
}

/// The workers of one run and what comes from them.
struct Crew<'a> {
    plan: &'a Plan,
    workers: Vec<(Role, Worker)>,
    heard: Receiver<Heard>,
    /// Workers that have summed up or were killed on purpose: what still comes is of no interest.
    closed: Vec<Role>,
    /// How the workers reach each other.
    links: Vec<Link>,
}

impl<'a> Crew<'a> {
    /// Starts a worker for each role and hands it the set-up.
    fn start(plan: &'a Plan, roles: &[Role]) -> Result<Self> {
        let (tell, heard) = channel();
        let mut crew = Self { plan, workers: Vec::new(), heard, closed: Vec::new(), links: Vec::new() };
        for &role in roles {
            crew.workers.push((role, Worker::start(role, plan.host(role), tell.clone())?));
            crew.order(role, &Order::Setup(plan.setup(role)))?;
        }
        Ok(crew)
    }

    fn order(&mut self, role: Role, order: &Order) -> Result<()> {
        self.worker(role)?.order(order)
    }

    fn worker(&mut self, role: Role) -> Result<&mut Worker> {
        let worker = self.workers.iter_mut().find(|(is, _)| *is == role);
        worker.map(|(_, worker)| worker).ok_or_else(|| anyhow::anyhow!("there is no {role} process"))
    }

    /// The next report, waited for within the bounds of patience. `awaited` are those who would
    /// be to blame for silence.
    fn next(&mut self, awaited: &[Role]) -> Result<(Role, Report)> {
        let deadline = Instant::now() + self.plan.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(heard) if self.closed.contains(&heard.role) => {}
                Ok(Heard { role, said: Said::Report(report) }) => return Ok((role, report)),
                Ok(Heard { role, said: Said::Garbled(error) }) => {
                    return Err(self.worker(role)?.obituary(&format!("spoke nonsense ({error})")));
                }
                Ok(Heard { role, said: Said::Closed }) => {
                    return Err(self.worker(role)?.obituary("closed its output"));
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.silence(awaited)),
                Err(RecvTimeoutError::Disconnected) => bail!("no process is left to listen to"),
            }
        }
    }

    /// Waits for the same kind of report from all workers.
    fn gather<T>(&mut self, pick: impl Fn(Report) -> Option<T>) -> Result<Vec<(Role, T)>> {
        let mut gathered: Vec<(Role, T)> = Vec::new();
        while gathered.len() < self.workers.len() {
            let missing = self.roles(|role| gathered.iter().all(|(from, _)| *from != role));
            let (role, report) = self.next(&missing)?;
            match pick(report) {
                Some(value) => gathered.push((role, value)),
                None => bail!("the {role} process reported out of turn"),
            }
        }
        Ok(gathered)
    }

    /// Tells all workers that are left to end, and waits until they have. Returns their summaries.
    fn finish(&mut self) -> Result<Vec<(Role, Summary)>> {
        let closed = &self.closed;
        self.workers.retain(|(role, _)| !closed.contains(role));
        for (_, worker) in &mut self.workers {
            worker.order(&Order::Finish)?;
        }
        let mut summaries: Vec<(Role, Summary)> = Vec::new();
        while summaries.len() < self.workers.len() {
            let missing = self.roles(|role| summaries.iter().all(|(from, _)| *from != role));
            // What came before the order, such as the news that the peer is gone, is of no interest.
            if let (role, Report::Summary(summary)) = self.next(&missing)? {
                self.closed.push(role);
                summaries.push((role, summary));
            }
        }
        for (role, worker) in &mut self.workers {
            let status = worker.end(self.plan.patience)?;
            if !status.success() {
                return Err(worker.obituary(&format!("ended as {role} with {status}")));
            }
        }
        Ok(summaries)
    }

    fn roles(&self, of_interest: impl Fn(Role) -> bool) -> Vec<Role> {
        self.workers.iter().map(|(role, _)| *role).filter(|role| of_interest(*role)).collect()
    }

    /// An error for when those who were to speak did not.
    fn silence(&mut self, awaited: &[Role]) -> anyhow::Error {
        let fates = self.workers.iter_mut().filter(|(role, _)| awaited.contains(role));
        let fates: Vec<String> = fates.map(|(_, worker)| worker.obituary("hangs").to_string()).collect();
        anyhow::anyhow!("nothing was heard for {:?}: {}", self.plan.patience, fates.join("; "))
    }

    /// `error` of the worker `role`, or what became of its peer if that is dead: the true cause.
    fn blame_the_dead(&mut self, role: Role, error: anyhow::Error) -> anyhow::Error {
        let others = self.workers.iter_mut().filter(|(other, _)| *other != role);
        match others.map(|(_, worker)| worker).find_map(Worker::death) {
            Some(death) => death.context(error),
            None => error,
        }
    }
}

/// What is known of the requests while they run.
struct Progress {
    tracks: Vec<Track>,
    started: Vec<Option<Instant>>,
    first_token: Vec<Option<Instant>>,
    last_token: Option<Instant>,
    streams: Vec<Stream>,
}

impl Progress {
    fn new(requests: usize) -> Self {
        Self {
            tracks: vec![Track::default(); requests],
            started: vec![None; requests],
            first_token: vec![None; requests],
            last_token: None,
            streams: (0..requests).map(|_| Stream::default()).collect(),
        }
    }

    fn track(&mut self, request: usize) -> Result<&mut Track> {
        match self.tracks.get_mut(request) {
            Some(track) => Ok(track),
            None => bail!("a process reported on request {request}, which does not exist"),
        }
    }

    /// Notes a token; returns the text that it completes.
    fn token(&mut self, plan: &Plan, request: usize, token: u32) -> Result<String> {
        let now = Instant::now();
        self.track(request)?.tokens.push(token);
        self.first_token[request].get_or_insert(now);
        self.last_token = Some(now);
        self.streams[request].push(&plan.tokenizer, token)
    }

    /// Mean time from the order to the first token, in milliseconds.
    fn first_token_ms(&self) -> Option<f64> {
        let times = self.started.iter().zip(&self.first_token);
        let times: Option<Vec<f64>> = times
            .map(|(start, first)| Some(first.as_ref()?.duration_since(*start.as_ref()?).as_secs_f64() * 1e3))
            .collect();
        times
            .filter(|times| !times.is_empty())
            .map(|times| thousandths(times.iter().sum::<f64>() / times.len() as f64))
    }

    /// Tokens a second after the first of each request.
    fn tokens_per_s(&self) -> Option<f64> {
        let tokens: usize = self.tracks.iter().map(|track| track.tokens.len().saturating_sub(1)).sum();
        let first = self.first_token.iter().flatten().min()?;
        let seconds = self.last_token?.duration_since(*first).as_secs_f64();
        (tokens > 0 && seconds > 0.0).then(|| thousandths(tokens as f64 / seconds))
    }
}
