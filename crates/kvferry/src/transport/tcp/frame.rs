use std::{io, os::fd::BorrowedFd, sync::Arc};

use kvferry_proto::{StreamHeader, StreamKind};
use kvferry_sys::{BusyGuard, Gather, RegionSlice};

use super::{
    io::Thread,
    link::TcpLink,
    op::{Inside, WireOp},
};
use crate::region::LocalRegion;

/// What completes a frame whose memory may not be touched any more.
static FILLER: [u8; 64 << 10] = [0; 64 << 10];

/// A frame that is being sent.
pub(super) struct OutFrame {
    /// Header and segments.
    head: Vec<u8>,
    payload: Payload,
    payload_len: u64,
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
    /// A frame without memory: a header and, for people, some bytes.
    pub(super) fn small(header: &StreamHeader, text: &[u8]) -> Self {
        let mut head = header.encode().to_vec();
        head.extend_from_slice(text);
        Self::new(head, Payload::default(), Owner::Nobody)
    }

    /// Sends nothing; comes back to its stream when all before it is sent.
    pub(super) fn mark(op: u64, attempt: u32) -> Self {
        Self::new(Vec::new(), Payload::default(), Owner::Mark { op, attempt })
    }

    pub(super) fn new(head: Vec<u8>, payload: Payload, owner: Owner) -> Self {
        let payload_len = payload.slices.iter().map(RegionSlice::len).sum();
        Self { head, payload, payload_len, sent: 0, spoiled: false, owner }
    }

    /// Whether the payload's memory went away before all of it was sent.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// Sends on. Memory is touched only under a busy word of ours, while its regions and its transfer are alive.
    pub(super) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        gather: &mut Gather,
        thread: &Thread,
        link: &TcpLink,
    ) -> io::Result<Sent> {
        if self.payload_len > 0 && !self.spoiled {
            let head = self.head.get(self.sent as usize..).unwrap_or_default();
            let Some(_guard) = self.guard(thread, link) else {
                self.spoil(link);
                return Ok(Sent::Part);
            };
            return match gather.send(fd, head, self.payload.rest()) {
                Ok(sent) => {
                    self.payload.advance((sent as u64).saturating_sub(head.len() as u64));
                    Ok(self.advance(sent))
                }
                Err(e) if e.raw_os_error() == Some(kvferry_sys::Errno::FAULT.raw_os_error()) => {
                    let (slice, offset) = self.payload.place();
                    let addr = self.payload.slices.get(slice).map_or(0, |s| s.addr() + offset);
                    if let Owner::Op(op) = &self.owner {
                        op.local_fault(addr);
                    }
                    drop(_guard);
                    self.spoil(link);
                    Ok(Sent::Part)
                }
                Err(e) => blocked(e),
            };
        }
        if self.spoiled {
            if self.sent == 0 {
                return Ok(Sent::All);
            }
            // Filler must not land: the other side has to have heard first that the attempt is over.
            if !self.is_discarded(link) {
                return Ok(Sent::Waiting);
            }
        }
        let left = self.left();
        let head = self.head.get(self.sent as usize..).unwrap_or_default();
        let bytes = if head.is_empty() { &FILLER[..left.min(FILLER.len() as u64) as usize] } else { head };
        if bytes.is_empty() {
            return Ok(Sent::All);
        }
        match gather.send(fd, bytes, []) {
            Ok(sent) => Ok(self.advance(sent)),
            Err(e) => blocked(e),
        }
    }

    fn advance(&mut self, sent: usize) -> Sent {
        self.sent += sent as u64;
        if self.left() == 0 { Sent::All } else { Sent::Part }
    }

    fn left(&self) -> u64 {
        (self.head.len() as u64 + self.payload_len).saturating_sub(self.sent)
    }

    /// The payload's memory may not be touched any more: the transfer ends, and the other side is told.
    fn spoil(&mut self, link: &TcpLink) {
        self.spoiled = true;
        match &self.owner {
            Owner::Op(op) => op.local_gone(),
            Owner::Peer { op, attempt, .. } if self.sent > 0 => link.spoiled(*op, *attempt),
            _ => {}
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

    fn guard<'a>(&self, thread: &'a Thread, link: &TcpLink) -> Option<(BusyGuard<'a>, Option<Inside>)> {
        if let Owner::Peer { op, attempt, .. } = self.owner
            && link.is_barred(op, attempt)
        {
            return None;
        }
        let busy = thread.board.enter(thread.slot, || self.payload.is_alive())?;
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

/// The header of a frame that answers for a chunk.
pub(super) fn answer(kind: StreamKind, code: u8, op: u64, attempt: u32, chunk: u32, text: &[u8]) -> OutFrame {
    let payload = text.len() as u32;
    OutFrame::small(&StreamHeader { kind, code, segments: 0, payload, op, attempt, chunk }, text)
}
