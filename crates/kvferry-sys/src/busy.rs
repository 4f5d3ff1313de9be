//! The revocation protocol between a memory's owner and the copiers of its peer, over one epoch word and one busy
//! word for each copy thread.
//!
//! ```text
//!   copier (one chunk)                       owner
//!   busy  := acknowledged + 1                epoch += 1
//!   fence (SeqCst)                           fence (SeqCst)
//!   epoch != acknowledged?  busy := 0, out   each busy word 0 or > new epoch?  quiet
//!   copy
//!   busy  := 0                               the memory may be given away
//! ```
//! The two fences forbid that both miss each other: either the copier sees the new epoch and backs off, or the owner
//! sees the busy word and waits. `acknowledged` is the last epoch whose revocation the copier's side has carried out;
//! a copier that runs under the new epoch already knows what was revoked and does not touch it, so the owner need not
//! wait for it.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use core::ops::Deref;

use crate::sync::{AtomicU64, Ordering, fence};

/// One copy thread's busy word, alone on its cache line: 0 while the thread copies nothing, else one more than the
/// epoch under which it copies.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BusyWord(AtomicU64);

impl BusyWord {
    /// An idle word.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Default for BusyWord {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for BusyWord {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// A chunk in progress: while it lives, the memory's owner waits. Dropping it clears the busy word.
#[derive(Debug)]
#[must_use = "the chunk is over as soon as the guard is dropped"]
pub struct BusyGuard<'a> {
    busy: &'a AtomicU64,
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        // Streaming stores are not ordered by the release below.
        #[cfg(not(loom))]
        crate::copy::copy_fence();
        // Release: the bytes of the chunk come before the word that says it is over.
        self.busy.store(0, Ordering::Release);
    }
}

/// Begins a chunk under the epoch `acknowledged`, the last whose revocation this side has carried out.
///
/// None if the owner's `epoch` has moved on: nothing may be touched until the revocation has been carried out. A busy
/// word belongs to one thread, which runs one chunk at a time.
pub fn enter<'a>(epoch: &AtomicU64, busy: &'a AtomicU64, acknowledged: u64) -> Option<BusyGuard<'a>> {
    // An owner that counted to the end of the numbers can no longer revoke, so nothing is begun there.
    let published = acknowledged.checked_add(1)?;
    // Release: an owner that finds this word has everything that earlier chunks of this thread wrote.
    busy.store(published, Ordering::Release);
    fence(Ordering::SeqCst);
    let guard = BusyGuard { busy };
    // Acquire: whoever sees a new epoch sees what its owner did before.
    (epoch.load(Ordering::Acquire) == acknowledged).then_some(guard)
}

/// Revokes: from now on no chunk begins under an earlier epoch. Returns the new epoch.
///
/// Chunks that had begun may still run; [`is_quiet`] tells when they are over.
pub fn revoke(epoch: &AtomicU64) -> u64 {
    let new = epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    fence(Ordering::SeqCst);
    new
}

/// Whether none of `words` stands for a chunk under an epoch before `new_epoch`, as returned by [`revoke`].
///
/// A word that was once found quiet stays so for this epoch; words may be looked at one by one, at different times.
pub fn is_quiet<W: Deref<Target = AtomicU64>>(words: &[W], new_epoch: u64) -> bool {
    words.iter().all(|word| {
        // Acquire: pairs with the guard's release; the chunk's bytes are all there.
        let word = word.load(Ordering::Acquire);
        word == 0 || word > new_epoch
    })
}
