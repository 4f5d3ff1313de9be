//! The protocol core of kvferry, without input or output: no sockets, no threads, no clocks.
//!
//! Blocks, lists and plans say *what* moves; the metadata blob says *who* and *where*.

#![forbid(unsafe_code)]

mod kind;
mod reach;
mod region;

pub use kind::{MemoryKind, Op, UnknownNumber};
pub use reach::{MAX_REACH, MAX_REACH_KEY, Reach};
pub use region::{
    Incarnation, RegionDesc, RegionError, RegionId, RegionKey, RemoteRegion, human_size,
};
