//! Why a list of blocks is refused.

use std::fmt;

use crate::kind::MemoryKind;
use crate::range_map::{Nearest, RangeEntry};
use crate::region::human_size;

/// A block of a list, as an error names it: `index 7 → 0x7f00, 64 KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// Index in the list, rows expanded.
    pub index: u64,
    /// For a grid, the row it belongs to.
    pub row: Option<u64>,
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

impl fmt::Display for BlockAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {}", self.index)?;
        if let Some(row) = self.row {
            write!(f, " (row {row})")?;
        }
        write!(f, " → {:#x}, {}", self.addr, human_size(self.len))
    }
}

/// Why a list of blocks can't be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// A block has no bytes.
    #[error("{at}: length is zero")]
    ZeroLength {
        /// The block.
        at: BlockAt,
    },
    /// A block goes past the last address.
    #[error("{at} wraps around the end of the address space")]
    Wrap {
        /// The block; for a row whose strides lead past the last address, its first byte is given
        /// as the last address.
        at: BlockAt,
    },
    /// No region covers a block.
    #[error("{at} is {}", Outside { kind: *kind, device: *device, nearest })]
    Bounds {
        /// The block.
        at: BlockAt,
        /// The kind that the caller named.
        kind: MemoryKind,
        /// The device that the block names.
        device: u32,
        /// The region it exceeds least, if there is any of that kind and device.
        nearest: Option<Nearest>,
    },
    /// The block lies in a region, but of another kind or device.
    #[error(
        "{at} was given as {kind} device {device}, but lies in region {}, which is {} device {}",
        found.id, found.desc.kind, found.desc.device
    )]
    Kind {
        /// The block.
        at: BlockAt,
        /// The kind that the caller named.
        kind: MemoryKind,
        /// The device that the block names.
        device: u32,
        /// The region it lies in.
        found: RangeEntry,
    },
    /// The blocks, or their bytes, can't be counted in 64 bits.
    #[error("list is too large: its blocks or bytes can't be counted in 64 bits")]
    TooLarge,
}

struct Outside<'a> {
    kind: MemoryKind,
    device: u32,
    nearest: &'a Option<Nearest>,
}

impl fmt::Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nearest {
            Some(nearest) => nearest.fmt(f),
            None => write!(f, "in no region: there is none of {} device {}", self.kind, self.device),
        }
    }
}
