//! Bytes arrive where they belong, and nowhere else.

use kvferry::{GridRow, Indices, MemoryKind, Op, PreparedList, TransferOptions};

use super::{BULK, Fixture, Scattered, pair};
use crate::pair::{Pair, Side, expect_done, run};
use crate::pattern::Pattern;
use crate::rng::Rng;

const SMALL: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Blocks of odd sizes, scattered on both sides, go over and come back.
pub fn round_trip(fixture: &dyn Fixture) {
    let pair = pair(fixture, SMALL);
    let mut rng = Rng::new(1);
    for (block, count) in [(BLOCK, 64), (1, 5), (24, 3000), (8200, 100), (SMALL, 1)] {
        for op in [Op::Write, Op::Read] {
            let blocks = Scattered::new(op, &mut rng, (block, count), SMALL);
            let pattern = Pattern::new(rng.bits());
            blocks.prepare(&pair, pattern);
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            run(&transfer);
            blocks.verify(blocks.destination(&pair), pattern);
            blocks.source(&pair).verify(pattern);
        }
    }
}

/// Many megabytes in blocks of a page and in one block.
pub fn large_blocks(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let mut rng = Rng::new(2);
    for op in [Op::Write, Op::Read] {
        for (block, count) in [(64 << 10, 256), (BULK, 1)] {
            let blocks = Scattered::new(op, &mut rng, (block, count), BULK);
            let pattern = Pattern::new(rng.bits());
            blocks.prepare(&pair, pattern);
            run(&blocks.transfer(&pair, TransferOptions::default()));
            blocks.verify(blocks.destination(&pair), pattern);
        }
    }
}

/// Rows of a grid go by rows, and to another grid or a flat list.
pub fn grids(fixture: &dyn Fixture) {
    let pair = pair(fixture, SMALL);
    let (len, rows, columns) = (1000, 4, 50);
    // Locally the blocks of a row stand 2,000 bytes apart, remotely 3,000, and its rows the other way round.
    let local = |row: u64, column: u64| row * 200_000 + column * 2000;
    let remote = |row: u64, column: u64| (rows - 1 - row) * 200_000 + column * 3000;
    let grid = |side: &Side, at: &dyn Fn(u64, u64) -> u64, stride: u64| -> Vec<GridRow> {
        let row =
            |row| GridRow { addr: side.pool.addr() + at(row, 0), len, device: 0, stride, count: columns };
        (0..rows).map(row).collect()
    };
    let (left, right) = (grid(&pair.left, &local, 2000), grid(&pair.right, &remote, 3000));
    let places: Vec<_> =
        (0..rows).flat_map(|r| (0..columns).map(move |c| (local(r, c), remote(r, c)))).collect();
    let flat: Vec<_> = places.iter().map(|(_, far)| pair.right.pool.block(*far, len)).collect();

    let agent = &pair.left.agent;
    let near = agent.prepare_local(MemoryKind::Dram, &left[..]).expect("a list");
    let far = agent.prepare_remote(pair.right.name(), MemoryKind::Dram, &right[..]).expect("a list");
    let far_flat = agent.prepare_remote(pair.right.name(), MemoryKind::Dram, &flat[..]).expect("a list");
    assert_eq!((near.len(), near.bytes()), (rows * columns, rows * columns * len));
    for op in [Op::Write, Op::Read] {
        for far in [&far, &far_flat] {
            let pattern = Pattern::new(3);
            let (source, destination) = match op {
                Op::Write => (&pair.left.pool, &pair.right.pool),
                Op::Read => (&pair.right.pool, &pair.left.pool),
            };
            source.fill(pattern);
            destination.fill(Pattern::POISON);
            let options = TransferOptions::default();
            run(&agent.transfer(op, &near, Indices::All, far, Indices::All, options).expect("a transfer"));
            for &(near, far) in &places {
                let (from, to) = if op == Op::Write { (near, far) } else { (far, near) };
                assert_eq!(destination.difference_in(pattern, from, to, len), None);
                // The gap behind a block stays as it was.
                let gap = to + len;
                assert_eq!(destination.difference_in(Pattern::POISON, gap, gap, 1000), None);
            }
        }
    }
}

