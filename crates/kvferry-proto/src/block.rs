//! Blocks as a caller gives them: one by one, or as rows of a grid.

use serde::{Deserialize, Serialize};

/// One piece of memory to move: `len` bytes from `addr` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Device number within the memory kind.
    pub device: u32,
}

/// `count` blocks of `len` bytes each, whose first bytes are `stride` bytes apart.
///
/// A page of a KV pool in one layer is a block; the pool's layer is a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GridRow {
    /// First byte of the first block.
    pub addr: u64,
    /// Length of each block in bytes.
    pub len: u64,
    /// Device number within the memory kind.
    pub device: u32,
    /// Distance from the start of one block to the start of the next, in bytes.
    pub stride: u64,
    /// Number of blocks; a row of none is legal.
    pub count: u64,
}

/// The blocks of one side of a transfer, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks<'a> {
    /// One by one.
    Flat(&'a [Block]),
    /// Row by row; within a row from the lowest address up.
    Grid(&'a [GridRow]),
}

impl Blocks<'_> {
    /// Number of blocks, all rows expanded; `u64::MAX` if it is more than that.
    pub fn count(&self) -> u64 {
        match self {
            Self::Flat(blocks) => blocks.len() as u64,
            Self::Grid(rows) => rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.count)),
        }
    }
}

impl<'a> From<&'a [Block]> for Blocks<'a> {
    fn from(blocks: &'a [Block]) -> Self {
        Self::Flat(blocks)
    }
}

impl<'a> From<&'a [GridRow]> for Blocks<'a> {
    fn from(rows: &'a [GridRow]) -> Self {
        Self::Grid(rows)
    }
}

impl<'a> From<&'a Vec<Block>> for Blocks<'a> {
    fn from(blocks: &'a Vec<Block>) -> Self {
        Self::Flat(blocks)
    }
}

impl<'a> From<&'a Vec<GridRow>> for Blocks<'a> {
    fn from(rows: &'a Vec<GridRow>) -> Self {
        Self::Grid(rows)
    }
}

impl<'a, const N: usize> From<&'a [Block; N]> for Blocks<'a> {
    fn from(blocks: &'a [Block; N]) -> Self {
        Self::Flat(blocks)
    }
}

impl<'a, const N: usize> From<&'a [GridRow; N]> for Blocks<'a> {
    fn from(rows: &'a [GridRow; N]) -> Self {
        Self::Grid(rows)
    }
}

#[cfg(test)]
mod tests;
