//! The receiving half: order, duplicates, and the bound of the inbox.

use super::{MAX_NOTIFICATION, NotifyViolation, Resume, notification_cost};
use crate::frame::Frame;

/// What to do with a notification that came in. It is acknowledged in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Put it into the inbox.
    New,
    /// It is there already, or was.
    Duplicate,
}

/// Counts what came in of one sender's notifications. The inbox itself is the caller's; it must tell what it hands out.
#[derive(Debug)]
pub struct NotifyReceiver {
    window: u64,
    last_seq: u64,
    received: u64,
    consumed: u64,
    announced: u64,
}

impl NotifyReceiver {
    /// For a sender that was never seen, with an inbox of `window` bytes by [`notification_cost`].
    pub fn new(window: u64) -> Self {
        Self { window, last_seq: 0, received: 0, consumed: 0, announced: 0 }
    }

    /// What a new connection must tell the sender.
    pub fn resume(&mut self) -> Resume {
        self.announced = self.consumed;
        Resume {
            last_seq: self.last_seq,
            received: self.received,
            consumed: self.consumed,
            window: self.window,
        }
    }

    /// A notification came in.
    ///
    /// # Errors
    /// The sender ignores the bounds; it was told them.
    pub fn accept(&mut self, seq: u64, payload_len: usize) -> Result<Arrival, NotifyViolation> {
        if payload_len > MAX_NOTIFICATION {
            return Err(NotifyViolation::TooLarge { len: payload_len });
        }
        if seq <= self.last_seq {
            return Ok(Arrival::Duplicate);
        }
        let cost = notification_cost(payload_len);
        if self.held() + cost > self.window {
            let window = self.window;
            return Err(NotifyViolation::Overrun { seq, window });
        }
        self.last_seq = seq;
        self.received += cost;
        Ok(Arrival::New)
    }

    /// The application took notifications of `bytes` (by [`notification_cost`]) out of the inbox. Returns the frame that
    /// gives the room back to the sender, once a quarter of the window is free again or the inbox is empty: not one a
    /// notification.
    pub fn drained(&mut self, bytes: u64) -> Option<Frame> {
        self.consumed = self.consumed.saturating_add(bytes).min(self.received);
        let silent = self.consumed - self.announced;
        if silent == 0 || (silent < self.window / 4 && self.held() > 0) {
            return None;
        }
        self.announced = self.consumed;
        Some(Frame::Credit { consumed: self.consumed })
    }

    /// Bytes that are in the inbox.
    pub fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// The last notification that came in.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }
}
