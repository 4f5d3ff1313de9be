use std::io;

use kvferry_proto::{StreamHeader, StreamKind, StreamSegment};
use kvferry_sys::Errno;

use super::{
    frame::{OutFrame, Payload, small},
    input::{Ahead, Input, broken},
    io::Thread,
    link::TcpLink,
    op::{FAIL_OTHER, FAIL_REGION, FAIL_UNMAPPED},
    sending::Sending,
};

/// Steps of one turn, so that one stream does not keep the others of its thread waiting.
const TURN: usize = 128;

/// The receiving half of a stream.
pub(super) struct Receiving {
    ahead: Ahead,
    input: Input,
}

/// Where the bytes come from, and where the answers go.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) link: &'a TcpLink,
    pub(super) sending: &'a Sending,
}

enum Step {
    /// Something was done; go on.
    Done,
    /// Nothing more is there.
    Dry,
}

impl Receiving {
    pub(super) fn new() -> Self {
        Self { ahead: Ahead::new(), input: Input::Header }
    }

    /// Takes in what has come, for a turn or until it is `over`.
    pub(super) fn turn(
        &mut self,
        way: Way<'_>,
        thread: &mut Thread,
        scratch: &mut [u8],
        over: impl Fn() -> bool,
    ) -> io::Result<()> {
        self.ahead.refresh();
        let target = !way.link.initiator;
        let silent = target && way.sending.is_silent();
        let mut steps = 0;
        loop {
            // What lies ahead is gone from the socket, which wakes nobody for it any more: it comes before any pause. It is
            // soon over, since no more is taken ahead than a header and what must follow it.
            if !self.has_step_ahead() {
                // An answer goes out before the socket is asked for what may not have come yet.
                let answered = silent && self.is_between_frames() && !way.sending.is_silent();
                if steps >= TURN || answered || (target && way.sending.is_full()) || over() {
                    return Ok(());
                }
            }
            steps += 1;
            match self.step(way, thread, scratch) {
                Ok(Step::Done) => {}
                Ok(Step::Dry) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether a step can be done with what lies ahead alone.
    fn has_step_ahead(&self) -> bool {
        match self.input {
            Input::Header => self.ahead.has_header(),
            Input::Payload { .. } => false,
            Input::Names { .. } | Input::Text { .. } | Input::Waste { .. } => !self.ahead.is_empty(),
        }
    }

    fn is_between_frames(&self) -> bool {
        matches!(self.input, Input::Header) && self.ahead.is_empty()
    }

    fn step(&mut self, way: Way<'_>, thread: &mut Thread, scratch: &mut [u8]) -> io::Result<Step> {
        let (fd, ahead) = (way.sending, &mut self.ahead);
        match &mut self.input {
            Input::Header => {
                // A request goes on with a segment; an answer may go on with a payload.
                ahead.fill(fd, !way.link.initiator)?;
                if let Some(bytes) = ahead.header() {
                    let header = StreamHeader::decode(&bytes).map_err(|e| broken(e.to_string()))?;
                    self.header(way, header)?;
                }
            }
            Input::Names { header, bytes, got } => {
                *got += ahead.read(fd, &mut bytes[*got..])?;
                if *got == bytes.len() {
                    let (header, bytes) = (*header, std::mem::take(bytes));
                    thread.moved_small |= self.segments(way, header, &bytes)? <= way.link.inline_limit();
                }
            }
            Input::Text { header, bytes, got } => {
                *got += ahead.read(fd, &mut bytes[*got..])?;
                if *got == bytes.len() {
                    let (header, bytes) = (*header, std::mem::take(bytes));
                    self.input = Input::Header;
                    if let Some(op) = way.link.op(header.op) {
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        op.refused(header.attempt, header.chunk, header.code, text);
                    }
                }
            }
            Input::Waste { header, left, code, detail } => {
                let most = (*left).min(scratch.len() as u64) as usize;
                *left -= ahead.read(fd, &mut scratch[..most])? as u64;
                if *left == 0 {
                    let (header, code, detail) = (*header, *code, *detail);
                    self.input = Input::Header;
                    wasted(way, &header, code, detail);
                }
            }
            Input::Payload { .. } => return self.payload(way, thread),
        }
        Ok(Step::Done)
    }

    fn payload(&mut self, way: Way<'_>, thread: &mut Thread) -> io::Result<Step> {
        let Input::Payload { header, payload, left, op } = &mut self.input else { return Ok(Step::Done) };
        let header = *header;
        if self.ahead.is_dry() {
            return Ok(Step::Dry);
        }
        if op.is_none() && way.link.control_waits() {
            // What the peer has taken back is said there: it counts before these bytes do.
            std::thread::yield_now();
            return Ok(Step::Dry);
        }
        let link = way.link;
        let alive = || payload.is_alive() && (op.is_some() || !link.is_barred(header.op, header.attempt));
        let busy = thread.board.enter(thread.slot, alive);
        // A frame of an earlier attempt must not pass the gate of a later one.
        let inside = op.as_ref().map(|op| op.enter().filter(|_| op.attempt() == header.attempt));
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
        let received = thread.gather.receive(way.sending, payload.rest(), self.ahead.room()?);
        drop((busy, inside));
        match received {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                let into = (n as u64).min(*left);
                self.ahead.came(n - into as usize);
                payload.advance(into);
                *left -= into;
                if *left == 0 {
                    self.input = Input::Header;
                    thread.moved_small |= u64::from(header.payload) <= way.link.inline_limit();
                    arrived(way, &header);
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

    fn header(&mut self, way: Way<'_>, header: StreamHeader) -> io::Result<()> {
        if header.kind.is_request() == way.link.initiator {
            return Err(broken(format!("a {:?} frame from the wrong side", header.kind)));
        }
        self.input = Input::Header;
        match header.kind {
            StreamKind::Write | StreamKind::Read if header.segments == 0 => {
                return Err(broken("a request without segments".into()));
            }
            StreamKind::Write | StreamKind::Read => {
                let bytes = vec![0; header.names as usize];
                self.input = Input::Names { header, bytes, got: 0 };
            }
            StreamKind::Data => self.data(way, header)?,
            StreamKind::Ack => {
                if let Some(op) = way.link.op(header.op) {
                    op.acknowledged(header.attempt, header.chunk).map_err(broken)?;
                }
            }
            StreamKind::Fail => {
                self.input = Input::Text { header, bytes: vec![0; header.payload as usize], got: 0 };
            }
            // Behind the answers: as long as one of them stands half sent, it must be known that the attempt is stopped.
            StreamKind::Drop => way.sending.answer(OutFrame::mark(header.op, header.attempt)),
        }
        Ok(())
    }

    /// The bytes of a chunk that we have asked for.
    fn data(&mut self, way: Way<'_>, header: StreamHeader) -> io::Result<()> {
        let left = u64::from(header.payload);
        let op = way.link.op(header.op);
        let place = op.as_ref().and_then(|op| op.place(header.attempt, header.chunk));
        self.input = match place {
            Some(payload) => {
                if payload.slices.iter().map(|s| s.len()).sum::<u64>() != left {
                    return Err(broken("a chunk of another length than was asked for".into()));
                }
                Input::Payload { header, payload, left, op }
            }
            None if left == 0 => Input::Header,
            None => Input::Waste { header, left, code: 0, detail: "" },
        };
        Ok(())
    }

    /// The names of a request's segments are here: finds the memory. Returns the chunk's bytes.
    fn segments(&mut self, way: Way<'_>, header: StreamHeader, bytes: &[u8]) -> io::Result<u64> {
        let mut segments = Vec::with_capacity(header.segments.into());
        StreamSegment::decode(bytes, header.segments, &mut segments).map_err(|e| broken(e.to_string()))?;
        let mut payload = Payload::default();
        let mut sum: u64 = 0;
        let mut missing = way.link.is_barred(header.op, header.attempt);
        for segment in segments {
            let len = u64::from(segment.len);
            sum += len;
            let region = way.link.registry.get(segment.region).filter(|r| r.key() == segment.key);
            let slice = region.as_ref().and_then(|r| {
                let addr = r.desc().addr.checked_add(segment.offset)?;
                r.slice(addr, len)
            });
            match (region, slice) {
                (Some(region), Some(slice)) if len > 0 => payload.push(slice, &region),
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
            return Ok(sum);
        }
        self.input = Input::Header;
        if missing {
            wasted(way, &header, FAIL_REGION, detail);
            return Ok(sum);
        }
        let head =
            StreamHeader { kind: StreamKind::Data, segments: 0, names: 0, payload: sum as u32, ..header };
        if !way.sending.asked(OutFrame::data(&head, payload)) {
            return Err(broken("more chunks were asked for than the window allows".into()));
        }
        Ok(sum)
    }
}

/// A chunk is in place.
fn arrived(way: Way<'_>, header: &StreamHeader) {
    if header.kind == StreamKind::Write {
        let StreamHeader { op, attempt, chunk, .. } = *header;
        way.sending.answer(small(StreamKind::Ack, 0, op, attempt, chunk, b""));
    }
    // The bytes that we asked for count once the target has vouched for them.
}

/// A chunk went nowhere.
fn wasted(way: Way<'_>, header: &StreamHeader, code: u8, detail: &str) {
    let StreamHeader { op, attempt, chunk, .. } = *header;
    if header.kind == StreamKind::Data || way.link.is_barred(op, attempt) {
        // Nobody waits for an answer.
        return;
    }
    let code = if code == 0 { FAIL_OTHER } else { code };
    way.sending.answer(small(StreamKind::Fail, code, op, attempt, chunk, detail.as_bytes()));
}
