//! The pages of a worker's KV pools as blocks of a transfer.

use kvferry::{Block, GridRow, MemoryKind, human_size};

use crate::buffers::{KvEntry, KvPart};
use crate::error::remedy;
use crate::plan::is_something;

/// The pages of one KV pool: `pages` items of `item_len` bytes, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagePool {
    /// Address of page 0.
    pub ptr: u64,
    /// Bytes of a page.
    pub item_len: u64,
    /// Number of pages.
    pub pages: u32,
    /// The device.
    pub device: u32,
    /// The layer.
    pub layer: u32,
    /// What of the layer.
    pub part: KvPart,
}

/// The pages of all KV pools of one worker, in one kind of memory.
///
/// Prepare its [`rows`](PageGrid::rows) once, and name pages by [`indices`](PageGrid::indices) for each
/// transfer. Page `p` of a sequence is page `p` in every pool.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use kvferry::MemoryKind;
/// use kvferry_kv::{KvEntry, KvPart, PageGrid};
///
/// let entry = |ptr, part| KvEntry { ptr, len: 40, item_len: 4, kind: MemoryKind::Dram, device: 0, layer: 0,
/// part }; let grid = PageGrid::new(&[entry(0x1000, KvPart::K), entry(0x2000, KvPart::V)])?;
/// assert_eq!(grid.rows().len(), 2); assert_eq!(grid.indices(&[7, 3])?, [7, 3, 17, 13]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageGrid {
    kind: MemoryKind,
    pools: Vec<PagePool>,
    /// Number of each pool's page 0 among the blocks of all rows.
    firsts: Vec<u32>,
}

/// Why there are no such pages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// A pool is no whole number of pages.
    #[error(
        "layer {layer} {part}: item length {item_len} does not divide the length {len} (buffers.item_length)"
    )]
    ItemLength {
        /// The pool's layer.
        layer: u32,
        /// What of the layer.
        part: KvPart,
        /// The pool's length in bytes.
        len: u64,
        /// The item length in bytes.
        item_len: u64,
    },
    /// A pool passes the end of the address space.
    #[error("layer {layer} {part} passes the end of the address space (register.overflow)")]
    Overflow {
        /// The pool's layer.
        layer: u32,
        /// What of the layer.
        part: KvPart,
    },
    /// Pools are in different kinds of memory.
    #[error("layer {layer} {part} is in {kind}, the pools before it in {before} (buffers.kinds)")]
    Kinds {
        /// The layer of the first pool in another kind.
        layer: u32,
        /// What of the layer.
        part: KvPart,
        /// Its kind.
        kind: MemoryKind,
        /// The kind of those before it.
        before: MemoryKind,
    },
    /// All pools together have more pages than an index can name.
    #[error("the pools have more than {} pages in all (buffers.too_many_pages)", u32::MAX)]
    TooMany,
    /// A page is past the end of a pool.
    #[error("page {page}: layer {layer} {part} has {pages} pages (buffers.page)")]
    Page {
        /// The page asked for.
        page: u32,
        /// The layer of the first pool that does not have it.
        layer: u32,
        /// What of the layer.
        part: KvPart,
        /// Pages of that pool.
        pages: u32,
    },
}

/// Where a worker's pools and its peer's do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutMismatch {
    /// They have different numbers of pools.
    #[error("{ours} KV pools here, {theirs} at the peer (buffers.layout_mismatch)")]
    Pools {
        /// Ours.
        ours: usize,
        /// The peer's.
        theirs: usize,
    },
    /// Pools in the same place hold different things.
    #[error(
        "KV pool {index} is layer {} {} here, layer {} {} at the peer (buffers.layout_mismatch)",
        ours.0, ours.1, theirs.0, theirs.1
    )]
    Part {
        /// The first place where they differ.
        index: usize,
        /// Layer and part here.
        ours: (u32, KvPart),
        /// Layer and part at the peer.
        theirs: (u32, KvPart),
    },
    /// Pages of a pool have different lengths.
    #[error(
        "layer {layer} {part}: pages of {} here, {} at the peer (buffers.layout_mismatch)",
        human_size(*ours),
        human_size(*theirs)
    )]
    PageLength {
        /// The layer of the first such pool.
        layer: u32,
        /// What of the layer.
        part: KvPart,
        /// Bytes of a page here.
        ours: u64,
        /// Bytes of a page at the peer.
        theirs: u64,
    },
}

