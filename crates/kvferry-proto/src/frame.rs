//! Frames of a link's control channel, over any ordered stream of bytes.
//!
//! ```text
//!   0         4      5     6          8
//!   +---------+------+-----+----------+----------------------------+
//!   | length  | type | fds | reserved | body (postcard, `length`)  |
//!   +---------+------+-----+----------+----------------------------+
//! ```
//! Little-endian. `fds` counts the file descriptors that travel with the frame's first byte, where the stream can
//! carry any; `reserved` is zero. A type of which bit 7 is set may be skipped by who doesn't know it; any other unknown
//! type is an error. Bodies that open a handshake or end a link may be longer than this version knows: what follows is
//! ignored there, and refused everywhere else.

mod body;
mod reader;
mod reason;

#[cfg(test)]
pub(crate) mod tests;

pub use self::reader::FrameReader;
pub use self::reason::{ByeReason, Refusal};

use crate::notify::Resume;
use crate::region::{Incarnation, RegionId};
use crate::revoke::RevokeScope;

/// Version of the control channel that this build speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// Bytes before a frame's body.
pub const FRAME_HEADER: usize = 8;

/// Longest body of a frame, in bytes: 1 MiB of content and what describes it.
pub const MAX_FRAME_BODY: usize = (1 << 20) + 1024;

/// Most file descriptors that travel with one frame.
pub const MAX_FRAME_FDS: u8 = 8;

/// Most numbers of regions and operations in one frame.
pub const MAX_FRAME_IDS: usize = 65_536;

/// Longest message of a transport, in bytes.
pub const MAX_TRANSPORT_MESSAGE: usize = 1 << 20;

/// Longest text in a [`Frame::Bye`], in bytes.
pub const MAX_BYE_TEXT: usize = 1024;

/// A fresh random number of a handshake.
pub type Nonce = [u8; 32];

const OPTIONAL: u8 = 0x80;

/// One message of the control channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// Initiator to target, first: who is there, and whom it expects.
    Hello(Hello),
    /// Target to initiator: who answers, with its proof.
    Challenge(Challenge),
    /// Initiator to target: its proof.
    Proof([u8; 32]),
    /// Target to initiator: proven and admitted.
    Welcome(Resume),
    /// Either way, instead of the next step of the handshake: no.
    Refuse(Refusal),
    /// Target to initiator, between [`Frame::Welcome`] and [`Frame::Ready`]: which regions still exist.
    Live(LiveRegions),
    /// Either way: a message of the transport, opaque here.
    Transport {
        /// The message, at most [`MAX_TRANSPORT_MESSAGE`] bytes.
        bytes: Vec<u8>,
        /// How many file descriptors travel with it, at most [`MAX_FRAME_FDS`].
        fds: u8,
    },
    /// Either way: this side's transport is attached.
    Ready,
    /// Initiator to target: a notification.
    Notify {
        /// Number in the one sequence of this pair of incarnations.
        seq: u64,
        /// What the application wrote.
        payload: Vec<u8>,
    },
    /// Target to initiator: all notifications up to this one are in the inbox.
    NotifyAck {
        /// The last of them.
        seq: u64,
    },
    /// Target to initiator: what the application has taken out of the inbox.
    Credit {
        /// Bytes by [`notification_cost`](crate::notification_cost) since the first notification of this pair.
        consumed: u64,
    },
    /// Owner to copier: this memory and these operations are revoked.
    Revoke {
        /// The owner's epoch from which on they are.
        epoch: u64,
        /// What is revoked.
        scope: RevokeScope,
    },
    /// Copier to owner: carried out.
    RevokeAck {
        /// The epoch of the revocation.
        epoch: u64,
    },
    /// Either way: are you there?
    Ping {
        /// To be sent back.
        token: u64,
    },
    /// The answer to a [`Frame::Ping`].
    Pong {
        /// Its token.
        token: u64,
    },
    /// Either way: the sender closes the link; nothing follows.
    Bye {
        /// Why.
        reason: ByeReason,
        /// For people, at most [`MAX_BYE_TEXT`] bytes, often empty.
        text: String,
    },
    /// A frame of a type that this build doesn't know and may ignore.
    Skipped {
        /// Its type.
        kind: u8,
    },
}

/// The first frame of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that the initiator speaks; this much is the same in all versions.
    pub version: u16,
    /// The initiator's name.
    pub name: String,
    /// The initiator's incarnation.
    pub incarnation: Incarnation,
    /// The incarnation of the target that the initiator's metadata names.
    pub target: Incarnation,
    /// Fresh random bytes.
    pub nonce: Nonce,
    /// Whether the initiator's key was derived with a token.
    pub token_in_force: bool,
}

/// The target's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The target's name.
    pub name: String,
    /// The target's incarnation.
    pub incarnation: Incarnation,
    /// Fresh random bytes.
    pub nonce: Nonce,
    /// The target's proof.
    pub proof: [u8; 32],
    /// Whether the target's key was derived with a token.
    pub token_in_force: bool,
}

/// Which regions of the target still exist, told once a connection: of the numbers in `from..below` those in `ids`,
/// and no others. Later numbers are not judged.
///
/// Whoever learned of the rest from metadata must not use it; from then on revocations tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveRegions {
    /// First number that is judged.
    pub from: u64,
    /// The number after the last that is judged.
    pub below: u64,
    /// Those that exist, ascending, at most [`MAX_FRAME_IDS`] in a frame.
    pub ids: Vec<RegionId>,
}

