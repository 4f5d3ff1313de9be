use std::{io, os::fd::BorrowedFd, sync::Arc};

use kvferry_proto::{StreamHeader, StreamKind};
use kvferry_sys::{BusyGuard, RegionSlice};

use super::{
    io::Thread,
    link::TcpLink,
    op::{FAIL_REGION, Inside, WireOp},
};
use crate::{region::LocalRegion, transport::same_host::Board};

/// What completes a frame whose memory may not be touched any more.
static FILLER: [u8; 64 << 10] = [0; 64 << 10];

/// Most bytes of small frames that are sent together.
const JOINED: usize = 4096;

/// A frame that is being sent, with what has to follow it at once.
pub(super) struct OutFrame {
    /// Header and names.
    head: Vec<u8>,
    payload: Payload,
    payload_len: u64,
    /// What says whether the payload is good, if this does not wait for the other side's word.
    tail: Vec<u8>,
    sent: u64,
    /// Set once the payload's memory may not be touched: the rest is filler.
    spoiled: bool,
    pub(super) owner: Owner,
}

/// Whose memory a payload is, and what must hold while it is touched.
pub(super) enum Owner {
    /// A small frame without memory.
    Nobody,
    /// A transfer of ours.
    Op(Arc<WireOp>),
    /// Our memory, that a peer reads; the chunk that it asked for.
    Peer { op: u64, attempt: u32, chunk: u32 },
    /// No frame at all: the place behind which nothing of a stopped attempt is to be sent.
    Mark { op: u64, attempt: u32 },
}

/// Scattered memory, with a place in it.
#[derive(Default)]
pub(super) struct Payload {
    pub(super) slices: Vec<RegionSlice>,
    pub(super) regions: Vec<Arc<LocalRegion>>,
    next: usize,
    offset: u64,
}

impl Payload {
    pub(super) fn push(&mut self, slice: RegionSlice, region: &Arc<LocalRegion>) {
        self.slices.push(slice);
        // Neighbours mostly lie in one region; a repeat does no harm.
        if self.regions.last().is_none_or(|last| !Arc::ptr_eq(last, region)) {
            self.regions.push(region.clone());
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.regions.iter().all(|r| !r.is_gone())
    }

    /// What is left, from the place on.
    pub(super) fn rest(&self) -> impl Iterator<Item = RegionSlice> + '_ {
        let first = self.slices.get(self.next).and_then(|s| s.slice(self.offset, s.len() - self.offset));
        first.into_iter().chain(self.slices.iter().skip(self.next + 1).copied())
    }

    /// Number of the slice at the place, and the offset in it.
    pub(super) fn place(&self) -> (usize, u64) {
        (self.next, self.offset)
    }

    pub(super) fn advance(&mut self, mut bytes: u64) {
        while let Some(slice) = self.slices.get(self.next) {
            let left = slice.len() - self.offset;
            if bytes < left {
                self.offset += bytes;
                return;
            }
            bytes -= left;
            self.next += 1;
            self.offset = 0;
        }
    }
}

/// What became of a try to send.
pub(super) enum Sent {
    /// All of the frame, or none of it because it is not wanted any more.
    All,
    /// A part; try again.
    Part,
    /// Nothing goes now.
    Blocked,
    /// The rest would be filler, and the other side does not discard it yet.
    Waiting,
}

impl OutFrame {
    /// Sends nothing; comes back to its stream when all before it is sent.
    pub(super) fn mark(op: u64, attempt: u32) -> Self {
        Self::new(Vec::new(), Payload::default(), Owner::Mark { op, attempt })
    }

    pub(super) fn new(head: Vec<u8>, payload: Payload, owner: Owner) -> Self {
        let payload_len = payload.slices.iter().map(RegionSlice::len).sum();
        Self { head, payload, payload_len, tail: Vec::new(), sent: 0, spoiled: false, owner }
    }

    /// Memory that the peer has asked for. The word that the bytes are good follows them, often in the same call.
    pub(super) fn data(header: &StreamHeader, payload: Payload) -> Self {
        let StreamHeader { op, attempt, chunk, .. } = *header;
        let mut frame = Self::new(header.encode().to_vec(), payload, Owner::Peer { op, attempt, chunk });
        frame.tail = plain(StreamKind::Ack, 0, op, attempt, chunk, b"");
        frame
    }

    /// Takes another frame in, to be sent with this one; false if one of the two touches memory or is too large.
    pub(super) fn join(&mut self, other: &mut Self) -> bool {
        let small = |frame: &Self| matches!(frame.owner, Owner::Nobody) && frame.sent == 0;
        let joined = small(self) && small(other) && self.head.len() + other.head.len() <= JOINED;
        if joined {
            self.head.append(&mut other.head);
        }
        joined
    }

