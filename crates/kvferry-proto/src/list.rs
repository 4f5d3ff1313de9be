//! A checked list of blocks, bound to regions.

mod builder;
mod error;
mod row_index;

use std::sync::OnceLock;

pub use error::{BlockAt, ListError};

use crate::block::Blocks;
use crate::kind::MemoryKind;
use crate::overlap::{Run, first_overlap};
use crate::range_map::{RangeEntry, RangeMap};
use builder::Builder;
use row_index::RowIndex;

/// A list of blocks of one memory kind, checked once and bound to the regions that cover them.
///
/// It is never expanded: a grid row stays one [`ListRow`], split only where its blocks go over
/// into another region, and a flat list that happens to be regular becomes rows.
#[derive(Debug)]
pub struct BlockList {
    kind: MemoryKind,
    rows: Vec<ListRow>,
    regions: Vec<RangeEntry>,
    index: RowIndex,
    blocks: u64,
    bytes: u64,
    uniform_len: Option<u64>,
    overlap: OnceLock<Option<(u64, u64)>>,
}

/// Blocks of one length at one distance from each other within one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRow {
    /// First byte of the first block.
    pub addr: u64,
    /// Length of each block in bytes; not zero.
    pub len: u64,
    /// Distance from block to block in bytes; equal to `len` where there is only one.
    pub stride: u64,
    /// Number of blocks; not zero.
    pub count: u64,
    /// Index in the list of the first block.
    pub first: u64,
    /// The region, as a position in [`BlockList::regions`].
    pub slot: u32,
}

impl ListRow {
    /// First byte of the block `offset` blocks into the row.
    pub(crate) fn addr_of(&self, offset: u64) -> u64 {
        self.addr + offset * self.stride
    }
}

/// One block of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The region, as a position in [`BlockList::regions`].
    pub slot: u32,
}

impl BlockList {
    /// Checks `blocks` of memory of `kind` against the regions in `map` and binds them.
    ///
    /// A block stays in the region of the block before it if that covers it; else it goes to the
    /// region that covers it with the smallest id. An empty list is legal. Takes O(rows) for
    /// grids and O(blocks) for flat lists, times O(log regions) where the region changes.
    ///
    /// # Errors
    /// The first block that is of zero length, wraps around, or lies in no region of that kind
    /// and device.
    pub fn build<'a>(
        blocks: impl Into<Blocks<'a>>,
        kind: MemoryKind,
        map: &RangeMap,
    ) -> Result<Self, ListError> {
        let mut builder = Builder::new(kind, map);
        match blocks.into() {
            Blocks::Flat(blocks) => blocks.iter().try_for_each(|block| builder.block(block)),
            Blocks::Grid(rows) => rows.iter().try_for_each(|row| builder.row(row)),
        }?;
        builder.finish()
    }

    /// The kind of all blocks.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Number of blocks.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Bytes in all blocks together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The length that all blocks have, or `None` if there are several or no blocks.
    pub fn uniform_len(&self) -> Option<u64> {
        self.uniform_len
    }

    /// The regions that the blocks lie in, each once; a slot is a position here.
    pub fn regions(&self) -> &[RangeEntry] {
        &self.regions
    }

    /// The rows, in order of the blocks.
    pub fn rows(&self) -> &[ListRow] {
        &self.rows
    }

    /// The block at `index`, in O(1) where all rows are of one length and O(log rows) at most.
    pub fn get(&self, index: u64) -> Option<BlockRef> {
        let (row, offset) = self.locate(index)?;
        Some(BlockRef { addr: row.addr_of(offset), len: row.len, slot: row.slot })
    }

    /// The row of the block at `index`, and how many blocks of that row come before it.
    #[inline]
    pub(crate) fn locate(&self, index: u64) -> Option<(&ListRow, u64)> {
        if index >= self.blocks {
            return None;
        }
        let row = &self.rows[self.index.row_of(&self.rows, index)];
        Some((row, index - row.first))
    }

    /// Two blocks that share bytes, if there are any, by index. Searched for once.
    pub fn overlap(&self) -> Option<(u64, u64)> {
        *self.overlap.get_or_init(|| {
            let runs = self.rows.iter().map(|row| Run {
                device: self.device_of(row.slot),
                addr: row.addr,
                len: row.len,
                stride: row.stride,
                count: row.count,
                position: row.first,
            });
            first_overlap(runs.collect())
        })
    }

    /// The device of a slot.
    pub(crate) fn device_of(&self, slot: u32) -> u32 {
        self.regions[slot as usize].desc.device
    }
}

#[cfg(test)]
mod tests;
