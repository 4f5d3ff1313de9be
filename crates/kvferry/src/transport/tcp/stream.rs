use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use kvferry_proto::{STREAM_HEADER, STREAM_HELLO, STREAM_SEGMENT, StreamHeader, StreamKind, StreamSegment};
use kvferry_sys::{ClosedInChild, Errno, Gather};
use rustix::{event::epoll::EventFlags, net::RecvFlags};

use super::{
    frame::{OutFrame, Owner, Payload, Sent, answer},
    io::Thread,
    link::TcpLink,
    op::{FAIL_OTHER, FAIL_REGION, FAIL_UNMAPPED, Next, WireOp},
};

/// Frames of one turn, so that one stream does not keep the others of its thread waiting.
const TURN: usize = 32;

/// Chunks that a peer may have asked for on one stream.
const MAX_ASKED: usize = 256;

/// Answers that may wait to be sent on one stream.
const MAX_ANSWERS: usize = 1024;

/// One data stream, on its thread.
pub(super) struct Stream {
    _closed_in_child: ClosedInChild,
    pub(super) link: Arc<TcpLink>,
    pub(super) fd: OwnedFd,
    /// What the thread waits for.
    pub(super) watched: EventFlags,
    number: u8,
    connecting: bool,
    blocked: bool,
    out: Option<OutFrame>,
    answers: VecDeque<OutFrame>,
    /// Chunks that the peer has asked for.
    asked: usize,
    input: Input,
}

