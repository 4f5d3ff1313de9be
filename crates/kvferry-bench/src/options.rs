use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pattern::Pattern;

/// Bytes of a pool at which the patterns have their full size.
pub(crate) const FULL_POOL: u64 = 1 << 30;

/// The smallest pool: 100,000 blocks have to fit into it, with a gap after each.
const SMALLEST_POOL: u64 = 4 << 20;

/// The largest pool; a guard against a slip of the finger.
const LARGEST_POOL: u64 = 64 << 30;

/// What to measure, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The patterns, in the order of their rows.
    pub patterns: Vec<Pattern>,
    /// Which way the bytes go; patterns without a direction are measured once.
    pub ops: Vec<BenchOp>,
    /// The paths.
    pub paths: Vec<BenchPath>,
    /// The kinds of memory; both sides have the same.
    pub memories: Vec<Memory>,
    /// Counted rounds of each row.
    pub rounds: u32,
    /// Bytes of the pool of each side. With less than 1 GiB the patterns shrink in proportion.
    pub pool: u64,
    /// Copy threads of each agent, and threads of the raw loop; `None` leaves them to the settings.
    pub threads: Option<usize>,
    /// Flips a byte of the destination after each transfer, to show that the comparison finds it.
    pub flip: bool,
}

/// Which way the bytes go, as the process that posts sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchOp {
    /// Into our memory.
    Read,
    /// Into the peer's memory.
    Write,
}

/// The path that the agents are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchPath {
    /// Two processes of one host.
    SameHost,
    /// TCP, also within one host.
    Tcp,
}

/// Whose memory the pools are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Private anonymous memory, as an engine has it that knows nothing of kvferry.
    Private,
    /// From the agent's `alloc`, which a peer of the same host can map.
    Kvferry,
}

/// Options that nothing can be measured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOptions(String);

/// A name that is none of those there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    name: String,
    what: &'static str,
    known: &'static str,
}

impl Options {
    /// Whether anything can be measured with them.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn check(&self) -> Result<(), InvalidOptions> {
        let refuse = |text: String| Err(InvalidOptions(text));
        let lists = [
            ("pattern", self.patterns.is_empty()),
            ("op", self.ops.is_empty()),
            ("path", self.paths.is_empty()),
            ("memory", self.memories.is_empty()),
        ];
        if let Some((what, _)) = lists.iter().find(|(_, empty)| *empty) {
            return refuse(format!("no {what} is asked for"));
        }
        if self.rounds == 0 || self.rounds > 10_000 {
            return refuse(format!("{} rounds: 1 to 10000 are allowed", self.rounds));
        }
        if !(SMALLEST_POOL..=LARGEST_POOL).contains(&self.pool) || !self.pool.is_multiple_of(4096) {
            return refuse(format!(
                "a pool of {} bytes: 4 MiB to 64 GiB in whole pages are allowed",
                self.pool
            ));
        }
        if self.threads.is_some_and(|threads| !(1..=32).contains(&threads)) {
            return refuse("1 to 32 threads are allowed".to_owned());
        }
        Ok(())
    }

    /// Whether the patterns have less than their full size.
    pub fn is_shrunk(&self) -> bool {
        self.pool < FULL_POOL
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patterns: Pattern::ALL.to_vec(),
            ops: vec![BenchOp::Write, BenchOp::Read],
            paths: vec![BenchPath::SameHost],
            memories: vec![Memory::Private],
            rounds: 5,
            pool: FULL_POOL,
            threads: None,
            flip: false,
        }
    }
}

impl BenchOp {
    /// Its name in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl From<BenchOp> for kvferry::Op {
    fn from(op: BenchOp) -> Self {
        match op {
            BenchOp::Read => Self::Read,
            BenchOp::Write => Self::Write,
        }
    }
}

impl BenchPath {
    /// Its name in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameHost => "same_host",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for BenchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BenchPath {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        [Self::SameHost, Self::Tcp].into_iter().find(|path| path.name() == text).ok_or_else(|| UnknownName {
            name: text.to_owned(),
            what: "path",
            known: "same_host, tcp",
        })
    }
}

impl Memory {
    /// Its name in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Kvferry => "kvferry",
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Memory {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        [Self::Private, Self::Kvferry].into_iter().find(|memory| memory.name() == text).ok_or_else(|| {
            UnknownName { name: text.to_owned(), what: "kind of memory", known: "private, kvferry" }
        })
    }
}

impl UnknownName {
    pub(crate) fn of_pattern(name: &str) -> Self {
        Self { name: name.to_owned(), what: "pattern", known: "a, b, c, d, r, e, g, p" }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no {}; there are {}", self.name, self.what, self.known)
    }
}

impl std::error::Error for UnknownName {}

impl fmt::Display for InvalidOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidOptions {}

#[cfg(test)]
mod tests;
