//! The unit of copying.

/// The way that bytes between two regions take; numbered by whoever plans the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RouteId(pub u8);

/// How much one chunk may hold. Zero counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Most segments.
    pub max_vectors: usize,
    /// Most bytes.
    pub max_bytes: u64,
}

impl Default for ChunkLimits {
    /// 1,024 segments (what one vectored system call takes) and 2 MiB (what bounds the time that
    /// a cancel waits for).
    fn default() -> Self {
        Self { max_vectors: 1024, max_bytes: 2 << 20 }
    }
}

/// Bytes that move from one stretch of memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The local region, as a position in the local list's regions.
    pub local_slot: u32,
    /// First local byte.
    pub local_addr: u64,
    /// The remote region, as a position in the remote list's regions.
    pub remote_slot: u32,
    /// First remote byte.
    pub remote_addr: u64,
    /// Length in bytes; not zero.
    pub len: u64,
    /// Position of a pair of blocks at or before the one that the segment begins in: the first
    /// that merged into it. See [`Plan::position_at`](crate::Plan::position_at).
    pub first_index: u64,
}

/// Segments that go the same way and are copied with one call.
///
/// Made to be reused: filling it again allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    route: RouteId,
    bytes: u64,
    segments: Vec<Segment>,
}

impl Chunk {
    /// An empty chunk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The way all segments go.
    pub fn route(&self) -> RouteId {
        self.route
    }

    /// Bytes in all segments together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Takes all segments out.
    pub fn clear(&mut self) {
        self.bytes = 0;
        self.segments.clear();
    }

    pub(crate) fn start(&mut self, route: RouteId) {
        self.route = route;
    }

    #[inline]
    pub(crate) fn push(&mut self, segment: Segment) {
        self.bytes += segment.len;
        self.segments.push(segment);
    }
}

#[cfg(test)]
mod tests;
