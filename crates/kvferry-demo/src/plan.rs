//! What a run will do, checked before any process starts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::HumanBytes;
use kvferry_hosts::{ADDRESSES, Hosts};

use crate::cli::{Cli, Side};
use crate::control::{Flip, Memory, PathChoice, Role, Setup};
use crate::paths;
use crate::shape::Shape;
use crate::tokenizer::Tokenizer;
use crate::weights::{Gguf, Source};

/// Names a model file where `--model` does not.
const MODEL_VARIABLE: &str = "KVFERRY_DEMO_MODEL";
/// Seed of a random model.
const SEED: u64 = 7;
/// More bytes than any prompt of the context has.
const LONGEST_PROMPT: u64 = 1 << 20;
/// Pages that stay free, so that shuffled ones are scattered also with a single request.
const SPARE_PAGES: usize = 8;

/// The passage that the model reads unless told otherwise.
const PASSAGE: &str = include_str!("../../../assets/alice.txt");
/// What is asked about it, request by request.
const QUESTIONS: [&str; 4] = [
    "What happens to Alice in this story?",
    "Tell the story so far in your own words.",
    "Who is Dinah?",
    "What does Alice think of on her way down?",
];
/// Bytes of the passage for a random model, whose tokens are single bytes.
const PASSAGE_BYTES: usize = 1_200;

/// A mistake of the user's, with how to mend it. Ends the program with 2.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// A checked run.
pub(crate) struct Plan {
    pub(crate) source: Source,
    pub(crate) shape: Shape,
    pub(crate) tokenizer: Tokenizer,
    /// Tokens of each request's prompt.
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) tokens: usize,
    pub(crate) page_size: usize,
    pub(crate) chunk: usize,
    pub(crate) memory: Memory,
    /// The only path that may carry the pages.
    path: Option<PathChoice>,
    /// Two hosts for the two sides.
    pub(crate) hosts: Option<Hosts>,
    pub(crate) kill: Option<Side>,
    pub(crate) flip: Option<Flip>,
    pub(crate) hang: Option<Role>,
    pub(crate) json: bool,
    pub(crate) patience: Duration,
}

impl Plan {
    /// Checks what the user wants; every error of the user's is a [`Misuse`].
    pub(crate) fn new(cli: &Cli) -> Result<Self> {
        let (source, shape, tokenizer) = model(cli)?;
        let mut plan = Self {
            prompts: prompts(cli, &tokenizer)?,
            source,
            shape,
            tokenizer,
            tokens: cli.tokens,
            page_size: cli.page_size,
            chunk: cli.chunk,
            memory: cli.memory,
            path: if cli.netns { cli.path.or(Some(PathChoice::Tcp)) } else { cli.path },
            hosts: None,
            kill: cli.kill,
            flip: cli.flip_bit,
            hang: cli.hang,
            json: cli.json,
            patience: cli.patience(),
        };
        plan.check(cli.netns)?;
        if cli.netns {
            plan.hosts = Some(hosts()?);
        }
        Ok(plan)
    }

    /// What the workers of `role` need to know.
    pub(crate) fn setup(&self, role: Role) -> Setup {
        let pages = |extra: usize| -> usize {
            let tokens = self.prompts.iter().map(|prompt| prompt.len() + extra);
            tokens.map(|tokens| tokens.div_ceil(self.page_size)).sum()
        };
        let pages = match role {
            Role::Prefill => pages(0),
            Role::Decode | Role::Alone => pages(self.tokens),
        };
        Setup {
            source: self.source.clone(),
            page_size: self.page_size,
            chunk: self.chunk,
            pages: pages + SPARE_PAGES,
            tokens: self.tokens,
            end: self.tokenizer.end(),
            memory: self.memory,
            path: self.path,
            address: self.address(role),
            flip: self.flip.filter(|_| role == Role::Decode),
            hang: self.hang == Some(role),
        }
    }

