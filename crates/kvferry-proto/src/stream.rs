//! Frames of the data streams of a wire transport.
//!
//! A stream opens with a [`StreamHello`], which names the link and proves that the sender shares its key. Then frames
//! follow in both directions:
//!
//! ```text
//!   0      1      2          4         8        16         20        24        28       32
//!   +------+------+----------+---------+---------+----------+---------+---------+--------+
//!   | kind | code | segments | payload |   op    | attempt  |  chunk  |  names  | check  |
//!   +------+------+----------+---------+---------+----------+---------+---------+--------+
//!   then `names` bytes, which name `segments` stretches of the target's memory (see [`StreamSegment`])
//!   then `payload` bytes
//! ```
//! Little-endian. `check` is a fixed function of the other fields: it finds two ends that have lost step, not tampering.
//!
//! | kind | way | what |
//! |---|---|---|
//! | Write | initiator → target | bytes for the segments |
//! | Read | initiator → target | asks for the bytes of the segments |
//! | Data | target → initiator | those bytes, in the order of the segments; an Ack or a Fail follows at once |
//! | Ack | target → initiator | the bytes of a Write are in place; those of a Data are good |
//! | Fail | target → initiator | the chunk failed; the payload says why, for people |
//! | Drop | initiator → target | nothing more of this attempt follows on this stream |

pub(crate) mod segments;

use serde::{Deserialize, Serialize};

pub use segments::{MAX_STREAM_NAMES, STREAM_GROUP, StreamSegment};

/// Bytes of a frame's header.
pub const STREAM_HEADER: usize = 32;

/// Bytes of a [`StreamHello`].
pub const STREAM_HELLO: usize = 64;

/// Most payload bytes of a frame.
pub const MAX_STREAM_PAYLOAD: u32 = 1 << 20;

/// Most segments of a frame: what one vectored call takes.
pub const MAX_STREAM_SEGMENTS: u16 = 1024;

/// Most streams of a link.
pub const MAX_STREAMS: u8 = 16;

/// The first bytes of a stream: no control frame begins so, since its length would be too large.
const MAGIC: [u8; 8] = *b"KVFSTRM1";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamKind {
    /// Bytes for the target's segments.
    Write = 1,
    /// A request for the bytes of the target's segments.
    Read = 2,
    /// The answer to a `Read`.
    Data = 3,
    /// The answer to a `Write`.
    Ack = 4,
    /// The chunk failed.
    Fail = 5,
    /// Nothing more of the attempt follows on this stream.
    Drop = 6,
}

impl StreamKind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Write,
            2 => Self::Read,
            3 => Self::Data,
            4 => Self::Ack,
            5 => Self::Fail,
            6 => Self::Drop,
            _ => return None,
        })
    }

    /// Whether the initiator sends it.
    pub fn is_request(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Drop)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// What it is.
    pub kind: StreamKind,
    /// For a `Fail`, a number that programs can tell causes apart by; else 0.
    pub code: u8,
    /// Segments that are named.
    pub segments: u16,
    /// Bytes that name them; they follow the header.
    pub names: u32,
    /// Payload bytes that follow the names.
    pub payload: u32,
    /// The operation, numbered by the initiator.
    pub op: u64,
    /// Its attempt.
    pub attempt: u32,
    /// The chunk of the operation.
    pub chunk: u32,
}