impl LiveRegions {
    /// All numbers below `below` are judged; `ids` exist. Order and repeats don't matter; what lies outside is dropped.
    pub fn new(below: u64, mut ids: Vec<RegionId>) -> Self {
        ids.retain(|id| id.0 < below);
        ids.sort_unstable();
        ids.dedup();
        Self { from: 0, below, ids }
    }

    /// Cut into pieces that each fit into a frame. Together they judge the same numbers.
    pub fn split(mut self) -> Vec<Self> {
        let mut pieces = Vec::new();
        while self.ids.len() > MAX_FRAME_IDS {
            let rest = self.ids.split_off(MAX_FRAME_IDS);
            let cut = rest[0].0;
            pieces.push(Self { from: self.from, below: cut, ids: std::mem::replace(&mut self.ids, rest) });
            self.from = cut;
        }
        pieces.push(self);
        pieces
    }

    /// Whether this says that region `id` does not exist.
    pub fn excludes(&self, id: RegionId) -> bool {
        (self.from..self.below).contains(&id.0) && self.ids.binary_search(&id).is_err()
    }

    fn is_well_formed(&self) -> bool {
        self.from <= self.below
            && self.ids.len() <= MAX_FRAME_IDS
            && self.ids.is_sorted_by(|a, b| a < b)
            && self.ids.first().is_none_or(|id| id.0 >= self.from)
            && self.ids.last().is_none_or(|id| id.0 < self.below)
    }
}

/// Why bytes are no frame, or a frame can't become bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Longer than any frame.
    #[error("frame of {len} bytes, at most {MAX_FRAME_BODY} are allowed")]
    TooLarge {
        /// Length of the body.
        len: usize,
    },
    /// A type that may not be skipped.
    #[error("unknown frame type {kind:#04x}")]
    Unknown {
        /// The type.
        kind: u8,
    },
    /// The reserved field is not zero.
    #[error("reserved field of the frame header is {value:#06x}, not zero")]
    Reserved {
        /// Its value.
        value: u16,
    },
    /// File descriptors that this type can't carry, or too many.
    #[error("frame type {kind:#04x} with {fds} file descriptors")]
    Fds {
        /// The type.
        kind: u8,
        /// The count.
        fds: u8,
    },
    /// The body does not decode.
    #[error("malformed body of a {frame} frame")]
    Malformed {
        /// Name of the type.
        frame: &'static str,
    },
}

impl Frame {
    /// The type's name, for messages.
    pub fn name(&self) -> &'static str {
        body::name(self.kind())
    }

    /// How many file descriptors travel with this frame.
    pub fn fds(&self) -> u8 {
        match self {
            Self::Transport { fds, .. } => *fds,
            _ => 0,
        }
    }

    /// Appends header and body to `out`.
    ///
    /// # Errors
    /// The frame breaks a limit of this module, see there; `out` is as it was.
    pub fn encode_into(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (kind, fds) = (self.kind(), self.fds());
        if fds > MAX_FRAME_FDS {
            return Err(FrameError::Fds { kind, fds });
        }
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, kind, fds, 0, 0]);
        let written = body::write(self, out);
        let len = out.len() - start - FRAME_HEADER;
        let wire_len = u32::try_from(len).ok().filter(|_| len <= MAX_FRAME_BODY);
        match (written, wire_len) {
            (Ok(()), Some(wire_len)) => {
                out[start..start + 4].copy_from_slice(&wire_len.to_le_bytes());
                Ok(())
            }
            (written, _) => {
                out.truncate(start);
                Err(written.err().unwrap_or(FrameError::TooLarge { len }))
            }
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Challenge(_) => 2,
            Self::Proof(_) => 3,
            Self::Welcome(_) => 4,
            Self::Refuse(_) => 5,
            Self::Live(_) => 6,
            Self::Transport { .. } => 7,
            Self::Ready => 8,
            Self::Notify { .. } => 9,
            Self::NotifyAck { .. } => 10,
            Self::Credit { .. } => 11,
            Self::Revoke { .. } => 12,
            Self::RevokeAck { .. } => 13,
            Self::Ping { .. } => 14,
            Self::Pong { .. } => 15,
            Self::Bye { .. } => 16,
            Self::Skipped { kind } => kind | OPTIONAL,
        }
    }
}

/// The parts of a header that has been checked.
#[derive(Clone, Copy, Debug)]
struct Header {
    len: usize,
    kind: u8,
    fds: u8,
}

impl Header {
    fn parse(bytes: [u8; FRAME_HEADER]) -> Result<Self, FrameError> {
        let [l0, l1, l2, l3, kind, fds, r0, r1] = bytes;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let value = u16::from_le_bytes([r0, r1]);
        if len > MAX_FRAME_BODY {
            return Err(FrameError::TooLarge { len });
        }
        if value != 0 {
            return Err(FrameError::Reserved { value });
        }
        if !body::is_known(kind) && kind & OPTIONAL == 0 {
            return Err(FrameError::Unknown { kind });
        }
        if fds > MAX_FRAME_FDS || (fds > 0 && !body::carries_fds(kind)) {
            return Err(FrameError::Fds { kind, fds });
        }
        Ok(Self { len, kind, fds })
    }
}
