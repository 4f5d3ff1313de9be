use serde::{Deserialize, Serialize};

use crate::options::{BenchOp, BenchPath, Memory};
use crate::pattern::Shape;

/// Changes whenever the two sides would not understand each other.
pub(crate) const VERSION: u32 = 1;

/// Which of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Posts and measures.
    Near,
    /// Does what it is asked.
    Far,
}

/// What the near side asks for. The far one answers each with one [`Reply`], those marked *twice* with two: ready,
/// and over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// First of all: an agent and a pool.
    Setup(Setup),
    /// Takes the connections of the raw loops.
    Accept,
    /// Begins a row: the contents of its blocks.
    Begin(Plan),
    /// Poisons the destination.
    Poison,
    /// Compares the destination; `flip` makes it wrong before.
    Verify { flip: bool },
    /// Compares what is around the blocks.
    VerifyGaps,
    /// Compares the one block of the row, whose first word was `word`.
    VerifyBlock { word: u64 },
    /// CPU time until now.
    CpuTime,
    /// *Twice.* Its half of a raw round over the streams.
    Stream,
    /// *Twice.* So many round trips on a bare socket.
    PingPong { count: u32, ball: Ball },
    /// *Twice.* Answers so many notifications.
    Echo { count: u32 },
    /// The whole run is over.
    Goodbye,
}

/// What goes back and forth on a bare socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ball {
    /// Eight bytes each way.
    Note,
    /// The row's block one way and a byte the other.
    Block,
}

/// What both sides measure with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) version: u32,
    pub(crate) path: BenchPath,
    pub(crate) memory: Memory,
    pub(crate) pool: u64,
    pub(crate) threads: Option<usize>,
    /// The near agent's metadata.
    pub(crate) metadata: Vec<u8>,
}

/// What both sides need to know of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) op: BenchOp,
    pub(crate) shape: Shape,
    /// Decides the order of the blocks and their contents.
    pub(crate) seed: u64,
}

/// What the far side answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To `Setup`.
    Ready {
        /// The far agent's metadata.
        metadata: Vec<u8>,
        /// Where its pool begins.
        base: u64,
        /// Where the raw loops connect to.
        door: Door,
    },
    /// Done, or ready.
    Done,
    /// The first difference, if there is one.
    Compared(Option<String>),
    /// Seconds of CPU time of the process, user and system.
    CpuTime(f64),
    /// It can't be done.
    Failed(String),
}

/// Where the far side of the raw loops listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Door {
    /// A Unix socket with an abstract name.
    Unix(Vec<u8>),
    /// A TCP port of the host that the far side is on.
    Tcp(u16),
}
