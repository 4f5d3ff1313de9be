use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

/// What the two sides share. The cells stand for the revoked memory, a part for each copier: loom reports any two
/// accesses of one that are not ordered.
struct Link {
    epoch: AtomicU64,
    busy: [BusyWord; 2],
    memory: [UnsafeCell<u64>; 2],
    /// What the copiers' control thread has acknowledged.
    acknowledged: AtomicU64,
    revoked: AtomicBool,
}

// SAFETY: the accesses of `memory` are what the model checks.
unsafe impl Sync for Link {}

impl Link {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: AtomicU64::new(0),
            busy: [BusyWord::new(), BusyWord::new()],
            memory: [UnsafeCell::new(0), UnsafeCell::new(0)],
            acknowledged: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
        })
    }

    /// One chunk by one of the copiers.
    fn copy(&self, copier: usize) {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let Some(_guard) = enter(&self.epoch, &self.busy[copier], acknowledged) else { return };
        if acknowledged == 0 {
            // SAFETY: checked by the model.
            self.memory[copier].with_mut(|bytes| unsafe { *bytes = 1 });
        } else {
            // A copier that runs under the new epoch knows that the memory was revoked, and leaves it alone.
            assert!(self.revoked.load(Ordering::Relaxed));
        }
    }

    /// What the control thread on the copiers' side does when it is told of the revocation.
    fn acknowledge(&self) {
        self.revoked.store(true, Ordering::Relaxed);
        self.acknowledged.store(1, Ordering::Release);
    }

    /// The owner revokes, waits, each word by itself, and takes the memory.
    fn take(&self, copiers: usize) {
        let new = revoke(&self.epoch);
        for word in &self.busy[..copiers] {
            while !is_quiet(core::slice::from_ref(word), new) {
                thread::yield_now();
            }
        }
        for memory in &self.memory[..copiers] {
            // SAFETY: checked by the model.
            memory.with_mut(|bytes| unsafe { *bytes = 2 });
        }
    }

    fn assert_untouched_since(&self, copiers: usize) {
        for memory in &self.memory[..copiers] {
            // SAFETY: only called when all threads are joined.
            assert_eq!(memory.with(|bytes| unsafe { *bytes }), 2);
        }
    }
}

fn start(link: &Arc<Link>, run: impl FnOnce(&Link) + 'static) -> thread::JoinHandle<()> {
    let link = Arc::clone(link);
    thread::spawn(move || run(&link))
}

#[test]
fn loom_no_copy_touches_memory_that_was_found_quiet() {
    loom::model(|| {
        let link = Link::new();
        let copier = start(&link, |link| {
            link.copy(0);
            link.copy(0);
        });
        link.take(1);
        copier.join().unwrap();
        link.assert_untouched_since(1);
    });
}

#[test]
fn loom_a_copier_that_acknowledged_knows_what_was_revoked() {
    loom::model(|| {
        let link = Link::new();
        let copier = start(&link, |link| {
            link.copy(0);
            link.acknowledge();
            link.copy(0);
        });
        link.take(1);
        copier.join().unwrap();
        link.assert_untouched_since(1);
    });
}

#[test]
fn loom_two_copiers_and_their_control_thread() {
    let mut model = loom::model::Builder::new();
    // Three threads beside the owner: all orders with at most three involuntary switches.
    model.preemption_bound = Some(3);
    model.check(|| {
        let link = Link::new();
        let threads = [
            start(&link, |link| link.copy(0)),
            start(&link, |link| link.copy(1)),
            start(&link, Link::acknowledge),
        ];
        link.take(2);
        for thread in threads {
            thread.join().unwrap();
        }
        link.assert_untouched_since(2);
    });
}
