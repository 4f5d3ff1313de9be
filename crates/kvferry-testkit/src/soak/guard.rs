//! Sees to it that a run ends: at Ctrl-C, and when a round does not.

use std::{
    process::exit,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::harness::now_ns;

/// Every wait of a round is bounded; a round that takes longer than this waits for something that is not.
const LONGEST_ROUND: Duration = Duration::from_secs(180);

/// Code of a run that was ended by a second Ctrl-C.
const INTERRUPTED: i32 = 130;

/// A watch over the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    stopping: Arc<AtomicBool>,
    /// When the round began, 0 between rounds.
    since: Arc<AtomicU64>,
    /// The round, in words.
    what: Arc<Mutex<String>>,
}

impl Guard {
    /// Takes charge of SIGINT and SIGTERM: the first ends the run after the round, the second at once. Workers end with this
    /// process in any case: the kernel sees to that.
    ///
    /// Before any other thread is started, so that none gets these signals.
    pub(super) fn start() -> Self {
        let guard = Self::default();
        let signals = signals();
        // SAFETY: a valid set, and no old one is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) };
        let stopping = guard.stopping.clone();
        std::thread::spawn(move || {
            loop {
                let mut signal = 0;
                // SAFETY: a valid set and a place for the number.
                if unsafe { libc::sigwait(&raw const signals, &raw mut signal) } != 0 {
                    return;
                }
                if stopping.swap(true, SeqCst) {
                    exit(INTERRUPTED);
                }
                eprintln!("soak: ending after this round; once more to end at once");
            }
        });
        let ours = guard.clone();
        std::thread::spawn(move || ours.watch());
        guard
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// A round begins.
    pub(super) fn begin(&self, what: String) {
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.since.store(now_ns(), SeqCst);
    }

    /// The round is over.
    pub(super) fn end(&self) {
        self.since.store(0, SeqCst);
    }

    fn watch(&self) {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let since = self.since.load(SeqCst);
            if since > 0 && now_ns().saturating_sub(since) > LONGEST_ROUND.as_nanos() as u64 {
                let what = self.what.lock().unwrap_or_else(PoisonError::into_inner);
                eprintln!("soak: FAILED: expected an end of {what} within {LONGEST_ROUND:?}, and it hangs");
                exit(1);
            }
        }
    }
}

fn signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the first call initialises the set, the others change it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        set.assume_init()
    }
}