impl StreamHeader {
    /// The bytes.
    pub fn encode(&self) -> [u8; STREAM_HEADER] {
        let mut bytes = [0; STREAM_HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = self.code;
        bytes[2..4].copy_from_slice(&self.segments.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.op.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.names.to_le_bytes());
        let check = check(&bytes);
        bytes[28..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// It is none, or breaks a bound; what follows on the stream means nothing then.
    pub fn decode(bytes: &[u8; STREAM_HEADER]) -> Result<Self, StreamError> {
        if bytes[28..] != check(bytes).to_le_bytes() {
            return Err(StreamError::Check);
        }
        let kind = StreamKind::from_number(bytes[0]).ok_or(StreamError::Kind(bytes[0]))?;
        let header = Self {
            kind,
            code: bytes[1],
            segments: u16::from_le_bytes([bytes[2], bytes[3]]),
            payload: u32::from_le_bytes(array(&bytes[4..8])),
            op: u64::from_le_bytes(array(&bytes[8..16])),
            attempt: u32::from_le_bytes(array(&bytes[16..20])),
            chunk: u32::from_le_bytes(array(&bytes[20..24])),
            names: u32::from_le_bytes(array(&bytes[24..28])),
        };
        let (segments, payload) = match kind {
            StreamKind::Write => (MAX_STREAM_SEGMENTS, MAX_STREAM_PAYLOAD),
            StreamKind::Read => (MAX_STREAM_SEGMENTS, 0),
            StreamKind::Data => (0, MAX_STREAM_PAYLOAD),
            StreamKind::Fail => (0, 1024),
            StreamKind::Ack | StreamKind::Drop => (0, 0),
        };
        let named = header.segments > 0;
        let names = if named { STREAM_GROUP as u32..=MAX_STREAM_NAMES } else { 0..=0 };
        if header.segments > segments || header.payload > payload || !names.contains(&header.names) {
            return Err(StreamError::TooLarge {
                kind,
                segments: header.segments,
                names: header.names,
                payload: header.payload,
            });
        }
        Ok(header)
    }
}

/// The first bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHello {
    /// The link that it belongs to, as the target has named it on the control channel.
    pub link: [u8; 16],
    /// Which of the link's streams this is.
    pub stream: u8,
    /// How many there are.
    pub streams: u8,
}

impl StreamHello {
    /// The bytes, with the proof that the sender shares the control channel's key.
    pub fn encode(&self, key: &ChannelKey) -> [u8; STREAM_HELLO] {
        let mut bytes = [0; STREAM_HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.link);
        bytes[24] = self.stream;
        bytes[25] = self.streams;
        let proof = self.proof(key);
        bytes[32..].copy_from_slice(proof.as_bytes());
        bytes
    }

    /// Whether these bytes begin a data stream rather than a control channel.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.len() >= 8 && bytes[..8] == MAGIC
    }

    /// Reads what is not secret; the proof is checked by [`verify`](Self::verify), once the link is known.
    pub fn decode(bytes: &[u8; STREAM_HELLO]) -> Option<Self> {
        let (link, stream, streams) = (array(&bytes[8..24]), bytes[24], bytes[25]);
        (Self::is_one(bytes) && stream < streams && streams <= MAX_STREAMS).then_some(Self {
            link,
            stream,
            streams,
        })
    }

    /// Whether the proof in `bytes` is right; takes the same time wherever it is wrong.
    pub fn verify(&self, bytes: &[u8; STREAM_HELLO], key: &ChannelKey) -> bool {
        self.proof(key) == blake3::Hash::from_bytes(array(&bytes[32..]))
    }

    fn proof(&self, key: &ChannelKey) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher.update(b"data stream").update(&self.link).update(&[self.stream, self.streams]);
        hasher.finalize()
    }
}

/// What both ends of a control channel know after the handshake, and nobody else. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct ChannelKey(pub(crate) [u8; 32]);

impl std::fmt::Debug for ChannelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChannelKey(..)")
    }
}

/// Why bytes are no frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The header does not fit together.
    #[error("the header of a data frame does not fit together")]
    Check,
    /// An unknown kind.
    #[error("unknown data frame {0}")]
    Kind(u8),
    /// More than a frame of its kind may hold.
    #[error("a {kind:?} frame with {segments} segments in {names} bytes, and a payload of {payload}")]
    TooLarge {
        /// Its kind.
        kind: StreamKind,
        /// Segments announced.
        segments: u16,
        /// Bytes announced that name them.
        names: u32,
        /// Payload bytes announced.
        payload: u32,
    },
    /// The bytes that name segments break their form, or name more or fewer than were announced.
    #[error("segments that cannot be read")]
    Names,
}

// Any mixing will do; a multiply between folds spreads each field over all bits.
fn check(bytes: &[u8; STREAM_HEADER]) -> u32 {
    let mut sum: u64 = 0x6b76_6665_7272_7931;
    for word in bytes[..24].as_chunks::<8>().0 {
        sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    sum ^= u64::from(u32::from_le_bytes(array(&bytes[24..28])));
    (sum ^ (sum >> 32)) as u32
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests;
