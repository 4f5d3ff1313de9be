//! The numbers of regions that are gone for good.

use std::collections::BTreeMap;

use crate::frame::LiveRegions;
use crate::region::RegionId;

/// Most separate runs of numbers that are remembered.
pub const MAX_TOMBSTONES: usize = 1 << 18;

/// A peer's numbers have more holes than are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_TOMBSTONES} separate runs of revoked regions")]
pub struct TooManyTombstones;

/// A set of region numbers, kept as runs: regions come and go in batches of consecutive numbers.
#[derive(Clone, Debug, Default)]
pub struct Tombstones {
    /// First and last number of each run; runs neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
}

impl Tombstones {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: RegionId) -> bool {
        self.runs.range(..=id.0).next_back().is_some_and(|(_, &last)| id.0 <= last)
    }

    /// Adds numbers.
    ///
    /// # Errors
    /// There may be too many runs afterwards; nothing is changed.
    pub fn insert_all(&mut self, ids: &[RegionId]) -> Result<(), TooManyTombstones> {
        self.check_room(ids.len())?;
        for id in ids {
            self.insert(id.0, id.0);
        }
        Ok(())
    }

    /// Adds all numbers that `live` excludes.
    ///
    /// # Errors
    /// There may be too many runs afterwards; nothing is changed.
    pub fn insert_dead(&mut self, live: &LiveRegions) -> Result<(), TooManyTombstones> {
        self.check_room(live.ids.len() + 1)?;
        let mut next = live.from;
        for id in &live.ids {
            if id.0 > next {
                self.insert(next, id.0 - 1);
            }
            next = id.0.saturating_add(1);
        }
        if live.below > next {
            self.insert(next, live.below - 1);
        }
        Ok(())
    }

    /// How many runs are remembered.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    fn check_room(&self, more: usize) -> Result<(), TooManyTombstones> {
        if self.runs.len().saturating_add(more) > MAX_TOMBSTONES {
            return Err(TooManyTombstones);
        }
        Ok(())
    }

    fn insert(&mut self, mut first: u64, mut last: u64) {
        // Swallow every run that overlaps or touches the new one, from the top down.
        while let Some((&start, &end)) = self.runs.range(..=last.saturating_add(1)).next_back()
            && end.saturating_add(1) >= first
        {
            self.runs.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.runs.insert(first, last);
    }
}
