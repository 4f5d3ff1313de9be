//! What one transfer moves: pairs of blocks, checked once, merged while they stream.

mod cursor;
mod error;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use cursor::PlanCursor;
pub use error::{End, PlanError};

use crate::chunk::Segment;
use crate::kind::Op;
use crate::list::{BlockList, BlockRef};
use crate::overlap::{Run, first_overlap};
use walk::{Pairs, Walk};

/// Most blocks that are looked at to say which one a fault hit.
const MAX_SEARCH: usize = 1 << 16;

/// Which blocks of a list take part, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All, in the order of the list.
    #[default]
    All,
    /// Those at these indices.
    List(Arc<[u32]>),
}

/// One side of a transfer: a list, and which of its blocks take part.
#[derive(Clone, Debug)]
pub struct PlanSide {
    list: Arc<BlockList>,
    select: Selection,
}

impl PlanSide {
    /// The blocks of `list` that `select` names.
    pub fn new(list: Arc<BlockList>, select: Selection) -> Self {
        Self { list, select }
    }

    /// The list.
    pub fn list(&self) -> &Arc<BlockList> {
        &self.list
    }

    /// Which of its blocks take part.
    pub fn select(&self) -> &Selection {
        &self.select
    }

    /// Number of blocks that take part.
    pub fn len(&self) -> u64 {
        match &self.select {
            Selection::All => self.list.len(),
            Selection::List(indices) => indices.len() as u64,
        }
    }

    /// Whether no block takes part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block at `position` in the transfer.
    pub fn get(&self, position: u64) -> Option<BlockRef> {
        match &self.select {
            Selection::All => self.list.get(position),
            Selection::List(indices) => {
                let index = indices.get(usize::try_from(position).ok()?)?;
                self.list.get(u64::from(*index))
            }
        }
    }

    fn check_indices(&self, end: End) -> Result<(), PlanError> {
        let Selection::List(indices) = &self.select else {
            return Ok(());
        };
        let blocks = self.list.len();
        match indices.iter().position(|&index| u64::from(index) >= blocks) {
            None => Ok(()),
            Some(position) => {
                Err(PlanError::Index { end, position: position as u64, index: indices[position], blocks })
            }
        }
    }

    // Two positions whose blocks share bytes.
    fn overlap(&self) -> Option<(u64, u64)> {
        match &self.select {
            Selection::All => self.list.overlap(),
            // In a list without overlaps only an index given twice can make one.
            Selection::List(indices) if self.list.overlap().is_none() => repeated(indices, self.list.len()),
            Selection::List(_) => {
                let mut walk = Walk::default();
                let mut runs: Vec<Run> = Vec::new();
                let mut position = 0;
                while walk.refill(self) {
                    runs.push(Run {
                        device: self.list.device_of(walk.slot),
                        addr: walk.addr,
                        len: walk.len,
                        stride: walk.stride,
                        count: walk.left,
                        position,
                    });
                    position += walk.left;
                }
                first_overlap(runs)
            }
        }
    }
}

impl From<Arc<BlockList>> for PlanSide {
    fn from(list: Arc<BlockList>) -> Self {
        Self::new(list, Selection::All)
    }
}

/// The blocks of one transfer in pairs: block n of one side goes to block n of the other.
#[derive(Debug)]
pub struct Plan {
    op: Op,
    local: PlanSide,
    remote: PlanSide,
    blocks: u64,
    bytes: u64,
    merge: bool,
}

impl Plan {
    /// Pairs the blocks of two sides.
    ///
    /// `merge` lets neighbours that touch on both sides, within the same regions, stream as one.
    /// Takes O(1) for whole lists of one block length, O(indices) for indices into such lists,
    /// and O(n log n) at most; what is found out about a list is kept with it.
    ///
    /// # Errors
    /// The sides have different counts, an index is out of range, the lengths of a pair differ, or
    /// two blocks overlap on the side that is written: local for a read, remote for a write.
    pub fn build(
        op: Op,
        local: impl Into<PlanSide>,
        remote: impl Into<PlanSide>,
        merge: bool,
    ) -> Result<Self, PlanError> {
        let (local, remote) = (local.into(), remote.into());
        let blocks = local.len();
        if blocks != remote.len() {
            return Err(PlanError::Count { local: blocks, remote: remote.len() });
        }
        local.check_indices(End::Local)?;
        remote.check_indices(End::Remote)?;
        let bytes = check_lengths(&local, &remote)?;
        let (end, written) = match op {
            Op::Read => (End::Local, &local),
            Op::Write => (End::Remote, &remote),
        };
        if let Some((first, second)) = written.overlap() {
            return Err(PlanError::Overlap { end, first, second });
        }
        Ok(Self { op, local, remote, blocks, bytes, merge })
    }

    /// Which way the bytes go.
    pub fn op(&self) -> Op {
        self.op
    }

    /// The initiator's side.
    pub fn local(&self) -> &PlanSide {
        &self.local
    }