/// Blocks of prepared lists are picked by index, in any order; a source block may be picked twice.
pub fn index_arrays(fixture: &dyn Fixture) {
    let pair = pair(fixture, SMALL);
    let slots = SMALL / BLOCK;
    let (near, far) = whole_lists(&pair, slots);
    let mut rng = Rng::new(4);
    for op in [Op::Write, Op::Read] {
        for _ in 0..8 {
            let count = 1 + rng.below(slots) as usize;
            let to: Vec<u32> = rng.distinct(count, slots).into_iter().map(|i| i as u32).collect();
            let from: Vec<u32> = (0..count).map(|_| rng.below(slots) as u32).collect();
            let (local, remote) = if op == Op::Write { (&from, &to) } else { (&to, &from) };
            let places =
                local.iter().zip(remote).map(|(n, f)| (u64::from(*n) * BLOCK, u64::from(*f) * BLOCK));
            let blocks = Scattered { op, block: BLOCK, places: places.collect() };
            let pattern = Pattern::new(rng.bits());
            blocks.prepare(&pair, pattern);
            let agent = &pair.left.agent;
            let transfer = agent.transfer(op, &near, local, &far, remote, TransferOptions::default());
            run(&transfer.expect("a transfer"));
            blocks.verify(blocks.destination(&pair), pattern);
        }
    }
}

/// Neighbours on both sides are copied as one, unless the transfer says otherwise.
pub fn merging(fixture: &dyn Fixture) {
    let pair = pair(fixture, SMALL);
    let (near, far) = whole_lists(&pair, SMALL / BLOCK);
    // Three runs: 0..32 to 100.., 40..72 to 8.., and one block alone; the second touches the first on no side.
    let local: Vec<u32> = (0..32).chain(40..72).chain([90]).collect();
    let remote: Vec<u32> = (100..132).chain(8..40).chain([200]).collect();
    let blocks = local.len() as u64;
    for (options, segments) in
        [(TransferOptions::default(), 3), (TransferOptions::default().without_merging(), blocks)]
    {
        let places = local.iter().zip(&remote).map(|(n, f)| (u64::from(*n) * BLOCK, u64::from(*f) * BLOCK));
        let scattered = Scattered { op: Op::Write, block: BLOCK, places: places.collect() };
        scattered.prepare(&pair, Pattern::new(5));
        let agent = &pair.left.agent;
        let transfer = agent.transfer(Op::Write, &near, &local, &far, &remote, options).expect("a transfer");
        run(&transfer);
        scattered.verify(&pair.right.pool, Pattern::new(5));
        let telemetry = transfer.telemetry();
        assert_eq!((telemetry.blocks, telemetry.merged), (blocks, segments));
    }
}

/// A transfer of nothing is done, again and again, and notifies.
pub fn no_blocks(fixture: &dyn Fixture) {
    let pair = pair(fixture, SMALL);
    let (near, far) = whole_lists(&pair, SMALL / BLOCK);
    pair.right.pool.fill(Pattern::POISON);
    let options = TransferOptions::default().notify("nothing");
    let none: &[u32] = &[];
    let transfer = pair.left.agent.transfer(Op::Write, &near, none, &far, none, options).expect("a transfer");
    for _ in 0..3 {
        run(&transfer);
    }
    let told: Vec<_> = pair.right.agent.notifications().into_iter().map(|n| n.payload).collect();
    assert_eq!(told, [b"nothing"; 3]);
    assert_eq!((transfer.telemetry().blocks, transfer.telemetry().bytes), (0, 0));
    pair.right.pool.verify(Pattern::POISON);
}

