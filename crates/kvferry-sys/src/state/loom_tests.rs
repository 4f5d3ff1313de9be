use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

#[test]
fn loom_of_two_posts_one_wins() {
    loom::model(|| {
        let word = Arc::new(StateWord::new());
        let other = thread::spawn({
            let word = Arc::clone(&word);
            move || word.post()
        });
        let (ours, theirs) = (word.post(), other.join().unwrap());
        assert!(ours.is_ok() != theirs.is_ok());
        assert_eq!(word.snapshot(), Snapshot { attempt: 1, phase: Phase::Posted, inflight: 0 });
    });
}

#[test]
fn loom_of_done_and_cancel_one_wins() {
    loom::model(|| {
        let word = Arc::new(StateWord::new());
        let attempt = word.post().unwrap();
        let copier = thread::spawn({
            let word = Arc::clone(&word);
            move || {
                let entered = word.enter(attempt);
                let done = entered && word.land(attempt) && word.finish(attempt, Phase::Done);
                if entered {
                    word.exit();
                }
                done
            }
        });
        let cancelled = word.cancel().is_some();
        assert!(cancelled != copier.join().unwrap());
        let last = word.snapshot();
        assert!(last.is_quiet());
        assert_eq!(last.phase == Phase::Cancelled, cancelled);
    });
}

/// Two copiers against a cancel: memory that was found quiet is touched by nobody, and what was copied before is
/// visible to who found it quiet.
#[test]
fn loom_cancelled_and_quiet_means_that_no_copy_touches_the_memory() {
    struct Transfer {
        word: StateWord,
        memory: [UnsafeCell<u64>; 2],
    }
    // SAFETY: the accesses of `memory` are what the model checks.
    unsafe impl Sync for Transfer {}

    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let memory = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let transfer = Arc::new(Transfer { word: StateWord::new(), memory });
        let attempt = transfer.word.post().unwrap();
        let copiers = [0, 1].map(|copier| {
            let transfer = Arc::clone(&transfer);
            thread::spawn(move || {
                if transfer.word.enter(attempt) {
                    // SAFETY: checked by the model.
                    transfer.memory[copier].with_mut(|bytes| unsafe { *bytes = 1 });
                    transfer.word.exit();
                }
            })
        });
        assert_eq!(transfer.word.cancel(), Some(attempt));
        while !transfer.word.snapshot().is_quiet() {
            thread::yield_now();
        }
        for memory in &transfer.memory {
            // SAFETY: checked by the model.
            memory.with_mut(|bytes| unsafe { *bytes = 2 });
        }
        for copier in copiers {
            copier.join().unwrap();
        }
        // A second attempt begins at once; nothing of the first enters it.
        let second = transfer.word.post().unwrap();
        assert!(!transfer.word.enter(attempt));
        assert_eq!(transfer.word.snapshot(), Snapshot { attempt: second, phase: Phase::Posted, inflight: 0 });
    });
}
