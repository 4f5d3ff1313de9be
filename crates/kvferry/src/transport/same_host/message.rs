use serde::{Deserialize, Serialize};

/// What the transports of two processes of one host tell each other over the control channel.
///
/// All of it comes from a stranger: every number is checked where it is used.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Wire {
    /// Initiator to target, with the link page's descriptor: who is there and where to probe.
    Attach(Who),
    /// Target to initiator.
    Attached(Who),
    /// Whether the sender could read and write the other's nonce word.
    Probed { reach: Result<(), Denial> },
    /// Asks for a memory file.
    WantMemory { memfd: u64 },
    /// A memory file: `len` bytes, its descriptor comes along. Without a descriptor: there is none of that number.
    Memory { memfd: u64, len: u64 },
    /// Initiator to target: a region of the initiator that segments may name. For shared memory: the number of its memory
    /// file (whose descriptor comes along the first time), the offset in it, and the file's length.
    Declare { region: u64, addr: u64, len: u64, memory: Option<(u64, u64, u64)> },
    /// Initiator to target: copy these segments (a part of operation `op`).
    Copy { op: u64, attempt: u32, write: bool, last: bool, segments: Vec<WireSegment> },
    /// Target to initiator: so many segments of the operation have been copied; room for as many more.
    Copied { op: u64, attempt: u32, segments: u32 },
    /// Target to initiator: all segments of the operation have been copied and are visible.
    Done { op: u64, attempt: u32 },
    /// Target to initiator: the operation stopped at a fault and is quiet.
    Failed { op: u64, attempt: u32, fault: WireFault },
    /// Initiator to target: stop the operation.
    Stop { op: u64, attempt: u32 },
    /// Target to initiator: the operation was stopped and is quiet.
    Stopped { op: u64, attempt: u32 },
}

/// Why the target could not go on with an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WireFault {
    /// A region was deregistered: the initiator's, or the target's.
    Gone { initiators: bool },
    /// Memory is not mapped.
    Unmapped { initiators: bool, block: u64, addr: u64 },
    /// Anything else, in words.
    Other(String),
}

/// What one side says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Who {
    pub(super) pid_ns: u64,
    pub(super) user_ns: u64,
    pub(super) net_ns: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) dumpable: bool,
    /// Address of the nonce word, and what it holds.
    pub(super) nonce_addr: u64,
    pub(super) nonce: u64,
    /// Prefix of the build, so that two ends that would misread each other part in time.
    pub(super) layout: u32,
}

/// Why a side could not reach the other's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Denial {
    /// In words: the cause.
    pub(super) cause: String,
    /// In words: what to do.
    pub(super) remedy: String,
}

/// A piece to copy, in offsets from the start of two regions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WireSegment {
    /// The initiator's region, as declared.
    pub(super) initiator: u64,
    pub(super) initiator_offset: u64,
    /// The target's region, with the key that its blob lists.
    pub(super) target: u64,
    pub(super) target_key: u64,
    pub(super) target_offset: u64,
    pub(super) len: u64,
    /// Position in the transfer of the first block, to say which one a fault hit.
    pub(super) block: u64,
}

/// Version of this encoding.
pub(super) const LAYOUT: u32 = 1;

/// Segments that may be with the target and not yet copied, for each operation.
pub(super) const WINDOW: usize = 16_384;

/// Segments in one message.
pub(super) const BATCH: usize = 4_096;

impl Wire {
    pub(super) fn encode(&self) -> Vec<u8> {
        // Plain numbers, strings and vectors always encode.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes).map_err(|e| format!("transport message: {e}"))
    }
}
