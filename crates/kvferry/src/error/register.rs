//! Why memory cannot be registered, or not be given back.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvferry_proto::{MemoryKind, RegionDesc, RegionId};

use crate::codes;

/// Why a batch of regions was not registered. Nothing of the batch is registered then.
///
/// Displayed as `region 41 of 80: 0x7f1200000000, 1.2 GiB, DRAM: address is not mapped from 0x7f1230000000 on
/// (register.unmapped)`, followed by `; and 3 others` if more regions are bad.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// A region cannot be registered.
    Region {
        /// The first bad region.
        fault: RegionFault,
        /// How many further regions of the batch are bad.
        others: usize,
    },
    /// This process was forked from the one that built the agent.
    Forked,
    /// The agent is closed.
    Closed,
}

/// A region that cannot be registered, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionFault {
    /// Its place in the batch, from 0.
    pub index: usize,
    /// Regions in the batch.
    pub total: usize,
    /// The region as given.
    pub desc: RegionDesc,
    /// What is wrong with it.
    pub cause: RegisterCause,
}

/// What is wrong with a region. Displayed without code and region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterCause {
    /// Its length is zero.
    #[error("length is zero")]
    ZeroLength,
    /// It passes the end of the address space.
    #[error("address plus length passes the end of the address space")]
    Overflow,
    /// Its address is null.
    #[error("address is null")]
    Null,
    /// Part of it is not mapped.
    #[error("address is not mapped from {from:#x} on")]
    Unmapped {
        /// The first byte that is not.
        from: u64,
    },
    /// Part of it cannot be read or written.
    #[error("memory is not {needed} from {from:#x} on")]
    NoAccess {
        /// The first byte that cannot.
        from: u64,
        /// `readable` or `writable`.
        needed: &'static str,
    },
    /// Part of it is in a mapping that is not ordinary memory.
    #[error("memory is {what} from {from:#x} on")]
    SpecialMapping {
        /// The first byte in it.
        from: u64,
        /// What the mapping is.
        what: String,
    },
    /// It is not memory of the kind declared.
    #[error("memory is a mapping of {path}, not {declared}, from {from:#x} on")]
    KindMismatch {
        /// The first byte of another kind.
        from: u64,
        /// The kind declared.
        declared: MemoryKind,
        /// The device that is mapped there.
        path: String,
    },
    /// GPU memory, and there is no driver for it.
    #[error("GPU memory needs the CUDA driver, and libcuda.so.1 is in none of {}", list(places))]
    VramNoDriver {
        /// The directories where it was looked for, in this order.
        places: Arc<[PathBuf]>,
    },
    /// Memory of a kind that this build does not register.
    #[error("{what}")]
    UnsupportedKind {
        /// Which, and why.
        what: String,
    },
    /// The system kept it from being checked.
    #[error("cannot be checked: {what}")]
    System {
        /// What failed, with the system's answer.
        what: String,
    },
    /// The agent holds as many regions as it can.
    #[error("the agent would hold more than {most} regions")]
    Limit {
        /// The most that an agent can hold.
        most: usize,
    },
}

impl RegisterError {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Region { fault, .. } => fault.code(),
            Self::Forked => "agent.forked",
            Self::Closed => "agent.closed",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }

    /// The first bad region, if the regions are what is wrong.
    pub fn fault(&self) -> Option<&RegionFault> {
        match self {
            Self::Region { fault, .. } => Some(fault),
            _ => None,
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region { fault, others } => {
                fault.fmt(f)?;
                match others {
                    0 => Ok(()),
                    1 => f.write_str("; and 1 other"),
                    others => write!(f, "; and {others} others"),
                }
            }
            Self::Forked => {
                f.write_str("this process was forked from the one that built the agent (agent.forked)")
            }
            Self::Closed => f.write_str("the agent is closed (agent.closed)"),
        }
    }
}

impl std::error::Error for RegisterError {}

impl RegionFault {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        self.cause.code()
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

impl fmt::Display for RegionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, total, desc, cause } = self;
        write!(f, "region {index} of {total}: {desc}: {cause} ({})", cause.code())
    }
}

impl RegisterCause {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ZeroLength => "register.zero_length",
            Self::Overflow => "register.overflow",
            Self::Null => "register.null",
            Self::Unmapped { .. } => "register.unmapped",
            Self::NoAccess { .. } => "register.no_access",
            Self::SpecialMapping { .. } => "register.special_mapping",
            Self::KindMismatch { .. } => "register.kind_mismatch",
            Self::VramNoDriver { .. } => "register.vram_no_driver",
            Self::UnsupportedKind { .. } => "register.unsupported_kind",
            Self::System { .. } => "agent.resources",
            Self::Limit { .. } => "register.limit",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// Why regions were not given back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeregisterError {
    /// An id is not that of a region of this agent. Nothing is deregistered then.
    #[error("region {id} is not registered with this agent (deregister.unknown)")]
    Unknown {
        /// The first such id.
        id: RegionId,
    },
    /// Peers may still touch the regions. No new transfer reaches them, and their memory must stay mapped:
    /// they are quarantined until the call is repeated and returns Ok.
    #[error("{} may still touch the memory after {waited:?} (deregister.busy)", quoted(peers))]
    Busy {
        /// The peers that have not let go.
        peers: Vec<String>,
        /// How long was waited.
        waited: Duration,
    },
    /// This process was forked from the one that built the agent.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
    /// The agent is closed.
    #[error("the agent is closed (agent.closed)")]
    Closed,
}

impl DeregisterError {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "deregister.unknown",
            Self::Busy { .. } => "deregister.busy",
            Self::Forked => "agent.forked",
            Self::Closed => "agent.closed",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

fn list(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(", ")
}

fn quoted(peers: &[String]) -> String {
    let noun = if peers.len() == 1 { "peer" } else { "peers" };
    let names: Vec<String> = peers.iter().map(|peer| format!("{peer:?}")).collect();
    format!("{noun} {}", names.join(", "))
}

#[cfg(test)]
mod tests;
