//! The protocol core of kvferry, without input or output: no sockets, no threads, no clocks.
//!
//! Blocks, lists and plans say *what* moves; the metadata blob says *who* and *where*.

#![forbid(unsafe_code)]

mod block;
mod kind;
mod list;
mod overlap;
mod range_map;
mod reach;
mod region;

pub use block::{Block, Blocks, GridRow};
pub use kind::{MemoryKind, Op, UnknownNumber};
pub use list::{BlockAt, BlockList, BlockRef, ListError, ListRow};
pub use range_map::{Nearest, RangeEntry, RangeMap};
pub use reach::{MAX_REACH, MAX_REACH_KEY, Reach};
pub use region::{
    Incarnation, RegionDesc, RegionError, RegionId, RegionKey, RemoteRegion, human_size,
};
