//! Notifications of one directed link: one sequence from an initiator's incarnation to a target's, in order, at most
//! once, never more than the target's inbox holds.
//!
//! The sender reserves room before it promises anything (at a post, or at a bare notification), so what was accepted can
//! always be sent. Sender and receiver outlive a connection: a new one begins with the receiver's [`Resume`], from which
//! the sender knows what to send again and how much room is left.

mod credit;
mod receiver;

#[cfg(test)]
mod tests;

pub use self::credit::{NotifyCredit, Reservation};
pub use self::receiver::{Arrival, NotifyReceiver};

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::frame::Frame;

/// Longest payload of a notification, in bytes.
pub const MAX_NOTIFICATION: usize = 1 << 20;

/// Bytes that a notification counts beyond its payload.
pub const NOTIFY_OVERHEAD: u64 = 64;

/// Room that a target keeps for the notifications of one initiator, in bytes by [`notification_cost`].
pub const INBOX_BYTES: u64 = 64 << 20;

/// What a notification takes of an inbox's room.
pub fn notification_cost(payload_len: usize) -> u64 {
    (payload_len as u64).saturating_add(NOTIFY_OVERHEAD)
}

/// Why a notification is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The payload is too long.
    #[error("payload of {len} bytes, at most {MAX_NOTIFICATION} are allowed")]
    TooLarge {
        /// Its length.
        len: usize,
    },
    /// The peer's inbox has no room, or the link was never up.
    #[error("{needed} bytes needed, {available} of the peer's inbox are free")]
    Backlog {
        /// What the notification takes.
        needed: u64,
        /// What is free.
        available: u64,
    },
    /// The reservation was made with another link.
    #[error("reservation belongs to another link")]
    Foreign,
}

/// How a peer breaks the rules of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyViolation {
    /// More than the inbox holds.
    #[error("notification {seq} overruns the inbox of {window} bytes")]
    Overrun {
        /// The notification.
        seq: u64,
        /// Size of the inbox.
        window: u64,
    },
    /// A payload that is too long.
    #[error("notification with a payload of {len} bytes")]
    TooLarge {
        /// Its length.
        len: usize,
    },
    /// An acknowledgement of what was not sent.
    #[error("acknowledges notification {seq}, {last} is the last")]
    AckBeyondSent {
        /// What it acknowledges.
        seq: u64,
        /// The last sent.
        last: u64,
    },
    /// Credit that goes backwards, or for what was not sent.
    #[error("credits {consumed} bytes, after {before}, of {issued}")]
    Credit {
        /// What it credits.
        consumed: u64,
        /// What it credited before.
        before: u64,
        /// What was sent.
        issued: u64,
    },
}

/// What a receiver holds of one sender's notifications, told at the beginning of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The last notification in the inbox, 0 for none.
    pub last_seq: u64,
    /// Bytes by [`notification_cost`] that came in since the first.
    pub received: u64,
    /// How many of them the application has taken out.
    pub consumed: u64,
    /// Size of the inbox.
    pub window: u64,
}

#[derive(Debug)]
struct Unacked {
    seq: u64,
    cost: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Kept until the peer has it.
    Bare(Vec<u8>),
    /// Goes down with its transfer.
    Transfer(u64),
}

/// The sending half.
///
/// Before the first [`on_resume`](Self::on_resume) there is no room, and so nothing can be reserved.
#[derive(Debug, Default)]
pub struct NotifySender {
    credit: NotifyCredit,
    resumed: bool,
    window: u64,
    last: u64,
    issued: u64,
    consumed: u64,
    unacked: VecDeque<Unacked>,
}

impl NotifySender {
    /// For a pair of incarnations that has not talked yet, or of which this side remembers nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where to reserve room, from any thread.
    pub fn credit(&self) -> NotifyCredit {
        self.credit.clone()
    }

    /// Gives the notification its number; returns it and the frame. With a `token` it belongs to a transfer, and the
    /// token comes back when it is acknowledged or dropped; without, it is kept and sent again until it is
    /// acknowledged.
    ///
    /// # Errors
    /// The reservation is not of this sender's [`credit`](Self::credit).
    pub fn issue(
        &mut self,
        reservation: Reservation,
        token: Option<u64>,
    ) -> Result<(u64, Frame), NotifyError> {
        if !reservation.is_of(&self.credit) {
            return Err(NotifyError::Foreign);
        }
        let payload = reservation.spend();
        let cost = notification_cost(payload.len());
        self.last += 1;
        self.issued += cost;
        let kind = match token {
            Some(token) => Kind::Transfer(token),
            None => Kind::Bare(payload.clone()),
        };
        let seq = self.last;
        self.unacked.push_back(Unacked { seq, cost, kind });
        Ok((seq, Frame::Notify { seq, payload }))
    }

