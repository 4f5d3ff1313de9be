//! What memory is, and which way bytes move.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of memory a region lies in.
///
/// The numbers are the wire form; they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum MemoryKind {
    /// Host memory.
    Dram = 0,
    /// GPU memory; the device number is the GPU's.
    Vram = 1,
    /// A range of a file; the device number names the file.
    File = 2,
    /// A range of a block device.
    Block = 3,
    /// A range of an object in an object store.
    Object = 4,
}

impl MemoryKind {
    /// All kinds, in wire order.
    pub const ALL: [Self; 5] = [Self::Dram, Self::Vram, Self::File, Self::Block, Self::Object];
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Dram => "DRAM",
            Self::Vram => "VRAM",
            Self::File => "FILE",
            Self::Block => "BLOCK",
            Self::Object => "OBJECT",
        })
    }
}

impl From<MemoryKind> for u8 {
    fn from(kind: MemoryKind) -> Self {
        kind as Self
    }
}

impl TryFrom<u8> for MemoryKind {
    type Error = UnknownNumber;

    fn try_from(number: u8) -> Result<Self, UnknownNumber> {
        Self::ALL.get(usize::from(number)).copied().ok_or(UnknownNumber { what: "memory kind", number })
    }
}

/// Which way a transfer moves bytes, as the initiator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum Op {
    /// From the remote side to the local side.
    Read = 0,
    /// From the local side to the remote side.
    Write = 1,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
        })
    }
}

impl From<Op> for u8 {
    fn from(op: Op) -> Self {
        op as Self
    }
}

impl TryFrom<u8> for Op {
    type Error = UnknownNumber;

    fn try_from(number: u8) -> Result<Self, UnknownNumber> {
        match number {
            0 => Ok(Self::Read),
            1 => Ok(Self::Write),
            _ => Err(UnknownNumber { what: "operation", number }),
        }
    }
}

/// A number on the wire that stands for nothing this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{number} is no {what}")]
pub struct UnknownNumber {
    /// What the number should have named.
    pub what: &'static str,
    /// The number received.
    pub number: u8,
}

#[cfg(test)]
mod tests;
