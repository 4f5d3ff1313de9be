//! Knowing within a millisecond that another process is dead.
//!
//! Each side of a link holds its liveness word on the link page as a *robust futex*: the kernel keeps no lock, but at
//! the death of a thread it walks the list that the thread registered, marks each word on it and wakes one waiter.
//! It does so before it tears the memory down, so it is much faster than the end of a socket or a pidfd, and a child
//! forked from the dead process does not hold it up.
//!
//! ```text
//!   holder's thread          private page          shared page, one page further on
//!   list head  ------------> node  - - - - - - - > liveness word: thread id | WAITERS   alive
//!     ^                        |                                  OWNER_DIED | WAITERS   dead
//!     +------- next -----------+                                  WAITERS                closed
//! ```
//! Nodes lie in memory that only this process maps: a peer can change its view of our word, never our list.

#[cfg(test)]
mod tests;

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::param::page_size;
use rustix::thread::futex::{self, Flags, OWNER_DIED, WAITERS, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

use crate::link_page::{LinkPage, Side};
use crate::process::{gettid, last_errno, timespec};

/// How many words one thread can hold: the kernel walks no further.
pub const MAX_HELD: usize = 2048;

const UNSET: u32 = 0;
/// The waiters' bit without a thread: the kernel leaves it alone.
const CLOSED: u32 = WAITERS;

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
    /// Decodes a word; every value has a meaning.
    #[must_use]
    pub const fn of(word: u32) -> Self {
        match word {
            UNSET => Self::Unset,
            CLOSED => Self::Closed,
            word if word & OWNER_DIED != 0 => Self::Dead,
            _ => Self::Alive,
        }
    }
}

/// Why a liveness word could not be held.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HoldError {
    /// The word has been held before, or the peer wrote into it.
    #[error("the liveness word is not unset")]
    Taken,
    /// The kernel would not reach it.
    #[error("a thread cannot hold more than {MAX_HELD} liveness words")]
    TooMany,
    /// The holder came into this process by fork; it does nothing here.
    #[error("the holder belongs to the parent process")]
    Forked,
}

/// A list node: the kernel's `struct robust_list`.
///
/// The kernel reads lists when the thread is dead already, at whatever point of the program that is. Hence atomics:
/// every change is really made, and in the order written ([`in_order`]).
#[derive(Debug)]
#[repr(C)]
struct Node {
    next: AtomicPtr<Self>,
}

/// The kernel's `struct robust_list_head`.
#[derive(Debug)]
#[repr(C)]
struct ListHead {
    list: Node,
    futex_offset: libc::c_long,
    pending: AtomicPtr<Node>,
}

/// A word that is held.
#[derive(Debug)]
struct Held {
    page: Arc<LinkPage>,
    side: Side,
}

impl Held {
    fn node(&self) -> *mut Node {
        self.page.robust_node(self.side).cast().as_ptr()
    }
}

