//! Why a session is over.

use crate::frame::{ByeReason, FrameError, Refusal};
use crate::notify::NotifyViolation;
use crate::proof::Role;
use crate::revoke::AcknowledgeError;

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// The peer refused the handshake. It has not proven who it is.
    #[error("refused by the peer: {0}")]
    Refused(Refusal),
    /// This side refused the handshake.
    #[error("handshake rejected: {0}")]
    Rejected(Refusal),
    /// The peer said goodbye.
    #[error("closed by the peer: {reason}{}{text}", if text.is_empty() { "" } else { ": " })]
    Bye {
        /// Why.
        reason: ByeReason,
        /// Its own words, often empty.
        text: String,
    },
    /// This side said goodbye.
    #[error("closed here: {0}")]
    Closed(ByeReason),
    /// The peer broke the protocol.
    #[error("protocol violation: {0}")]
    Violation(#[from] Violation),
    /// The link was not up in time.
    #[error("handshake timed out")]
    HandshakeTimeout,
    /// The peer was silent for too long.
    #[error("the peer is silent")]
    Silent,
    /// The connection is gone.
    #[error("connection lost: {0}")]
    Channel(ChannelLoss),
}

impl LostCause {
    /// Whether the connection alone broke, so that a new one to the same incarnation may well succeed.
    pub fn may_reconnect(&self) -> bool {
        matches!(self, Self::Channel(ChannelLoss::Ended | ChannelLoss::Broken))
    }
}

/// What became of a connection, as its caller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelLoss {
    /// End of stream without a goodbye.
    #[error("it ended without a goodbye")]
    Ended,
    /// An error of the stream.
    #[error("it broke")]
    Broken,
    /// The process at the other end is dead.
    #[error("the peer's process died")]
    Died,
    /// A newer connection of the same peer took over.
    #[error("a newer connection of the same peer took over")]
    Superseded,
}

/// How a peer broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame that may not come now, or not from that side.
    #[error("unexpected {frame} frame at the {role:?} while {state}")]
    Unexpected {
        /// The frame.
        frame: &'static str,
        /// What this side was doing.
        state: &'static str,
        /// Which side this is.
        role: Role,
    },
    /// No agent can have the name in a handshake.
    #[error("impossible name of {len} bytes")]
    Name {
        /// Its length.
        len: usize,
    },
    /// The other side answers a ping that was never sent.
    #[error("answer to a ping that was not sent ({token})")]
    Pong {
        /// Its token.
        token: u64,
    },
    /// An acknowledgement out of order, or of what was not revoked.
    #[error("acknowledges revocation {epoch}; {acked} was acknowledged, {sent} sent")]
    RevokeAck {
        /// What it acknowledges.
        epoch: u64,
        /// The last acknowledged before.
        acked: u64,
        /// The last sent.
        sent: u64,
    },
    /// A revocation that is none.
    #[error(transparent)]
    Revoke(#[from] AcknowledgeError),
    /// Against the rules of notifications.
    #[error(transparent)]
    Notify(#[from] NotifyViolation),
    /// Bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}
