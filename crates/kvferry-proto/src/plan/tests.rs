use super::*;
use crate::block::{Block, Blocks, GridRow};
use crate::chunk::{Chunk, ChunkLimits, RouteId};
use crate::kind::MemoryKind;
use crate::range_map::RangeMap;
use crate::region::{RegionDesc, RegionId};

fn list<'a>(blocks: impl Into<Blocks<'a>>) -> Arc<BlockList> {
    let regions = [(1, 0, 1 << 20), (2, 1 << 20, 1 << 40)].map(|(id, addr, len)| {
        let desc = RegionDesc { addr, len, kind: MemoryKind::Dram, device: 0 };
        (RegionId(id), desc)
    });
    Arc::new(BlockList::build(blocks, MemoryKind::Dram, &RangeMap::new(regions)).unwrap())
}

fn flat(blocks: &[(u64, u64)]) -> Arc<BlockList> {
    let blocks: Vec<_> = blocks.iter().map(|&(addr, len)| Block { addr, len, device: 0 }).collect();
    list(&blocks)
}

fn grid(addr: u64, len: u64, stride: u64, count: u64) -> Arc<BlockList> {
    list(&[GridRow { addr, len, device: 0, stride, count }])
}

fn pick(list: &Arc<BlockList>, indices: &[u32]) -> PlanSide {
    PlanSide::new(list.clone(), Selection::List(indices.into()))
}

fn write(local: impl Into<PlanSide>, remote: impl Into<PlanSide>) -> Result<Plan, PlanError> {
    Plan::build(Op::Write, local, remote, true)
}

/// All segments of a plan as (local, remote, len, first index), and the cursor behind them.
fn stream(plan: Plan, limits: ChunkLimits) -> (Vec<(u64, u64, u64, u64)>, PlanCursor) {
    let mut cursor = PlanCursor::new(Arc::new(plan));
    let mut chunk = Chunk::new();
    let mut segments = Vec::new();
    while cursor.next_chunk(limits, |_, _| Some(RouteId(0)), &mut chunk) {
        segments.extend(chunk.segments().iter().map(|s| (s.local_addr, s.remote_addr, s.len, s.first_index)));
    }
    (segments, cursor)
}

const WIDE: ChunkLimits = ChunkLimits { max_vectors: usize::MAX, max_bytes: u64::MAX };

#[test]
fn counts_must_agree() {
    let (two, three) = (grid(0, 8, 8, 2), grid(0, 8, 8, 3));
    assert_eq!(
        write(two.clone(), three.clone()).unwrap_err().to_string(),
        "2 local blocks, but 3 remote blocks"
    );
    let plan = write(two, pick(&three, &[2, 0])).unwrap();
    assert_eq!((plan.blocks(), plan.bytes()), (2, 16));
    let nothing = write(pick(&three, &[]), flat(&[])).unwrap();
    assert_eq!((nothing.blocks(), nothing.bytes()), (0, 0));
}

#[test]
fn an_index_out_of_range_is_named() {
    let three = grid(0, 8, 8, 3);
    let error = write(pick(&three, &[0, 2, 3]), pick(&three, &[0, 1, 2])).unwrap_err();
    assert_eq!(error.to_string(), "local index 3 at position 2 is out of range: the list has 3 blocks");
    let error = write(pick(&three, &[0]), pick(&three, &[u32::MAX])).unwrap_err();
    assert!(matches!(error, PlanError::Index { end: End::Remote, position: 0, .. }), "{error}");
}

#[test]
fn lengths_are_compared_pair_by_pair() {
    let error = write(grid(0, 8, 8, 3), grid(0, 16, 16, 3)).unwrap_err();
    assert!(matches!(error, PlanError::Length { position: 0, .. }), "{error}");
    let local = flat(&[(0, 8), (8, 8), (16, 4096), (9000, 1)]);
    let remote = flat(&[(0, 8), (8, 8), (16, 4097), (9000, 1)]);
    assert_eq!(
        write(local.clone(), remote.clone()).unwrap_err().to_string(),
        "position 2: local block has 4 KiB (4096 bytes), remote block has 4.0 KiB (4097 bytes)"
    );
    let plan = write(pick(&local, &[3, 0]), pick(&remote, &[3, 1])).unwrap();
    assert_eq!(plan.bytes(), 9);
}