thread_local! {
    /// Whether a holder has taken this thread's list.
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// Holds liveness words for the calling thread, which must live as long as the process is to count as alive.
///
/// It replaces the thread's list of robust futexes, which the C library uses for robust mutexes: of those that this
/// thread locks while the holder lives, the kernel does not mark the owner's death. Use a thread of your own.
/// Dropping the holder closes its words and gives the list back.
#[derive(Debug)]
pub struct RobustHolder {
    head: Box<ListHead>,
    /// First held first; the kernel's list runs the other way.
    held: Vec<Held>,
    tid: i32,
    /// The C library's list.
    previous: *mut libc::c_void,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl RobustHolder {
    /// Takes over the calling thread's list. An error if another holder has it already, or the kernel refuses.
    pub fn new() -> io::Result<Self> {
        if TAKEN.get() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the thread has a robust holder already",
            ));
        }
        let futex_offset = libc::c_long::try_from(page_size()).map_err(|_| Errno::INVAL)?;
        let head = Box::new(ListHead {
            list: Node { next: AtomicPtr::new(ptr::null_mut()) },
            futex_offset,
            pending: AtomicPtr::new(ptr::null_mut()),
        });
        // An empty list points to itself.
        head.list.next.store(ptr::from_ref(&head.list).cast_mut(), Ordering::Relaxed);
        let previous = robust_list()?;
        set_robust_list(ptr::from_ref(&*head).cast_mut().cast())?;
        TAKEN.set(true);
        Ok(Self { head, held: Vec::new(), tid: gettid(), previous, _stays_on_its_thread: PhantomData })
    }

    /// Marks `side` of the link as alive, until [`release`](Self::release) or death. The page stays mapped as long.
    pub fn hold(&mut self, page: &Arc<LinkPage>, side: Side) -> Result<(), HoldError> {
        if self.is_inherited() {
            return Err(HoldError::Forked);
        }
        if self.held.len() == MAX_HELD {
            return Err(HoldError::TooMany);
        }
        let held = Held { page: Arc::clone(page), side };
        let node = held.node();
        // Should we die on the way, the kernel looks at the pending node too.
        self.begin(node);
        let alive = self.tid as u32 | WAITERS;
        let word = page.liveness(side);
        if word.compare_exchange(UNSET, alive, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            self.end();
            return Err(HoldError::Taken);
        }
        // SAFETY: the node lies in the page's private part, which is mapped as long as `held.page`, and belongs to
        // whoever holds the word: us, since the exchange.
        unsafe { (*node).next.store(self.head.list.next.load(Ordering::Relaxed), Ordering::Relaxed) };
        in_order();
        self.head.list.next.store(node, Ordering::Relaxed);
        self.held.push(held);
        self.end();
        Ok(())
    }

    /// Marks `side` of the link as closed and wakes who watches it. False if it is not held here.
    pub fn release(&mut self, page: &Arc<LinkPage>, side: Side) -> bool {
        let of_link = |held: &Held| held.side == side && Arc::ptr_eq(&held.page, page);
        match self.held.iter().position(of_link) {
            Some(index) if !self.is_inherited() => {
                self.release_at(index);
                true
            }
            _ => false,
        }
    }

    /// How many words are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn release_at(&mut self, index: usize) {
        let (node, next) = (self.held[index].node(), self.next_of(index));
        self.begin(node);
        match self.held.get(index + 1) {
            // SAFETY: the node of a word that we hold; its page is mapped.
            Some(before) => unsafe { (*before.node()).next.store(next, Ordering::Relaxed) },
            None => self.head.list.next.store(next, Ordering::Relaxed),
        }
        in_order();
        let held = self.held.remove(index);
        let word = held.page.liveness(held.side);
        word.store(CLOSED, Ordering::Release);
        DeathWatch::wake(word);
        self.end();
    }

    /// What follows the node of `held[index]` in the kernel's list.
    fn next_of(&self, index: usize) -> *mut Node {
        match index.checked_sub(1).and_then(|index| self.held.get(index)) {
            Some(held) => held.node(),
            None => ptr::from_ref(&self.head.list).cast_mut(),
        }
    }

    fn begin(&self, node: *mut Node) {
        self.head.pending.store(node, Ordering::Relaxed);
        in_order();
    }

    fn end(&self) {
        in_order();
        self.head.pending.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Whether this is a forked child's copy: the words are the parent's, and so is what the kernel walks.
    fn is_inherited(&self) -> bool {
        gettid() != self.tid
    }
}

impl Drop for RobustHolder {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        while let Some(last) = self.held.len().checked_sub(1) {
            self.release_at(last);
        }
        // It was accepted when the thread began.
        let _ = set_robust_list(self.previous);
        TAKEN.set(false);
    }
}

/// How a wait for a change ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitAny {
    /// The word at this index, the first such, no longer holds what was expected.
    Changed(usize),
    /// Woken with every word as expected: somebody called [`DeathWatch::wake`], or it is a false alarm.
    Woken,
    /// The time ran out.
    TimedOut,
}

