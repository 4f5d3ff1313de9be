//! Sleeping on a word and waking its sleepers, within this process.

#[cfg(test)]
mod tests;

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};

use crate::process::timespec;

/// Sleeps while `word` holds `expected`, until [`unpark`]; for at most `timeout`, or without limit if None.
///
/// False if the time ran out. True otherwise, which includes a wake-up for no reason and a word that held something
/// else from the start: look at the word again.
pub fn park(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(timespec);
    !matches!(futex::wait(word, Flags::PRIVATE, expected, timeout.as_ref()), Err(Errno::TIMEDOUT))
}

/// Wakes up to `count` threads that sleep on `word`; returns how many there were. Change the word first.
pub fn unpark(word: &AtomicU32, count: u32) -> usize {
    // The kernel reads the count as a signed number.
    let count = count.min(i32::MAX as u32);
    futex::wake(word, Flags::PRIVATE, count).unwrap_or(0)
}
