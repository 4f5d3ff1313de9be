//! Cross-memory attach: one vectored system call that copies between this process's memory and another's.

#[cfg(test)]
mod tests;

use rustix::io::Errno;
use thiserror::Error;

use crate::process::{Pid, last_errno};
use crate::region::{RegionSlice, RemoteSlice};

/// How many pairs of ranges one call takes; the kernel's limit.
pub const MAX_VECTORS: usize = 1024;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// From the other process's memory into ours.
    Read,
    /// From our memory into the other process's.
    Write,
}

/// Whose memory was not there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FaultSide {
    /// Ours.
    Local,
    /// The other process's.
    Remote,
    /// It was there when we looked afterwards, or we may not look.
    Unknown,
}

/// Why bytes could not be copied between two processes.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CmaError {
    /// A range is not mapped, or not with the right this direction needs.
    #[error("vector {position} cannot be touched at offset {offset} ({side:?} side)")]
    Fault {
        /// The index of the vector, in the order pushed.
        position: usize,
        /// How many bytes of it were copied before.
        offset: u64,
        /// Whose memory it is.
        side: FaultSide,
    },
    /// There is no such process, or it has given up its memory already.
    #[error("the process is gone")]
    NoProcess,
    /// The kernel forbids it; [`explain_denial`](crate::explain_denial) finds out why.
    #[error("the kernel forbids access to the process's memory")]
    Denied(#[source] Errno),
    /// The memory at the address is not what the process said it was: another process, or another memory.
    #[error("the memory does not hold the nonce expected")]
    Mismatch,
    /// Anything else.
    #[error("the copy between processes failed")]
    Other(#[source] Errno),
}

/// One range, as the kernel takes it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct IoVec(libc::iovec);

impl IoVec {
    fn new(addr: u64, len: u64) -> Self {
        Self(libc::iovec {
            iov_base: core::ptr::without_provenance_mut(addr as usize),
            iov_len: len as usize,
        })
    }

    /// What is left of it after `done` bytes, of which there are no more than its length.
    fn after(&self, done: usize) -> Self {
        let rest = self.0.iov_len.saturating_sub(done);
        Self(libc::iovec { iov_base: self.0.iov_base.wrapping_byte_add(done), iov_len: rest })
    }

    /// The one byte at `offset`.
    fn byte(&self, offset: usize) -> Self {
        Self(libc::iovec { iov_base: self.0.iov_base.wrapping_byte_add(offset), iov_len: 1 })
    }
}

// SAFETY: the pointer is only a number to us; what it stands for was vouched for when its `RegionSlice` was made, or
// is the kernel's to check.
unsafe impl Send for IoVec {}
// SAFETY: as above.
unsafe impl Sync for IoVec {}

/// A reusable list of up to [`MAX_VECTORS`] pairs of equally long ranges, copied by one system call.
#[derive(Debug)]
pub struct Vectors {
    local: Vec<IoVec>,
    remote: Vec<IoVec>,
    bytes: u64,
}

impl Vectors {
    /// An empty list; its room is allocated once.
    #[must_use]
    pub fn new() -> Self {
        Self { local: Vec::with_capacity(MAX_VECTORS), remote: Vec::with_capacity(MAX_VECTORS), bytes: 0 }
    }

    /// Adds a pair. False, and nothing added, if the list is full or the pair is unusable: of unequal lengths,
    /// reaching past the end of the address space, or with a total that no number holds.
    #[must_use]
    pub fn push(&mut self, local: RegionSlice, remote: RemoteSlice) -> bool {
        let len = local.len();
        let usable = len == remote.len && len <= isize::MAX as u64 && remote.addr.checked_add(len).is_some();
        let Some(bytes) = self.bytes.checked_add(len).filter(|_| usable && !self.is_full()) else {
            return false;
        };
        self.bytes = bytes;
        self.local.push(IoVec::new(local.addr(), len));
        self.remote.push(IoVec::new(remote.addr, len));
        true
    }

    /// Empties the list and keeps its room.
    pub fn clear(&mut self) {
        self.local.clear();
        self.remote.clear();
        self.bytes = 0;
    }

    /// How many pairs are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.local.len()
    }

    /// Whether no pair is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    /// Whether it has no room for another pair.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == MAX_VECTORS
    }

    /// Bytes of all pairs together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies all pairs, first to last, between this process and `pid`. Returns the bytes copied: all of them.
    ///
    /// After an error any part may have been copied. `pid` may be this process: then the remote ranges are ours too
    /// and the caller answers for them, as with a write to the process's own memory file.
    pub fn transfer(&self, direction: Direction, pid: Pid) -> Result<u64, CmaError> {
        let mut at = Progress { index: 0, offset: 0 };
        let mut done = 0;
        while done < self.bytes {
            // A short count ends inside a vector or between two. What is left of a vector goes alone, so that the
            // list stays as it is.
            let outcome = match (self.local.get(at.index), self.remote.get(at.index)) {
                (Some(local), Some(remote)) if at.offset > 0 => {
                    process_vm(direction, pid, &[local.after(at.offset)], &[remote.after(at.offset)])
                }
                _ => process_vm(direction, pid, &self.local[at.index..], &self.remote[at.index..]),
            };
            match outcome {
                Ok(0) | Err(Errno::FAULT) => return Err(self.fault(direction, pid, at)),
                Ok(copied) => {
                    done += copied as u64;
                    self.advance(&mut at, copied);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(done)
    }

    /// Moves on by `copied` bytes, to the vector that holds the next one.
    fn advance(&self, at: &mut Progress, copied: usize) {
        let mut left = at.offset.saturating_add(copied);
        while let Some(vector) = self.local.get(at.index) {
            if left < vector.0.iov_len {
                break;
            }
            left -= vector.0.iov_len;
            at.index += 1;
        }
        at.offset = left;
    }

    /// Finds out which side of the next byte cannot be touched.
    fn fault(&self, direction: Direction, pid: Pid, mut at: Progress) -> CmaError {
        // Past vectors without a byte, if any.
        self.advance(&mut at, 0);
        let (Some(local), Some(remote)) = (self.local.get(at.index), self.remote.get(at.index)) else {
            return CmaError::Other(Errno::IO);
        };
        let (local, remote) = (local.byte(at.offset), remote.byte(at.offset));
        let side = match (can_read(Pid::own(), local), can_read(pid, remote)) {
            (_, Err(Errno::SRCH)) => return CmaError::NoProcess,
            (Err(Errno::FAULT), _) => FaultSide::Local,
            (_, Err(Errno::FAULT)) => FaultSide::Remote,
            // Both can be read, so the one to be written cannot be written, if it still fails.
            (Ok(()), Ok(())) => match (process_vm(direction, pid, &[local], &[remote]), direction) {
                (Err(Errno::FAULT), Direction::Read) => FaultSide::Local,
                (Err(Errno::FAULT), Direction::Write) => FaultSide::Remote,
                _ => FaultSide::Unknown,
            },
            _ => FaultSide::Unknown,
        };
        CmaError::Fault { position: at.index, offset: at.offset as u64, side }
    }
}

impl Default for Vectors {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Errno> for CmaError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::SRCH => Self::NoProcess,
            // A seccomp filter may answer with any of these.
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => Self::Denied(errno),
            errno => Self::Other(errno),
        }
    }
}