/// How far the frame that comes in has come.
enum Input {
    Header {
        bytes: [u8; STREAM_HEADER],
        got: usize,
    },
    Segments {
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

const START: Input = Input::Header { bytes: [0; STREAM_HEADER], got: 0 };

enum Step {
    /// Something was done; go on.
    Done,
    /// Nothing more is there.
    Dry,
}

impl Stream {
    pub(super) fn new(link: Arc<TcpLink>, number: u8, fd: OwnedFd, connecting: bool) -> Self {
        Self {
            _closed_in_child: ClosedInChild::new(&fd),
            link,
            fd,
            watched: if connecting { EventFlags::OUT } else { EventFlags::IN },
            number,
            connecting,
            blocked: false,
            out: None,
            answers: VecDeque::new(),
            asked: 0,
            input: START,
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.connecting
    }

    /// The connection stands, or not: says hello.
    pub(super) fn connected(&mut self) -> io::Result<()> {
        if kvferry_sys::connected(&self.fd)?.is_none() {
            return Ok(());
        }
        self.connecting = false;
        let hello: [u8; STREAM_HELLO] = self.link.hello(self.number);
        // An empty socket takes so few bytes whole.
        let sent = Gather::new().send(&self.fd, &hello, [])?;
        if sent == hello.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// What the thread is to wait for.
    pub(super) fn wanted(&self) -> EventFlags {
        let read = if self.is_full() { EventFlags::empty() } else { EventFlags::IN };
        if self.blocked { read | EventFlags::OUT } else { read }
    }

    /// Whether so many answers wait that nothing more is taken in: a peer that asks and does not read costs little.
    fn is_full(&self) -> bool {
        self.answers.len() >= MAX_ANSWERS
    }

    // Out.

    /// Sends frames until nothing goes, or there is none.
    pub(super) fn send(&mut self, thread: &Thread, gather: &mut Gather) -> io::Result<()> {
        for _ in 0..TURN {
            if self.blocked {
                return Ok(());
            }
            if self.out.is_none() {
                self.out = self.next();
            }
            let Some(frame) = &mut self.out else { return Ok(()) };
            match frame.send(self.fd.as_fd(), gather, thread, &self.link)? {
                Sent::Part => {}
                Sent::Waiting => return Ok(()),
                Sent::Blocked => self.blocked = true,
                Sent::All => {
                    if let Some(frame) = self.out.take() {
                        self.sent(&frame);
                    }
                }
            }
        }
        // More is to come: let the others have their turn first.
        self.blocked = true;
        Ok(())
    }

    fn next(&mut self) -> Option<OutFrame> {
        if let Some(frame) = self.answers.pop_front() {
            return Some(frame);
        }
        if let Some(frame) = self.link.extra(self.number) {
            return Some(frame);
        }
        while let Some(op) = self.link.dequeue() {
            match op.next_frame() {
                Next::Frame(frame) => return Some(frame),
                Next::Nothing => {}
                Next::Later => {
                    self.link.put_back(&op);
                    return None;
                }
            }
        }
        None
    }

    fn sent(&mut self, frame: &OutFrame) {
        let (op, attempt, chunk) = match frame.owner {
            Owner::Peer { op, attempt, chunk } => (op, attempt, chunk),
            Owner::Mark { op, attempt } => return self.link.dropped(op, attempt),
            Owner::Nobody | Owner::Op(_) => return,
        };
        self.asked = self.asked.saturating_sub(1);
        if self.link.is_barred(op, attempt) {
            // Nobody waits for an answer, or the control channel gives it.
            return;
        }
        let (kind, code, text): (_, _, &[u8]) = if frame.is_spoiled() {
            (StreamKind::Fail, FAIL_REGION, b"the region went away while it was read")
        } else {
            (StreamKind::Ack, 0, b"")
        };
        self.answers.push_front(answer(kind, code, op, attempt, chunk, text));
    }

    // In.

    /// Takes in what has come, for a turn.
    pub(super) fn receive(
        &mut self,
        thread: &Thread,
        gather: &mut Gather,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        for _ in 0..TURN * 4 {
            if self.is_full() {
                return Ok(());
            }
            match self.step(thread, gather, scratch) {
                Ok(Step::Done) => {}
                Ok(Step::Dry) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn step(&mut self, thread: &Thread, gather: &mut Gather, scratch: &mut [u8]) -> io::Result<Step> {
        match &mut self.input {
            Input::Header { bytes, got } => {
                *got += read(&self.fd, &mut bytes[*got..])?;
                if *got == bytes.len() {
                    let header = StreamHeader::decode(bytes).map_err(|e| broken(e.to_string()))?;
                    self.header(header)?;
                }
            }
            Input::Segments { header, bytes, got } => {
                *got += read(&self.fd, &mut bytes[*got..])?;
                if *got == bytes.len() {
                    let (header, bytes) = (*header, std::mem::take(bytes));
                    self.segments(header, &bytes)?;
                }
            }
            Input::Text { header, bytes, got } => {
                *got += read(&self.fd, &mut bytes[*got..])?;
                if *got == bytes.len() {
                    let (header, bytes) = (*header, std::mem::take(bytes));
                    self.input = START;
                    if let Some(op) = self.link.op(header.op) {
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        op.refused(header.attempt, header.chunk, header.code, text);
                    }
                }
            }
            Input::Waste { header, left, code, detail } => {
                let most = (*left).min(scratch.len() as u64) as usize;
                *left -= read(&self.fd, &mut scratch[..most])? as u64;
                if *left == 0 {
                    let (header, code, detail) = (*header, *code, *detail);
                    self.input = START;
                    self.wasted(&header, code, detail);
                }
            }
            Input::Payload { .. } => return self.payload(thread, gather),
        }
        Ok(Step::Done)
    }

    fn payload(&mut self, thread: &Thread, gather: &mut Gather) -> io::Result<Step> {
        let Input::Payload { header, payload, left, op } = &mut self.input else { return Ok(Step::Done) };
        let header = *header;
        if op.is_none() && self.link.control_waits() {
            // What the peer has taken back is said there: it counts before these bytes do.
            std::thread::yield_now();
            return Ok(Step::Dry);
        }
        let link = &self.link;
        let alive = || payload.is_alive() && (op.is_some() || !link.is_barred(header.op, header.attempt));
        let busy = thread.board.enter(thread.slot, alive);
        let inside = op.as_ref().map(|op| op.enter());
        let refused = busy.is_none() || matches!(inside, Some(None));
        if refused {
            let (code, detail) = (FAIL_REGION, "the region is gone");
            drop((busy, inside));
            let (left, op) = (*left, op.take());
            self.input = Input::Waste { header, left, code, detail };
            if let Some(op) = op {
                op.local_gone();
            }
            return Ok(Step::Done);
        }
        let received = gather.receive(&self.fd, payload.rest());
        drop((busy, inside));
        match received {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                payload.advance(n as u64);
                *left -= n as u64;
                if *left == 0 {
                    self.input = START;
                    self.received(&header);
                }
                Ok(Step::Done)
            }
            Err(e) if e.raw_os_error() == Some(Errno::FAULT.raw_os_error()) => {
                let (slice, offset) = payload.place();
                let addr = payload.slices.get(slice).map_or(0, |s| s.addr() + offset);
                let (left, op) = (*left, op.take());
                self.input =
                    Input::Waste { header, left, code: FAIL_UNMAPPED, detail: "memory is not mapped" };
                if let Some(op) = op {
                    op.local_fault(addr);
                }
                Ok(Step::Done)
            }
            Err(e) => Err(e),
        }
    }

    fn header(&mut self, header: StreamHeader) -> io::Result<()> {
        if header.kind.is_request() == self.link.initiator {
            return Err(broken(format!("a {:?} frame from the wrong side", header.kind)));
        }
        self.input = START;
        match header.kind {
            StreamKind::Write | StreamKind::Read if header.segments == 0 => {
                return Err(broken("a request without segments".into()));
            }
            StreamKind::Write | StreamKind::Read => {
                let bytes = vec![0; usize::from(header.segments) * STREAM_SEGMENT];
                self.input = Input::Segments { header, bytes, got: 0 };
            }
            StreamKind::Data => self.data(header)?,
            StreamKind::Ack => {
                if let Some(op) = self.link.op(header.op) {
                    op.acknowledged(header.attempt, header.chunk).map_err(broken)?;
                }
            }
            StreamKind::Fail => {
                self.input = Input::Text { header, bytes: vec![0; header.payload as usize], got: 0 };
            }
            // Behind the answers: as long as one of them stands half sent, it must be known that the attempt is stopped.
            StreamKind::Drop => self.answers.push_back(OutFrame::mark(header.op, header.attempt)),
        }
        Ok(())
    }

    /// The bytes of a chunk that we have asked for.
    fn data(&mut self, header: StreamHeader) -> io::Result<()> {
        let left = u64::from(header.payload);
        let op = self.link.op(header.op);
        let place = op.as_ref().and_then(|op| op.place(header.attempt, header.chunk));
        self.input = match place {
            Some(payload) => {
                if payload.slices.iter().map(|s| s.len()).sum::<u64>() != left {
                    return Err(broken("a chunk of another length than was asked for".into()));
                }
                Input::Payload { header, payload, left, op }
            }
            None if left == 0 => START,
            None => Input::Waste { header, left, code: 0, detail: "" },
        };
        Ok(())
    }

    /// The segments of a request are here: finds the memory.
    fn segments(&mut self, header: StreamHeader, bytes: &[u8]) -> io::Result<()> {
        let mut payload = Payload::default();
        let mut sum: u64 = 0;
        let mut missing = self.link.is_barred(header.op, header.attempt);
        for bytes in bytes.as_chunks::<STREAM_SEGMENT>().0 {
            let segment = StreamSegment::decode(bytes);
            sum = sum.saturating_add(segment.len);
            let region = self.link.registry.get(segment.region).filter(|r| r.key() == segment.key);
            let slice = region.as_ref().and_then(|r| {
                let addr = r.desc().addr.checked_add(segment.offset)?;
                r.slice(addr, segment.len)
            });
            match (region, slice) {
                (Some(region), Some(slice)) if segment.len > 0 => payload.push(slice, &region),
                _ => missing = true,
            }
        }
        if sum > u64::from(kvferry_proto::MAX_STREAM_PAYLOAD) {
            return Err(broken(format!("a chunk of {sum} bytes")));
        }
        let detail = "the region is gone, or the key is wrong, or the range leaves it";
        if header.kind == StreamKind::Write {
            if sum != u64::from(header.payload) {
                return Err(broken("segments and payload of different lengths".into()));
            }
            self.input = if missing {
                Input::Waste { header, left: sum, code: FAIL_REGION, detail }
            } else {
                Input::Payload { header, payload, left: sum, op: None }
            };
            return Ok(());
        }
        self.input = START;
        if missing {
            self.wasted(&header, FAIL_REGION, detail);
            return Ok(());
        }
        self.asked += 1;
        if self.asked > MAX_ASKED {
            return Err(broken("more chunks were asked for than the window allows".into()));
        }
        let StreamHeader { op, attempt, chunk, .. } = header;
        let head = StreamHeader { kind: StreamKind::Data, segments: 0, payload: sum as u32, ..header };
        self.answers.push_back(OutFrame::new(
            head.encode().to_vec(),
            payload,
            Owner::Peer { op, attempt, chunk },
        ));
        Ok(())
    }

    /// A chunk is in place.
    fn received(&mut self, header: &StreamHeader) {
        if header.kind == StreamKind::Write {
            let StreamHeader { op, attempt, chunk, .. } = *header;
            self.answers.push_back(answer(StreamKind::Ack, 0, op, attempt, chunk, b""));
        }
        // The bytes that we asked for count once the target has vouched for them.
    }

    /// A chunk went nowhere.
    fn wasted(&mut self, header: &StreamHeader, code: u8, detail: &str) {
        let StreamHeader { op, attempt, chunk, .. } = *header;
        if header.kind == StreamKind::Data || self.link.is_barred(op, attempt) {
            // Nobody waits for an answer.
            return;
        }
        let code = if code == 0 { FAIL_OTHER } else { code };
        self.answers.push_back(answer(StreamKind::Fail, code, op, attempt, chunk, detail.as_bytes()));
    }
}

fn read(fd: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    if into.is_empty() {
        return Ok(0);
    }
    let (_, n) = rustix::io::retry_on_intr(|| rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT))?;
    if n == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(n) }
}

fn broken(detail: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer broke the protocol: {detail}"))
}
