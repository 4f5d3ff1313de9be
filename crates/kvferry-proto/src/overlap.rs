//! Whether any two blocks of a list share bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Evenly spaced blocks, by position in their list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) device: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) stride: u64,
    pub(crate) count: u64,
    /// Position of the first block; the others follow.
    pub(crate) position: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.addr + (self.count - 1) * self.stride + self.len
    }

    fn order(&self) -> (u32, u64) {
        (self.device, self.addr)
    }
}

/// Two positions, the lower first, whose blocks share bytes. All runs must lie within the address
/// space and have at least one block with at least one byte.
///
/// O(r log r) for r runs, or O(r) where they come in order, as long as runs either lie apart or
/// interleave at one stride; only runs that interleave otherwise are walked block by block.
pub(crate) fn first_overlap(mut runs: Vec<Run>) -> Option<(u64, u64)> {
    if let Some(run) = runs.iter().find(|run| run.count > 1 && run.stride < run.len) {
        return Some((run.position, run.position + 1));
    }
    if !runs.is_sorted_by_key(Run::order) {
        runs.sort_unstable_by_key(Run::order);
    }
    let mut start = 0;
    while let Some(first) = runs.get(start) {
        // A cluster: runs whose extents hang together.
        let mut end = first.end();
        let mut stop = start + 1;
        while let Some(run) = runs.get(stop)
            && run.device == first.device
            && run.addr < end
        {
            end = end.max(run.end());
            stop += 1;
        }
        let cluster = &runs[start..stop];
        if cluster.len() > 1 && !interleaved(cluster) {
            let found = walk(cluster);
            if found.is_some() {
                return found;
            }
        }
        start = stop;
    }
    None
}

// Whether runs of one stride can't touch each other because they occupy different parts of it,
// like K and V halves of the same pages.
fn interleaved(cluster: &[Run]) -> bool {
    let Some(stride) = cluster.iter().find(|run| run.count > 1).map(|run| run.stride) else {
        return false;
    };
    // The part of the stride that a run occupies, counted from where the first one begins.
    let origin = cluster[0].addr;
    let mut parts = Vec::with_capacity(cluster.len());
    for run in cluster {
        if run.count > 1 && run.stride != stride {
            return false;
        }
        let start = (run.addr - origin) % stride;
        match start.checked_add(run.len) {
            Some(end) if end <= stride => parts.push((start, end)),
            _ => return false,
        }
    }
    parts.sort_unstable();
    parts.is_sorted_by(|a, b| a.1 <= b.0)
}

// All blocks in order of address, run by run merged: exact, O(n log r), and no block is stored.
fn walk(cluster: &[Run]) -> Option<(u64, u64)> {
    let mut heads: BinaryHeap<_> =
        cluster.iter().enumerate().map(|(index, run)| Reverse((run.addr, index, 0))).collect();
    let mut last: Option<(u64, u64)> = None;
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((addr, index, offset)) = *head;
        let run = &cluster[index];
        let position = run.position + offset;
        if let Some((end, before)) = last
            && addr < end
        {
            return Some((before.min(position), before.max(position)));
        }
        last = Some((addr + run.len, position));
        if offset + 1 < run.count {
            *head = Reverse((addr + run.stride, index, offset + 1));
        } else {
            std::collections::binary_heap::PeekMut::pop(head);
        }
    }
    None
}

#[cfg(test)]
mod tests;