    /// The peer has all notifications up to `seq`; returns the tokens of the transfers among them that were still
    /// waiting for it, in order.
    ///
    /// # Errors
    /// That was not sent yet.
    pub fn on_ack(&mut self, seq: u64) -> Result<Vec<u64>, NotifyViolation> {
        if seq > self.last {
            let last = self.last;
            return Err(NotifyViolation::AckBeyondSent { seq, last });
        }
        let count = self.unacked.partition_point(|unacked| unacked.seq <= seq);
        let acked = self.unacked.drain(..count);
        Ok(acked.filter_map(|unacked| unacked.kind.token()).collect())
    }

    /// The peer's application has taken `consumed` bytes in all.
    ///
    /// # Errors
    /// Less than before, or more than was sent.
    pub fn on_credit(&mut self, consumed: u64) -> Result<(), NotifyViolation> {
        if consumed < self.consumed || consumed > self.issued {
            return Err(NotifyViolation::Credit { consumed, before: self.consumed, issued: self.issued });
        }
        self.credit.grow((consumed - self.consumed) as i64);
        self.consumed = consumed;
        Ok(())
    }

    /// The connection broke. Notifications of transfers are dropped; returns their tokens, in order: whether the peer
    /// has them is not known, and the transfers fail. Bare ones are kept.
    pub fn on_channel_lost(&mut self) -> Vec<u64> {
        let mut tokens = Vec::new();
        self.unacked.retain(|unacked| match unacked.kind {
            Kind::Transfer(token) => {
                tokens.push(token);
                false
            }
            Kind::Bare(_) => true,
        });
        tokens
    }

    /// A new connection stands, and the peer has told what it holds. See [`resend`](Self::resend).
    ///
    /// # Errors
    /// The peer claims to hold what was not sent, or to have taken out more than came in. Nothing is changed.
    pub fn on_resume(&mut self, resume: Resume) -> Result<(), NotifyViolation> {
        let Resume { last_seq, received, consumed, window } = resume;
        // A sender that remembers nothing takes up the sequence where the peer says it is.
        if self.resumed && last_seq > self.last {
            let (seq, last) = (last_seq, self.last);
            return Err(NotifyViolation::AckBeyondSent { seq, last });
        }
        // Beyond any inbox: such numbers are made up, and sums of them would not fit.
        if consumed > received || received > u64::MAX / 2 {
            return Err(NotifyViolation::Credit { consumed, before: self.consumed, issued: received });
        }
        self.resumed = true;
        self.last = self.last.max(last_seq);
        self.unacked.retain(|unacked| unacked.seq > last_seq);

        let unsent: u64 = self.unacked.iter().map(|unacked| unacked.cost).sum();
        let window = window.min(INBOX_BYTES);
        let before = self.window as i64 - (self.issued - self.consumed) as i64;
        let held = (received - consumed).min(INBOX_BYTES);
        let after = window as i64 - held as i64 - unsent as i64;
        self.credit.grow(after - before);
        self.window = window;
        self.issued = received + unsent;
        self.consumed = received - held;
        Ok(())
    }

    /// The bare notifications that the peer has not acknowledged, in order: what to send when a new connection is up.
    pub fn resend(&self) -> Vec<Frame> {
        let bare = self.unacked.iter().filter_map(|unacked| {
            let Kind::Bare(payload) = &unacked.kind else {
                return None;
            };
            let (seq, payload) = (unacked.seq, payload.clone());
            Some(Frame::Notify { seq, payload })
        });
        bare.collect()
    }

    /// How many notifications the peer has not acknowledged.
    pub fn unacked(&self) -> usize {
        self.unacked.len()
    }
}

impl Kind {
    fn token(&self) -> Option<u64> {
        match self {
            Self::Transfer(token) => Some(*token),
            Self::Bare(_) => None,
        }
    }
}
