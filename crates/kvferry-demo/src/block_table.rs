//! Which physical pages hold a sequence, and which pages of a pool are free.

use anyhow::{Result, ensure};

use crate::rng::Rng;

/// The pages of one sequence in order: token `t` lies in slot `t % page_size` of page `t / page_size`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockTable {
    page_size: usize,
    pages: Vec<u32>,
}

/// Neighbouring tokens within one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Physical page.
    pub(crate) page: u32,
    /// First slot within the page.
    pub(crate) slot: usize,
    /// Tokens.
    pub(crate) len: usize,
}

impl BlockTable {
    /// The table of a sequence that lies in `pages`.
    pub(crate) fn new(page_size: usize, pages: Vec<u32>) -> Self {
        Self { page_size, pages }
    }

    /// Physical pages in the order of the sequence.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Tokens that the pages have room for.
    pub(crate) fn room(&self) -> usize {
        self.pages.len() * self.page_size
    }

    /// Where the `len` tokens from `start` on lie; they must be within the room.
    pub(crate) fn runs(&self, start: usize, len: usize) -> impl Iterator<Item = Run> {
        let end = start + len;
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let slot = at % self.page_size;
            let run = Run {
                page: self.pages[at / self.page_size],
                slot,
                len: (self.page_size - slot).min(end - at),
            };
            at += run.len;
            Some(run)
        })
    }
}

/// The free pages of a worker's pools, in the order in which they are handed out.
#[derive(Debug)]
pub(crate) struct FreePages(Vec<u32>);

impl FreePages {
    /// All pages of a pool, lowest first.
    pub(crate) fn in_order(pages: usize) -> Self {
        Self((0..pages as u32).rev().collect())
    }

    /// All pages of a pool, as scattered as after days of serving.
    pub(crate) fn shuffled(pages: usize, seed: u64) -> Self {
        let mut free: Vec<u32> = (0..pages as u32).collect();
        Rng::new(seed).shuffle(&mut free);
        Self(free)
    }

    /// Takes the pages for `tokens` tokens.
    pub(crate) fn take(&mut self, tokens: usize, page_size: usize) -> Result<BlockTable> {
        let wanted = tokens.div_ceil(page_size);
        ensure!(wanted <= self.0.len(), "{wanted} pages are wanted but only {} are free", self.0.len());
        let mut pages = self.0.split_off(self.0.len() - wanted);
        pages.reverse();
        Ok(BlockTable::new(page_size, pages))
    }
}

#[cfg(test)]
mod tests;