#[test]
fn only_the_written_side_must_be_free_of_overlap() {
    let (twice, apart) = (flat(&[(0, 8), (100, 8), (4, 8)]), grid(0, 8, 8, 3));
    assert!(Plan::build(Op::Write, twice.clone(), apart.clone(), true).is_ok());
    let error = Plan::build(Op::Read, twice.clone(), apart.clone(), true).unwrap_err();
    assert_eq!(error.to_string(), "local blocks at positions 0 and 2 overlap, and both would be written");
    assert_eq!(
        write(apart.clone(), twice.clone()).unwrap_err(),
        PlanError::Overlap { end: End::Remote, first: 0, second: 2 }
    );
    // A choice of blocks that do not overlap is fine even from such a list.
    assert!(write(pick(&apart, &[0, 1]), pick(&twice, &[2, 1])).is_ok());
    let error = write(pick(&apart, &[0, 1, 2]), pick(&twice, &[2, 1, 0])).unwrap_err();
    assert!(matches!(error, PlanError::Overlap { first: 0, second: 2, .. }));
}

#[test]
fn an_index_given_twice_overlaps_itself() {
    let (few, many) = (grid(0, 8, 8, 4), grid(0, 8, 8, 100_000));
    for list in [few.clone(), many] {
        let error = write(pick(&few, &[0, 1, 2, 3]), pick(&list, &[3, 2, 0, 2])).unwrap_err();
        assert!(matches!(error, PlanError::Overlap { first: 1, second: 3, .. }), "{error}");
        assert!(write(pick(&few, &[3, 2, 0, 2]), pick(&list, &[3, 2, 0, 1])).is_ok());
    }
}

#[test]
fn neighbours_that_touch_on_both_sides_merge() {
    let local = flat(&[(0, 8), (8, 16), (24, 8), (40, 8), (48, 8)]);
    let remote = flat(&[(1000, 8), (1008, 16), (1024, 8), (1032, 8), (1048, 8)]);
    let (segments, cursor) = stream(write(local.clone(), remote.clone()).unwrap(), WIDE);
    assert_eq!(segments, [(0, 1000, 32, 0), (40, 1032, 8, 3), (48, 1048, 8, 4)]);
    assert_eq!((cursor.blocks(), cursor.segments()), (5, 3));
    let plan = Plan::build(Op::Write, local, remote, false).unwrap();
    let (segments, cursor) = stream(plan, WIDE);
    assert_eq!(segments.len(), 5);
    assert_eq!((cursor.blocks(), cursor.segments()), (5, 5));
}

#[test]
fn neighbours_in_different_regions_do_not_merge() {
    // The first region ends at 1 MiB.
    let local = grid((1 << 20) - 4096, 1024, 1024, 8);
    assert_eq!(local.rows().len(), 2);
    let plan = write(local, grid(1 << 30, 1024, 1024, 8)).unwrap();
    assert_eq!(plan.slot_pairs(), [(0, 0), (1, 0)]);
    let (segments, _) = stream(plan, WIDE);
    assert_eq!(segments, [((1 << 20) - 4096, 1 << 30, 4096, 0), (1 << 20, (1 << 30) + 4096, 4096, 4)]);
}

