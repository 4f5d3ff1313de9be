//! Blocks that do not fit are refused before anything moves, in words that name them.

use std::time::{Duration, Instant};

use kvferry::{Block, Code, GridRow, Indices, MemoryKind, Op, PrepareError, TransferError, TransferOptions};
use kvferry_testkit::{MemoryClass, Pair, Pattern, PrivateMemory, Side, agent, run};

const KIB: u64 = 1 << 10;
const DRAM: MemoryKind = MemoryKind::Dram;

/// A side with three pools of a megabyte, registered as regions 1, 2 and 3.
fn three_regions(stem: &str) -> [Side; 3] {
    let agent = agent(stem);
    let sides = [0; 3].map(|_| Side::new(agent.clone(), MemoryClass::Private, 1 << 20));
    assert_eq!(sides.each_ref().map(|side| side.pool.ids()[0].0), [1, 2, 3]);
    sides
}

#[track_caller]
fn refused(prepared: Result<kvferry::PreparedList, PrepareError>, code: &str) -> String {
    let error = prepared.expect_err("a list that does not fit");
    assert_eq!(error.code(), code, "{error}");
    assert_eq!(error.remedy(), Code::find(code).expect("a code of the catalogue").remedy);
    error.to_string()
}

#[track_caller]
fn no_transfer(made: Result<kvferry::Transfer, TransferError>, code: &str) -> String {
    let error = made.expect_err("sides that do not go together");
    assert_eq!(error.code(), code, "{error}");
    assert_eq!(error.remedy(), Code::find(code).expect("a code of the catalogue").remedy);
    error.to_string()
}

#[test]
fn a_block_outside_is_named_with_the_nearest_region() {
    let ours = three_regions("left");
    let theirs = three_regions("right");
    ours[0].meet(&theirs[0]);
    let (agent, peer) = (&ours[0].agent, theirs[0].name());

    let list = |side: &Side, offset: u64| -> Vec<Block> {
        let mut blocks: Vec<Block> = (0..12).map(|n| side.pool.block(n * 64 * KIB, 64 * KIB)).collect();
        blocks[7] = Block { addr: side.pool.addr() + offset, len: 64 * KIB, device: 0 };
        blocks
    };
    let past = (1 << 20) - 60 * KIB;
    let (near, far) = (list(&ours[2], past), list(&theirs[2], past));
    let text = refused(agent.prepare_local(DRAM, &near[..]), "prepare.bounds");
    let addr = near[7].addr;
    assert_eq!(text, format!("local index 7 → {addr:#x}, 64 KiB is 4 KiB past region 3 (prepare.bounds)"));
    let text = refused(agent.prepare_remote(peer, DRAM, &far[..]), "prepare.bounds");
    let addr = far[7].addr;
    assert_eq!(text, format!("remote index 7 → {addr:#x}, 64 KiB is 4 KiB past region 3 (prepare.bounds)"));

    let before = [Block { addr: ours[1].pool.addr() - 1, len: 2, device: 0 }];
    let text = refused(agent.prepare_local(DRAM, &before[..]), "prepare.bounds");
    assert!(text.contains("2 B is 1 B before region 2"), "{text}");
    let around = [Block { addr: ours[1].pool.addr() - 512, len: (1 << 20) + 1536, device: 0 }];
    let text = refused(agent.prepare_local(DRAM, &around[..]), "prepare.bounds");
    assert!(text.contains("512 B before and 1 KiB past region 2"), "{text}");
    // Exactly inside is inside.
    let whole = [ours[1].pool.block(0, 1 << 20), ours[1].pool.block((1 << 20) - 1, 1)];
    agent.prepare_local(DRAM, &whole[..]).expect("the whole region, and its last byte");
}

#[test]
fn a_block_of_a_grid_is_named_with_its_row() {
    let [side, ..] = three_regions("left");
    let row = |offset: u64, count| GridRow {
        addr: side.pool.addr() + offset,
        len: 4 * KIB,
        device: 0,
        stride: 8 * KIB,
        count,
    };
    let agent = &side.agent;
    // The second row's last block begins where the region ends.
    let rows = [row(0, 10), row((1 << 20) - 24 * KIB, 4)];
    let text = refused(agent.prepare_local(DRAM, &rows[..]), "prepare.bounds");
    let addr = side.pool.addr() + (1 << 20);
    assert_eq!(
        text,
        format!("local index 13 (row 1) → {addr:#x}, 4 KiB is 4 KiB past region 1 (prepare.bounds)")
    );
    let list = agent.prepare_local(DRAM, &[row(0, 10), row(4 * KIB, 3)][..]).expect("rows that fit");
    assert_eq!((list.len(), list.bytes()), (13, 52 * KIB));
}

