//! A search tree over regions that overlap.

use super::RangeEntry;

/// A binary tree over regions in order of address. A node knows, of all regions below it, the
/// last end and the smallest id.
///
/// A list of nested regions (the pool, its layers, their pages) has no order in which a plain
/// scan would find the cover of a range quickly; this does in O(log n) for each region that
/// covers it, and mostly without visiting them all.
#[derive(Clone, Debug)]
pub(super) struct CoverTree {
    /// Node 1 is the root, node n has children 2n and 2n + 1; the leaves are the last half.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    end: u64,
    id: u64,
}

const NOTHING: Node = Node { end: 0, id: u64::MAX };

/// The best leaf found so far.
struct Best {
    id: u64,
    leaf: Option<usize>,
}

impl CoverTree {
    pub(super) fn new(entries: &[RangeEntry]) -> Self {
        let leaves = entries.len().next_power_of_two();
        let mut nodes = vec![NOTHING; 2 * leaves];
        for (node, entry) in nodes[leaves..].iter_mut().zip(entries) {
            *node = Node { end: entry.end(), id: entry.id.0 };
        }
        for index in (1..leaves).rev() {
            let (left, right) = (nodes[2 * index], nodes[2 * index + 1]);
            nodes[index] = Node { end: left.end.max(right.end), id: left.id.min(right.id) };
        }
        Self { nodes }
    }

    /// Of the first `prefix` regions, the one with the smallest id that ends at `end` or later.
    pub(super) fn smallest_id(&self, prefix: usize, end: u64) -> Option<usize> {
        let mut best = Best { id: u64::MAX, leaf: None };
        self.descend(1, 0, self.leaves(), prefix, end, &mut best);
        best.leaf
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    // As deep as the tree is high: 64 at most.
    fn descend(&self, index: usize, first: usize, width: usize, prefix: usize, end: u64, best: &mut Best) {
        let node = self.nodes[index];
        let hopeless = node.end < end || (best.leaf.is_some() && node.id >= best.id);
        if first >= prefix || hopeless {
            return;
        }
        if width == 1 {
            *best = Best { id: node.id, leaf: Some(first) };
            return;
        }
        let half = width / 2;
        let (left, right) = (2 * index, 2 * index + 1);
        // The smaller id first: what it finds rules out most of the other side.
        if self.nodes[left].id <= self.nodes[right].id {
            self.descend(left, first, half, prefix, end, best);
            self.descend(right, first + half, half, prefix, end, best);
        } else {
            self.descend(right, first + half, half, prefix, end, best);
            self.descend(left, first, half, prefix, end, best);
        }
    }
}
