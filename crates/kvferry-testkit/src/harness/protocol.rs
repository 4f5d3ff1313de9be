//! What a test asks of a worker process, and what it answers: JSON, a line each.

use std::collections::BTreeMap;

use kvferry::{MemoryKind, Op};
use serde::{Deserialize, Serialize};

/// A request with its number. The answer has the same.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Unique in the life of a worker.
    pub id: u64,
    /// Carried out on a thread of its own, so that later requests do not wait for it.
    pub background: bool,
    /// Carried out at this time of the monotonic clock, in nanoseconds; at once if it has passed.
    pub at: Option<u64>,
    /// What to do.
    pub request: Request,
}

/// What came of a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the request.
    pub id: u64,
    /// When the worker was done with it, by the monotonic clock in nanoseconds.
    pub stamp: u64,
    /// The result, whose type follows from the request.
    pub outcome: Result<serde_json::Value, Failure>,
}

/// An error of the engine, or of the worker itself (code `harness`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stable code.
    pub code: String,
    /// The whole text.
    pub text: String,
}

/// What a worker can be asked to do.
#[expect(missing_docs, reason = "the fields are named by what they hold")]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Gives up rights of the process. The first request, if any.
    Confine(Confinement),
    /// Builds the agent, from the settings in the environment.
    Build { name: String },
    /// Drops the agent with all transfers and buffers still there; answers with the nanoseconds that took.
    Close,
    /// Obtains memory; answers with a [`Buffer`].
    Alloc { memory: Memory, bytes: u64 },
    /// Gives memory back that is not registered any more.
    Free { buffer: usize },
    /// Shortens the file that the buffer maps to so many bytes.
    Truncate { buffer: usize, bytes: u64 },
    /// Unmaps all of the buffer from this offset on, behind the engine's back.
    Unmap { buffer: usize, offset: u64 },
    /// Registers a whole buffer; answers with its region's id.
    Register { buffer: usize },
    /// Takes regions back.
    Deregister { regions: Vec<u64>, timeout_ms: Option<u64> },
    /// Lists the regions as [`RegionState`]s.
    Regions,
    /// Writes the pattern of `seed` over the buffer.
    Fill { buffer: usize, seed: u64 },
    /// Writes [`POISON`] over the buffer.
    Poison { buffer: usize },
    /// Writes [`MARK`] into one word out of `step` bytes, the first at `offset`.
    Mark { buffer: usize, offset: u64, step: u64 },
    /// Restores the pattern of `seed` where [`Request::Mark`] wrote.
    Unmark { buffer: usize, offset: u64, step: u64, seed: u64 },
    /// How many of those words still hold [`MARK`].
    Marks { buffer: usize, offset: u64, step: u64 },
    /// Counts and digests the buffer's words: a [`Scan`].
    Scan { buffer: usize, seed: u64 },
    /// The digest alone, which is quicker.
    Digest { buffer: usize },
    /// As [`Request::Scan`], and then writes [`POISON`] over all of it.
    Renew { buffer: usize, seed: u64 },
    /// Compares blocks with where they came from; answers with the [`Mismatch`] if there is one.
    Compare { buffer: usize, seed: u64, block: u64, pairs: Vec<(u32, u32)> },
    /// Looks at each word of the buffer: what moved where it should have, and what changed where nothing should: an [`Audit`].
    Audit { buffer: usize, seed: u64, block: u64, groups: Vec<Vec<(u32, u32)>> },
    /// The agent's metadata in hexadecimal digits.
    Metadata,
    /// Loads metadata; answers with the peer's name.
    Load { metadata: String },
    /// Forgets metadata.
    Remove { peer: String },
    /// Connects to a peer.
    Connect { peer: String, timeout_ms: u64 },
    /// Parts with a peer.
    Disconnect { peer: String, timeout_ms: Option<u64> },
    /// Whether the peer's metadata is loaded.
    Check { peer: String },
    /// The lines of the path report of a peer.
    Path { peer: String },
    /// Creates a transfer; answers with its number.
    Transfer(TransferSpec),
    /// Posts a transfer.
    Post { transfer: u64 },
    /// The [`State`] of a transfer.
    Status { transfer: u64 },
    /// Waits for a transfer's end; answers with its [`State`].
    Wait { transfer: u64, timeout_ms: u64 },
    /// Cancels a transfer.
    Cancel { transfer: u64, timeout_ms: Option<u64> },
    /// Releases a transfer; it stays if it is not quiet.
    Release { transfer: u64, timeout_ms: Option<u64> },
    /// Drops a transfer.
    Discard { transfer: u64 },
    /// What the last attempt of a transfer measured, as [`Measured`].
    Telemetry { transfer: u64 },
    /// Sends a bare notification.
    Notify { peer: String, payload: String },
    /// Sends bare notifications `from` to `from + count`, `gap_us` apart, each with its number and the time; answers with how
    /// many were taken, up to the first that was refused.
    Chatter { peer: String, from: u64, count: u64, gap_us: u64 },
    /// Takes the notifications that have come, as [`Received`].
    Notifications,
    /// Waits until as many notifications have come in and takes them.
    AwaitNotifications { count: usize, timeout_ms: u64 },
    /// Waits for an event of this kind about this peer, of those not yet answered with: a [`StampedEvent`].
    AwaitEvent { kind: String, peer: String, timeout_ms: u64 },
    /// Forgets the events that nobody has asked for.
    ForgetEvents,
    /// The [`Counters`] of the agent.
    Stats,
    /// Arms a pause point.
    Arm(Trap),
    /// How many threads are held at a pause point now, and how many have passed one since the last [`Request::Arm`].
    Trapped,
    /// Lets the held threads go and disarms the pause point.
    Spring,
    /// Whether this process sees an injected Yama.
    Yama { on: bool },
    /// Lets a page of a private buffer fault until it is resolved.
    Withhold { buffer: usize, offset: u64 },
    /// Resolves the page that was withheld.
    Resolve,
    /// Forks a child that sleeps; answers with its process id.
    ForkSleeper,
    /// Forks a child that makes every call of the agent; answers with a [`Forked`].
    ForkProbe,
    /// What the process holds, as [`Holdings`].
    Holdings,
    /// Ends the process in this way, with exit code 0. There is no answer.
    Exit(Exit),
}

