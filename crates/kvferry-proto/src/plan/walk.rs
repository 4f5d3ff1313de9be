//! Walks the blocks of one side, or of both in step, a run at a time.

use super::{PlanSide, Selection};

/// A place among the blocks of one side. The fields describe what is left of the current run.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    /// The next row, or the next position in the indices.
    next: usize,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) stride: u64,
    pub(super) slot: u32,
    pub(super) left: u64,
}

impl Walk {
    /// Goes to the next run, whatever is left of this one; false at the end.
    #[inline]
    pub(super) fn refill(&mut self, side: &PlanSide) -> bool {
        let (row, offset, left) = match &side.select {
            Selection::All => {
                let Some(row) = side.list.rows().get(self.next) else {
                    return false;
                };
                self.next += 1;
                (row, 0, row.count)
            }
            Selection::List(indices) => {
                let rest = &indices[self.next..];
                let Some(&first) = rest.first() else {
                    return false;
                };
                let first = u64::from(first);
                let Some((row, offset)) = side.list.locate(first) else {
                    return false;
                };
                // Ascending indices within a row are a run as well.
                let stop = first + (row.count - offset);
                let run = (first..stop)
                    .zip(rest)
                    .take_while(|&(expected, &index)| u64::from(index) == expected)
                    .count();
                self.next += run;
                (row, offset, run as u64)
            }
        };
        self.addr = row.addr_of(offset);
        self.len = row.len;
        self.stride = row.stride;
        self.slot = row.slot;
        self.left = left;
        true
    }

    #[inline]
    pub(super) fn advance(&mut self, blocks: u64) {
        self.left -= blocks;
        // Behind the last block of a run there may be no address any more.
        self.addr = self.addr.wrapping_add(blocks.wrapping_mul(self.stride));
    }
}

/// Both sides in step.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    pub(super) local: Walk,
    pub(super) remote: Walk,
}

impl Pairs {
    /// How many pairs follow in which neither side's run ends; `None` at the end.
    #[inline]
    pub(super) fn peek(&mut self, local: &PlanSide, remote: &PlanSide) -> Option<u64> {
        if self.local.left == 0 && !self.local.refill(local) {
            return None;
        }
        if self.remote.left == 0 && !self.remote.refill(remote) {
            return None;
        }
        Some(self.local.left.min(self.remote.left))
    }

    #[inline]
    pub(super) fn advance(&mut self, pairs: u64) {
        self.local.advance(pairs);
        self.remote.advance(pairs);
    }
}
