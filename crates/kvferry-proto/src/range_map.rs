//! Which region covers a range of addresses.

mod tree;

use std::fmt;
use std::ops::Range;

use crate::kind::MemoryKind;
use crate::region::{RegionDesc, RegionId, human_size};
use tree::CoverTree;

/// Regions ordered by kind, device and address, to be searched by address.
///
/// Overlapping regions and repeats are legal. Built once from a set of regions; a changed set is
/// a new map.
#[derive(Clone, Debug, Default)]
pub struct RangeMap {
    entries: Vec<RangeEntry>,
    groups: Vec<Group>,
    overlapping: usize,
}

/// A region in a [`RangeMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEntry {
    /// Number of the registration.
    pub id: RegionId,
    /// Where it lies.
    pub desc: RegionDesc,
}

impl RangeEntry {
    // A region past the last address is caught by `RegionDesc::check`, long before a map.
    pub(crate) fn end(&self) -> u64 {
        self.desc.addr.saturating_add(self.desc.len)
    }
}

/// The regions of one kind on one device.
#[derive(Clone, Debug)]
struct Group {
    kind: MemoryKind,
    device: u32,
    range: Range<usize>,
    /// Only where regions overlap: elsewhere the one that begins last before an address is the
    /// only one that can cover it.
    tree: Option<CoverTree>,
}

impl RangeMap {
    /// A map of `regions`, in O(n log n). Those of zero length cover nothing and are left out.
    pub fn new(regions: impl IntoIterator<Item = (RegionId, RegionDesc)>) -> Self {
        let mut entries: Vec<_> = regions
            .into_iter()
            .filter(|(_, desc)| desc.len != 0)
            .map(|(id, desc)| RangeEntry { id, desc })
            .collect();
        entries.sort_unstable_by_key(|e| (e.desc.kind, e.desc.device, e.desc.addr, e.id));
        let mut map = Self { groups: Vec::new(), overlapping: 0, entries };
        let mut start = 0;
        for chunk in map.entries.chunk_by(|a, b| (a.desc.kind, a.desc.device) == (b.desc.kind, b.desc.device))
        {
            let overlapping = count_overlapping(chunk);
            map.overlapping += overlapping;
            map.groups.push(Group {
                kind: chunk[0].desc.kind,
                device: chunk[0].desc.device,
                range: start..start + chunk.len(),
                tree: (overlapping > 0).then(|| CoverTree::new(chunk)),
            });
            start += chunk.len();
        }
        map
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no regions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of regions that share bytes with another one.
    pub fn overlapping(&self) -> usize {
        self.overlapping
    }

    /// All regions, ordered by kind, device and address.
    pub fn entries(&self) -> &[RangeEntry] {
        &self.entries
    }

    /// The region that covers all `len` bytes from `addr` on; of several the one with the
    /// smallest id. None covers a range of zero length or one that wraps.
    pub fn find(&self, kind: MemoryKind, device: u32, addr: u64, len: u64) -> Option<RangeEntry> {
        self.find_index(kind, device, addr, len).map(|index| self.entries[index])
    }

    /// As [`find`](Self::find), but the position in [`entries`](Self::entries).
    pub(crate) fn find_index(&self, kind: MemoryKind, device: u32, addr: u64, len: u64) -> Option<usize> {
        let end = addr.checked_add(len).filter(|_| len != 0)?;
        self.group(kind, device)?.find(&self.entries, addr, end)
    }

    /// A region of another kind or device that covers the range: the caller named the wrong one.
    pub fn find_elsewhere(&self, kind: MemoryKind, device: u32, addr: u64, len: u64) -> Option<RangeEntry> {
        let end = addr.checked_add(len).filter(|_| len != 0)?;
        self.groups
            .iter()
            .filter(|group| (group.kind, group.device) != (kind, device))
            .find_map(|group| group.find(&self.entries, addr, end))
            .map(|index| self.entries[index])
    }

    /// The region which the range exceeds by the fewest bytes, for an error's text. In O(n).
    pub fn nearest(&self, kind: MemoryKind, device: u32, addr: u64, len: u64) -> Option<Nearest> {
        let end = addr.saturating_add(len);
        self.entries[self.group(kind, device)?.range.clone()]
            .iter()
            .map(|&region| Nearest {
                region,
                before: region.desc.addr.saturating_sub(addr),
                past: end.saturating_sub(region.end()),
            })
            .min_by_key(|near| (near.before.saturating_add(near.past), near.region.id))
    }

    fn group(&self, kind: MemoryKind, device: u32) -> Option<&Group> {
        self.groups
            .binary_search_by_key(&(kind, device), |group| (group.kind, group.device))
            .ok()
            .map(|index| &self.groups[index])
    }
}

impl Group {
    fn find(&self, entries: &[RangeEntry], addr: u64, end: u64) -> Option<usize> {
        let entries = &entries[self.range.clone()];
        let below = entries.partition_point(|entry| entry.desc.addr <= addr);
        let index = match &self.tree {
            Some(tree) => tree.smallest_id(below, end)?,
            None => below.checked_sub(1).filter(|&index| entries[index].end() >= end)?,
        };
        Some(self.range.start + index)
    }
}

/// The region nearest to a range that no region covers, and by how much the range exceeds it.
///
/// `Display` continues a sentence: `4 KiB past region 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The region.
    pub region: RangeEntry,
    /// Bytes from the range's start to the region's start; 0 if it begins at or after that.
    pub before: u64,
    /// Bytes from the region's end to the range's end; 0 if it ends at or before that.
    pub past: u64,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, past) = (human_size(self.before), human_size(self.past));
        match (self.before, self.past) {
            (0, _) => write!(f, "{past} past region {}", self.region.id),
            (_, 0) => write!(f, "{before} before region {}", self.region.id),
            _ => write!(f, "{before} before and {past} past region {}", self.region.id),
        }
    }
}

// `entries` are ordered by address. One overlaps an earlier one if any of those ends after it
// begins, and a later one if the next begins before it ends.
fn count_overlapping(entries: &[RangeEntry]) -> usize {
    let mut reached = 0;
    let mut count = 0;
    for (index, entry) in entries.iter().enumerate() {
        let earlier = entry.desc.addr < reached;
        let later = entries.get(index + 1).is_some_and(|next| next.desc.addr < entry.end());
        count += usize::from(earlier || later);
        reached = reached.max(entry.end());
    }
    count
}

#[cfg(test)]
mod tests;