/// Rights that a worker gives up before it builds its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Lives in a new PID namespace.
    pub pid_namespace: bool,
    /// Becomes this user and group.
    pub user: Option<u32>,
    /// Lives in a new user namespace.
    pub user_namespace: bool,
    /// Sets a seccomp filter that denies cross-memory attach.
    pub seccomp: bool,
    /// Is not dumpable.
    pub undumpable: bool,
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Memory {
    /// An anonymous private mapping, all pages present.
    Private,
    /// `Agent::alloc`.
    Shared,
    /// A shared mapping of a file whose size may change.
    File,
}

/// Memory of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// Its number.
    pub index: usize,
    /// Where it is mapped.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// A region as the agent lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionState {
    /// Its id.
    pub id: u64,
    /// Whether peers can map it.
    pub shared: bool,
    /// Whether it is in quarantine.
    pub quarantined: bool,
}

/// A transfer between a buffer and equally long memory of a peer, block by block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferSpec {
    /// `read` or `write`, as a bool for write.
    pub write: bool,
    /// The local buffer.
    pub buffer: usize,
    /// The peer.
    pub peer: String,
    /// Where the peer's memory begins, and its bytes.
    pub remote: (u64, u64),
    /// Bytes of a block.
    pub block: u64,
    /// Which local block goes with which remote one; all in order if empty.
    pub pairs: Vec<(u32, u32)>,
    /// Sent when the data is visible.
    pub notification: Option<String>,
}

impl TransferSpec {
    /// The direction.
    pub fn op(&self) -> Op {
        if self.write { Op::Write } else { Op::Read }
    }

    /// The kind of all memory here.
    pub const KIND: MemoryKind = MemoryKind::Dram;
}

/// How far a transfer has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Never posted.
    Created,
    /// Waiting.
    Posted,
    /// Copying, or notifying.
    Running,
    /// Done.
    Done,
    /// Failed.
    Failed(Failure),
    /// Cancelled.
    Cancelled,
}

impl State {
    /// The code that it failed with; "" if it did not.
    pub fn code(&self) -> &str {
        match self {
            Self::Failed(failure) => &failure.code,
            _ => "",
        }
    }
}

/// What an attempt measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// How long the post took, in nanoseconds.
    pub post_ns: u64,
    /// From the post to the first chunk, in nanoseconds.
    pub queue_ns: u64,
    /// From the first chunk to the last, in nanoseconds.
    pub copy_ns: u64,
    /// Bytes.
    pub bytes: u64,
    /// Blocks as given.
    pub blocks: u64,
    /// Segments after merging.
    pub merged: u64,
    /// The path, such as `same_host`.
    pub path: String,
    /// The mechanism, such as `cma`.
    pub mechanism: String,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Its sender.
    pub from: String,
    /// What it says.
    pub payload: String,
    /// When the worker took it from its agent, by the monotonic clock in nanoseconds.
    pub stamp: u64,
}