#[test]
fn slot_pairs_are_those_that_bytes_move_between() {
    // The first region ends at 1 MiB.
    let (low, high) = (0, 1 << 20);
    let mixed = flat(&[(low, 8), (high, 8), (low + 64, 8)]);
    assert_eq!(mixed.regions().len(), 2);
    let one = flat(&[(high, 8), (high + 64, 8), (high + 128, 8)]);
    let pairs = |local: PlanSide, remote: PlanSide| write(local, remote).unwrap().slot_pairs();
    assert_eq!(pairs(one.clone().into(), one.clone().into()), [(0, 0)]);
    assert_eq!(pairs(pick(&one, &[2, 0]), pick(&one, &[0, 1])), [(0, 0)]);
    assert_eq!(pairs(pick(&one, &[]), pick(&one, &[])), []);
    assert_eq!(pairs(flat(&[]).into(), pick(&one, &[])), []);
    assert_eq!(pairs(mixed.clone().into(), one.clone().into()), [(0, 0), (1, 0)]);
    assert_eq!(pairs(one.into(), pick(&mixed, &[1, 0, 2])), [(0, 0), (0, 1)]);
    assert_eq!(pairs(pick(&mixed, &[1]), pick(&mixed, &[2])), [(1, 0)]);
}

#[test]
fn whole_rows_merge_without_a_look_at_their_blocks() {
    // Would take years block by block.
    let row = grid(1 << 20, 1, 1, 1 << 40);
    let (segments, cursor) = stream(write(row.clone(), row).unwrap(), WIDE);
    assert_eq!(segments, [(1 << 20, 1 << 20, 1 << 40, 0)]);
    assert_eq!((cursor.blocks(), cursor.segments()), (1 << 40, 1));
}

#[test]
fn ascending_indices_merge_like_rows() {
    let pages = grid(0, 64, 64, 100);
    let plan = write(pick(&pages, &[10, 11, 12, 50, 51, 7]), pick(&pages, &[20, 21, 22, 23, 24, 8]));
    let (segments, _) = stream(plan.unwrap(), WIDE);
    assert_eq!(segments, [(640, 1280, 192, 0), (3200, 1472, 128, 3), (448, 512, 64, 5)]);
}

#[test]
fn a_fault_is_traced_to_its_block() {
    let local = flat(&[(0, 8), (0, 8), (8, 16), (100, 8)]);
    let remote = flat(&[(500, 8), (1000, 8), (1008, 16), (2000, 8)]);
    let plan = Arc::new(write(local, remote).unwrap());
    let mut cursor = PlanCursor::new(plan.clone());
    let mut chunk = Chunk::new();
    let limits = ChunkLimits { max_bytes: 10, ..WIDE };
    let mut traced = Vec::new();
    while cursor.next_chunk(limits, |_, _| Some(RouteId(0)), &mut chunk) {
        for segment in chunk.segments() {
            traced.extend((0..segment.len).map(|at| plan.position_at(segment, at).unwrap()));
            assert_eq!(plan.position_at(segment, 1 << 30), None);
        }
    }
    let expected: Vec<u64> = [(0, 8), (1, 8), (2, 16), (3, 8)]
        .iter()
        .flat_map(|&(position, len)| std::iter::repeat_n(position, len))
        .collect();
    assert_eq!(traced, expected);
}

#[test]
fn bytes_are_counted_by_the_regions_that_they_move_between() {
    let local = flat(&[(0, 8), (16, 8), (2 << 20, 32), (64, 8)]);
    let remote = flat(&[(0, 8), (3 << 20, 8), (4 << 20, 32), (128, 8)]);
    let plan = write(local.clone(), remote.clone()).unwrap();
    assert_eq!(plan.slot_pairs(), [(0, 0), (0, 1), (1, 1)]);
    assert_eq!(plan.bytes_between(|local, remote| (local, remote) == (0, 0)), 16);
    assert_eq!(plan.bytes_between(|_, remote| remote == 1), 40);
    assert_eq!(plan.bytes_between(|_, _| true), plan.bytes());
    let some = write(pick(&local, &[1, 2]), pick(&remote, &[1, 2])).unwrap();
    assert_eq!(some.bytes_between(|local, _| local == 0), 8);
    assert_eq!(some.bytes_between(|_, _| false), 0);
}
