use std::{io, os::fd::AsFd, sync::Arc};

use kvferry_proto::{STREAM_GROUP, STREAM_HEADER, StreamHeader};
use rustix::net::RecvFlags;

use super::{frame::Payload, op::WireOp};

/// How far the frame that comes in has come.
pub(super) enum Input {
    /// Nothing of it has, or a part of its header, which lies ahead.
    Header,
    Names {
        header: StreamHeader,
        bytes: Vec<u8>,
        got: usize,
    },
    /// Bytes into memory; `left` of them are to come.
    Payload {
        header: StreamHeader,
        payload: Payload,
        left: u64,
        op: Option<Arc<WireOp>>,
    },
    /// Bytes into nowhere. What to answer once they are through.
    Waste {
        header: StreamHeader,
        left: u64,
        code: u8,
        detail: &'static str,
    },
    /// Words for people.
    Text {
        header: StreamHeader,
        bytes: Vec<u8>,
        got: usize,
    },
}

/// The most that is read ahead: what is known to come before any payload.
const AHEAD: usize = STREAM_HEADER + STREAM_GROUP;

/// Bytes that were taken from the socket before it was known what they are; never of a payload, which has to go straight into
/// its place.
pub(super) struct Ahead {
    bytes: [u8; AHEAD],
    got: usize,
    /// The last call found less than it had room for: there is nothing more now.
    dry: bool,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self { bytes: [0; AHEAD], got: 0, dry: false }
    }

    /// The socket may have more again.
    pub(super) fn refresh(&mut self) {
        self.dry = false;
    }

    pub(super) fn is_dry(&self) -> bool {
        self.dry
    }

    pub(super) fn is_empty(&self) -> bool {
        self.got == 0
    }

    /// Sees to it that a header is here, or a part of it; with `more`, also what comes after it.
    pub(super) fn fill(&mut self, fd: impl AsFd, more: bool) -> io::Result<()> {
        if self.got < STREAM_HEADER {
            let until = if more { AHEAD } else { STREAM_HEADER };
            self.got += recv(fd, &mut self.bytes[self.got..until], &mut self.dry)?;
        }
        Ok(())
    }

    pub(super) fn has_header(&self) -> bool {
        self.got >= STREAM_HEADER
    }

    /// Takes a header, if one is here.
    pub(super) fn header(&mut self) -> Option<[u8; STREAM_HEADER]> {
        let mut header = [0; STREAM_HEADER];
        self.has_header().then(|| {
            self.take(&mut header);
            header
        })
    }

    /// Reads what comes next, from here or from the socket; `WouldBlock` if there is nothing.
    pub(super) fn read(&mut self, fd: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() && !into.is_empty() {
            return recv(fd, into, &mut self.dry);
        }
        Ok(self.take(into))
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = self.got.min(into.len());
        into[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes.copy_within(count..self.got, 0);
        self.got -= count;
        count
    }

    /// Where the bytes behind a payload may go; [`came`](Self::came) says how many did.
    pub(super) fn room(&mut self) -> io::Result<&mut [u8]> {
        if self.is_empty() { Ok(&mut self.bytes) } else { Err(broken("a payload out of place".into())) }
    }

    pub(super) fn came(&mut self, bytes: usize) {
        self.got = bytes;
        self.dry = bytes < AHEAD;
    }
}

fn recv(fd: impl AsFd, into: &mut [u8], dry: &mut bool) -> io::Result<usize> {
    if *dry {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let (_, n) = rustix::io::retry_on_intr(|| rustix::net::recv(&fd, &mut *into, RecvFlags::DONTWAIT))?;
    if n == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *dry = n < into.len();
    Ok(n)
}

pub(super) fn broken(detail: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer broke the protocol: {detail}"))
}