/// What a buffer holds, group by group of the blocks that something was to be moved to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The blocks of each group.
    pub groups: Vec<Part>,
    /// The blocks of no group.
    pub outside: Part,
    /// Changes with any word.
    pub digest: u64,
}

/// A count of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// In all.
    pub words: u64,
    /// Those that were to come have come.
    pub arrived: u64,
    /// [`POISON`].
    pub poison: u64,
    /// [`MARK`].
    pub marks: u64,
    /// Offset of the first that is neither, and what it holds.
    pub stray: Option<(u64, u64)>,
}

impl Part {
    /// Words that are none of what they may be.
    pub fn foreign(&self) -> u64 {
        self.words - self.arrived - self.poison - self.marks
    }
}

/// An event with the time at which the worker had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedEvent {
    /// By the monotonic clock, in nanoseconds.
    pub stamp: u64,
    /// `up`, `lost`, `restarted` or `notified`.
    pub kind: String,
    /// The peer.
    pub peer: String,
    /// For `lost`, how.
    pub cause: String,
}

/// Some of the agent's statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Transfers done by path and mechanism, such as `same_host cma`.
    pub done: BTreeMap<String, u64>,
    /// Failures by code.
    pub failures: BTreeMap<String, u64>,
    /// Cancelled transfers.
    pub cancels: u64,
    /// Transfers posted and not ended.
    pub queue_depth: u64,
    /// Regions in quarantine.
    pub quarantined: usize,
    /// Links that the agent opened.
    pub links_out: usize,
    /// Links that were opened to it.
    pub links_in: usize,
    /// Lost links that are not quiet.
    pub lingering: usize,
}

/// What happens at a pause point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    /// At which point.
    pub place: Place,
    /// The first pass, counted from 0, that it acts on.
    pub after: u64,
    /// What it does.
    pub act: TrapAct,
}

/// A pause point of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Between the epoch check and the copy of a chunk.
    Copy,
    /// Between visible data and its notification.
    Notify,
}

/// What a trap does with those who come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrapAct {
    /// Sends SIGSTOP to the whole process, once.
    Stop,
    /// Holds every thread until it is sprung.
    Hold,
}

/// What the agent answered in a forked child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The code of each call that can fail.
    pub codes: BTreeMap<String, String>,
    /// How the child ended, 0 for well.
    pub status: i32,
    /// How long the child lived, in nanoseconds.
    pub took_ns: u64,
}

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Open descriptors.
    pub fds: u64,
    /// Threads.
    pub threads: u64,
    /// Mappings.
    pub mappings: u64,
    /// Resident memory, in bytes.
    pub resident: u64,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// `exit` with everything alive.
    Now,
    /// All dropped, then a return from `main`.
    Orderly,
}

/// Where blocks are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Offset of the first wrong word.
    pub offset: u64,
    /// What should be there.
    pub expected: u64,
    /// What is.
    pub found: u64,
}

/// A count of a buffer's words, and a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Changes with any word.
    pub digest: u64,
    /// Words in all.
    pub words: u64,
    /// Words that hold [`POISON`].
    pub poison: u64,
    /// Words of the pattern.
    pub pattern: u64,
    /// Words that hold [`MARK`].
    pub marks: u64,
}

impl Scan {
    /// Words that are none of what they may be.
    pub fn foreign(&self) -> u64 {
        self.words - self.poison - self.pattern - self.marks
    }

    /// The share of words that hold poison.
    pub fn poisoned(&self) -> f64 {
        self.poison as f64 / self.words.max(1) as f64
    }
}

/// A word that stands where nothing has been written; a pattern holds it by the rarest chance only.
pub const POISON: u64 = 0xdead_beef_0bad_f00d;

/// A word written where nothing must be written any more.
pub const MARK: u64 = 0x5ca1_ab1e_0ddb_a11e;

/// The word of a pattern at an index.
pub const fn pattern(seed: u64, index: u64) -> u64 {
    seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(index.wrapping_mul(PATTERN_STEP))
}

/// What neighbouring words of a pattern differ by.
pub const PATTERN_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
