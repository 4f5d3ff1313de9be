use std::collections::BTreeSet;

use super::*;
use crate::pattern::Pattern;

const POOL: u64 = 64 << 20;

fn layout(pattern: Pattern) -> Layout {
    Layout::new(pattern.shapes(POOL)[0], POOL, 7)
}

#[test]
fn blocks_are_apart_inside_the_pool_and_in_another_order_on_each_side() {
    for pattern in [Pattern::B, Pattern::C, Pattern::D, Pattern::R] {
        let layout = layout(pattern);
        assert_ne!(layout.near, layout.far, "{pattern}");
        for side in [&layout.near, &layout.far] {
            assert_eq!(side.len() as u64, layout.shape.count, "{pattern}");
            let sorted: BTreeSet<_> = side.iter().copied().collect();
            assert_eq!(sorted.len(), side.len(), "{pattern}");
            assert!(sorted.last().is_some_and(|last| last + layout.shape.len <= POOL), "{pattern}");
            assert!(!side.is_sorted(), "{pattern}");
            // Spread over the pool, not in a corner of it.
            assert!(sorted.first().is_some_and(|first| *first < POOL / 8), "{pattern}");
            assert!(sorted.last().is_some_and(|last| *last > POOL / 8 * 7), "{pattern}");
        }
    }
}

#[test]
fn both_sides_come_to_the_same_and_another_seed_to_another() {
    assert_eq!(layout(Pattern::C), layout(Pattern::C));
    let other = Layout::new(layout(Pattern::C).shape, POOL, 8);
    assert_ne!(layout(Pattern::C), other);
}

#[test]
fn only_runs_merge() {
    for pattern in [Pattern::B, Pattern::C, Pattern::D] {
        let layout = layout(pattern);
        assert_eq!(layout.pieces().len() as u64, layout.shape.count, "{pattern}");
    }
    let layout = layout(Pattern::R);
    let pieces = layout.pieces();
    assert_eq!(pieces.len() as u64, layout.shape.count / 16);
    assert!(pieces.iter().all(|piece| piece.len == 64 << 10));
}

#[test]
fn shares_are_equal_and_whole() {
    let pieces = layout(Pattern::D).pieces();
    let total: u64 = pieces.iter().map(|piece| piece.len).sum();
    for parts in 1..=5 {
        let shares = share_out(&pieces, parts);
        assert_eq!(shares.len(), parts);
        let sizes: Vec<u64> = shares.iter().map(|share| share.iter().map(|piece| piece.len).sum()).collect();
        assert_eq!(sizes.iter().sum::<u64>(), total);
        assert!(
            sizes.iter().all(|size| size.abs_diff(total / parts as u64) <= 64 * parts as u64),
            "{sizes:?}"
        );
    }
    // One block for two threads is cut in the middle.
    let whole = Piece { near: 4096, far: 0, len: 1 << 20 };
    let halves = share_out(&[whole], 2);
    assert_eq!(halves[0], [Piece { near: 4096, far: 0, len: 1 << 19 }]);
    assert_eq!(halves[1], [Piece { near: 4096 + (1 << 19), far: 1 << 19, len: 1 << 19 }]);
}
