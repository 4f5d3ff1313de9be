//! Plans applied chunk by chunk to arrays of bytes must do what a copy block by block does.

use std::sync::Arc;

use kvferry_proto::{
    Block, BlockList, Blocks, Chunk, ChunkLimits, GridRow, MemoryKind, Op, Plan, PlanCursor, PlanError,
    PlanSide, RangeMap, RegionDesc, RegionId, RouteId, Segment, Selection,
};
use proptest::prelude::*;

/// Addresses with bit 63 set, like a kernel's.
const BASE: u64 = 0xffff_8000_0000_0000;
const SPACE: u64 = 3000;
const DEVICES: u32 = 2;

/// Bytes of each device.
type Memory = Vec<Vec<u8>>;

/// One side as drawn: regions, and rows within them.
#[derive(Debug, Clone)]
struct Side {
    regions: Vec<RegionDesc>,
    rows: Vec<GridRow>,
    flat: bool,
    /// Raw numbers to make indices from; none means the whole list.
    picks: Option<Vec<u32>>,
}

impl Side {
    fn expanded(&self) -> Vec<Block> {
        let blocks = self.rows.iter().flat_map(|row| {
            (0..row.count).map(|n| Block {
                addr: row.addr + n * row.stride,
                len: row.len,
                device: row.device,
            })
        });
        blocks.collect()
    }

    fn list(&self) -> Arc<BlockList> {
        let ids = (0..).map(|n: u64| RegionId(n * 7 % 11));
        let map = RangeMap::new(ids.zip(self.regions.iter().copied()));
        let flat = self.expanded();
        let blocks = if self.flat { Blocks::Flat(&flat) } else { Blocks::Grid(&self.rows) };
        Arc::new(BlockList::build(blocks, MemoryKind::Dram, &map).unwrap())
    }
}

/// Both sides. Their blocks are of the same one length, or of the same two.
fn sides() -> impl Strategy<Value = [Side; 2]> {
    let lens = prop_oneof![
        4 => (1_u64..9).prop_map(|len| [len, len]),
        1 => [1_u64..9, 1_u64..9],
    ];
    lens.prop_flat_map(|lens| [side(lens), side(lens)])
}

fn side(lens: [u64; 2]) -> impl Strategy<Value = Side> {
    let regions = prop::collection::vec((0..DEVICES, 0..SPACE - 300, 300..SPACE), 1..6);
    let region = any::<prop::sample::Index>();
    let rows = prop::collection::vec((region, 0..SPACE, 0_u64..9, 1_u64..20), 1..9);
    // Runs of ascending indices.
    let picks = prop::collection::vec((any::<u32>(), 1_u32..12), 0..12).prop_map(|runs| {
        runs.into_iter().flat_map(|(start, count)| (0..count).map(move |n| (start >> 1) + n)).collect()
    });
    let picks = prop::option::weighted(0.6, picks);
    (regions, rows, any::<bool>(), picks).prop_map(move |(regions, rows, flat, picks)| {
        let regions: Vec<_> = regions
            .into_iter()
            .map(|(device, start, len)| RegionDesc {
                addr: BASE + start,
                len: len.min(SPACE - start),
                kind: MemoryKind::Dram,
                device,
            })
            .collect();
        let rows = rows
            .into_iter()
            .map(|(region, start, gap, count)| {
                let region = region.get(&regions);
                let len = lens[start as usize % 2];
                // Mostly apart or touching; a few overlap.
                let stride = if gap == 0 { len - 1 } else { len + gap.saturating_sub(4) };
                let start = start % (region.len - len);
                let most = match (region.len - len - start).checked_div(stride) {
                    Some(room) => room + 1,
                    None => count,
                };
                GridRow {
                    addr: region.addr + start,
                    len,
                    device: region.device,
                    stride,
                    count: count.min(most),
                }
            })
            .collect();
        Side { regions, rows, flat, picks }
    })
}

fn shared(a: &Block, b: &Block) -> bool {
    a.device == b.device && a.addr.max(b.addr) < (a.addr + a.len).min(b.addr + b.len)
}

fn some_overlap(blocks: &[Block]) -> bool {
    (0..blocks.len()).any(|n| blocks[..n].iter().any(|b| shared(b, &blocks[n])))
}