/// A finished transfer can be posted again and moves what is there by then.
pub fn repost(fixture: &dyn Fixture) {
    let pair = pair(fixture, SMALL);
    let mut rng = Rng::new(6);
    for op in [Op::Write, Op::Read] {
        let blocks = Scattered::new(op, &mut rng, (BLOCK, 100), SMALL);
        let transfer = blocks.transfer(&pair, TransferOptions::default());
        for round in 0..20 {
            blocks.prepare(&pair, Pattern::new(round));
            run(&transfer);
            blocks.verify(blocks.destination(&pair), Pattern::new(round));
        }
    }
}

/// Many transfers are under way together and do not get in each other's way.
pub fn many_at_once(fixture: &dyn Fixture) {
    let pair = pair(fixture, 4 << 20);
    let mut rng = Rng::new(7);
    for op in [Op::Write, Op::Read] {
        // 64 transfers of 16 blocks each, all blocks apart.
        let all = Scattered::new(op, &mut rng, (BLOCK, 1024), 4 << 20);
        let pattern = Pattern::new(rng.bits());
        all.prepare(&pair, pattern);
        let part = |places: &[(u64, u64)]| {
            let part = Scattered { op, block: BLOCK, places: places.into() };
            part.transfer(&pair, TransferOptions::default())
        };
        let transfers: Vec<_> = all.places.chunks(16).map(part).collect();
        transfers.iter().for_each(|transfer| transfer.post().expect("a post"));
        transfers.iter().for_each(expect_done);
        all.verify(all.destination(&pair), pattern);
    }
}

/// Both agents start transfers to each other at the same time.
pub fn both_directions_at_once(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let half = BULK / 2;
    let (to_right, to_left) = (Pattern::new(8), Pattern::new(9));
    for _ in 0..4 {
        for (side, own, to) in [(&pair.left, to_right, half), (&pair.right, to_left, 0)] {
            side.pool.fill_range(own, half - to, half - to, half);
            side.pool.fill_range(Pattern::POISON, to, to, half);
        }
        let options = TransferOptions::default;
        let there = pair.left.one_block(Op::Write, &pair.right, 0, half, options());
        let back = pair.right.one_block(Op::Write, &pair.left, half, half, options());
        for transfer in [&there, &back] {
            transfer.post().expect("a post");
        }
        for transfer in [&there, &back] {
            expect_done(transfer);
        }
        for side in [&pair.left, &pair.right] {
            assert_eq!(side.pool.difference_in(to_right, 0, 0, half), None);
            assert_eq!(side.pool.difference_in(to_left, half, half, half), None);
        }
    }
}

/// An agent is its own peer, without loading anything.
pub fn to_itself(fixture: &dyn Fixture) {
    let (class, _) = fixture.classes();
    let agent = fixture.agent("alone", kvferry::Settings::default());
    let near = Side::new(agent.clone(), class, SMALL);
    let far = Side::new(agent.clone(), class, SMALL);
    let mut rng = Rng::new(10);
    let pair = Pair { left: near, right: far };
    for op in [Op::Write, Op::Read] {
        let blocks = Scattered::new(op, &mut rng, (BLOCK, 100), SMALL);
        blocks.prepare(&pair, Pattern::new(11));
        run(&blocks.transfer(&pair, TransferOptions::default().notify("to myself")));
        blocks.verify(blocks.destination(&pair), Pattern::new(11));
        let notes = agent.notifications();
        assert_eq!(notes.len(), 1);
        assert_eq!((notes[0].from.as_str(), notes[0].payload.as_slice()), (agent.name(), &b"to myself"[..]));
    }
}

/// Prepared lists of all blocks of both pools.
fn whole_lists(pair: &Pair, slots: u64) -> (PreparedList, PreparedList) {
    let row =
        |side: &Side| GridRow { addr: side.pool.addr(), len: BLOCK, device: 0, stride: BLOCK, count: slots };
    let agent = &pair.left.agent;
    let near = agent.prepare_local(MemoryKind::Dram, &[row(&pair.left)][..]).expect("a list");
    let far = agent.prepare_remote(pair.right.name(), MemoryKind::Dram, &[row(&pair.right)][..]);
    (near, far.expect("a list"))
}