/// How far a transfer has come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    index: usize,
    /// Bytes of the vector at `index` that are done; fewer than it has.
    offset: usize,
}

/// Reads a word from the memory of `pid`.
pub(crate) fn read_word(pid: Pid, addr: u64) -> Result<u64, CmaError> {
    let mut word = [0; 8];
    transfer_word(Direction::Read, pid, addr, &mut word)?;
    Ok(u64::from_ne_bytes(word))
}

/// Writes a word into the memory of `pid`.
pub(crate) fn write_word(pid: Pid, addr: u64, word: u64) -> Result<(), CmaError> {
    transfer_word(Direction::Write, pid, addr, &mut word.to_ne_bytes())
}

fn transfer_word(direction: Direction, pid: Pid, addr: u64, word: &mut [u8; 8]) -> Result<(), CmaError> {
    let local = IoVec(libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() });
    let fault = |offset| CmaError::Fault { position: 0, offset, side: FaultSide::Remote };
    match process_vm(direction, pid, &[local], &[IoVec::new(addr, 8)]) {
        Ok(8) => Ok(()),
        Ok(copied) => Err(fault(copied as u64)),
        Err(Errno::FAULT) => Err(fault(0)),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the byte at `addr` of `pid` can be read.
pub(crate) fn can_read_byte(pid: Pid, addr: u64) -> Result<(), Errno> {
    can_read(pid, IoVec::new(addr, 1))
}

fn can_read(pid: Pid, remote: IoVec) -> Result<(), Errno> {
    let mut byte = 0u8;
    let local = IoVec(libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 });
    process_vm(Direction::Read, pid, &[local], &[remote]).map(|_| ())
}

/// One system call; returns the bytes copied, which may be fewer than asked for.
fn process_vm(direction: Direction, pid: Pid, local: &[IoVec], remote: &[IoVec]) -> Result<usize, Errno> {
    let (locals, remotes) = (local.as_ptr().cast(), remote.as_ptr().cast());
    let (local_count, remote_count) = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
    // SAFETY: both arrays are valid for their counts, and an `IoVec` is an iovec. The local ranges are ours to read
    // and write: they come from `RegionSlice`s, whose maker vouched for them, or are locals of this module. Where one
    // is not mapped the kernel answers EFAULT. The remote ranges are checked by the kernel.
    let copied = unsafe {
        match direction {
            Direction::Read => {
                libc::process_vm_readv(pid.get(), locals, local_count, remotes, remote_count, 0)
            }
            Direction::Write => {
                libc::process_vm_writev(pid.get(), locals, local_count, remotes, remote_count, 0)
            }
        }
    };
    usize::try_from(copied).map_err(|_| last_errno())
}
