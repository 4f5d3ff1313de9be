//! Proving that a peer's memory can be reached.

#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::cma::{CmaError, can_read_byte, read_word, write_word};
use crate::process::Pid;

/// How many words at least lie idle before one is used again.
const WORDS: usize = 256;

/// Words that nobody holds, the one that was dropped longest ago first.
static IDLE: Mutex<VecDeque<&'static AtomicU64>> = Mutex::new(VecDeque::new());

/// A word whose address is sent to a peer, which reads and answers it by the same means as it will copy data.
///
/// The peer's answer may come when the word was dropped long ago: it had read the word before and was held up. So its memory
/// is never given back, and is used for nothing but such words, each of them as late as can be: an answer that nobody waits
/// for any more changes nothing else.
#[derive(Debug)]
pub struct NonceWord(&'static AtomicU64);

impl NonceWord {
    /// A word that holds `nonce`.
    #[must_use]
    pub fn new(nonce: u64) -> Self {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let used = if idle.len() > WORDS { idle.pop_front() } else { None };
        drop(idle);
        let word = used.unwrap_or_else(|| Box::leak(Box::default()));
        word.store(nonce, Ordering::Release);
        Self(word)
    }

    /// Where it is, in this process.
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

impl Drop for NonceWord {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there: rather lose the word than wait.
        if let Ok(mut idle) = IDLE.try_lock() {
            idle.push_back(self.0);
        }
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