    /// The target's side.
    pub fn remote(&self) -> &PlanSide {
        &self.remote
    }

    /// Number of pairs.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes to move.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether neighbours merge.
    pub fn merge(&self) -> bool {
        self.merge
    }

    /// The blocks at `position`: local, remote.
    pub fn pair(&self, position: u64) -> Option<(BlockRef, BlockRef)> {
        Some((self.local.get(position)?, self.remote.get(position)?))
    }

    /// The pairs of region slots (local, remote) that bytes move between, each once, in order.
    pub fn slot_pairs(&self) -> Vec<(u32, u32)> {
        // A pool is usually one region: then there is no need to look at the blocks.
        if self.local.list.regions().len() == 1 && self.remote.list.regions().len() == 1 {
            return if self.blocks == 0 { Vec::new() } else { vec![(0, 0)] };
        }
        let mut found = BTreeSet::new();
        let mut last = None;
        self.each_run(|slots, _| {
            if last != Some(slots) {
                last = Some(slots);
                found.insert(slots);
            }
        });
        found.into_iter().collect()
    }

    /// The bytes that move between those pairs of region slots (local, remote) that `counts` is true for.
    pub fn bytes_between(&self, mut counts: impl FnMut(u32, u32) -> bool) -> u64 {
        let mut total = 0;
        let mut last = None;
        self.each_run(|slots, bytes| {
            let counted = match last {
                Some((known, counted)) if known == slots => counted,
                _ => counts(slots.0, slots.1),
            };
            last = Some((slots, counted));
            if counted {
                total += bytes;
            }
        });
        total
    }

    /// Walks the plan a run at a time: the pair of region slots (local, remote) that it moves between, and its bytes.
    fn each_run(&self, mut run: impl FnMut((u32, u32), u64)) {
        let mut pairs = Pairs::default();
        while let Some(blocks) = pairs.peek(&self.local, &self.remote) {
            run((pairs.local.slot, pairs.remote.slot), blocks * pairs.local.len);
            pairs.advance(blocks);
        }
    }

    /// The position of the pair that holds byte `offset` of a segment of this plan, to say which
    /// block a fault hit. Walks the blocks from the segment's first one on, 65,536 of them at most: beyond those it is
    /// not worth the time.
    pub fn position_at(&self, segment: &Segment, offset: u64) -> Option<u64> {
        // The offset in the block must be the same on both sides: the side that is read may hold
        // the same bytes several times.
        let inside = |block: BlockRef, addr: u64| {
            let offset = addr.checked_sub(block.addr)?;
            (offset < block.len).then_some(offset)
        };
        let local_addr = segment.local_addr.checked_add(offset)?;
        let remote_addr = segment.remote_addr.checked_add(offset)?;
        (segment.first_index..self.blocks).take(MAX_SEARCH).find(|&position| {
            self.pair(position).is_some_and(|(local, remote)| {
                let offset = inside(local, local_addr);
                offset.is_some() && offset == inside(remote, remote_addr)
            })
        })
    }
}

// Compares the lengths of all pairs and adds them up.
fn check_lengths(local: &PlanSide, remote: &PlanSide) -> Result<u64, PlanError> {
    let uniform = (local.list.uniform_len(), remote.list.uniform_len());
    if let (Some(local_len), Some(remote_len)) = uniform
        && local_len == remote_len
    {
        return Ok(local.len().saturating_mul(local_len));
    }
    let mut pairs = Pairs::default();
    let mut position = 0;
    let mut bytes: u64 = 0;
    while let Some(run) = pairs.peek(local, remote) {
        let (local_len, remote_len) = (pairs.local.len, pairs.remote.len);
        if local_len != remote_len {
            return Err(PlanError::Length { position, local: local_len, remote: remote_len });
        }
        position += run;
        bytes = bytes.saturating_add(run.saturating_mul(local_len));
        pairs.advance(run);
    }
    Ok(bytes)
}

// Two positions that hold the same index. All indices are below `blocks`.
fn repeated(indices: &[u32], blocks: u64) -> Option<(u64, u64)> {
    if indices.is_sorted_by(|a, b| a < b) {
        return None;
    }
    let index = if blocks.div_ceil(64) <= indices.len() as u64 {
        let mut seen = vec![0_u64; blocks.div_ceil(64) as usize];
        *indices.iter().find(|&&index| {
            let (word, bit) = (&mut seen[index as usize / 64], 1 << (index % 64));
            let repeats = *word & bit != 0;
            *word |= bit;
            repeats
        })?
    } else {
        let mut sorted = indices.to_vec();
        sorted.sort_unstable();
        sorted.windows(2).find(|pair| pair[0] == pair[1])?[0]
    };
    let mut positions = (0..).zip(indices).filter(|&(_, &other)| other == index);
    Some((positions.next()?.0, positions.next()?.0))
}

#[cfg(test)]
mod tests;
