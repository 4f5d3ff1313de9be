//! Knowing within a millisecond that another process is dead: robust futexes.

#[cfg(test)]
mod tests;

use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::link_page::{LinkPage, Side};

/// What a liveness word says about the side that holds it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Liveness {
    /// Nobody has held it yet.
    Unset,
    /// Held by a living thread.
    Alive,
    /// The thread that held it, or its whole process, died.
    Dead,
    /// The holder let go in good order.
    Closed,
}

impl Liveness {
    /// Decodes a word.
    #[must_use]
    pub const fn of(word: u32) -> Self {
        let _ = word;
        Self::Unset
    }
}

/// Why a liveness word could not be held.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HoldError {
    /// The word is held already, or was.
    #[error("the liveness word has been held before")]
    Taken,
    /// The kernel follows no longer list.
    #[error("a thread cannot hold more than {MAX_HELD} liveness words")]
    TooMany,
}

/// How many words one thread can hold; the kernel stops walking the list after 2,048.
pub const MAX_HELD: usize = 2048;

/// Holds liveness words for the calling thread.
#[derive(Debug)]
pub struct RobustHolder {
    _thread: PhantomData<*const ()>,
}

impl RobustHolder {
    /// Takes over the calling thread's robust list.
    pub fn new() -> io::Result<Self> {
        unimplemented!()
    }

    /// Marks `side` of the link as alive, until [`release`](Self::release) or death.
    pub fn hold(&mut self, page: &Arc<LinkPage>, side: Side) -> Result<(), HoldError> {
        let _ = (page, side);
        unimplemented!()
    }

    /// Marks `side` of the link as closed and wakes who watches it. False if it was not held here.
    pub fn release(&mut self, page: &Arc<LinkPage>, side: Side) -> bool {
        let _ = (page, side);
        unimplemented!()
    }

    /// How many words are held.
    #[must_use]
    pub fn held(&self) -> usize {
        unimplemented!()
    }
}

/// How a wait for a change ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitAny {
    /// The word at this index, the first such, no longer holds what was expected.
    Changed(usize),
    /// Woken, with every word as expected: somebody called [`DeathWatch::wake`], or nobody did.
    Woken,
    /// The time ran out.
    TimedOut,
}

/// Waits for liveness words to change.
#[derive(Debug)]
pub struct DeathWatch(());

impl DeathWatch {
    /// How many words are watched without polling.
    pub const MAX_WORDS: usize = 128;

    /// A watch; it holds only room for its waits.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }

    /// Sleeps until one of the words no longer holds the value beside it, for at most `timeout` or without limit.
    pub fn wait_any(&mut self, words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> WaitAny {
        let _ = (words, timeout);
        unimplemented!()
    }

    /// Wakes every watch that has `word` among its words, in this process and others.
    pub fn wake(word: &AtomicU32) {
        let _ = word;
        unimplemented!()
    }
}
