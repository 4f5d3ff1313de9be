//! What the parent and its workers say to each other: one JSON object a line, over pipes.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::ferry::{Card, Route};
use crate::sequence::LogitsHash;
use crate::stamp::Stamp;
use crate::weights::Source;

/// A worker's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Computes prompts and sends their pages.
    Prefill,
    /// Receives pages and goes on from there.
    Decode,
    /// Does both on its own: what the other two are compared with.
    Alone,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Alone => "alone",
        })
    }
}

/// Whose memory the KV pools lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Memory {
    /// The worker's own private memory, as serving engines have it.
    Private,
    /// Memory from the agent, which a peer on this host can map.
    Kvferry,
}

/// A path that is asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "snake_case")]
pub(crate) enum PathChoice {
    /// Between the memories of two processes of one host.
    SameHost,
    /// Over TCP.
    Tcp,
}

/// One bit of a moved page, turned over to see that it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flip {
    /// Layer.
    pub(crate) layer: usize,
    /// Page of the first request, counted along its sequence.
    pub(crate) page: usize,
    /// Bit, counted through the K page and on through the V page.
    pub(crate) bit: usize,
}

/// What a worker needs before it can serve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) source: Source,
    /// Tokens a page.
    pub(crate) page_size: usize,
    /// Tokens a chunk of prefill.
    pub(crate) chunk: usize,
    /// Pages of each pool.
    pub(crate) pages: usize,
    /// Tokens to answer with, at most.
    pub(crate) tokens: usize,
    /// Ends an answer early.
    pub(crate) end: Option<u32>,
    pub(crate) memory: Memory,
    /// The only path that may carry the pages.
    pub(crate) path: Option<PathChoice>,
    /// What the peer is told to connect to.
    pub(crate) address: Option<String>,
    pub(crate) flip: Option<Flip>,
    /// For tests: after this order the worker stops listening.
    pub(crate) hang: bool,
}

/// From the parent to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first line.
    Setup(Setup),
    /// To decode: set pages aside.
    Reserve { request: usize, tokens: usize },
    /// To both of a pair: this is your peer.
    Meet(Card),
    /// To prefill: compute this prompt and send its pages there.
    Prefill { request: usize, prompt: Vec<u32>, pages: Vec<u32> },
    /// To the worker alone: answer this prompt.
    Answer { request: usize, prompt: Vec<u32> },
    /// No more orders: sum up and end.
    Finish,
}

/// From a worker to the parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The model is loaded and the pools are registered.
    Ready { card: Option<Card> },
    /// Pages were set aside.
    Reserved { request: usize, pages: Vec<u32> },
    /// Connected to the peer, by this route.
    Met { route: Option<Route> },
    /// A chunk is computed.
    Chunk { request: usize, done: usize },
    /// Pages are on their way.
    Posted { request: usize, pages: usize },
    /// All pages of a prompt have landed.
    Prefilled { request: usize, page_hashes: Vec<String> },
    /// The notification came and the pages with it.
    Received { request: usize, page_hashes: Vec<String> },
    /// A token of the answer.
    Token { request: usize, token: u32 },
    /// The answer is complete.
    Answered { request: usize, logits: LogitsHash, finite: bool },
    /// The peer is gone.
    Lost { code: String, cause: String, at: Stamp },
    /// A request had to be given up.
    Failed { request: usize, code: String, message: String },
    /// The last line.
    Summary(Summary),
}

/// What moved, in all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) transfers: u64,
    pub(crate) bytes: u64,
    /// Blocks as given.
    pub(crate) blocks: u64,
    /// Blocks after neighbours were merged.
    pub(crate) merged: u64,
    /// Time in which at least one transfer was on its way, milliseconds.
    pub(crate) transfer_ms: f64,
    /// How much of it this worker computed at the same time.
    pub(crate) hidden_ms: f64,
    /// Time in the copying calls themselves.
    pub(crate) copy_ms: f64,
    /// How the bytes went.
    pub(crate) route: Option<Route>,
}
