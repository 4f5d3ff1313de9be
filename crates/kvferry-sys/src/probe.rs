//! Proving that a peer's memory can be reached.

#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cma::{CmaError, can_read_byte, read_word, write_word};
use crate::process::Pid;

/// A word whose address is sent to a peer, which reads and answers it by the same means as it will copy data.
#[derive(Debug)]
pub struct NonceWord(Box<AtomicU64>);

impl NonceWord {
    /// A word that holds `nonce`.
    #[must_use]
    pub fn new(nonce: u64) -> Self {
        Self(Box::new(AtomicU64::new(nonce)))
    }

    /// Where it is, in this process; stays until the word is dropped.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// What it holds now: the nonce, or the peer's answer.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Reads the word at `addr` of process `pid`, compares it with `expect` and, only if it is that, overwrites it with
/// `write_back`.
///
/// Success proves that `pid` is the process that sent the address, and that its memory can be read and written.
pub fn probe(pid: Pid, addr: u64, expect: u64, write_back: u64) -> Result<(), CmaError> {
    if read_word(pid, addr)? != expect {
        return Err(CmaError::Mismatch);
    }
    write_word(pid, addr, write_back)
}

/// Whether cross-memory attach works on this process itself; false where a seccomp filter forbids it.
#[must_use]
pub fn self_cma_works() -> bool {
    let byte = 0u8;
    can_read_byte(Pid::own(), (&raw const byte) as u64).is_ok()
}
