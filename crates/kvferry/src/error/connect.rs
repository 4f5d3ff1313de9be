use std::time::Duration;

use crate::{codes, path::WhyNot};

/// Why a peer could not be connected to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No metadata of that name is loaded.
    #[error("no metadata of peer {peer:?} is loaded (peer.unknown)")]
    UnknownPeer {
        /// The name asked for.
        peer: String,
    },
    /// None of the peer's endpoints answered.
    #[error("peer {peer:?} cannot be reached: {}{} (connect.unreachable)", tried.join("; "), if tried.is_empty() { "its metadata lists no endpoint that this host can try" } else { "" })]
    Unreachable {
        /// The peer.
        peer: String,
        /// Each endpoint that was tried, with the error that it gave.
        tried: Vec<String>,
    },
    /// One side could not prove that it holds the capability.
    #[error("peer {peer:?} and we hold different capabilities: {detail} (connect.unauthorized)")]
    Unauthorized {
        /// The peer.
        peer: String,
        /// Whether KVFERRY_TOKEN is the likely cause, in words.
        detail: String,
    },
    /// The peer refused the channel.
    #[error("peer {peer:?} refused the connection: {reason} (connect.refused)")]
    Refused {
        /// The peer.
        peer: String,
        /// Its reason.
        reason: String,
    },
    /// Another incarnation answers at the endpoint.
    #[error("peer {peer:?} has restarted: another incarnation answers at its endpoint (connect.restarted)")]
    Restarted {
        /// The peer.
        peer: String,
    },
    /// The peer speaks another version of the protocol.
    #[error("peer {peer:?} speaks protocol version {theirs}, we speak {ours} (connect.version)")]
    Version {
        /// The peer.
        peer: String,
        /// Our version.
        ours: u32,
        /// The version it asked for.
        theirs: u32,
    },
    /// The peer did not finish the handshake in time.
    #[error("peer {peer:?} did not finish the handshake within {after:?}{} (connect.timeout)", also(tried))]
    Timeout {
        /// The peer.
        peer: String,
        /// The bound.
        after: Duration,
        /// What became of each of its endpoints.
        tried: Vec<String>,
    },
    /// The settings require a path that this peer cannot be reached by.
    #[error(
        "peer {peer:?} cannot be reached by the required path {required}: {} (connect.path_required)",
        list(why_not)
    )]
    PathRequired {
        /// The peer.
        peer: String,
        /// The required names.
        required: String,
        /// Each required way, and why not.
        why_not: Vec<WhyNot>,
    },
    /// There is no allowed way to the peer.
    #[error("no way to peer {peer:?}: {} (connect.no_path)", list(why_not))]
    NoPath {
        /// The peer.
        peer: String,
        /// Each way, and why not.
        why_not: Vec<WhyNot>,
    },
    /// The peer was lost.
    #[error("peer {peer:?} was lost: {cause} (peer.lost)")]
    Lost {
        /// The peer.
        peer: String,
        /// How.
        cause: LostCause,
    },
    /// The agent was closed.
    #[error("the agent is closed (agent.closed)")]
    Closed,
    /// The process forked: the agent lives in the parent only.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
    /// The machine denies a descriptor, a mapping or a thread.
    #[error("peer {peer:?}: {what}: {source} (agent.resources)")]
    Resources {
        /// The peer.
        peer: String,
        /// What was asked for.
        what: &'static str,
        /// The error of the system.
        source: std::sync::Arc<std::io::Error>,
    },
}

impl ConnectError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownPeer { .. } => "peer.unknown",
            Self::Unreachable { .. } => "connect.unreachable",
            Self::Unauthorized { .. } => "connect.unauthorized",
            Self::Refused { .. } => "connect.refused",
            Self::Restarted { .. } => "connect.restarted",
            Self::Version { .. } => "connect.version",
            Self::Timeout { .. } => "connect.timeout",
            Self::PathRequired { .. } => "connect.path_required",
            Self::NoPath { .. } => "connect.no_path",
            Self::Lost { .. } => "peer.lost",
            Self::Closed => "agent.closed",
            Self::Forked => "agent.forked",
            Self::Resources { .. } => "agent.resources",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

fn also(tried: &[String]) -> String {
    if tried.is_empty() { String::new() } else { format!("; tried: {}", tried.join("; ")) }
}

pub(super) fn list(why_not: &[WhyNot]) -> String {
    why_not.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// How a peer was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// Its process died.
    #[error("its process died")]
    Died,
    /// It closed its agent.
    #[error("it closed its agent")]
    Closed,
    /// It disconnected us.
    #[error("it disconnected us")]
    Disconnected,
    /// We disconnected it.
    #[error("we disconnected it")]
    DisconnectedByUs,
    /// Its channel broke and could not be opened again.
    #[error("its channel broke and could not be opened again: {0}")]
    Unreachable(String),
    /// It said nothing for `peer_timeout`.
    #[error("it was silent for longer than the peer time-out")]
    Silent,
    /// Another incarnation took its name.
    #[error("peer restarted")]
    Restarted,
    /// It broke the protocol.
    #[error("it broke the protocol: {0}")]
    Protocol(String),
}

/// Why a call about a peer had nothing to act upon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// No metadata of that name is loaded.
    #[error("no metadata of peer {0:?} is loaded (peer.unknown)")]
    Unknown(String),
    /// The process forked: the agent lives in the parent only.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
}

impl PeerError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "peer.unknown",
            Self::Forked => "agent.forked",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// Why disconnecting has not ended yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectError {
    /// Nothing is known of that name.
    #[error("no peer {0:?} is known (peer.unknown)")]
    Unknown(String),
    /// The process forked: the agent lives in the parent only.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
    /// A copy of the peer may still land; call again.
    #[error(
        "peer {peer:?} has not answered within {waited:?}: a copy that it began may still touch our memory (disconnect.busy)"
    )]
    Busy {
        /// The peer.
        peer: String,
        /// How long was waited.
        waited: Duration,
    },
}

impl DisconnectError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "peer.unknown",
            Self::Forked => "agent.forked",
            Self::Busy { .. } => "disconnect.busy",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}
