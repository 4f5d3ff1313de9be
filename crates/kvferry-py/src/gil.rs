//! Letting the interpreter's lock go, and not asking for it again once the interpreter ends.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::prelude::*;

static ENDING: AtomicBool = AtomicBool::new(false);
static ENDER: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Runs `f` without the lock.
///
/// A daemon thread whose wait is over when the interpreter has begun to end stays here for ever: asking for the lock would
/// unwind it through frames that can't be unwound, and Python would stop it in any case.
pub(crate) fn detach<T, F>(py: Python<'_>, f: F) -> T
where
    F: Send + FnOnce() -> T,
    T: Send,
{
    py.detach(|| {
        let result = f();
        while ENDING.load(SeqCst) && ender() != Some(thread::current().id()) {
            thread::park();
        }
        result
    })
}

/// The interpreter ends, and this thread sees to it.
pub(crate) fn end() {
    *ENDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    ENDING.store(true, SeqCst);
}

fn ender() -> Option<ThreadId> {
    *ENDER.lock().unwrap_or_else(PoisonError::into_inner)
}
