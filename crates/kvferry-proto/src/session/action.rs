//! What a session wants done.

use super::LostCause;
use crate::frame::{Frame, LiveRegions};
use crate::peers::Identity;
use crate::revoke::RevokeScope;

/// What a session wants its caller to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Send the frame; frames leave in the order of their actions. With a transport's frame go as many file
    /// descriptors as it counts.
    Send(Frame),
    /// Target: the initiator has proven the capability. Answer with
    /// [`Command::Admit`](super::Command::Admit) or [`Command::Refuse`](super::Command::Refuse), when any older session
    /// of the same identity is over and has given back its receiver.
    Proven {
        /// Who it is.
        peer: Identity,
    },
    /// Both sides are proven; the transports may exchange messages. Answer with
    /// [`Command::Attached`](super::Command::Attached) when done.
    AttachTransport,
    /// Initiator: which of the target's regions still exist. Others must not be used, whatever metadata says.
    Live(LiveRegions),
    /// The link can be used.
    Up,
    /// Target: put the notification into the inbox, now: the acknowledgement is the next action.
    Deliver {
        /// Its number.
        seq: u64,
        /// What the peer's application wrote.
        payload: Vec<u8>,
    },
    /// Initiator: the notification of this transfer is in the target's inbox.
    NotifyAcked {
        /// The transfer, as in [`Command::Notify`](super::Command::Notify).
        token: u64,
    },
    /// Initiator: the link was lost before the notification of this transfer was acknowledged. The transfer fails,
    /// although the target may have the notification.
    NotifyDropped {
        /// The transfer.
        token: u64,
    },
    /// The peer takes back memory or operations. Mark them so that copiers see it, fail what touches them, only then let
    /// copiers run under `epoch`, and answer with [`Command::Applied`](super::Command::Applied).
    Revoked {
        /// The peer's epoch.
        epoch: u64,
        /// What it takes back.
        scope: RevokeScope,
    },
    /// The peer has carried out all our revocations up to `epoch`.
    RevokeAcked {
        /// The last of them.
        epoch: u64,
    },
    /// A message for the transport.
    Transport {
        /// The message.
        bytes: Vec<u8>,
        /// How many file descriptors came with it.
        fds: u8,
    },
    /// The session is over; nothing follows. Flush what was to be sent, if the connection still stands, and close it.
    Lost(LostCause),
}
