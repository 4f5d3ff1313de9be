use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, Ordering::SeqCst, fence},
    },
};

use kvferry_sys::ClosedInChild;

use super::{
    frame::{OutFrame, Owner, Sent},
    io::Thread,
    link::TcpLink,
    op::{Next, WireOp},
};

/// Frames of one turn, so that one stream does not keep the others of its thread waiting.
const TURN: usize = 32;

/// Chunks that a peer may have asked for on one stream.
const MAX_ASKED: usize = 256;

/// Answers that may wait to be sent on one stream.
const MAX_ANSWERS: usize = 1024;

/// The sending half of a stream.
///
/// Its thread sends, and a thread that posts a small transfer may send that one by itself while the stream is idle. Neither
/// waits for the other: a posting thread that finds the stream in use leaves the transfer to the stream's thread, and the
/// stream's thread that finds it in use is woken when the other is through.
pub(super) struct Sending {
    _closed_in_child: ClosedInChild,
    fd: OwnedFd,
    number: u8,
    state: Mutex<State>,
    /// The stream's thread came while another thread was at it.
    missed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The frame under way.
    out: Option<OutFrame>,
    /// Nothing goes until the socket has room, or until others had their turn.
    blocked: bool,
    /// What the target says to the initiator.
    answers: VecDeque<OutFrame>,
    /// Chunks among them that the initiator has asked for.
    asked: usize,
}

/// What became of a frame that a posting thread was to send.
enum Posted {
    Not,
    Part,
    Whole,
}

/// What became of a turn of sending.
pub(super) enum Turn {
    /// There is nothing more to send, or it waits for something that wakes the thread.
    Idle,
    /// The thread is to try again when the socket has room.
    Blocked,
}

impl Sending {
    pub(super) fn new(fd: OwnedFd, number: u8) -> Self {
        let _closed_in_child = ClosedInChild::new(&fd);
        Self { _closed_in_child, fd, number, state: Mutex::default(), missed: AtomicBool::new(false) }
    }

    // At the target, where only the stream's thread comes here.

    /// Takes an answer in, to be sent after those before it.
    pub(super) fn answer(&self, frame: OutFrame) {
        crate::lock(&self.state).answers.push_back(frame);
    }

    /// Takes a chunk in that the peer has asked for; false if there are too many.
    pub(super) fn asked(&self, frame: OutFrame) -> bool {
        let mut state = crate::lock(&self.state);
        state.asked += 1;
        state.answers.push_back(frame);
        state.asked <= MAX_ASKED
    }

    /// Whether no answer waits, and one could be sent.
    pub(super) fn is_silent(&self) -> bool {
        let state = crate::lock(&self.state);
        state.answers.is_empty() && state.out.is_none()
    }

    /// Whether so many answers wait that nothing more is taken in: a peer that asks and does not read costs little.
    pub(super) fn is_full(&self) -> bool {
        crate::lock(&self.state).answers.len() >= MAX_ANSWERS
    }

    // At both ends.

    /// Sends frames until nothing goes or there is none, on the stream's thread. `writable`: the socket has said so.
    pub(super) fn turn(&self, link: &TcpLink, thread: &mut Thread, writable: bool) -> io::Result<Turn> {
        let Some(mut state) = self.hold() else { return Ok(Turn::Idle) };
        state.blocked &= !writable;
        for _ in 0..TURN {
            if state.blocked {
                return Ok(Turn::Blocked);
            }
            if state.out.is_none() {
                state.out = state.next(link, self.number);
            }
            let Some(frame) = &mut state.out else { return Ok(Turn::Idle) };
            match frame.send(self.as_fd(), thread, link)? {
                Sent::Part => {}
                Sent::Waiting => return Ok(Turn::Idle),
                Sent::Blocked => state.blocked = true,
                Sent::All => state.sent(link),
            }
        }
        // More is to come: let the others have their turn first.
        state.blocked = true;
        Ok(Turn::Blocked)
    }

    /// Takes the sending half for the stream's thread; whoever has it wakes the thread afterwards.
    fn hold(&self) -> Option<MutexGuard<'_, State>> {
        self.missed.store(true, SeqCst);
        fence(SeqCst);
        let state = try_lock(&self.state)?;
        self.missed.store(false, SeqCst);
        Some(state)
    }

    /// Sends the first frame of a transfer from the thread that posts it; false, and nothing was done, if the stream is not
    /// idle. What does not go at once is left to the stream's thread, for which `wake` is called.
    pub(super) fn post(
        &self,
        link: &TcpLink,
        op: &Arc<WireOp>,
        thread: &mut Thread,
        wake: impl FnOnce(),
    ) -> io::Result<bool> {
        let Some(mut state) = try_lock(&self.state) else { return Ok(false) };
        let posted = state.post(self.as_fd(), link, op, thread);
        drop(state);
        // Either the thread finds the lock free, or we find that it was here.
        fence(SeqCst);
        if matches!(posted, Ok(Posted::Part)) || self.missed.load(SeqCst) {
            wake();
        }
        posted.map(|posted| !matches!(posted, Posted::Not))
    }
}

impl State {
    fn next(&mut self, link: &TcpLink, number: u8) -> Option<OutFrame> {
        let small = self.answers.pop_front().or_else(|| link.extra(number));
        if let Some(mut frame) = small {
            while self.answers.front_mut().is_some_and(|other| frame.join(other)) {
                self.answers.pop_front();
            }
            return Some(frame);
        }
        while let Some(op) = link.dequeue() {
            match op.next_frame() {
                Next::Frame(frame) => return Some(frame),
                Next::Nothing => {}
                Next::Later => {
                    link.put_back(&op);
                    return None;
                }
            }
        }
        None
    }

    fn sent(&mut self, link: &TcpLink) {
        match self.out.take().map(|frame| frame.owner) {
            Some(Owner::Peer { .. }) => self.asked = self.asked.saturating_sub(1),
            Some(Owner::Mark { op, attempt }) => link.dropped(op, attempt),
            Some(Owner::Nobody | Owner::Op(_)) | None => {}
        }
    }

    fn post(
        &mut self,
        fd: BorrowedFd<'_>,
        link: &TcpLink,
        op: &Arc<WireOp>,
        thread: &mut Thread,
    ) -> io::Result<Posted> {
        if self.blocked || self.out.is_some() {
            return Ok(Posted::Not);
        }
        let mut frame = match op.next_frame() {
            Next::Frame(frame) => frame,
            Next::Nothing => return Ok(Posted::Whole),
            Next::Later => return Ok(Posted::Not),
        };
        if matches!(frame.send(fd, thread, link)?, Sent::All) {
            return Ok(Posted::Whole);
        }
        self.out = Some(frame);
        Ok(Posted::Part)
    }
}

impl AsFd for Sending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes a lock that nobody else has.
pub(super) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
