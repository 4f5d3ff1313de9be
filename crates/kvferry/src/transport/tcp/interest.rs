use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex},
};

use rustix::event::epoll::{self, EventData, EventFlags};

/// What the thread of a stream is woken for.
pub(super) struct Interest {
    epoll: Arc<OwnedFd>,
    id: u64,
    state: Mutex<State>,
}

struct State {
    wanted: EventFlags,
    /// A waiting thread receives in the place of the stream's.
    lent: bool,
    told: EventFlags,
    over: bool,
}

impl Interest {
    pub(super) fn new(epoll: Arc<OwnedFd>, id: u64) -> Self {
        let nothing = EventFlags::empty();
        let state = State { wanted: nothing, lent: false, told: nothing, over: false };
        Self { epoll, id, state: Mutex::new(state) }
    }

    pub(super) fn begin(&self, fd: impl AsFd, wanted: EventFlags) -> io::Result<()> {
        let mut state = crate::lock(&self.state);
        (state.wanted, state.told) = (wanted, wanted);
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(self.id), wanted)?)
    }

    pub(super) fn end(&self, fd: impl AsFd) {
        let mut state = crate::lock(&self.state);
        state.over = true;
        let _ = epoll::delete(&self.epoll, fd);
    }

    pub(super) fn want(&self, fd: impl AsFd, wanted: EventFlags) -> io::Result<()> {
        let mut state = crate::lock(&self.state);
        state.wanted = wanted;
        self.tell(&mut state, fd)
    }

    /// The thread does not hear of what comes in until this is taken back.
    pub(super) fn lend(&self, fd: impl AsFd) -> io::Result<()> {
        let mut state = crate::lock(&self.state);
        state.lent = true;
        self.tell(&mut state, fd)
    }

    pub(super) fn take_back(&self, fd: impl AsFd) -> io::Result<()> {
        let mut state = crate::lock(&self.state);
        state.lent = false;
        self.tell(&mut state, fd)
    }

    fn tell(&self, state: &mut State, fd: impl AsFd) -> io::Result<()> {
        let flags = if state.lent { state.wanted - EventFlags::IN } else { state.wanted };
        if state.told != flags && !state.over {
            epoll::modify(&self.epoll, fd, EventData::new_u64(self.id), flags)?;
            state.told = flags;
        }
        Ok(())
    }
}
