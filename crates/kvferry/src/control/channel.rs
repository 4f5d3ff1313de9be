use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use kvferry_proto::{Frame, FrameReader, Identity, RegionId, Session};
use kvferry_sys::ClosedInChild;

use crate::{
    path::WhyNot,
    peer::Peer,
    transfer::NotifyToken,
    transport::{Attach, Link},
};

/// Bytes that may wait to be sent: what an inbox holds, and as much again for the rest.
const MAX_QUEUED: usize = 128 << 20;

/// Descriptors that may have come in without their frame.
const MAX_FDS: usize = 64;

/// Reads of one turn, so that one peer does not keep the others waiting.
const READS: usize = 16;

/// Frames of one turn that are written together.
const JOIN: usize = 256 << 10;

/// One control channel: a socket, and the session on it.
pub(super) struct Channel {
    _closed_in_child: ClosedInChild,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) wire: Wire,
    /// Set while what has come in is read and carried out.
    pub(super) listening: Arc<AtomicBool>,
    pub(super) session: Session,
    /// The peer that we opened this channel to; none on a channel that was opened to us.
    pub(super) peer: Option<Arc<Peer>>,
    /// How the peer is being reached, on a channel that we opened.
    pub(super) attempt: Attempt,
    pub(super) pid: i32,
    pub(super) process: Option<Arc<OwnedFd>>,
    pub(super) attach: Option<Box<dyn Attach>>,
    pub(super) link: Option<Arc<dyn Link>>,
    /// Why attaching failed, to be told once the channel is gone.
    pub(super) attach_error: Option<crate::error::ConnectError>,
    /// The regions that the peer was told of when it was admitted.
    pub(super) told: Vec<RegionId>,
    /// Whom it was admitted as.
    pub(super) told_to: Option<Identity>,
    /// Descriptors of the transport message that is the next action.
    pub(super) arrived_fds: Vec<OwnedFd>,
    /// How the peer broke the protocol, where its session could not see it.
    pub(super) violation: Option<String>,
    /// What a transport said when it lost its own connection.
    pub(super) broken_by: Option<String>,
    /// Whether the link has been up.
    pub(super) up: bool,
    /// The kernel has said that the process at the other end is dead.
    pub(super) died: bool,
    pub(super) tokens: HashMap<u64, NotifyToken>,
    pub(super) last_token: u64,
    /// Transfers whose notification was not acknowledged when the link was lost.
    pub(super) dropped: Vec<NotifyToken>,
    /// Descriptors of transport messages that the session is about to send.
    pub(super) sending_fds: VecDeque<Vec<Arc<OwnedFd>>>,
    reader: FrameReader,
    came_fds: VecDeque<OwnedFd>,
    out: VecDeque<Out>,
    queued: usize,
    /// The peer takes nothing more.
    deaf: bool,
    pub(super) wants_write: bool,
}

/// What a channel runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// A Unix socket.
    Unix,
    /// A TCP connection, or one that is being made.
    Tcp { connecting: bool },
}

/// A try to reach a peer, over one of its endpoints after the other.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// Whether an earlier channel to the same incarnation had been up.
    pub(super) again: bool,
    /// The endpoint that comes next.
    pub(super) next: usize,
    /// The endpoint of this channel, for people.
    pub(super) shown: String,
    /// What became of the endpoints before.
    pub(super) tried: Vec<String>,
    /// Whether an endpoint gave no answer in time.
    pub(super) unanswered: bool,
    /// Whether an endpoint answered and did not finish the handshake in time.
    pub(super) timed_out: bool,
    /// Ways that turned out not to lead there.
    pub(super) why_not: Vec<WhyNot>,
}

struct Out {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<Arc<OwnedFd>>,
}

/// What a turn of reading brought.
pub(super) enum Read {
    /// A frame, with the descriptors that belong to it.
    Frame(Frame, Vec<OwnedFd>),
    /// Bytes that are no frame.
    Malformed(kvferry_proto::FrameError),
    /// More or fewer descriptors than frames say.
    Descriptors,
    /// The stream is over.
    Ended,
    /// An error of the stream.
    Broken(io::Error),
}

impl Channel {
    pub(super) fn new(fd: OwnedFd, wire: Wire, session: Session, peer: Option<Arc<Peer>>) -> Self {
        let (pid, process) = match wire {
            Wire::Unix => {
                let pid = kvferry_sys::peer_credentials(&fd).map_or(0, |c| c.pid);
                (pid, kvferry_sys::peer_pidfd(&fd).map(Arc::new))
            }
            Wire::Tcp { .. } => (0, None),
        };
        Self {
            _closed_in_child: ClosedInChild::new(&fd),
            fd: Arc::new(fd),
            wire,
            listening: Arc::default(),
            session,
            peer,
            attempt: Attempt::default(),
            pid,
            process,
            attach: None,
            link: None,
            attach_error: None,
            told: Vec::new(),
            told_to: None,
            arrived_fds: Vec::new(),
            violation: None,
            broken_by: None,
            up: false,
            died: false,
            tokens: HashMap::new(),
            last_token: 0,
            dropped: Vec::new(),
            sending_fds: VecDeque::new(),
            reader: FrameReader::new(),
            came_fds: VecDeque::new(),
            out: VecDeque::new(),
            queued: 0,
            deaf: false,
            wants_write: false,
        }
    }