#[test]
fn what_is_no_block_is_refused() {
    let [side, ..] = three_regions("left");
    let agent = &side.agent;
    let block = side.pool.block(0, 100);
    let text =
        refused(agent.prepare_local(DRAM, &[block, Block { len: 0, ..block }][..]), "prepare.zero_length");
    assert!(text.contains("index 1 → "), "{text}");
    let wrap = Block { addr: u64::MAX - 5, len: 100, device: 0 };
    let text = refused(agent.prepare_local(DRAM, &[wrap][..]), "prepare.bounds");
    assert!(text.contains("wraps around"), "{text}");
    let row = GridRow { addr: side.pool.addr(), len: 0, device: 0, stride: 0, count: 5 };
    refused(agent.prepare_local(DRAM, &[row][..]), "prepare.zero_length");
    // A row of no blocks is nothing, wherever it would be.
    let row = GridRow { addr: 1, len: 100, device: 7, stride: 0, count: 0 };
    assert!(agent.prepare_local(DRAM, &[row][..]).expect("no blocks").is_empty());
}

#[test]
fn another_kind_or_device_is_told_apart_from_nowhere() {
    let [side, ..] = three_regions("left");
    let agent = &side.agent;
    let block = side.pool.block(0, 100);
    let text = refused(agent.prepare_local(MemoryKind::Vram, &[block][..]), "prepare.kind");
    assert!(text.contains("given as VRAM device 0, but lies in region 1, which is DRAM device 0"), "{text}");
    let text = refused(agent.prepare_local(DRAM, &[Block { device: 2, ..block }][..]), "prepare.kind");
    assert!(text.contains("given as DRAM device 2"), "{text}");
    let nowhere = PrivateMemory::new(4096);
    let elsewhere = Block { addr: nowhere.addr(), len: 1, device: 0 };
    let text = refused(agent.prepare_local(MemoryKind::Vram, &[elsewhere][..]), "prepare.bounds");
    assert!(text.contains("in no region: there is none of VRAM device 0"), "{text}");
}

#[test]
fn a_block_lies_in_one_region() {
    let agent = agent("halves");
    let memory = PrivateMemory::new(8192);
    let desc = |offset, len| kvferry::RegionDesc { addr: memory.addr() + offset, len, kind: DRAM, device: 0 };
    // SAFETY: nobody transfers anything.
    let ids = unsafe { agent.register_raw(&[desc(0, 4096), desc(4096, 4096)]) }.expect("two regions");
    let across = [Block { addr: memory.addr() + 4000, len: 200, device: 0 }];
    let text = refused(agent.prepare_local(DRAM, &across[..]), "prepare.bounds");
    assert!(text.contains("past region 1") || text.contains("before region 2"), "{text}");
    // SAFETY: as above.
    unsafe { agent.register_raw(&[desc(0, 8192)]) }.expect("a region over both");
    agent.prepare_local(DRAM, &across[..]).expect("now there is one");
    agent.deregister(&ids).expect("nobody uses them");
    agent.prepare_local(DRAM, &across[..]).expect("it is still there");
}

