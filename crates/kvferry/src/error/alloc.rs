//! Why shared memory could not be had.

use std::io;
use std::sync::Arc;

use kvferry_proto::human_size;

use crate::codes;

/// Why `alloc` gave no memory.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// An allocation of no bytes was asked for.
    #[error("cannot allocate 0 bytes of shared memory (alloc.failed)")]
    Empty,
    /// The system gave none.
    #[error("cannot allocate {} of shared memory: {source} (alloc.failed)", human_size(*bytes))]
    System {
        /// Bytes asked for.
        bytes: u64,
        /// What the system answered.
        source: Arc<io::Error>,
    },
    /// This process was forked from the one that built the agent.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
}

impl AllocError {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty | Self::System { .. } => "alloc.failed",
            Self::Forked => "agent.forked",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// Bytes were asked for that do not lie inside a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie inside a buffer of {size} bytes (alloc.bounds)")]
#[non_exhaustive]
pub struct OutOfBounds {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// Bytes of the buffer.
    pub size: u64,
}

impl OutOfBounds {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        "alloc.bounds"
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

impl From<kvferry_sys::OutOfBounds> for OutOfBounds {
    fn from(bounds: kvferry_sys::OutOfBounds) -> Self {
        let kvferry_sys::OutOfBounds { offset, len, size } = bounds;
        Self { offset, len, size }
    }
}