    /// Until when the transport waits, while it attaches, for something that it can do without.
    pub(super) fn attach_deadline(&self) -> Option<Instant> {
        self.attach.as_ref()?.deadline()
    }

    /// Reads what is there, frame by frame.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Vec<Read> {
        let mut came = Vec::new();
        for _ in 0..READS {
            let mut fds = Vec::new();
            match kvferry_sys::recv_with_fds(&self.fd, buffer, &mut fds) {
                Ok(0) => {
                    came.push(Read::Ended);
                    break;
                }
                Ok(n) => {
                    self.came_fds.extend(fds);
                    if !self.take(&buffer[..n], &mut came) {
                        break;
                    }
                    if n < buffer.len() / 2 {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    came.push(Read::Broken(e));
                    break;
                }
            }
        }
        came
    }

    fn take(&mut self, mut bytes: &[u8], came: &mut Vec<Read>) -> bool {
        while !bytes.is_empty() {
            bytes = &bytes[self.reader.push(bytes)..];
            loop {
                match self.reader.pop() {
                    Ok(Some(frame)) => {
                        let count = usize::from(frame.fds());
                        if count > self.came_fds.len() {
                            came.push(Read::Descriptors);
                            return false;
                        }
                        let fds = self.came_fds.drain(..count).collect();
                        came.push(Read::Frame(frame, fds));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        came.push(Read::Malformed(error));
                        return false;
                    }
                }
            }
        }
        if self.came_fds.len() > MAX_FDS {
            came.push(Read::Descriptors);
            return false;
        }
        true
    }

    /// Whether the connection is still being made.
    pub(super) fn is_connecting(&self) -> bool {
        self.wire == Wire::Tcp { connecting: true }
    }

    /// Takes a frame in to be sent. False if the peer does not read and too much waits already.
    pub(super) fn queue(&mut self, frame: &Frame) -> bool {
        if self.deaf {
            return true;
        }
        let fds = if frame.fds() > 0 { self.sending_fds.pop_front().unwrap_or_default() } else { Vec::new() };
        let join = self.out.back_mut().filter(|o| o.sent == 0 && fds.is_empty() && o.bytes.len() < JOIN);
        let (bytes, before) = match join {
            Some(out) => {
                let before = out.bytes.len();
                (&mut out.bytes, before)
            }
            None => {
                self.out.push_back(Out { bytes: Vec::new(), sent: 0, fds });
                match self.out.back_mut() {
                    Some(out) => (&mut out.bytes, 0),
                    None => return false,
                }
            }
        };
        if let Err(error) = frame.encode_into(bytes) {
            tracing::error!(target: "kvferry::control", "a {} frame cannot be sent: {error}", frame.name());
            return true;
        }
        self.queued += bytes.len() - before;
        self.queued <= MAX_QUEUED
    }

    /// Sends as much as goes; true if all is sent.
    ///
    /// A peer that no longer reads may still have said something: an error here ends the sending only, and what is to be
    /// read says the rest.
    pub(super) fn flush(&mut self) -> bool {
        if self.is_connecting() {
            return false;
        }
        match self.send() {
            Ok(done) => done,
            Err(error) => {
                tracing::debug!(target: "kvferry::control", "a control channel takes nothing more: {error}");
                self.out.clear();
                self.deaf = true;
                true
            }
        }
    }

    fn send(&mut self) -> io::Result<bool> {
        while let Some(out) = self.out.front_mut() {
            if out.sent == out.bytes.len() {
                self.out.pop_front();
                continue;
            }
            let fds: Vec<BorrowedFd<'_>> =
                if out.sent == 0 { out.fds.iter().map(|fd| fd.as_fd()).collect() } else { Vec::new() };
            match kvferry_sys::send_with_fds(&self.fd, &out.bytes[out.sent..], &fds) {
                Ok(n) => {
                    out.sent += n;
                    self.queued -= n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Notes how the connection ended, with the address that it led to.
    pub(super) fn note_end(&mut self, how: &str) {
        if self.wire != Wire::Unix && !self.attempt.shown.is_empty() {
            self.broken_by.get_or_insert_with(|| format!("{}: {how}", self.attempt.shown));
        }
    }

    /// A number by which the session names a transfer's notification.
    pub(super) fn token(&mut self, token: NotifyToken) -> u64 {
        self.last_token += 1;
        self.tokens.insert(self.last_token, token);
        self.last_token
    }
}
