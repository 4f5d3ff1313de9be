//! Binds blocks to regions and folds them into rows.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::{BlockAt, BlockList, ListError, ListRow, RowIndex};
use crate::block::{Block, GridRow};
use crate::kind::MemoryKind;
use crate::range_map::{RangeEntry, RangeMap};

/// A run must be this long to become a row: any two blocks in ascending order are evenly spaced,
/// and pairs by chance would make an irregular list harder to index.
const MIN_FOLD: u64 = 3;

pub(super) struct Builder<'m> {
    kind: MemoryKind,
    map: &'m RangeMap,
    rows: Vec<ListRow>,
    regions: Vec<RangeEntry>,
    /// From positions in the map to slots.
    slots: HashMap<usize, u32>,
    /// The region of the block before.
    current: Option<Bound>,
    /// Blocks that may become a row together.
    run: Option<ListRow>,
    blocks: u64,
    bytes: u64,
    uniform_len: Option<u64>,
    grid_rows: u64,
}

#[derive(Clone, Copy)]
struct Bound {
    slot: u32,
    device: u32,
    start: u64,
    end: u64,
}

impl<'m> Builder<'m> {
    pub(super) fn new(kind: MemoryKind, map: &'m RangeMap) -> Self {
        Self {
            kind,
            map,
            rows: Vec::new(),
            regions: Vec::new(),
            slots: HashMap::new(),
            current: None,
            run: None,
            blocks: 0,
            bytes: 0,
            uniform_len: None,
            grid_rows: 0,
        }
    }

    pub(super) fn block(&mut self, block: &Block) -> Result<(), ListError> {
        let at = BlockAt { index: self.blocks, row: None, addr: block.addr, len: block.len };
        let bound = self.bind(at, block.device)?;
        self.account(block.len, 1)?;
        self.fold(at, bound.slot);
        Ok(())
    }

    pub(super) fn row(&mut self, row: &GridRow) -> Result<(), ListError> {
        let number = self.grid_rows;
        self.grid_rows += 1;
        let mut addr = Some(row.addr);
        let mut left = row.count;
        while left > 0 {
            let at = BlockAt {
                index: self.blocks,
                row: Some(number),
                addr: addr.unwrap_or(u64::MAX),
                len: row.len,
            };
            if addr.is_none() && row.len != 0 {
                return Err(ListError::Wrap { at });
            }
            let bound = self.bind(at, row.device)?;
            // The block itself lies in the region, so the room behind it is not negative.
            let room = bound.end - (at.addr + at.len);
            let count = match room.checked_div(row.stride) {
                Some(more) => more.saturating_add(1).min(left),
                None => left,
            };
            self.account(row.len, count)?;
            if count == 1 {
                self.fold(at, bound.slot);
            } else {
                self.flush();
                self.rows.push(ListRow {
                    addr: at.addr,
                    len: row.len,
                    stride: row.stride,
                    count,
                    first: at.index,
                    slot: bound.slot,
                });
            }
            left -= count;
            addr = count.checked_mul(row.stride).and_then(|distance| at.addr.checked_add(distance));
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<BlockList, ListError> {
        self.flush();
        // The index counts rows in 32 bits.
        if u32::try_from(self.rows.len()).is_err() {
            return Err(ListError::TooLarge);
        }
        Ok(BlockList {
            kind: self.kind,
            index: RowIndex::new(&self.rows),
            rows: self.rows,
            regions: self.regions,
            blocks: self.blocks,
            bytes: self.bytes,
            uniform_len: self.uniform_len,
            overlap: OnceLock::new(),
        })
    }

    #[inline]
    fn bind(&mut self, at: BlockAt, device: u32) -> Result<Bound, ListError> {
        if at.len == 0 {
            return Err(ListError::ZeroLength { at });
        }
        let Some(end) = at.addr.checked_add(at.len) else {
            return Err(ListError::Wrap { at });
        };
        match self.current {
            Some(bound) if bound.device == device && bound.start <= at.addr && end <= bound.end => Ok(bound),
            _ => self.rebind(at, device),
        }
    }

    fn rebind(&mut self, at: BlockAt, device: u32) -> Result<Bound, ListError> {
        let (addr, len, kind) = (at.addr, at.len, self.kind);
        let Some(position) = self.map.find_index(kind, device, addr, len) else {
            return Err(match self.map.find_elsewhere(kind, device, addr, len) {
                Some(found) => ListError::Kind { at, kind, device, found },
                None => {
                    ListError::Bounds { at, kind, device, nearest: self.map.nearest(kind, device, addr, len) }
                }
            });
        };
        let entry = self.map.entries()[position];
        let slot = *self.slots.entry(position).or_insert_with(|| {
            self.regions.push(entry);
            self.regions.len() as u32 - 1
        });
        let bound = Bound { slot, device, start: entry.desc.addr, end: entry.end() };
        self.current = Some(bound);
        Ok(bound)
    }

    #[inline]
    fn account(&mut self, len: u64, count: u64) -> Result<(), ListError> {
        self.uniform_len =
            if self.blocks == 0 { Some(len) } else { self.uniform_len.filter(|&uniform| uniform == len) };
        let bytes = len.checked_mul(count);
        self.bytes = bytes.and_then(|bytes| self.bytes.checked_add(bytes)).ok_or(ListError::TooLarge)?;
        self.blocks = self.blocks.checked_add(count).ok_or(ListError::TooLarge)?;
        Ok(())
    }

    // Adds one block to the run, or ends the run and starts another with it.
    #[inline]
    fn fold(&mut self, at: BlockAt, slot: u32) {
        let single = ListRow { addr: at.addr, len: at.len, stride: at.len, count: 1, first: at.index, slot };
        let Some(run) = &mut self.run else {
            self.run = Some(single);
            return;
        };
        if run.len != at.len || run.slot != slot {
            self.flush();
            self.run = Some(single);
            return;
        }
        if run.count >= 2 {
            // No overflow: the address before is in a region, and so is the distance.
            let previous = run.addr_of(run.count - 1);
            if at.addr.checked_sub(previous) == Some(run.stride) {
                run.count += 1;
                return;
            }
            if run.count >= MIN_FOLD {
                self.flush();
                self.run = Some(single);
                return;
            }
            // The second of two that were no run may begin the next.
            let second = ListRow { addr: previous, stride: run.len, count: 1, first: run.first + 1, ..*run };
            let first = ListRow { stride: run.len, count: 1, ..*run };
            self.rows.push(first);
            *run = second;
        }
        match at.addr.checked_sub(run.addr) {
            Some(stride) => {
                run.stride = stride;
                run.count = 2;
            }
            None => {
                self.rows.push(*run);
                *run = single;
            }
        }
    }

    fn flush(&mut self) {
        let Some(run) = self.run.take() else {
            return;
        };
        if run.count == 1 || run.count >= MIN_FOLD {
            self.rows.push(run);
            return;
        }
        for offset in 0..run.count {
            self.rows.push(ListRow {
                addr: run.addr_of(offset),
                stride: run.len,
                count: 1,
                first: run.first + offset,
                ..run
            });
        }
    }
}
