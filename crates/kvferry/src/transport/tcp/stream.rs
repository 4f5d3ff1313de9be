use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kvferry_proto::STREAM_HELLO;
use kvferry_sys::Gather;
use rustix::event::{PollFd, PollFlags, Timespec, epoll::EventFlags, poll};

use super::{
    interest::Interest,
    io::Thread,
    link::TcpLink,
    receiving::{Receiving, Way},
    sending::{Sending, Turn, try_lock},
};

/// One data stream, on its thread.
pub(super) struct Stream {
    pub(super) link: Arc<TcpLink>,
    halves: Arc<Halves>,
    connecting: bool,
    /// The socket has become writable since the last turn of sending.
    writable: bool,
}

/// What a stream's thread shares with threads that post or wait.
pub(super) struct Halves {
    number: u8,
    pub(super) sending: Sending,
    receiving: Mutex<Receiving>,
    interest: Interest,
}

impl Stream {
    pub(super) fn new(
        link: Arc<TcpLink>,
        number: u8,
        fd: OwnedFd,
        connecting: bool,
        interest: Interest,
    ) -> io::Result<Self> {
        let sending = Sending::new(fd, number);
        interest.begin(&sending, if connecting { EventFlags::OUT } else { EventFlags::IN })?;
        let receiving = Mutex::new(Receiving::new());
        let halves = Arc::new(Halves { number, sending, receiving, interest });
        Ok(Self { link, halves, connecting, writable: false })
    }

    /// Reads and writes what the stream is ready for.
    pub(super) fn serve(
        &mut self,
        writable: bool,
        thread: &mut Thread,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        if self.connecting {
            self.connected()?;
        } else {
            self.writable |= writable;
            // Unless a waiting thread does it; then we are asked again afterwards.
            if let Some(mut receiving) = try_lock(&self.halves.receiving) {
                let way = Way { link: &self.link, sending: &self.halves.sending };
                receiving.turn(way, thread, scratch, || false)?;
            }
        }
        self.send(thread)
    }

    /// The connection stands, or not: says hello.
    fn connected(&mut self) -> io::Result<()> {
        let Halves { number, sending, .. } = &*self.halves;
        if kvferry_sys::connected(sending)?.is_none() {
            return Ok(());
        }
        self.connecting = false;
        let hello: [u8; STREAM_HELLO] = self.link.hello(*number);
        // An empty socket takes so few bytes whole.
        let sent = Gather::new().send(sending, &hello, [], &[])?;
        if sent != hello.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.link.stream_opened(*number, self.halves.clone());
        Ok(())
    }

    /// Sends what there is.
    pub(super) fn send(&mut self, thread: &mut Thread) -> io::Result<()> {
        if self.connecting {
            return Ok(());
        }
        let Halves { sending, interest, .. } = &*self.halves;
        let writable = std::mem::take(&mut self.writable);
        let blocked = matches!(sending.turn(&self.link, thread, writable)?, Turn::Blocked);
        let read =
            if !self.link.initiator && sending.is_full() { EventFlags::empty() } else { EventFlags::IN };
        interest.want(sending, if blocked { read | EventFlags::OUT } else { read })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.halves.interest.end(&self.halves.sending);
        self.link.stream_closed(self.halves.number);
    }
}

impl Halves {
    /// Receives in the place of the stream's thread, for a thread that waits until it is `over`: spares the way from one to the
    /// other. Leaves it at that after `most`, or if another is at it.
    pub(super) fn assist(&self, link: &TcpLink, most: Duration, over: impl Fn() -> bool) {
        if most.is_zero() {
            return;
        }
        // Before the lock, so that it is dropped after it: what the thread is then told to look at, it can.
        let mut lent = Lent { halves: self, link, lent: false };
        let Some(mut receiving) = try_lock(&self.receiving) else { return };
        let deadline = Instant::now() + most;
        lent.lent = true;
        if self.interest.lend(&self.sending).is_err() {
            return;
        }
        let spin_until = link.spin_until();
        let mut scratch = [0; 4096];
        while !over() {
            let now = Instant::now();
            if spin_until.is_some_and(|until| now < until) {
                // The answer often comes sooner than a sleep would end; the one who gives it may need this core.
                std::thread::yield_now();
            } else if !self.comes_within(deadline.saturating_duration_since(now)) {
                break;
            }
            let way = Way { link, sending: &self.sending };
            let received = link.borrow_thread(|thread| receiving.turn(way, thread, &mut scratch, &over));
            if let Some(Err(error)) = &received {
                link.stream_failed(&error.to_string());
            }
            if !matches!(received, Some(Ok(()))) {
                break;
            }
        }
    }

    /// Sleeps until there is something to receive; false if nothing comes.
    fn comes_within(&self, most: Duration) -> bool {
        let mut fds = [PollFd::new(&self.sending, PollFlags::IN)];
        let timeout = Timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos().into() };
        !most.is_zero() && matches!(poll(&mut fds, Some(&timeout)), Ok(1..))
    }
}

/// Takes a stream back from a thread that waits, whatever ends its help.
struct Lent<'a> {
    halves: &'a Halves,
    link: &'a TcpLink,
    lent: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.lent
            && let Err(error) = self.halves.interest.take_back(&self.halves.sending)
        {
            self.link.stream_failed(&error.to_string());
        }
    }
}