    /// Sends on. Memory is touched only under a busy word of ours, while its regions and its transfer are alive.
    pub(super) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        thread: &mut Thread,
        link: &TcpLink,
    ) -> io::Result<Sent> {
        let before_tail = self.head.len() as u64 + self.payload_len;
        if self.sent < before_tail && self.payload_len > 0 {
            if !self.spoiled {
                return self.send_memory(fd, thread, link);
            }
            // Filler must not land: the other side has to have heard first that the attempt is over.
            if !self.is_discarded(link) {
                return Ok(Sent::Waiting);
            }
        }
        let bytes = match self.head.get(self.sent as usize..) {
            Some(head) if !head.is_empty() => head,
            _ if self.sent < before_tail => {
                &FILLER[..(before_tail - self.sent).min(FILLER.len() as u64) as usize]
            }
            _ => self.tail.get((self.sent - before_tail) as usize..).unwrap_or_default(),
        };
        if bytes.is_empty() {
            return Ok(Sent::All);
        }
        match thread.gather.send(fd, bytes, [], &[]) {
            Ok(sent) => Ok(self.advance(sent)),
            Err(e) => blocked(e),
        }
    }

    fn send_memory(&mut self, fd: BorrowedFd<'_>, thread: &mut Thread, link: &TcpLink) -> io::Result<Sent> {
        let head = self.head.get(self.sent as usize..).unwrap_or_default();
        let Some(guard) = self.guard(&thread.board, thread.slot, link) else {
            self.spoil(link);
            return Ok(Sent::Part);
        };
        let sent = thread.gather.send(fd, head, self.payload.rest(), &self.tail);
        match sent {
            Ok(sent) => {
                self.payload.advance((sent as u64).saturating_sub(head.len() as u64));
                drop(guard);
                Ok(self.advance(sent))
            }
            Err(e) if e.raw_os_error() == Some(kvferry_sys::Errno::FAULT.raw_os_error()) => {
                let (slice, offset) = self.payload.place();
                let addr = self.payload.slices.get(slice).map_or(0, |s| s.addr() + offset);
                if let Owner::Op(op) = &self.owner {
                    op.local_fault(addr);
                }
                drop(guard);
                self.spoil(link);
                Ok(Sent::Part)
            }
            Err(e) => blocked(e),
        }
    }

    fn advance(&mut self, sent: usize) -> Sent {
        self.sent += sent as u64;
        let len = (self.head.len() + self.tail.len()) as u64 + self.payload_len;
        if self.sent >= len { Sent::All } else { Sent::Part }
    }

    /// The payload's memory may not be touched any more: the transfer ends, and the other side is told.
    fn spoil(&mut self, link: &TcpLink) {
        self.spoiled = true;
        match self.owner {
            Owner::Op(ref op) => op.local_gone(),
            Owner::Peer { op, attempt, chunk } => {
                let why = b"the region went away while it was read";
                self.tail = plain(StreamKind::Fail, FAIL_REGION, op, attempt, chunk, why);
                if self.sent > 0 {
                    link.spoiled(op, attempt);
                } else if link.is_barred(op, attempt) {
                    // Nobody waits for an answer, or the control channel gives it.
                    self.tail.clear();
                }
            }
            Owner::Nobody | Owner::Mark { .. } => {}
        }
        if self.sent == 0 {
            self.head.clear();
            self.payload_len = 0;
        }
    }

    /// Whether the other side discards what is left of this frame.
    fn is_discarded(&self, link: &TcpLink) -> bool {
        match &self.owner {
            Owner::Op(op) => !op.is_unresolved(),
            Owner::Peer { op, attempt, .. } => link.is_stopped(*op, *attempt),
            Owner::Nobody | Owner::Mark { .. } => true,
        }
    }

    fn guard<'a>(
        &self,
        board: &'a Board,
        slot: usize,
        link: &TcpLink,
    ) -> Option<(BusyGuard<'a>, Option<Inside>)> {
        if let Owner::Peer { op, attempt, .. } = self.owner
            && link.is_barred(op, attempt)
        {
            return None;
        }
        let busy = board.enter(slot, || self.payload.is_alive())?;
        let inside = match &self.owner {
            Owner::Op(op) => Some(op.enter()?),
            _ => None,
        };
        Some((busy, inside))
    }
}

fn blocked(error: io::Error) -> io::Result<Sent> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(Sent::Blocked) } else { Err(error) }
}

/// A frame without segments, whose payload is for people.
pub(super) fn small(kind: StreamKind, code: u8, op: u64, attempt: u32, chunk: u32, text: &[u8]) -> OutFrame {
    OutFrame::new(plain(kind, code, op, attempt, chunk, text), Payload::default(), Owner::Nobody)
}

/// The bytes of a frame without segments, whose payload is for people.
fn plain(kind: StreamKind, code: u8, op: u64, attempt: u32, chunk: u32, text: &[u8]) -> Vec<u8> {
    let payload = text.len() as u32;
    let mut bytes =
        StreamHeader { kind, code, segments: 0, names: 0, payload, op, attempt, chunk }.encode().to_vec();
    bytes.extend_from_slice(text);
    bytes
}