    /// The host of a process, where there are two.
    pub(crate) fn host(&self, role: Role) -> Option<(&Hosts, usize)> {
        let host = match role {
            Role::Prefill => 0,
            Role::Decode => 1,
            Role::Alone => return None,
        };
        self.hosts.as_ref().map(|hosts| (hosts, host))
    }

    /// Where the peer of a process is told to connect, unless its settings say.
    pub(crate) fn address(&self, role: Role) -> Option<String> {
        match self.host(role) {
            Some((_, host)) => Some(ADDRESSES[host].to_owned()),
            None if self.path == Some(PathChoice::Tcp) && !paths::is_addressed() => {
                Some(paths::LOOPBACK.to_owned())
            }
            None => None,
        }
    }

    /// Tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum()
    }

    /// Pages that move, over all requests, each counted once for all layers.
    pub(crate) fn moved_pages(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.len().div_ceil(self.page_size)).sum()
    }

    /// Transfers that prefill posts for all requests.
    pub(crate) fn transfers(&self) -> usize {
        self.prompts.iter().map(|prompt| self.transfers_of(prompt.len())).sum()
    }

    fn transfers_of(&self, tokens: usize) -> usize {
        let mut posted = 0;
        let mut transfers = 0;
        for done in (self.chunk..tokens).step_by(self.chunk) {
            let complete = done / self.page_size;
            transfers += usize::from(complete > posted);
            posted = complete;
        }
        transfers + 1
    }

    /// Bytes of weights and KV pools of prefill and decode together; none beyond all measure.
    fn memory_wanted(&self) -> Option<u64> {
        let pages = self.setup(Role::Prefill).pages.checked_add(self.setup(Role::Decode).pages)?;
        let pools = pages.checked_mul(self.shape.pools() * self.shape.page_bytes(self.page_size))?;
        u64::try_from(pools.checked_add(2 * self.shape.weight_bytes())?).ok()
    }

    fn check_memory(&self, available: Option<u64>) -> Result<()> {
        match (self.memory_wanted(), available) {
            (Some(wanted), Some(available)) if wanted > available => misuse(format!(
                "two processes with weights and KV pools for these requests need {}, but only {} are free; \
                 give fewer --requests or a shorter prompt",
                HumanBytes(wanted),
                HumanBytes(available)
            )),
            _ => Ok(()),
        }
    }

    fn check(&self, netns: bool) -> Result<()> {
        let longest = self.prompts.iter().map(Vec::len).max().unwrap_or_default();
        if longest + self.tokens > self.shape.context {
            return misuse(format!(
                "the prompt is {longest} tokens long and {} are to follow, but the model's context holds {}; \
                 give a shorter prompt or fewer --tokens",
                self.tokens, self.shape.context
            ));
        }
        if let Some(flip) = self.flip {
            let pages = self.prompts[0].len().div_ceil(self.page_size);
            let bits = 2 * 8 * self.shape.page_bytes(self.page_size);
            if flip.layer >= self.shape.layers || flip.page >= pages || flip.bit >= bits {
                return misuse(format!(
                    "--flip-bit {}:{}:{} names no bit that moves: layers go up to {}, pages to {}, bits to {}",
                    flip.layer,
                    flip.page,
                    flip.bit,
                    self.shape.layers - 1,
                    pages - 1,
                    bits - 1
                ));
            }
        }
        if self.kill.is_some() && self.transfers() < 3 {
            return misuse(format!(
                "all pages of this prompt move in {} transfer(s), so --kill has no middle to hit; \
                 give a longer prompt, a smaller --chunk or a smaller --page-size",
                self.transfers()
            ));
        }
        self.check_memory(available_memory())?;
        // The workers take their settings from the environment too; a mistake there is told here.
        let settings = kvferry::init_logging().and_then(|()| kvferry::Settings::from_env());
        let settings = settings.map_err(anyhow::Error::from);
        match settings.and_then(|settings| paths::settings(settings, self.path, None)) {
            Err(error) => misuse(error.to_string()),
            Ok(_) if netns && self.path == Some(PathChoice::SameHost) => misuse(
                "--netns makes two hosts, and between hosts there is no same_host; leave --path out, or give --path tcp"
                    .to_owned(),
            ),
            Ok(_) => Ok(()),
        }
    }
}

