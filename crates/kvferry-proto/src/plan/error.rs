//! Why two lists can't be paired.

use std::fmt;

use crate::region::human_size;

/// Which side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The initiator's memory.
    Local,
    /// The target's memory.
    Remote,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Remote => "remote",
        })
    }
}

/// Why a transfer can't be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The two sides name different numbers of blocks.
    #[error("{local} local blocks, but {remote} remote blocks")]
    Count {
        /// Number of local blocks.
        local: u64,
        /// Number of remote blocks.
        remote: u64,
    },
    /// An index is out of range.
    #[error("{end} index {index} at position {position} is out of range: the list has {blocks} blocks")]
    Index {
        /// The side it was given for.
        end: End,
        /// Where in the index array.
        position: u64,
        /// The index.
        index: u32,
        /// Number of blocks in the list.
        blocks: u64,
    },
    /// The blocks of a pair have different lengths.
    #[error(
        "position {position}: local block has {} ({local} bytes), remote block has {} ({remote} bytes)",
        human_size(*local), human_size(*remote)
    )]
    Length {
        /// Position of the pair.
        position: u64,
        /// Bytes in the local block.
        local: u64,
        /// Bytes in the remote block.
        remote: u64,
    },
    /// Two blocks that would be written share bytes.
    #[error("{end} blocks at positions {first} and {second} overlap, and both would be written")]
    Overlap {
        /// The side that is written.
        end: End,
        /// The lower position.
        first: u64,
        /// The higher position.
        second: u64,
    },
}
