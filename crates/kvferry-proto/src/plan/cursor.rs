//! Streams a plan in chunks.

use std::sync::Arc;

use super::Plan;
use super::walk::Pairs;
use crate::chunk::{Chunk, ChunkLimits, RouteId, Segment};

/// A place in a plan, from which it streams as chunks of merged segments.
///
/// Nothing is allocated for a block or a chunk. A clone or a reset costs as much as a new one:
/// next to nothing.
#[derive(Clone, Debug)]
pub struct PlanCursor {
    plan: Arc<Plan>,
    pairs: Pairs,
    position: u64,
    open: Open,
    /// What the route of the last pair of slots was.
    routed: Option<((u32, u32), Option<RouteId>)>,
    blocks: u64,
    segments: u64,
}

/// The segment that may still grow. It stays, with no bytes, after its last byte went out, since
/// what follows may yet touch it.
#[derive(Clone, Debug)]
struct Open {
    segment: Segment,
    route: RouteId,
    /// Whether nothing may be added any more.
    closed: bool,
}

impl Open {
    const NOTHING: Self = Self {
        segment: Segment {
            local_slot: 0,
            local_addr: 0,
            remote_slot: 0,
            remote_addr: 0,
            len: 0,
            first_index: 0,
        },
        route: RouteId(0),
        closed: true,
    };

    #[inline]
    fn touches(&self, next: &Segment) -> bool {
        let open = &self.segment;
        !self.closed
            && (open.local_slot, open.remote_slot) == (next.local_slot, next.remote_slot)
            && open.local_addr + open.len == next.local_addr
            && open.remote_addr + open.len == next.remote_addr
    }

    #[inline]
    fn cut(&mut self, len: u64) -> Segment {
        let open = &mut self.segment;
        let part = Segment { len, ..*open };
        open.local_addr += len;
        open.remote_addr += len;
        open.len -= len;
        part
    }
}

impl PlanCursor {
    /// A cursor at the beginning.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            pairs: Pairs::default(),
            position: 0,
            open: Open::NOTHING,
            routed: None,
            blocks: 0,
            segments: 0,
        }
    }

    /// Goes back to the beginning, counters too.
    pub fn reset(&mut self) {
        self.pairs = Pairs::default();
        self.position = 0;
        self.open = Open::NOTHING;
        self.routed = None;
        self.blocks = 0;
        self.segments = 0;
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Pairs of blocks taken up so far, without those that had no route.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Segments that those blocks merged to, however many chunks they were cut for.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Whether nothing follows. It may take another call of [`next_chunk`](Self::next_chunk) to find that out where
    /// the last pairs have no route.
    pub fn is_exhausted(&self) -> bool {
        self.open.segment.len == 0 && self.position >= self.plan.blocks
    }

    /// Puts the next segments of one route into `out`, in place of what was there; false, and
    /// `out` empty, at the end.
    ///
    /// `route` answers for a pair of slots (local, remote), and the same each time during one
    /// pass; pairs for which it answers `None` are left out, for another cursor to move. A chunk
    /// is never over the limits; a segment is cut where it alone is longer than a chunk or where
    /// otherwise less than half of a chunk would be used.
    pub fn next_chunk(
        &mut self,
        limits: ChunkLimits,
        mut route: impl FnMut(u32, u32) -> Option<RouteId>,
        out: &mut Chunk,
    ) -> bool {
        let (max_vectors, max_bytes) = (limits.max_vectors.max(1), limits.max_bytes.max(1));
        out.clear();
        loop {
            let room = max_bytes - out.bytes();
            if self.open.segment.len < room {
                self.grow(room, &mut route);
            }
            let ready = self.open.segment.len;
            if ready == 0 {
                break;
            }
            if out.is_empty() {
                out.start(self.open.route);
            } else if out.route() != self.open.route || (ready > room && room <= max_bytes / 2) {
                break;
            }
            out.push(self.open.cut(ready.min(room)));
            if out.segments().len() == max_vectors || out.bytes() == max_bytes {
                break;
            }
        }
        !out.is_empty()
    }

    // Adds to the open segment until it has `want` bytes, the next pair doesn't touch it, or there
    // is none. An empty one is replaced by what comes next.
    #[inline]
    fn grow(&mut self, want: u64, route: &mut impl FnMut(u32, u32) -> Option<RouteId>) {
        let plan = &*self.plan;
        while self.open.segment.len < want {
            let Some(run) = self.pairs.peek(&plan.local, &plan.remote) else {
                return;
            };
            let (local, remote) = (&self.pairs.local, &self.pairs.remote);
            let slots = (local.slot, remote.slot);
            let routed = match self.routed {
                Some((known, routed)) if known == slots => routed,
                _ => {
                    let routed = route(slots.0, slots.1);
                    self.routed = Some((slots, routed));
                    routed
                }
            };
            let Some(routed) = routed else {
                self.open.closed = true;
                self.position += run;
                self.pairs.advance(run);
                continue;
            };
            let dense = local.stride == local.len && remote.stride == remote.len;
            let blocks = if dense && plan.merge { run } else { 1 };
            let next = Segment {
                local_slot: slots.0,
                local_addr: local.addr,
                remote_slot: slots.1,
                remote_addr: remote.addr,
                len: local.len * blocks,
                first_index: self.position,
            };
            if plan.merge && self.open.touches(&next) {
                if self.open.segment.len == 0 {
                    self.open.segment.first_index = next.first_index;
                }
                self.open.segment.len += next.len;
            } else if self.open.segment.len == 0 {
                self.open = Open { segment: next, route: routed, closed: false };
                self.segments += 1;
            } else {
                return;
            }
            self.pairs.advance(blocks);
            self.position += blocks;
            self.blocks += blocks;
        }
    }
}
