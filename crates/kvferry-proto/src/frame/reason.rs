//! Why a side refuses or leaves. Unknown reasons of later versions stay readable as numbers.

use std::fmt;

use crate::region::Incarnation;

/// Why a handshake ended without a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The other side's proof is wrong: another capability, or another token.
    Unauthorized {
        /// Whether who refuses derived its key with a token.
        token_in_force: bool,
    },
    /// The metadata names another incarnation than the one that answers.
    WrongIncarnation {
        /// The one that answers.
        found: Incarnation,
    },
    /// No common version.
    Version {
        /// The oldest that who refuses speaks.
        oldest: u16,
        /// The newest.
        newest: u16,
    },
    /// Too many links, or closing down.
    Busy,
    /// Who asks is known to be dead: an incarnation that came back.
    Dead,
    /// A reason that this version doesn't know.
    Other {
        /// Its number.
        code: u16,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized { token_in_force: true } => {
                f.write_str("not authorized (the refusing side has a token in force)")
            }
            Self::Unauthorized { token_in_force: false } => {
                f.write_str("not authorized (the refusing side has no token in force)")
            }
            Self::WrongIncarnation { found } => {
                write!(f, "another incarnation answers ({found})")
            }
            Self::Version { oldest, newest } => {
                write!(f, "no common version (supported: {oldest} to {newest})")
            }
            Self::Busy => f.write_str("busy"),
            Self::Dead => f.write_str("this incarnation was declared dead"),
            Self::Other { code } => write!(f, "reason {code}"),
        }
    }
}

/// Why a side closes a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ByeReason {
    /// Its agent is closed, or forgot the peer.
    Closed,
    /// It was asked to disconnect.
    Disconnected,
    /// The other side broke the protocol.
    Violation,
    /// The transports can't reach each other's memory.
    NoPath,
    /// A path that the settings require is not possible.
    PathRequired,
    /// A newer connection of the same peer takes over.
    Superseded,
    /// A reason that this version doesn't know.
    Other(u16),
}

impl ByeReason {
    pub(super) fn code(self) -> u16 {
        match self {
            Self::Closed => 1,
            Self::Disconnected => 2,
            Self::Violation => 3,
            Self::NoPath => 4,
            Self::PathRequired => 5,
            Self::Superseded => 6,
            Self::Other(code) => code,
        }
    }

    pub(super) fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Closed,
            2 => Self::Disconnected,
            3 => Self::Violation,
            4 => Self::NoPath,
            5 => Self::PathRequired,
            6 => Self::Superseded,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for ByeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Disconnected => f.write_str("disconnected"),
            Self::Violation => f.write_str("protocol violation"),
            Self::NoPath => f.write_str("no path"),
            Self::PathRequired => f.write_str("required path is not possible"),
            Self::Superseded => f.write_str("superseded by a newer connection"),
            Self::Other(code) => write!(f, "reason {code}"),
        }
    }
}
