//! The watch: sees dead processes by their liveness words, and copies that take too long.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use kvferry_sys::{DeathWatch, Liveness as Word, WaitAny};

use crate::{
    control::{Command, Mailbox},
    transport::{Liveness, same_host::CopyPool},
};

/// How often copies are looked at while some run.
const TICK: Duration = Duration::from_millis(10);

/// A handle to the watch thread.
#[derive(Clone)]
pub(crate) struct Watch {
    inner: Arc<Inner>,
}

struct Inner {
    /// Changes whenever the thread is to look at its list anew.
    bell: AtomicU32,
    words: Mutex<Vec<Watched>>,
    /// Whether the thread looks at the copies on its own.
    ticking: AtomicBool,
    stopping: AtomicBool,
}

#[derive(Clone)]
struct Watched {
    channel: u64,
    liveness: Liveness,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                bell: AtomicU32::new(0),
                words: Mutex::default(),
                ticking: AtomicBool::new(false),
                stopping: AtomicBool::new(false),
            }),
        }
    }

    /// Starts the thread, which tells of deaths through `mailbox`.
    pub(crate) fn start(&self, mailbox: Mailbox, pool: Arc<CopyPool>) -> io::Result<()> {
        let inner = self.inner.clone();
        kvferry_sys::spawn_quiet("kvferry-watch", move || inner.run(&mailbox, &pool))?;
        Ok(())
    }

    /// Watches the other side of a link.
    pub(crate) fn add(&self, channel: u64, liveness: Liveness) {
        crate::lock(&self.inner.words).push(Watched { channel, liveness });
        self.inner.ring();
    }

    pub(crate) fn remove(&self, channel: u64) {
        crate::lock(&self.inner.words).retain(|w| w.channel != channel);
        self.inner.ring();
    }

    /// Copies have begun: look now and then whether one hangs.
    pub(crate) fn attend(&self) {
        if !self.inner.ticking.swap(true, SeqCst) {
            self.inner.ring();
        }
    }

    pub(crate) fn stop(&self) {
        self.inner.stopping.store(true, SeqCst);
        self.inner.ring();
    }
}

impl Inner {
    fn ring(&self) {
        self.bell.fetch_add(1, SeqCst);
        DeathWatch::wake(&self.bell);
    }

    fn run(&self, mailbox: &Mailbox, pool: &Arc<CopyPool>) {
        let mut watch = DeathWatch::new();
        while !self.stopping.load(SeqCst) {
            let heard = self.bell.load(SeqCst);
            let watched = crate::lock(&self.words).clone();
            let mut words = vec![(&self.bell, heard)];
            let mut dead = Vec::new();
            for Watched { channel, liveness } in &watched {
                let word = liveness.page.liveness(liveness.ours.other());
                let value = word.load(SeqCst);
                match Word::of(value) {
                    Word::Dead => dead.push(*channel),
                    // Closed in good order: the channel tells the rest.
                    Word::Closed => {}
                    _ => words.push((word, value)),
                }
            }
            if !dead.is_empty() {
                crate::lock(&self.words).retain(|w| !dead.contains(&w.channel));
                dead.into_iter().for_each(|channel| mailbox.send(Command::PeerDied { channel }));
                continue;
            }
            let ticking = self.ticking.load(SeqCst);
            let woke = watch.wait_any(&words, ticking.then_some(TICK));
            if woke == WaitAny::TimedOut {
                if pool.is_active() {
                    pool.relieve();
                } else {
                    self.ticking.store(false, SeqCst);
                    // Whoever began just before this saw the flag still up.
                    if pool.is_active() {
                        self.ticking.store(true, SeqCst);
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("words", &crate::lock(&self.inner.words).len()).finish_non_exhaustive()
    }
}