/// The indices of both sides, made to fit each other as far as `tidy` asks for it.
fn choose(op: Op, tidy: bool, local: &Side, remote: &Side) -> [Option<Vec<u32>>; 2] {
    let (locals, remotes) = (local.expanded(), remote.expanded());
    if local.picks.is_none() && remote.picks.is_none() && locals.len() == remotes.len() {
        return [None, None];
    }
    let fold = |side: &Side, blocks: &[Block]| -> Vec<u32> {
        let count = blocks.len() as u32;
        match &side.picks {
            Some(picks) => picks.iter().map(|pick| pick % count).collect(),
            None => (0..count).collect(),
        }
    };
    let mut chosen: [Vec<u32>; 2] = [vec![], vec![]];
    let mut written: Vec<Block> = Vec::new();
    for (l, r) in fold(local, &locals).into_iter().zip(fold(remote, &remotes)) {
        let (from, to) = (locals[l as usize], remotes[r as usize]);
        let target = if op == Op::Read { from } else { to };
        if tidy && (from.len != to.len || written.iter().any(|other| shared(other, &target))) {
            continue;
        }
        written.push(target);
        chosen[0].push(l);
        chosen[1].push(r);
    }
    chosen.map(Some)
}

fn picked(blocks: Vec<Block>, indices: &Option<Vec<u32>>) -> Vec<Block> {
    match indices {
        Some(indices) => indices.iter().map(|&n| blocks[n as usize]).collect(),
        None => blocks,
    }
}

fn memory(seed: u32) -> Memory {
    (0..DEVICES)
        .map(|device| {
            (0..SPACE as u32)
                .map(|at| (at.wrapping_add(seed + 977 * device).wrapping_mul(0x9e37_79b1) >> 24) as u8)
                .collect()
        })
        .collect()
}

fn range(addr: u64, len: u64) -> std::ops::Range<usize> {
    let start = (addr - BASE) as usize;
    start..start + len as usize
}

/// What is done to the side that is written: its bytes, and how often each was written.
struct Target {
    bytes: Memory,
    writes: Vec<Vec<u32>>,
}

impl Target {
    fn new() -> Self {
        Self { bytes: memory(1), writes: vec![vec![0; SPACE as usize]; DEVICES as usize] }
    }

    fn copy(&mut self, source: &Memory, from: (u32, u64), to: (u32, u64), len: u64) {
        let bytes = &source[from.0 as usize][range(from.1, len)];
        self.bytes[to.0 as usize][range(to.1, len)].copy_from_slice(bytes);
        for count in &mut self.writes[to.0 as usize][range(to.1, len)] {
            *count += 1;
        }
    }
}

/// Applies all chunks whose route `route` gives to `target`; returns the segments.
fn apply(
    cursor: &mut PlanCursor,
    limits: ChunkLimits,
    route: impl Fn(u32, u32) -> Option<RouteId>,
    target: &mut Target,
) -> Vec<Segment> {
    let source = memory(2);
    let plan = cursor.plan().clone();
    let (locals, remotes) = (plan.local().list().regions(), plan.remote().list().regions());
    let mut chunk = Chunk::new();
    let mut segments = Vec::new();
    while cursor.next_chunk(limits, &route, &mut chunk) {
        assert!(chunk.segments().len() <= limits.max_vectors.max(1));
        assert!(chunk.bytes() <= limits.max_bytes.max(1));
        for segment in chunk.segments() {
            let slots = (segment.local_slot, segment.remote_slot);
            assert_eq!(route(slots.0, slots.1), Some(chunk.route()));
            let (local, remote) = (locals[slots.0 as usize].desc, remotes[slots.1 as usize].desc);
            for (desc, addr) in [(local, segment.local_addr), (remote, segment.remote_addr)] {
                assert!(desc.addr <= addr && addr + segment.len <= desc.addr + desc.len);
            }
            let local = (local.device, segment.local_addr);
            let remote = (remote.device, segment.remote_addr);
            match plan.op() {
                Op::Read => target.copy(&source, remote, local, segment.len),
                Op::Write => target.copy(&source, local, remote, segment.len),
            }
            segments.push(*segment);
        }
    }
    segments
}

fn sorted(mut segments: Vec<Segment>) -> Vec<(u64, u64, u64)> {
    segments.sort_by_key(|s| s.first_index);
    segments.iter().map(|s| (s.first_index, s.local_addr, s.len)).collect()
}

