//! What a session's caller wants of it.

use crate::frame::{ByeReason, LiveRegions, MAX_FRAME_FDS, MAX_FRAME_IDS, MAX_TRANSPORT_MESSAGE, Refusal};
use crate::notify::{NotifyError, NotifyReceiver, Reservation};
use crate::revoke::RevokeScope;

/// What the caller of a session wants.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command {
    /// After [`Action::Proven`](super::Action::Proven): let it in.
    Admit {
        /// What earlier connections of this identity left, or a new one.
        receiver: NotifyReceiver,
        /// Our regions, read after revocations began to be sent to this session (or queued for it).
        live: LiveRegions,
    },
    /// After [`Action::Proven`](super::Action::Proven): send it away.
    Refuse(Refusal),
    /// After [`Action::AttachTransport`](super::Action::AttachTransport): our transport is ready.
    Attached,
    /// Send a message of the transport; from [`Action::AttachTransport`](super::Action::AttachTransport) on.
    Transport {
        /// The message, at most [`MAX_TRANSPORT_MESSAGE`] bytes.
        bytes: Vec<u8>,
        /// How many file descriptors go with it, at most [`MAX_FRAME_FDS`].
        fds: u8,
    },
    /// Initiator: send a notification. Bare ones are taken in any state, and sent when a link is up; those of transfers
    /// only while it is.
    Notify {
        /// The payload, with its room in the peer's inbox.
        reservation: Reservation,
        /// The transfer it belongs to; comes back in [`Action::NotifyAcked`](super::Action::NotifyAcked) or
        /// [`Action::NotifyDropped`](super::Action::NotifyDropped).
        token: Option<u64>,
    },
    /// Target: the application took notifications of this peer out of the inbox. Also after the loss, as long as the
    /// session holds the receiver.
    Drained {
        /// Their [`notification_cost`](crate::notification_cost), summed.
        bytes: u64,
    },
    /// Tell the peer what [`Revocations::begin`](crate::Revocations::begin) took.
    Revoke {
        /// Our epoch; grows from one to the next.
        epoch: u64,
        /// What is taken back, at most [`MAX_FRAME_IDS`] numbers.
        scope: RevokeScope,
    },
    /// A revocation of the peer is carried out.
    Applied {
        /// The epoch of [`Action::Revoked`](super::Action::Revoked).
        epoch: u64,
    },
    /// Say goodbye. The session ends when the peer has closed as well, or after a while; acknowledgements that were
    /// under way still count.
    Close {
        /// Why.
        reason: ByeReason,
        /// For people; cut to [`MAX_BYE_TEXT`](crate::MAX_BYE_TEXT) bytes.
        text: String,
    },
}

impl Command {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Admit { .. } => "Admit",
            Self::Refuse(_) => "Refuse",
            Self::Attached => "Attached",
            Self::Transport { .. } => "Transport",
            Self::Notify { .. } => "Notify",
            Self::Drained { .. } => "Drained",
            Self::Revoke { .. } => "Revoke",
            Self::Applied { .. } => "Applied",
            Self::Close { .. } => "Close",
        }
    }
}

/// Why a command has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Not now, or not in this role.
    #[error("{command} is not possible while the session is {state}")]
    State {
        /// The command.
        command: &'static str,
        /// What the session is doing.
        state: &'static str,
    },
    /// More than a frame holds.
    #[error(
        "more than a frame holds ({MAX_TRANSPORT_MESSAGE} bytes, {MAX_FRAME_FDS} file descriptors, {MAX_FRAME_IDS} numbers)"
    )]
    TooLarge,
    /// Our revocations must be sent in the order of their epochs.
    #[error("revocation under epoch {epoch} after {last}")]
    EpochOrder {
        /// The new one.
        epoch: u64,
        /// The last.
        last: u64,
    },
    /// The notification can't be issued.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}
