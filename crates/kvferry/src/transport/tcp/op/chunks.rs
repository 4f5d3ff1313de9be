use std::sync::{
    Arc,
    atomic::Ordering::{Relaxed, SeqCst},
};

use kvferry_proto::{
    ChunkLimits, MAX_STREAM_PAYLOAD, Op, RouteId, STREAM_GROUP, Segment, StreamHeader, StreamKind,
    StreamSegment,
};
use kvferry_sys::MAX_GATHER;

use super::{
    super::frame::{OutFrame, Owner, Payload},
    FAIL_REGION, FAIL_UNMAPPED, Next, State, WINDOW, WireOp,
};
use crate::error::{FaultCause, FaultSide};

impl WireOp {
    /// The next frame to send. The op goes back into the link's queue by itself when there is more.
    pub(in super::super) fn next_frame(self: &Arc<Self>) -> Next {
        if !self.gate.enter() {
            return Next::Nothing;
        }
        let frame = if self.op == Op::Read && !self.link.may_read() {
            Next::Later
        } else {
            self.build().map_or(Next::Nothing, Next::Frame)
        };
        self.settle(self.gate.exit());
        frame
    }

    fn build(self: &Arc<Self>) -> Option<OutFrame> {
        let mut state = crate::lock(&self.state);
        if state.exhausted || state.stopped || state.outstanding.len() >= WINDOW {
            return None;
        }
        let limits = ChunkLimits { max_vectors: MAX_GATHER, max_bytes: MAX_STREAM_PAYLOAD.into() };
        let State { cursor, chunk, .. } = &mut *state;
        let ours = |local, remote| self.share.holds(local, remote).then_some(RouteId(0));
        if !cursor.next_chunk(limits, ours, chunk) {
            state.exhausted = true;
            if state.outstanding.is_empty() {
                // What was left of the plan is not ours: the last acknowledgement could not know.
                self.gate.exhaust();
            }
            return None;
        }
        state.exhausted = state.cursor.is_exhausted();
        let mut segments = state.chunk.segments().to_vec();
        // Those of one region are named together. Their order is as good as any other.
        if !segments.is_sorted_by_key(|s| s.remote_slot) {
            segments.sort_by_key(|s| s.remote_slot);
        }
        self.clock.first();
        self.clock.segments.fetch_add(segments.len() as u64, Relaxed);
        if segments.iter().any(|s| self.remote[s.remote_slot as usize].is_revoked()) {
            drop(state);
            self.fail(FaultCause::Revoked { side: FaultSide::Remote });
            return None;
        }
        state.next += 1;
        state.sent = true;
        let number = state.next;
        let write = self.op == Op::Write;
        let mut names = Vec::with_capacity(STREAM_GROUP + 6 * segments.len());
        let named: Vec<StreamSegment> = segments.iter().map(|s| self.named(s)).collect();
        StreamSegment::encode(&named, &mut names);
        let header = StreamHeader {
            kind: if write { StreamKind::Write } else { StreamKind::Read },
            code: 0,
            segments: segments.len() as u16,
            names: names.len() as u32,
            payload: if write { state.chunk.bytes() as u32 } else { 0 },
            op: self.id,
            attempt: self.attempt(),
            chunk: number,
        };
        let head = [&header.encode()[..], &names].concat();
        let payload = if write { self.payload(&segments) } else { Payload::default() };
        if !write {
            self.link.read_begun();
        }
        let more = !state.exhausted;
        state.outstanding.insert(number, segments);
        drop(state);
        if more {
            self.link.enqueue(self);
        }
        Some(OutFrame::new(head, payload, Owner::Op(self.clone())))
    }

    /// A segment as the target knows it.
    fn named(&self, s: &Segment) -> StreamSegment {
        let region = &self.remote[s.remote_slot as usize].region;
        let offset = s.remote_addr - region.desc.addr;
        // No longer than a frame's payload.
        StreamSegment { region: region.id, key: region.key, offset, len: s.len as u32 }
    }

    fn payload(&self, segments: &[Segment]) -> Payload {
        let mut payload = Payload::default();
        for s in segments {
            let region = &self.local[s.local_slot as usize];
            // The plan was checked against the region when it was built, so it is inside.
            if let Some(slice) = region.slice(s.local_addr, s.len) {
                payload.push(slice, region);
            }
        }
        payload
    }

    /// Where the bytes of a chunk that was asked for go; `None` if nobody waits for it.
    pub(in super::super) fn place(&self, attempt: u32, chunk: u32) -> Option<Payload> {
        if attempt != self.attempt() || self.op != Op::Read {
            return None;
        }
        let state = crate::lock(&self.state);
        state.outstanding.get(&chunk).map(|segments| self.payload(segments))
    }

    /// The target has a chunk, or its bytes are all here.
    pub(in super::super) fn acknowledged(self: &Arc<Self>, attempt: u32, chunk: u32) -> Result<(), String> {
        if attempt != self.attempt() {
            return Ok(());
        }
        let (done, more) = {
            let mut state = crate::lock(&self.state);
            if state.outstanding.remove(&chunk).is_none() {
                // Of a stopped attempt nothing is waited for.
                return if state.stopped {
                    Ok(())
                } else {
                    Err("a chunk was acknowledged that was not sent".into())
                };
            }
            if self.op == Op::Read {
                self.link.reads_over(1);
            }
            (state.exhausted && state.outstanding.is_empty(), !state.exhausted)
        };
        if done {
            // Nobody sends any more; what this tells, it tells to whoever is last.
            self.settle(self.gate.exhaust());
            if self.unresolved.load(SeqCst) {
                self.resolve();
            }
        } else if more {
            self.link.enqueue(self);
        }
        Ok(())
    }

    /// The target could not do a chunk.
    pub(in super::super) fn refused(self: &Arc<Self>, attempt: u32, chunk: u32, code: u8, detail: String) {
        if attempt != self.attempt() {
            return;
        }
        let first = crate::lock(&self.state).outstanding.get(&chunk).and_then(|s| s.first().copied());
        self.fail(match (code, first) {
            (FAIL_REGION, _) => FaultCause::Revoked { side: FaultSide::Remote },
            (FAIL_UNMAPPED, Some(s)) => {
                let block = self.plan.position_at(&s, 0).unwrap_or(s.first_index);
                FaultCause::Unmapped { side: FaultSide::Remote, block, addr: s.remote_addr }
            }
            _ => FaultCause::Executor { detail },
        });
    }

    /// Our own memory is not there at `addr`.
    pub(in super::super) fn local_fault(self: &Arc<Self>, addr: u64) {
        let block = {
            let state = crate::lock(&self.state);
            let hit = |s: &&Segment| (s.local_addr..s.local_addr + s.len).contains(&addr);
            let segment = state.outstanding.values().flatten().find(hit).copied();
            segment.and_then(|s| self.plan.position_at(&s, addr - s.local_addr)).unwrap_or_default()
        };
        self.fail(FaultCause::Unmapped { side: FaultSide::Local, block, addr });
    }
}
