use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Condvar, Mutex, Weak},
    time::{Duration, Instant},
};

use kvferry_proto::Incarnation;
use kvferry_sys::EventFd;

use crate::{error::LostCause, transfer::Status};

/// Peer events beyond this many unread ones are dropped, oldest first; completions never are.
const MAX_PEER_EVENTS: usize = 4096;

/// Something that happened to a peer or to a transfer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The peer is within reach.
    PeerUp {
        /// Its name.
        peer: String,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// The peer is gone: its metadata is dropped.
    PeerLost {
        /// Its name.
        peer: String,
        /// Its incarnation.
        incarnation: Incarnation,
        /// How it was lost.
        cause: LostCause,
    },
    /// Another incarnation has taken the name.
    PeerRestarted {
        /// Its name.
        peer: String,
        /// The new incarnation.
        incarnation: Incarnation,
    },
    /// Notifications of the peer are waiting.
    Notified {
        /// Its name.
        peer: String,
    },
    /// A transfer that was created with this queue has ended.
    Completed {
        /// Its handle.
        transfer: u64,
        /// How it ended.
        status: Status,
    },
}

/// A queue of events with a descriptor that is readable while the queue holds one.
///
/// Clones share the queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fd: EventFd,
    events: Mutex<State>,
    waiting: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Event>,
    peer_events: usize,
}

impl CompletionQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let inner = Inner { fd: EventFd::new()?, events: Mutex::default(), waiting: Condvar::new() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Takes the oldest event, if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.inner.take(&mut crate::lock(&self.inner.events))
    }

    /// Waits for an event for as long as `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now() + timeout;
        let mut state = crate::lock(&self.inner.events);
        loop {
            if let Some(event) = self.inner.take(&mut state) {
                return Some(event);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.inner.waiting.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// Unread events.
    pub fn len(&self) -> usize {
        crate::lock(&self.inner.events).queue.len()
    }

    /// Whether there is no unread event.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&self, event: Event) {
        let mut state = crate::lock(&self.inner.events);
        if !matches!(event, Event::Completed { .. }) {
            state.peer_events += 1;
            if state.peer_events > MAX_PEER_EVENTS {
                let oldest = state.queue.iter().position(|e| !matches!(e, Event::Completed { .. }));
                if let Some(at) = oldest {
                    state.queue.remove(at);
                    state.peer_events -= 1;
                }
            }
        }
        state.queue.push_back(event);
        if state.queue.len() == 1 {
            self.inner.fd.signal();
        }
        self.inner.waiting.notify_one();
    }

    pub(crate) fn downgrade(&self) -> WeakQueue {
        WeakQueue(Arc::downgrade(&self.inner))
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

impl Inner {
    fn take(&self, state: &mut State) -> Option<Event> {
        let event = state.queue.pop_front()?;
        if !matches!(event, Event::Completed { .. }) {
            state.peer_events -= 1;
        }
        if state.queue.is_empty() {
            self.fd.drain();
        }
        Some(event)
    }
}

/// The agent's side of a queue: does not keep it alive.
#[derive(Debug)]
pub(crate) struct WeakQueue(Weak<Inner>);

impl WeakQueue {
    pub(crate) fn upgrade(&self) -> Option<CompletionQueue> {
        self.0.upgrade().map(|inner| CompletionQueue { inner })
    }
}