/// Waits for words to change: liveness words, and words of this process to be woken by.
///
/// At a death the kernel wakes one waiter of a word only, so let one thread of a process watch it.
#[derive(Debug, Default)]
pub struct DeathWatch {
    polling: bool,
}

impl DeathWatch {
    /// How many words are watched without polling.
    pub const MAX_WORDS: usize = 128;

    const POLL: Duration = Duration::from_millis(2);

    /// A watch; it has no state but whether it found that it must poll.
    #[must_use]
    pub const fn new() -> Self {
        Self { polling: false }
    }

    /// A watch that polls, as where the kernel (before Linux 5.16) or a seccomp filter leaves no choice.
    #[must_use]
    pub const fn polling() -> Self {
        Self { polling: true }
    }

    /// Sleeps until one of the words no longer holds the value beside it, for at most `timeout` or without limit.
    ///
    /// Where it must poll, or there are more than [`MAX_WORDS`](Self::MAX_WORDS) words, it looks every 2 ms and is
    /// woken by nothing but a changed word. Without words and without `timeout` it returns at once.
    pub fn wait_any(&mut self, words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> WaitAny {
        if words.is_empty() && timeout.is_none() {
            return WaitAny::Woken;
        }
        // A time too far to be counted is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(index) = first_changed(words) {
                return WaitAny::Changed(index);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return WaitAny::TimedOut;
            }
            if self.polling || words.len() > Self::MAX_WORDS || words.is_empty() {
                std::thread::sleep(left.map_or(Self::POLL, |left| left.min(Self::POLL)));
                continue;
            }
            match sleep_on(words, left) {
                // Woken, or a word had changed before we slept.
                Ok(()) | Err(Errno::AGAIN) => {
                    return first_changed(words).map_or(WaitAny::Woken, WaitAny::Changed);
                }
                Err(Errno::TIMEDOUT | Errno::INTR) => {}
                // The call does not exist, or is forbidden.
                Err(_) => self.polling = true,
            }
        }
    }

    /// Wakes every watch that has `word` among its words, in this process and others. Change the word first.
    pub fn wake(word: &AtomicU32) {
        // It cannot fail on a word that is mapped.
        let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
    }
}

fn first_changed(words: &[(&AtomicU32, u32)]) -> Option<usize> {
    words.iter().position(|(word, expected)| word.load(Ordering::Acquire) != *expected)
}

/// One `futex_waitv` on at most [`DeathWatch::MAX_WORDS`] words.
fn sleep_on(words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> Result<(), Errno> {
    let mut waits = [Wait::new(); DeathWatch::MAX_WORDS];
    for (wait, (word, expected)) in waits.iter_mut().zip(words) {
        wait.val = u64::from(*expected);
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        // Not private: the waker is the kernel or another process.
        wait.flags = WaitFlags::SIZE_U32;
    }
    let waits = waits.get(..words.len()).ok_or(Errno::INVAL)?;
    // The call takes a point in time.
    let until = timeout.and_then(|timeout| clock_gettime(ClockId::Monotonic).checked_add(timespec(timeout)));
    futex::waitv(waits, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic).map(|_| ())
}

/// Keeps the compiler from moving stores across: the kernel, on this very thread, must find them in order.
fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

fn robust_list() -> Result<*mut libc::c_void, Errno> {
    let mut head: *mut libc::c_void = ptr::null_mut();
    let mut len = 0usize;
    // SAFETY: the kernel writes one pointer and one length of the calling thread (0).
    let rc = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    if rc == 0 { Ok(head) } else { Err(last_errno()) }
}

fn set_robust_list(head: *mut libc::c_void) -> Result<(), Errno> {
    // SAFETY: the kernel stores the pointer and walks the list when the thread ends, coping with any content. Ours
    // lives in the holder, which stays on its thread and takes the list back before it goes; if it is leaked instead,
    // so is the list. The other list is the one that the thread had before.
    let rc = unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<ListHead>()) };
    if rc == 0 { Ok(()) } else { Err(last_errno()) }
}