/// An error of the user's.
fn misuse<T>(message: String) -> Result<T> {
    Err(Misuse(message).into())
}

/// Two hosts on this one.
fn hosts() -> Result<Hosts> {
    const MTU: u32 = 1_500;
    Hosts::new(MTU)
        .or_else(|reason| misuse(format!("--netns: {reason}; --path tcp runs over TCP without two hosts")))
}

/// Says of an error that it is the user's to mend, and how.
fn mend<T>(result: Result<T>, how: &str) -> Result<T> {
    result.map_err(|error| Misuse(format!("{error:#}; {how}")).into())
}

fn model(cli: &Cli) -> Result<(Source, Shape, Tokenizer)> {
    let named = match &cli.model {
        Some(path) => Some(path.clone()),
        None if cli.tiny => None,
        None => std::env::var_os(MODEL_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from),
    };
    let Some(path) = named else {
        let shape = match cli.tiny {
            true => Shape::tiny(),
            false => Shape::smollm2_135m(),
        };
        let source = Source::Random { shape: shape.clone(), seed: SEED };
        return Ok((source, shape, Tokenizer::Bytes));
    };
    let how = format!(
        "--model or {MODEL_VARIABLE} must name a GGUF file of a Llama model with SmolLM2's tokenizer; \
         leave both out to run on random weights"
    );
    let (shape, tokenizer) = mend(open(&path), &how)?;
    // The workers may not have this process's working directory for ever; a full path is safe.
    let path = mend(path.canonicalize().context("cannot find the model file"), &how)?;
    if path.to_str().is_none() {
        return misuse(format!(
            "the model file's path {} is not UTF-8; give it another name",
            path.display()
        ));
    }
    Ok((Source::Gguf(path), shape, tokenizer))
}

fn open(path: &Path) -> Result<(Shape, Tokenizer)> {
    let gguf = Gguf::open(path)?;
    Ok((gguf.shape()?, Tokenizer::from_gguf(&gguf)?))
}

/// The tokens of each request. No two requests say the same, so that pages mixed up between them
/// would show.
fn prompts(cli: &Cli, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
    let own = match (&cli.prompt, &cli.prompt_file) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(path)) => {
            Some(mend(read_prompt(path), "--prompt-file must name a readable UTF-8 text of at most 1 MiB")?)
        }
        (None, None) => None,
    };
    if own.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return misuse("the prompt is empty; say something, or leave --prompt and --prompt-file out".into());
    }
    let prompt = |request: usize| {
        let text = match (&own, request) {
            (Some(text), 0) => text.clone(),
            (Some(text), _) => format!("{text}\n(Asked for the {}. time.)", request + 1),
            (None, _) => question(tokenizer, request),
        };
        tokenizer.turn(&text)
    };
    (0..cli.requests).map(prompt).collect()
}

fn question(tokenizer: &Tokenizer, request: usize) -> String {
    let passage = match tokenizer {
        Tokenizer::Bpe(_) => PASSAGE,
        // Plain ASCII, so that any cut is a character's.
        Tokenizer::Bytes => &PASSAGE[..PASSAGE_BYTES],
    };
    let question = QUESTIONS[request % QUESTIONS.len()];
    match request / QUESTIONS.len() {
        0 => format!("{passage}\n{question}"),
        round => format!("{passage}\n{question} (Asked for the {}. time.)", round + 1),
    }
}

/// Bytes that the system can give without swapping, if it says so.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1_024)
}

fn read_prompt(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // Bounded, as the file may be a device without an end.
    file.take(LONGEST_PROMPT + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(text.len() as u64 <= LONGEST_PROMPT, "{} is longer than 1 MiB", path.display());
    Ok(text)
}

#[cfg(test)]
mod tests;
