use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use kvferry_proto::StreamHello;

use super::{
    super::{io::Thread, message::Wire, op::WireOp, stream::Halves},
    TcpLink,
};

impl TcpLink {
    pub(in super::super) fn hello(&self, stream: u8) -> [u8; kvferry_proto::STREAM_HELLO] {
        StreamHello { link: self.id, stream, streams: self.streams }.encode(&self.key)
    }

    /// A data stream has come to the target.
    pub(in super::super) fn stream_arrived(
        self: &Arc<Self>,
        fd: OwnedFd,
        hello: &StreamHello,
        bytes: &[u8; kvferry_proto::STREAM_HELLO],
    ) {
        let bit = 1_u32 << hello.stream;
        let fits = hello.verify(bytes, &self.key) && hello.streams == self.streams && !self.initiator;
        let mut arrived = crate::lock(&self.arrived);
        if !fits || *arrived & bit != 0 || !self.is_open() {
            tracing::warn!(target: "kvferry::peer", peer = %self.peer, "a data stream was turned away");
            return;
        }
        *arrived |= bit;
        let complete = arrived.count_ones() == u32::from(self.streams);
        drop(arrived);
        self.threads.add(self.clone(), hello.stream, fd, false);
        if complete {
            self.outbox.send(Wire::Complete.encode(), Vec::new());
        }
    }

    /// Opens the streams, from the initiator's side.
    pub(in super::super) fn open_streams(self: &Arc<Self>, address: SocketAddr) -> Result<(), String> {
        for stream in 0..self.streams {
            let fd =
                kvferry_sys::connect_tcp(address).map_err(|e| format!("data stream to {address}: {e}"))?;
            self.threads.add(self.clone(), stream, fd, true);
        }
        Ok(())
    }

    /// A stream of the initiator's is open for those who post and wait.
    pub(in super::super) fn stream_opened(&self, stream: u8, halves: Arc<Halves>) {
        if let Some(slot) = self.opened.get(usize::from(stream)) {
            *crate::lock(slot) = Some(halves);
        }
    }

    /// It is closed.
    pub(in super::super) fn stream_closed(&self, stream: u8) {
        if let Some(slot) = self.opened.get(usize::from(stream)) {
            crate::lock(slot).take();
        }
    }

    /// A stream broke: the epoch is over.
    ///
    /// Before all streams stand, the initiator decides what their loss means.
    pub(in super::super) fn stream_failed(&self, detail: &str) {
        let complete = || crate::lock(&self.arrived).count_ones() == u32::from(self.streams);
        if self.is_open() && (self.initiator || complete()) {
            let address = self.address.map(|a| a.to_string()).unwrap_or_default();
            self.outbox.link_lost(format!("data stream to {address}: {detail}"));
        }
    }

    // For threads that post or wait.

    /// Most bytes that the thread that posts a transfer may send by itself.
    pub(in super::super) fn inline_limit(&self) -> u64 {
        self.settings.inline_limit
    }

    /// How long to look for what follows a small transfer, from now; None if not at all.
    pub(in super::super) fn spin_until(&self) -> Option<Instant> {
        let spin = self.settings.spin;
        (!spin.is_zero()).then(|| Instant::now() + spin)
    }

    /// Sends a small transfer from the thread that posts it, if no other waits and a stream is idle; the number of that
    /// stream. None if this is left to the threads of the streams.
    pub(in super::super) fn post(&self, op: &Arc<WireOp>) -> Option<u8> {
        if !crate::lock(&self.sendable).is_empty() {
            return None;
        }
        self.borrow_thread(|thread| {
            (0..self.streams).find(|number| {
                let Some(halves) = self.halves(*number) else { return false };
                let posted = halves.sending.post(self, op, thread, || self.threads.wake_for(*number));
                posted.unwrap_or_else(|error| {
                    self.stream_failed(&error.to_string());
                    true
                })
            })
        })?
    }

    /// Receives for a thread that waits for what it has sent on a stream.
    pub(in super::super) fn assist(&self, stream: u8, most: Duration, over: impl Fn() -> bool) {
        if let Some(halves) = self.halves(stream) {
            halves.assist(self, most, over);
        }
    }

    /// Lets the calling thread move bytes by itself, unless too many do so now.
    pub(in super::super) fn borrow_thread<R>(&self, f: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        self.threads.borrow(f)
    }

    fn halves(&self, stream: u8) -> Option<Arc<Halves>> {
        crate::lock(self.opened.get(usize::from(stream))?).clone()
    }
}