const WIDE: ChunkLimits = ChunkLimits { max_vectors: usize::MAX, max_bytes: u64::MAX };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn chunks_do_what_a_naive_copy_does(
        [local, remote] in sides(),
        write in any::<bool>(),
        tidy in prop::bool::weighted(0.8),
        max_vectors in 0_usize..6,
        max_bytes in 0_u64..50,
        salt in any::<u32>(),
    ) {
        let op = if write { Op::Write } else { Op::Read };
        let [local_picks, remote_picks] = choose(op, tidy, &local, &remote);
        let locals = picked(local.expanded(), &local_picks);
        let remotes = picked(remote.expanded(), &remote_picks);
        let side = |list: Arc<BlockList>, picks: &Option<Vec<u32>>| match picks {
            Some(picks) => PlanSide::new(list, Selection::List(picks.as_slice().into())),
            None => list.into(),
        };
        let build = |merge| Plan::build(
            op,
            side(local.list(), &local_picks),
            side(remote.list(), &remote_picks),
            merge,
        );
        let written = if write { &remotes } else { &locals };
        let differing = (0..locals.len()).find(|&n| locals[n].len != remotes[n].len);
        let plan = match build(true) {
            Ok(plan) => plan,
            Err(PlanError::Length { position, local, remote }) => {
                prop_assert_eq!(Some(position as usize), differing);
                let n = position as usize;
                prop_assert_eq!((local, remote), (locals[n].len, remotes[n].len));
                return Ok(());
            }
            Err(PlanError::Overlap { first, second, .. }) => {
                prop_assert!(differing.is_none() && first < second);
                prop_assert!(shared(&written[first as usize], &written[second as usize]));
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        prop_assert!(differing.is_none() && !some_overlap(written));
        prop_assert_eq!(plan.blocks(), locals.len() as u64);
        prop_assert_eq!(plan.bytes(), locals.iter().map(|b| b.len).sum::<u64>());

        let mut naive = Target::new();
        let source = memory(2);
        for (l, r) in locals.iter().zip(&remotes) {
            let (l, r, len) = ((l.device, l.addr), (r.device, r.addr), l.len);
            if write { naive.copy(&source, l, r, len) } else { naive.copy(&source, r, l, len) }
        }

        // In one go.
        let any = |_, _| Some(RouteId(0));
        let mut target = Target::new();
        let mut cursor = PlanCursor::new(Arc::new(plan));
        let whole = apply(&mut cursor, WIDE, any, &mut target);
        prop_assert_eq!(&target.bytes, &naive.bytes);
        prop_assert_eq!(&target.writes, &naive.writes);
        prop_assert_eq!(cursor.blocks(), locals.len() as u64);
        prop_assert_eq!(cursor.segments(), whole.len() as u64);
        prop_assert!(whole.windows(2).all(|pair| {
            let [a, b] = pair else { return false };
            (a.local_slot, a.remote_slot) != (b.local_slot, b.remote_slot)
                || a.local_addr + a.len != b.local_addr
                || a.remote_addr + a.len != b.remote_addr
        }), "neighbours that touch were not merged");

        // In two parts of several routes, in small chunks: each byte once.
        let number = |l: u32, r: u32| (l.wrapping_mul(31) ^ r.wrapping_mul(17) ^ salt) % 4;
        let part = |which: bool| move |l, r| {
            Some(number(l, r)).filter(|&n| (n < 2) == which).map(|n| RouteId(n as u8))
        };
        let mut target = Target::new();
        let limits = ChunkLimits { max_vectors, max_bytes };
        let mut counts = (0, 0);
        let mut parts = Vec::new();
        for which in [false, true] {
            cursor.reset();
            apply(&mut cursor, limits, part(which), &mut target);
            counts = (counts.0 + cursor.blocks(), counts.1 + cursor.segments());
            cursor.reset();
            parts.extend(apply(&mut cursor, WIDE, part(which), &mut Target::new()));
        }
        prop_assert_eq!(&target.bytes, &naive.bytes);
        prop_assert_eq!(&target.writes, &naive.writes);
        prop_assert_eq!(counts, (locals.len() as u64, whole.len() as u64));
        prop_assert_eq!(sorted(parts), sorted(whole));

        // Without merging.
        let mut target = Target::new();
        let mut cursor = PlanCursor::new(Arc::new(build(false).unwrap()));
        let segments = apply(&mut cursor, WIDE, any, &mut target);
        prop_assert_eq!(&target.bytes, &naive.bytes);
        prop_assert_eq!(segments.len(), locals.len());
        for (n, segment) in segments.iter().enumerate() {
            prop_assert_eq!(cursor.plan().position_at(segment, segment.len - 1), Some(n as u64));
        }
    }
}
