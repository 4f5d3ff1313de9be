//! The paged KV cache of a worker: a K pool and a V pool for each layer.

use crate::block_table::{BlockTable, Run};
use crate::memory::PoolMemory;
use crate::shape::Shape;

/// What stands in slots that nobody has written: a NaN, so that reading one cannot go unnoticed.
const POISON: u32 = 0x7fc0_dead;

/// K or V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keys, after the rotary embedding.
    K,
    /// Values.
    V,
}

impl Kind {
    /// Both, in the order of the pools.
    pub(crate) const BOTH: [Self; 2] = [Self::K, Self::V];
}

/// The pools of one worker. A page holds `page_size` tokens as f32 rows of `kv_heads * head_dim`;
/// page `p` of a pool starts `p * page_bytes` into it. Pool `2 * layer` holds K, the next one V.
pub(crate) struct KvPools {
    memories: Vec<PoolMemory>,
    pages: usize,
    page_bytes: usize,
    row_bytes: usize,
}

impl KvPools {
    /// Pools of `pages` pages of `page_size` tokens, poisoned, in the memory that `allocate` gives.
    pub(crate) fn new(
        shape: &Shape,
        page_size: usize,
        pages: usize,
        mut allocate: impl FnMut(usize) -> anyhow::Result<PoolMemory>,
    ) -> anyhow::Result<Self> {
        let page_bytes = shape.page_bytes(page_size);
        let poison = POISON.to_ne_bytes().repeat(page_bytes / 4);
        let mut memories = Vec::with_capacity(shape.pools());
        for _ in 0..shape.pools() {
            let mut memory = allocate(pages * page_bytes)?;
            for page in 0..pages {
                memory.copy_in(page * page_bytes, &poison);
            }
            memories.push(memory);
        }
        Ok(Self { memories, pages, page_bytes, row_bytes: shape.kv_row() * size_of::<f32>() })
    }

    /// The memory of each pool: K of layer 0, V of layer 0, K of layer 1, ...
    pub(crate) fn memories(&self) -> &[PoolMemory] {
        &self.memories
    }

    /// Pages of each pool.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of a page of one pool.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Writes rows of whole tokens to their slots, from token `start` of the sequence on.
    pub(crate) fn store(&mut self, layer: usize, kind: Kind, table: &BlockTable, start: usize, rows: &[f32]) {
        let bytes: &[u8] = bytemuck::cast_slice(rows);
        let mut rest = bytes;
        for run in table.runs(start, bytes.len() / self.row_bytes) {
            let (now, later) = rest.split_at(run.len * self.row_bytes);
            let offset = self.offset(run);
            self.pool_mut(layer, kind).copy_in(offset, now);
            rest = later;
        }
    }

    /// Reads the rows of the first `tokens` tokens of the sequence, in order.
    pub(crate) fn gather(&self, layer: usize, kind: Kind, table: &BlockTable, tokens: usize) -> Vec<f32> {
        let mut rows = vec![0f32; tokens * self.row_bytes / size_of::<f32>()];
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut rows);
        for run in table.runs(0, tokens) {
            let (now, later) = rest.split_at_mut(run.len * self.row_bytes);
            self.pool(layer, kind).copy_out(self.offset(run), now);
            rest = later;
        }
        rows
    }

    /// A hash over all bytes of each page of a sequence, its unwritten slots included: for each
    /// layer its K pages, then its V pages, in the order of the sequence.
    pub(crate) fn page_hashes(&self, pages: &[u32]) -> Vec<String> {
        let mut page = vec![0u8; self.page_bytes];
        let mut hashes = Vec::with_capacity(self.memories.len() * pages.len());
        for memory in &self.memories {
            for &physical in pages {
                memory.copy_out(physical as usize * self.page_bytes, &mut page);
                hashes.push(blake3::hash(&page).to_hex().to_string());
            }
        }
        hashes
    }

    /// Turns over one bit of a page; bits count from the page's first byte, lowest bit first.
    pub(crate) fn flip_bit(&mut self, layer: usize, kind: Kind, page: u32, bit: usize) {
        let at = page as usize * self.page_bytes + bit / 8;
        let mut byte = [0u8];
        self.pool(layer, kind).copy_out(at, &mut byte);
        byte[0] ^= 1 << (bit % 8);
        self.pool_mut(layer, kind).copy_in(at, &byte);
    }

    fn pool(&self, layer: usize, kind: Kind) -> &PoolMemory {
        &self.memories[2 * layer + kind as usize]
    }

    fn pool_mut(&mut self, layer: usize, kind: Kind) -> &mut PoolMemory {
        &mut self.memories[2 * layer + kind as usize]
    }

    fn offset(&self, run: Run) -> usize {
        run.page as usize * self.page_bytes + run.slot * self.row_bytes
    }
}

#[cfg(test)]
mod tests;