#[test]
fn grids_are_counted_not_expanded() {
    let [side, ..] = three_regions("left");
    let agent = &side.agent;
    let begun = Instant::now();
    let many = GridRow { addr: side.pool.addr(), len: 1, device: 0, stride: 0, count: 1 << 62 };
    let list = agent.prepare_local(DRAM, &[many][..]).expect("many times one byte");
    assert_eq!((list.len(), list.bytes()), (1 << 62, 1 << 62));
    let error = agent.prepare_local(DRAM, &[many; 4][..]).expect_err("more than can be counted");
    assert!(error.to_string().contains("too large"), "{error}");
    let far = GridRow { stride: 1 << 40, count: u64::MAX, ..many };
    refused(agent.prepare_local(DRAM, &[far][..]), "prepare.bounds");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn both_sides_have_the_same_count_and_lengths() {
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let near: Vec<Block> = (0..8).map(|n| pair.left.pool.block(n * 64 * KIB, 64 * KIB)).collect();
    let far: Vec<Block> = (0..8).map(|n| pair.right.pool.block(n * 64 * KIB, 64 * KIB)).collect();
    let make = |near: &[Block], far: &[Block]| {
        pair.left.transfer(Op::Write, near, &pair.right, far, TransferOptions::default())
    };
    let text = no_transfer(make(&near, &far[..7]), "transfer.count_mismatch");
    assert_eq!(text, "8 local blocks, but 7 remote blocks (transfer.count_mismatch)");
    no_transfer(make(&[], &far), "transfer.count_mismatch");
    let mut shorter = far;
    shorter[3].len = 60 * KIB;
    let text = no_transfer(make(&near, &shorter), "transfer.length_mismatch");
    assert!(
        text.starts_with("position 3: local block has 64 KiB (65536 bytes), remote block has 60 KiB"),
        "{text}"
    );
    run(&make(&[], &[]).expect("nothing to move"));
}

#[test]
fn indices_are_inside_the_list() {
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let row = |side: &Side| {
        [GridRow { addr: side.pool.addr(), len: 4 * KIB, device: 0, stride: 4 * KIB, count: 256 }]
    };
    let agent = &pair.left.agent;
    let near = agent.prepare_local(DRAM, &row(&pair.left)[..]).expect("a list");
    let far = agent.prepare_remote(pair.right.name(), DRAM, &row(&pair.right)[..]).expect("a list");
    let make = |local: &[u32], remote: &[u32]| {
        agent.transfer(Op::Write, &near, local, &far, remote, TransferOptions::default())
    };
    let text = no_transfer(make(&[1, 2, 256], &[1, 2, 3]), "transfer.index");
    assert_eq!(
        text,
        "local index 256 at position 2 is out of range: the list has 256 blocks (transfer.index)"
    );
    let text = no_transfer(make(&[1, 2, 3], &[u32::MAX, 2, 3]), "transfer.index");
    assert!(text.contains("remote index 4294967295 at position 0"), "{text}");
    no_transfer(make(&[1, 2], &[1]), "transfer.count_mismatch");
    let few = agent.transfer(Op::Write, &near, Indices::All, &far, &[1_u32, 2], TransferOptions::default());
    no_transfer(few, "transfer.count_mismatch");
    run(&make(&[255, 0], &[0, 255]).expect("the first and the last"));
}

#[test]
fn what_is_written_does_not_overlap() {
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let blocks = |side: &Side, offsets: [u64; 3]| offsets.map(|offset| side.pool.block(offset, 4 * KIB));
    let make = |op, near: [u64; 3], far: [u64; 3]| {
        let (near, far) = (blocks(&pair.left, near), blocks(&pair.right, far));
        pair.left.transfer(op, &near, &pair.right, &far, TransferOptions::default())
    };
    let (apart, over) = ([0, 8192, 16384], [40960, 0, 44000]);
    let text = no_transfer(make(Op::Write, apart, over), "transfer.overlap");
    assert_eq!(
        text,
        "remote blocks at positions 0 and 2 overlap, and both would be written (transfer.overlap)"
    );
    let text = no_transfer(make(Op::Read, over, apart), "transfer.overlap");
    assert!(text.starts_with("local blocks at positions 0 and 2 overlap"), "{text}");
    // One source may go to several places.
    pair.left.pool.fill(Pattern::new(1));
    run(&make(Op::Write, over, apart).expect("sources overlap"));
    for (from, to) in over.into_iter().zip(apart) {
        assert_eq!(pair.right.pool.difference_in(Pattern::new(1), from, to, 4 * KIB), None);
    }
    // Touching is not overlapping.
    run(&make(Op::Write, apart, [0, 4096, 8192]).expect("neighbours"));

    // A grid whose stride is below its block length overlaps itself; as a source it may.
    let rows =
        |side: &Side| [GridRow { addr: side.pool.addr(), len: 4 * KIB, device: 0, stride: 100, count: 3 }];
    let agent = &pair.left.agent;
    let near = agent.prepare_local(DRAM, &rows(&pair.left)[..]).expect("a list");
    let far = agent.prepare_remote(pair.right.name(), DRAM, &rows(&pair.right)[..]).expect("a list");
    let grid = agent.transfer(Op::Write, &near, Indices::All, &far, Indices::All, TransferOptions::default());
    no_transfer(grid, "transfer.overlap");
    // One index twice is an overlap as well.
    let rows = |side: &Side| {
        [GridRow { addr: side.pool.addr(), len: 4 * KIB, device: 0, stride: 4 * KIB, count: 8 }]
    };
    let near = agent.prepare_local(DRAM, &rows(&pair.left)[..]).expect("a list");
    let far = agent.prepare_remote(pair.right.name(), DRAM, &rows(&pair.right)[..]).expect("a list");
    let twice =
        agent.transfer(Op::Write, &near, &[0_u32, 1, 2], &far, &[5_u32, 6, 5], TransferOptions::default());
    let text = no_transfer(twice, "transfer.overlap");
    assert!(text.contains("positions 0 and 2"), "{text}");
}

#[test]
fn a_transfer_to_itself_may_touch_its_own_source_only_as_a_whole() {
    // Source and destination of a transfer within one agent may overlap each other: what arrives then is not defined,
    // but nothing outside the destination changes.
    let side = Side::new(agent("alone"), MemoryClass::Private, 64 * KIB);
    side.pool.fill(Pattern::new(2));
    let (from, to) = ([side.pool.block(0, 8 * KIB)], [side.pool.block(4 * KIB, 8 * KIB)]);
    run(&side.transfer(Op::Write, &from, &side, &to, TransferOptions::default()).expect("a transfer"));
    assert_eq!(side.pool.difference_in(Pattern::new(2), 0, 0, 4 * KIB), None);
    assert_eq!(side.pool.difference_in(Pattern::new(2), 12 * KIB, 12 * KIB, 52 * KIB), None);
}
