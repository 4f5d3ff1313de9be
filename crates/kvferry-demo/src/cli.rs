//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{TypedValueParser, ValueParser};
use clap::{Parser, Subcommand};

use crate::control::{Flip, Memory, PathChoice, Role};

/// Runs a language model whose prompt is computed by one process and continued by another, with
/// the KV cache carried between them by kvferry, and proves that nothing changed on the way.
///
/// A prefill process computes the prompt in chunks and writes each chunk's pages into the memory of
/// a decode process while it computes the next. The decode process answers. Then one process does
/// all of it alone, and tokens, logits and page bytes are compared: any difference ends with 1.
#[derive(Debug, Parser)]
#[command(name = "kvferry-demo", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) worker: Option<Worker>,

    /// What to ask, in place of a passage of a book and a question on it
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file")]
    pub(crate) prompt: Option<String>,

    /// A file with what to ask (UTF-8)
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,

    /// Tokens to answer with; the model may end earlier
    #[arg(long, value_name = "N", default_value = "64", value_parser = whole(1, 8_192))]
    pub(crate) tokens: usize,

    /// Tokens in a page of the KV cache
    #[arg(long, value_name = "N", default_value = "16", value_parser = whole(1, 1_024))]
    pub(crate) page_size: usize,

    /// Tokens that prefill computes at a time
    #[arg(long, value_name = "N", default_value = "128", value_parser = whole(1, 1_024))]
    pub(crate) chunk: usize,

    /// Requests in flight at once over the same two processes, each with its own pages
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole(1, 32))]
    pub(crate) requests: usize,

    /// The model, a GGUF file of a Llama model such as SmolLM2-135M-Instruct; without it the
    /// environment variable KVFERRY_DEMO_MODEL names the file, else random weights are used
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) model: Option<PathBuf>,

    /// Whose memory the KV pools lie in
    #[arg(long, value_name = "WHOSE", value_enum, default_value_t = Memory::Private)]
    pub(crate) memory: Memory,

    /// The path that must carry the pages; without it the engine takes the best there is
    #[arg(long, value_name = "PATH", value_enum)]
    pub(crate) path: Option<PathChoice>,

    /// Give each side a host of its own: two network namespaces with a cable between them, and TCP over it. Takes root and `ip`
    /// of iproute2; nothing of it stays behind
    #[arg(long)]
    pub(crate) netns: bool,

    /// Kill that side in the middle of the transfers; success is that the other side reports a
    /// typed error in time
    #[arg(long, value_name = "SIDE", value_enum)]
    pub(crate) kill: Option<Side>,

    /// Print one JSON object as the last line
    #[arg(long)]
    pub(crate) json: bool,

    /// Use a random model of milliseconds
    #[arg(long, help_heading = "For tests", conflicts_with = "model")]
    pub(crate) tiny: bool,

    /// Turn over one bit of a page of the first request after it was moved: BIT counts through the
    /// page's K and on through its V. The run must end with 1
    #[arg(
        long,
        help_heading = "For tests",
        value_name = "LAYER:PAGE:BIT",
        value_parser = flip,
        conflicts_with = "kill"
    )]
    pub(crate) flip_bit: Option<Flip>,

    /// Seconds to wait for a sign of life of a process before the run is given up
    #[arg(
        long,
        help_heading = "For tests",
        value_name = "SECONDS",
        default_value = "120",
        value_parser = whole(1, 3_600)
    )]
    patience: usize,

    /// Let that process hang after its start
    #[arg(long, help_heading = "For tests", value_name = "ROLE", value_enum)]
    pub(crate) hang: Option<Role>,
}

/// The parts that the demo starts itself as.
#[derive(Debug, Subcommand)]
pub(crate) enum Worker {
    /// Started by kvferry-demo itself: plays a part of the demo over its standard input and output
    #[command(hide = true)]
    Worker {
        /// The part
        role: Role,
    },
}

/// The two sides of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    /// The process that computes the prompt and writes.
    Prefill,
    /// The process that is written to and answers.
    Decode,
}

impl Cli {
    /// How long a process may give no sign of life.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience as u64)
    }
}

/// A whole number from `least` to `most`.
fn whole(least: usize, most: usize) -> ValueParser {
    let parse = move |text: &str| {
        text.parse()
            .ok()
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("give a whole number from {least} to {most}"))
    };
    ValueParser::new(clap::builder::StringValueParser::new().try_map(move |text| parse(&text)))
}

fn flip(text: &str) -> Result<Flip, String> {
    let numbers: Option<Vec<usize>> = text.split(':').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[layer, page, bit]) => Ok(Flip { layer, page, bit }),
        _ => Err("give three whole numbers LAYER:PAGE:BIT, such as 1:0:7".to_owned()),
    }
}
