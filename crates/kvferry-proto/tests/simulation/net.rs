//! Connections and shared pages: what two processes have in common.

use std::collections::VecDeque;

use crate::rng::Rng;

/// Copy threads of a process, each with a busy word for each link.
pub(crate) const COPIERS: usize = 2;

/// The two ends of a link, as indices.
pub(crate) const INITIATOR: usize = 0;
pub(crate) const TARGET: usize = 1;

/// A page that both ends of a link map. It outlives them here, as a mapping outlives its peer.
#[derive(Default)]
pub(crate) struct Page {
    /// By owner.
    pub(crate) epoch: [u64; 2],
    /// By copier's side.
    pub(crate) busy: [[u64; COPIERS]; 2],
}

/// An ordered stream of bytes each way, which delays and may break.
pub(crate) struct Conn {
    /// Process at each end.
    pub(crate) pids: [usize; 2],
    /// On the way to each end: when it arrives, and what.
    wire: [VecDeque<(u64, Vec<u8>)>; 2],
    pub(crate) broken: bool,
    /// Ends that will not send any more.
    pub(crate) closed: [bool; 2],
    /// Whether disconnecting returned Ok at this end: nothing may be written to its memory over this link.
    pub(crate) cut_off: [bool; 2],
}

impl Conn {
    pub(crate) fn new(initiator: usize, target: usize) -> Self {
        Self {
            pids: [initiator, target],
            wire: Default::default(),
            broken: false,
            closed: [false; 2],
            cut_off: [false; 2],
        }
    }

    pub(crate) fn send(&mut self, from: usize, bytes: Vec<u8>, now: u64, rng: &mut Rng) {
        if self.broken || self.closed[from] {
            return;
        }
        let wire = &mut self.wire[1 - from];
        let last = wire.back().map_or(0, |(at, _)| *at);
        let delay = if rng.once_in(10) { rng.range(1000, 10_000) } else { rng.range(20, 400) };
        wire.push_back((last.max(now + delay), bytes));
    }

    /// A piece of any length of what has arrived.
    pub(crate) fn read(&mut self, to: usize, now: u64, rng: &mut Rng) -> Option<Vec<u8>> {
        if self.broken {
            return None;
        }
        let wire = &mut self.wire[to];
        let (at, bytes) = wire.front_mut()?;
        if *at > now {
            return None;
        }
        if bytes.len() > 1 && rng.once_in(4) {
            let rest = bytes.split_off(rng.range(1, bytes.len() as u64) as usize);
            return Some(std::mem::replace(bytes, rest));
        }
        wire.pop_front().map(|(_, bytes)| bytes)
    }

    /// Whether end `to` has read all there ever will be.
    pub(crate) fn ended(&self, to: usize) -> bool {
        self.closed[1 - to] && self.wire[to].is_empty()
    }
}
