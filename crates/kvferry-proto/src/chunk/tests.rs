use std::sync::Arc;

use super::*;
use crate::block::{Block, GridRow};
use crate::kind::{MemoryKind, Op};
use crate::list::BlockList;
use crate::plan::{Plan, PlanCursor};
use crate::range_map::RangeMap;
use crate::region::{RegionDesc, RegionId};

/// Regions of 1,000 bytes, side by side.
fn map() -> RangeMap {
    RangeMap::new((0..100).map(|n| {
        let desc = RegionDesc { addr: n * 1000, len: 1000, kind: MemoryKind::Dram, device: 0 };
        (RegionId(n), desc)
    }))
}

fn cursor(len: u64, stride: u64, count: u64) -> PlanCursor {
    let row = GridRow { addr: 0, len, device: 0, stride, count };
    let list = Arc::new(BlockList::build(&[row], MemoryKind::Dram, &map()).unwrap());
    let plan = Plan::build(Op::Read, list.clone(), list, true).unwrap();
    PlanCursor::new(Arc::new(plan))
}

fn lengths(cursor: &mut PlanCursor, max_vectors: usize, max_bytes: u64) -> Vec<Vec<u64>> {
    let limits = ChunkLimits { max_vectors, max_bytes };
    let mut chunk = Chunk::new();
    let mut all = Vec::new();
    while cursor.next_chunk(limits, |_, _| Some(RouteId(0)), &mut chunk) {
        let lens: Vec<_> = chunk.segments().iter().map(|s| s.len).collect();
        assert_eq!(chunk.bytes(), lens.iter().sum::<u64>());
        all.push(lens);
    }
    assert!(chunk.is_empty() && chunk.bytes() == 0);
    all
}

#[test]
fn vectors_are_limited() {
    let chunks = lengths(&mut cursor(8, 16, 10), 4, 1000);
    assert_eq!(chunks, [vec![8; 4], vec![8; 4], vec![8; 2]]);
}

#[test]
fn long_segments_are_cut_and_counted_once() {
    let mut cursor = cursor(100, 100, 10);
    assert_eq!(lengths(&mut cursor, 4, 300), [[300], [300], [300], [100]]);
    assert_eq!((cursor.blocks(), cursor.segments()), (10, 1));
}

#[test]
fn a_segment_is_not_cut_for_the_last_bit_of_a_chunk() {
    // Two fit whole; a third would be cut for a fifth of the chunk.
    assert_eq!(lengths(&mut cursor(40, 50, 5), 9, 100), [vec![40, 40], vec![40, 40], vec![40]]);
    // What is longer than a chunk is cut all the same.
    assert_eq!(lengths(&mut cursor(30, 40, 1), 9, 20), [[20], [10]]);
    // Here more than half of the chunk would be left empty.
    let blocks = [(0, 30), (100, 90)].map(|(addr, len)| Block { addr, len, device: 0 });
    let list = Arc::new(BlockList::build(&blocks, MemoryKind::Dram, &map()).unwrap());
    let plan = Plan::build(Op::Read, list.clone(), list, true).unwrap();
    let mut cursor = PlanCursor::new(Arc::new(plan));
    assert_eq!(lengths(&mut cursor, 9, 100), [vec![30, 70], vec![20]]);
}

#[test]
fn limits_of_zero_count_as_one() {
    assert_eq!(lengths(&mut cursor(2, 3, 1), 0, 0), [[1], [1]]);
}

#[test]
fn chunks_keep_to_one_route_and_leave_out_what_has_none() {
    // Regions 0, 1 | 2 | 3, 4: routes 0, none, 0; region 5: route 7.
    let route = |slot: u32| match slot {
        2 => None,
        5 => Some(RouteId(7)),
        _ => Some(RouteId(0)),
    };
    let mut cursor = cursor(100, 100, 60);
    let mut chunk = Chunk::new();
    let mut seen = Vec::new();
    let limits = ChunkLimits { max_vectors: 100, max_bytes: u64::MAX };
    while cursor.next_chunk(limits, |slot, _| route(slot), &mut chunk) {
        let addrs: Vec<_> = chunk.segments().iter().map(|s| s.local_addr).collect();
        seen.push((chunk.route().0, addrs));
    }
    assert_eq!(seen, [(0, vec![0, 1000, 3000, 4000]), (7, vec![5000])]);
    assert_eq!((cursor.blocks(), cursor.segments()), (50, 5));
    cursor.reset();
    assert_eq!((cursor.blocks(), cursor.segments()), (0, 0));
    assert!(cursor.next_chunk(limits, |_, _| Some(RouteId(0)), &mut chunk));
    assert_eq!(chunk.segments().len(), 6);
}

#[test]
fn neighbours_across_a_gap_in_the_route_stay_apart() {
    // The middle block's pair has no route; the outer two touch on both sides.
    let blocks = |addrs: [u64; 3]| {
        let blocks = addrs.map(|addr| Block { addr, len: 8, device: 0 });
        Arc::new(BlockList::build(&blocks, MemoryKind::Dram, &map()).unwrap())
    };
    let plan = Plan::build(Op::Write, blocks([0, 2000, 8]), blocks([0, 3000, 8]), true).unwrap();
    let mut cursor = PlanCursor::new(Arc::new(plan));
    let mut chunk = Chunk::new();
    let route = |local, _| (local == 0).then_some(RouteId(0));
    assert!(cursor.next_chunk(ChunkLimits::default(), route, &mut chunk));
    let indices: Vec<_> = chunk.segments().iter().map(|s| s.first_index).collect();
    assert_eq!(indices, [0, 2]);
}

#[test]
fn a_chunk_is_filled_again_in_place() {
    let mut cursor = cursor(8, 16, 1000);
    let mut chunk = Chunk::new();
    let limits = ChunkLimits { max_vectors: 64, ..ChunkLimits::default() };
    assert!(cursor.next_chunk(limits, |_, _| Some(RouteId(0)), &mut chunk));
    let room = chunk.segments.capacity();
    while cursor.next_chunk(limits, |_, _| Some(RouteId(0)), &mut chunk) {}
    assert_eq!(chunk.segments.capacity(), room);
}
