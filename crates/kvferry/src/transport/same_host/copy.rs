//! One chunk: the same few lines for whoever copies and whatever the ends are.

use kvferry_sys::{CmaError, Copies, Direction, Pid, RegionSlice, RemoteSlice, Touch, Vectors};

use crate::error::{FaultCause, FaultSide};

/// The far end of a segment, seen from the copier.
#[derive(Clone, Copy, Debug)]
pub(super) enum Far {
    /// In another process (or, by system call, in our own).
    Process { pid: Pid, slice: RemoteSlice },
    /// Mapped here.
    Mapped(RegionSlice),
}

/// Reusable lists of what is copied next.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// What loads and stores copy.
    copies: Copies,
    /// What a system call copies.
    vectors: Vectors,
    /// Which segment each vector stands for.
    tags: Vec<usize>,
}

/// Collects the segments of a chunk and copies them.
pub(super) struct ChunkCopy<'a> {
    lists: &'a mut Lists,
    direction: Direction,
    /// The process that all vectors of a call reach.
    pid: Option<Pid>,
}

/// A segment that could not be copied.
#[derive(Debug)]
pub(super) struct Failed {
    /// Its number, as it was pushed with.
    pub(super) segment: usize,
    pub(super) error: CmaError,
}

impl<'a> ChunkCopy<'a> {
    pub(super) fn new(lists: &'a mut Lists, direction: Direction) -> Self {
        lists.copies.clear();
        lists.vectors.clear();
        lists.tags.clear();
        Self { lists, direction, pid: None }
    }

    /// Takes a segment in, to be copied by the next [`ChunkCopy::flush`] if not before.
    #[inline]
    pub(super) fn push(&mut self, segment: usize, near: RegionSlice, far: Far) -> Result<(), Failed> {
        let (pid, slice) = match far {
            Far::Mapped(far) if near.touch() == Touch::LoadStore => {
                let (dst, src) = match self.direction {
                    Direction::Read => (near, far),
                    Direction::Write => (far, near),
                };
                // Both ends may be loaded from and stored to and have one length.
                return self
                    .lists
                    .copies
                    .push(dst, src)
                    .map_err(|_| Failed { segment, error: CmaError::Other(kvferry_sys::Errno::INVAL) });
            }
            // Memory that could vanish is touched by the kernel only, which answers instead of raising SIGBUS.
            Far::Mapped(far) => (Pid::own(), RemoteSlice { addr: far.addr(), len: far.len() }),
            Far::Process { pid, slice } => (pid, slice),
        };
        if self.lists.vectors.is_full() || self.pid.is_some_and(|p| p != pid) {
            self.call()?;
        }
        if !self.lists.vectors.push(near, slice) {
            return Err(Failed { segment, error: CmaError::Other(kvferry_sys::Errno::INVAL) });
        }
        self.pid = Some(pid);
        self.lists.tags.push(segment);
        Ok(())
    }

    /// Copies what was taken in, and makes all stores visible.
    pub(super) fn flush(&mut self) -> Result<(), Failed> {
        if !self.lists.copies.is_empty() {
            self.lists.copies.run();
            kvferry_sys::copy_fence();
        }
        self.call()
    }

    /// Makes the system call for the vectors that were taken in.
    fn call(&mut self) -> Result<(), Failed> {
        let Some(pid) = self.pid.take() else { return Ok(()) };
        let Lists { vectors, tags, .. } = &mut *self.lists;
        let done = vectors.transfer(self.direction, pid);
        vectors.clear();
        let failed = done.map(|_| ()).map_err(|error| {
            let position = match &error {
                CmaError::Fault { position, .. } => *position,
                _ => 0,
            };
            Failed { segment: tags.get(position).copied().unwrap_or_default(), error }
        });
        tags.clear();
        failed
    }
}

/// The side of a fault as the transfer's initiator names it.
pub(super) fn side_of(side: kvferry_sys::FaultSide, near: FaultSide) -> FaultSide {
    match (side, near) {
        (kvferry_sys::FaultSide::Local, near) => near,
        (kvferry_sys::FaultSide::Remote, FaultSide::Local) => FaultSide::Remote,
        (kvferry_sys::FaultSide::Remote, FaultSide::Remote) => FaultSide::Local,
        _ => FaultSide::Unknown,
    }
}

/// What a failed segment means for its transfer; `block` finds the block at an offset in the segment. `None` if the process
/// at the far end is gone.
pub(super) fn cause_of(
    error: &CmaError,
    block: impl Fn(u64) -> Option<u64>,
    near: u64,
    far: u64,
) -> Option<FaultCause> {
    match error {
        CmaError::Fault { offset, side, .. } => {
            let side = side_of(*side, FaultSide::Local);
            let start = if side == FaultSide::Local { near } else { far };
            let block = block(*offset).unwrap_or_default();
            Some(FaultCause::Unmapped { side, block, addr: start.saturating_add(*offset) })
        }
        CmaError::NoProcess => None,
        other => Some(FaultCause::Denied { detail: other.to_string() }),
    }
}
