//! From a stream of bytes to frames.

use super::{FRAME_HEADER, Frame, FrameError, Header, MAX_FRAME_BODY, body};

/// Holds at most this much: one frame, whole.
const CAPACITY: usize = FRAME_HEADER + MAX_FRAME_BODY;

/// An idle reader keeps no more than this.
const IDLE: usize = 64 << 10;

/// Puts frames together from bytes in any pieces; holds at most one whole frame, whatever the peer announces.
///
/// ```
/// # use kvferry_proto::{Frame, FrameReader};
/// # let mut received = Vec::new();
/// # Frame::Ready.encode_into(&mut received).unwrap();
/// # let received = &received[..];
/// let mut reader = FrameReader::new();
/// let mut rest = received;
/// while !rest.is_empty() {
///     rest = &rest[reader.push(rest)..];
///     while let Some(frame) = reader.pop()? {
///         println!("{}", frame.name());
///     }
/// }
/// # Ok::<(), kvferry_proto::FrameError>(())
/// ```
#[derive(Debug, Default)]
pub struct FrameReader {
    pub(super) bytes: Vec<u8>,
    /// Where the next frame begins in `bytes`.
    start: usize,
    error: Option<FrameError>,
}

impl FrameReader {
    /// An empty reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the stream and returns how many of them; call [`pop`](Self::pop) until it is empty, then push the
    /// rest. After that at least one byte is taken, so a loop over both always ends. After an error all bytes are
    /// dropped.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if self.error.is_some() {
            return bytes.len();
        }
        let taken = bytes.len().min(CAPACITY - self.held());
        if self.start > 0 && self.bytes.len() + taken > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// The next frame, once all of it is there.
    ///
    /// # Errors
    /// The stream is no sequence of frames; the same error comes for ever after.
    pub fn pop(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let popped = self.try_pop();
        if let Err(error) = &popped {
            *self = Self { error: Some(error.clone()), ..Self::default() };
        }
        popped
    }

    /// Bytes that are held and not yet part of a popped frame.
    pub fn held(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn try_pop(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((head, rest)) = self.bytes[self.start..].split_first_chunk() else {
            return Ok(None);
        };
        let header = Header::parse(*head)?;
        let Some(body) = rest.get(..header.len) else {
            return Ok(None);
        };
        let frame = body::read(header, body)?;
        self.start += FRAME_HEADER + header.len;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(IDLE);
            self.start = 0;
        }
        Ok(Some(frame))
    }
}
