use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use kvferry_sys::ClosedInChild;
use rustix::event::epoll;

/// What a readiness belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Mailbox,
    Listener(usize),
    Channel(u64),
}

const LISTENERS: u64 = 1 << 16;

impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Mailbox => 0,
            Self::Listener(i) => 1 + i as u64,
            Self::Channel(id) => LISTENERS + id,
        }
    }

    fn decode(data: u64) -> Self {
        match data {
            0 => Self::Mailbox,
            1..LISTENERS => Self::Listener(data as usize - 1),
            _ => Self::Channel(data - LISTENERS),
        }
    }
}

/// Waits for readiness, level-triggered.
pub(super) struct Poller {
    _closed_in_child: ClosedInChild,
    epoll: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { _closed_in_child: ClosedInChild::new(&epoll), epoll })
    }

    pub(super) fn add(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.encode());
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// As [`Poller::add`], but tells of new bytes only once.
    pub(super) fn add_edge(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.encode());
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    /// Asks for writability too, or no longer.
    pub(super) fn set_writable(&self, fd: impl AsFd, token: Token, writable: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.encode());
        let out = if writable { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        Ok(epoll::modify(&self.epoll, fd, data, epoll::EventFlags::IN | out)?)
    }

    pub(super) fn remove(&self, fd: impl AsFd) {
        // The descriptor is about to be closed; a copy of it elsewhere must not keep waking us.
        let _ = epoll::delete(&self.epoll, fd);
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<Token>> {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 64];
        let timeout = timeout.map(|t| rustix::event::Timespec {
            tv_sec: t.as_secs().min(1 << 30) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(events[..count].iter().map(|e| Token::decode(e.data.u64())).collect())
    }
}