impl PageGrid {
    /// The pages of these pools, in their order. Null and empty entries are left out.
    ///
    /// # Errors
    /// A pool is no whole number of pages or wraps, the pools are in different kinds of memory, or they have
    /// too many pages.
    pub fn new(entries: &[KvEntry]) -> Result<Self, PageError> {
        let mut grid = Self { kind: MemoryKind::Dram, pools: Vec::new(), firsts: Vec::new() };
        let mut blocks = 0u32;
        for entry in entries.iter().filter(|entry| is_something(&entry.desc())) {
            let &KvEntry { ptr, len, item_len, kind, device, layer, part } = entry;
            // Nothing but zero is a multiple of zero, and empty entries are left out.
            if !len.is_multiple_of(item_len) {
                return Err(PageError::ItemLength { layer, part, len, item_len });
            }
            if entry.desc().end().is_none() {
                return Err(PageError::Overflow { layer, part });
            }
            if grid.pools.is_empty() {
                grid.kind = kind;
            } else if kind != grid.kind {
                return Err(PageError::Kinds { layer, part, kind, before: grid.kind });
            }
            let pages = u32::try_from(len / item_len).map_err(|_| PageError::TooMany)?;
            grid.firsts.push(blocks);
            grid.pools.push(PagePool { ptr, item_len, pages, device, layer, part });
            blocks = blocks.checked_add(pages).ok_or(PageError::TooMany)?;
        }
        Ok(grid)
    }

    /// The kind of memory, DRAM if there is no pool.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The pools, in the order of the rows.
    pub fn pools(&self) -> &[PagePool] {
        &self.pools
    }

    /// Pages that every pool has.
    pub fn pages(&self) -> u32 {
        self.pools.iter().map(|pool| pool.pages).min().unwrap_or(0)
    }

    /// Bytes of one page over all pools.
    pub fn page_bytes(&self) -> u64 {
        self.pools.iter().fold(0, |sum: u64, pool| sum.saturating_add(pool.item_len))
    }

    /// All pages of all pools as a grid, to be prepared once: one row a pool.
    pub fn rows(&self) -> Vec<GridRow> {
        self.pools.iter().map(PagePool::row).collect()
    }

    /// The blocks of these pages in a list prepared from [`rows`](PageGrid::rows): those of the first pool,
    /// then those of the next. Pages next to each other stay so, which lets a transfer merge them.
    ///
    /// # Errors
    /// A pool does not have one of the pages.
    pub fn indices(&self, pages: &[u32]) -> Result<Vec<u32>, PageError> {
        self.check(pages)?;
        let of_pool = |&first| pages.iter().map(move |page: &u32| first + page);
        Ok(self.firsts.iter().flat_map(of_pool).collect())
    }

    /// The blocks of these pages themselves, in the order of [`indices`](PageGrid::indices).
    ///
    /// # Errors
    /// A pool does not have one of the pages.
    pub fn blocks(&self, pages: &[u32]) -> Result<Vec<Block>, PageError> {
        self.check(pages)?;
        let of_pool = |pool: &PagePool| pages.iter().filter_map(|page| pool.block(*page)).collect::<Vec<_>>();
        Ok(self.pools.iter().flat_map(of_pool).collect())
    }

    /// Whether block i of one side's pages is the counterpart of block i of the other's.
    ///
    /// # Errors
    /// The first difference in number, layers, parts or page length. Numbers of pages may differ.
    pub fn check_peer(&self, peer: &Self) -> Result<(), LayoutMismatch> {
        if self.pools.len() != peer.pools.len() {
            return Err(LayoutMismatch::Pools { ours: self.pools.len(), theirs: peer.pools.len() });
        }
        for (index, (ours, theirs)) in self.pools.iter().zip(&peer.pools).enumerate() {
            let (our_part, their_part) = ((ours.layer, ours.part), (theirs.layer, theirs.part));
            if our_part != their_part {
                return Err(LayoutMismatch::Part { index, ours: our_part, theirs: their_part });
            }
            if ours.item_len != theirs.item_len {
                let PagePool { layer, part, .. } = *ours;
                let (ours, theirs) = (ours.item_len, theirs.item_len);
                return Err(LayoutMismatch::PageLength { layer, part, ours, theirs });
            }
        }
        Ok(())
    }

    fn check(&self, pages: &[u32]) -> Result<(), PageError> {
        let Some(&page) = pages.iter().max() else { return Ok(()) };
        match self.pools.iter().find(|pool| page >= pool.pages) {
            None => Ok(()),
            Some(&PagePool { layer, part, pages, .. }) => Err(PageError::Page { page, layer, part, pages }),
        }
    }
}

impl PagePool {
    /// All pages as a row of a grid.
    pub fn row(&self) -> GridRow {
        let Self { ptr: addr, item_len: len, pages, device, .. } = *self;
        GridRow { addr, len, device, stride: len, count: u64::from(pages) }
    }

    /// One page as a block; None past the end.
    pub fn block(&self, page: u32) -> Option<Block> {
        let Self { ptr, item_len: len, device, .. } = *self;
        // No pool passes the end of the address space.
        (page < self.pages).then(|| Block { addr: ptr + u64::from(page) * len, len, device })
    }
}

impl PageError {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ItemLength { .. } => "buffers.item_length",
            Self::Overflow { .. } => "register.overflow",
            Self::Kinds { .. } => "buffers.kinds",
            Self::TooMany => "buffers.too_many_pages",
            Self::Page { .. } => "buffers.page",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        remedy(self.code())
    }
}

impl LayoutMismatch {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        "buffers.layout_mismatch"
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        remedy(self.code())
    }
}

#[cfg(test)]
mod tests;
