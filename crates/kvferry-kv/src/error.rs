//! Why a worker's buffers cannot be registered, in the worker's words.

use std::fmt;

use kvferry::{Code, MemoryKind, RegionDesc, RegisterCause, RegisterError, human_size};

use crate::buffers::KvPart;

/// Why a worker's buffers were not registered. None of them is then.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WorkerBuffersError {
    /// A buffer cannot be registered.
    Buffer {
        /// The first bad buffer.
        fault: BufferFault,
        /// How many others are bad.
        others: usize,
    },
    /// The agent registers nothing: it is closed, or this process was forked from the one that built it.
    Agent(RegisterError),
}

/// A buffer that cannot be registered, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferFault {
    /// Which buffer of the worker.
    pub place: BufferPlace,
    /// Where it is.
    pub desc: RegionDesc,
    /// What is wrong with it.
    pub cause: BufferCause,
}

/// Which buffer of a worker; places count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferPlace {
    /// A KV pool.
    Kv {
        /// Its place in the list of entries.
        index: usize,
        /// Entries in the list.
        total: usize,
        /// Its layer.
        layer: u32,
        /// What of the layer it holds.
        part: KvPart,
    },
    /// A buffer of aux rows.
    Aux {
        /// Its place in the list of buffers.
        index: usize,
        /// Buffers in the list.
        total: usize,
    },
    /// A tensor of a state component.
    State {
        /// The component's place in the list of components.
        component: usize,
        /// The component's name.
        name: String,
        /// The tensor's place in the component.
        tensor: usize,
        /// Its layer, if it belongs to one.
        layer: Option<u32>,
    },
}

/// What is wrong with a buffer. Displayed without place and code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferCause {
    /// The agent cannot register its memory.
    #[error(transparent)]
    Register(#[from] RegisterCause),
    /// Its length is no multiple of its item length.
    #[error("item length {item_len} does not divide the length {len}")]
    ItemLength {
        /// The length in bytes.
        len: u64,
        /// The item length in bytes.
        item_len: u64,
    },
    /// It is not inside the memory of the owner that is to keep it.
    #[error("it is not inside the owner's memory")]
    NotOwned,
}

/// An owner that was not taken, with the reason.
#[derive(Clone)]
pub struct RejectedOwner<O> {
    /// Why not.
    pub error: WorkerBuffersError,
    /// The owner as it was given.
    pub owner: O,
}

impl WorkerBuffersError {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Buffer { fault, .. } => fault.code(),
            Self::Agent(error) => error.code(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        remedy(self.code())
    }

    /// The first bad buffer, if the buffers are what is wrong.
    pub fn fault(&self) -> Option<&BufferFault> {
        match self {
            Self::Buffer { fault, .. } => Some(fault),
            Self::Agent(_) => None,
        }
    }

    /// The error of a list of faults, if there are any.
    pub(crate) fn of(faults: Vec<BufferFault>) -> Option<Self> {
        let others = faults.len().saturating_sub(1);
        faults.into_iter().next().map(|fault| Self::Buffer { fault, others })
    }
}

impl fmt::Display for WorkerBuffersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer { fault, others } => {
                fault.fmt(f)?;
                match others {
                    0 => Ok(()),
                    1 => f.write_str("; and 1 other"),
                    others => write!(f, "; and {others} others"),
                }
            }
            Self::Agent(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WorkerBuffersError {}

impl BufferFault {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        self.cause.code()
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        remedy(self.code())
    }

    /// Sorts faults as the worker lists its buffers.
    pub(crate) fn order(&self) -> (u8, usize, usize) {
        match self.place {
            BufferPlace::Kv { index, .. } => (0, index, 0),
            BufferPlace::Aux { index, .. } => (1, index, 0),
            BufferPlace::State { component, tensor, .. } => (2, component, tensor),
        }
    }
}

impl fmt::Display for BufferFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, desc, cause } = self;
        write!(f, "{place} (")?;
        match place {
            BufferPlace::Kv { layer, part, .. } => write!(f, "layer {layer} {part}, ")?,
            BufferPlace::State { layer: Some(layer), .. } => write!(f, "layer {layer}, ")?,
            BufferPlace::Aux { .. } | BufferPlace::State { layer: None, .. } => {}
        }
        write!(f, "{}", desc.kind)?;
        if desc.kind != MemoryKind::Dram || desc.device != 0 {
            write!(f, " device {}", desc.device)?;
        }
        write!(f, "): {:#x}, {}: {cause}", desc.addr, human_size(desc.len))?;
        if let Some(code) = Code::find(cause.code()) {
            write!(f, "; {}", code.hint())?;
        }
        write!(f, " ({})", cause.code())
    }
}

impl fmt::Display for BufferPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kv { index, total, .. } => write!(f, "kv entry {index} of {total}"),
            Self::Aux { index, total } => write!(f, "aux row buffer {index} of {total}"),
            Self::State { component, name, tensor, .. } => {
                write!(f, "state component {component} ({name}), tensor {tensor}")
            }
        }
    }
}

impl BufferCause {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Register(cause) => cause.code(),
            Self::ItemLength { .. } => "buffers.item_length",
            Self::NotOwned => "buffers.not_owned",
        }
    }
}

impl<O> fmt::Display for RejectedOwner<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<O> fmt::Debug for RejectedOwner<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejectedOwner").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<O> std::error::Error for RejectedOwner<O> {}

pub(crate) fn remedy(code: &str) -> &'static str {
    Code::find(code).map_or("", |code| code.remedy)
}

#[cfg(test)]
mod tests;
