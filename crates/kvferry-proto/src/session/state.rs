//! Where a session stands.

use crate::frame::{ByeReason, Nonce};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    AwaitChallenge,
    AwaitWelcome,
    AwaitHello,
    AwaitProof { initiator_nonce: Nonce },
    AwaitAdmission,
    Attaching { here: bool, there: bool },
    Up,
    Closing { reason: ByeReason },
    Lost,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AwaitChallenge => "waiting for the challenge",
            Self::AwaitWelcome => "waiting for the welcome",
            Self::AwaitHello => "waiting for the hello",
            Self::AwaitProof { .. } => "waiting for the proof",
            Self::AwaitAdmission => "waiting for admission",
            Self::Attaching { .. } => "attaching",
            Self::Up => "up",
            Self::Closing { .. } => "closing",
            Self::Lost => "lost",
        }
    }

    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Attaching { .. } | Self::Up)
    }
}
