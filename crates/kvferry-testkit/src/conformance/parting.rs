//! Deregister and disconnect: `Ok` means that no write of a peer lands in our memory any more.

use std::time::Instant;

use kvferry::{DisconnectError, MemoryKind, Op, TransferOptions};

use super::{BULK, Fixture, Moment, PROMPT, ROUNDS, Scattered, Watch, cancel, deregister, done_or, pair};
use crate::memory::Pool;
use crate::pair::{PATIENCE, Pair, Side, eventually, run};
use crate::pattern::Pattern;
use crate::rng::Rng;

/// The target takes its memory back under a running transfer.
pub fn deregister_by_the_target(fixture: &dyn Fixture) {
    let mut rng = Rng::new(30);
    for op in [Op::Write, Op::Read] {
        let mut cut_short = 0;
        for round in 0..ROUNDS {
            let pair = pair(fixture, BULK);
            let blocks = Scattered::bulk(op, &mut rng);
            blocks.prepare(&pair, Pattern::new(round));
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            let moment = Moment::new(&mut rng, round);
            transfer.post().expect("a post");
            moment.wait();
            let theirs = deregister(fixture, pair.right.pool);
            let watch = Watch::begin(&theirs);
            let done = done_or(&transfer, "region.revoked");
            cancel(fixture, &transfer);
            Watch::begin(&pair.left.pool).end();
            watch.end();
            let destination: &Pool = if op == Op::Write { &theirs } else { &pair.left.pool };
            let arrived = blocks.arrived(destination, Pattern::new(round));
            assert!(!done || arrived == blocks.bytes());
            cut_short += u64::from(!done);
            // The peer knows: nothing new is prepared for that memory.
            let block = [theirs.block(0, 4096)];
            eventually("the peer forgets the region", || {
                pair.left.agent.prepare_remote(pair.right.agent.name(), MemoryKind::Dram, &block[..]).is_err()
            });
        }
        assert!(cut_short > 0 || fixture.unstoppable(), "{op:?}: no transfer was cut short");
    }
}

/// The initiator takes its memory back under its own running transfer.
pub fn deregister_by_the_initiator(fixture: &dyn Fixture) {
    let mut rng = Rng::new(31);
    for op in [Op::Write, Op::Read] {
        let mut cut_short = 0;
        for round in 0..ROUNDS {
            let pair = pair(fixture, BULK);
            let blocks = Scattered::bulk(op, &mut rng);
            blocks.prepare(&pair, Pattern::new(round));
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            let moment = Moment::new(&mut rng, round);
            transfer.post().expect("a post");
            moment.wait();
            let ours = deregister(fixture, pair.left.pool);
            let watch = Watch::begin(&ours);
            let done = done_or(&transfer, "region.revoked");
            cancel(fixture, &transfer);
            Watch::begin(&pair.right.pool).end();
            watch.end();
            let destination: &Pool = if op == Op::Write { &pair.right.pool } else { &ours };
            let arrived = blocks.arrived(destination, Pattern::new(round));
            assert!(!done || arrived == blocks.bytes());
            cut_short += u64::from(!done);
            let stale = transfer.post();
            assert!(
                stale.is_err() || !done_or(&transfer, "region.revoked"),
                "a post of a deregistered region"
            );
        }
        assert!(cut_short > 0 || fixture.unstoppable(), "{op:?}: no transfer was cut short");
    }
}

/// Transfers that do not touch the deregistered region go on.
pub fn other_regions_live_on(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let mut rng = Rng::new(32);
    let blocks = Scattered::bulk(Op::Write, &mut rng);
    for round in 0..ROUNDS {
        blocks.prepare(&pair, Pattern::new(round));
        let transfer = blocks.transfer(&pair, TransferOptions::default());
        transfer.post().expect("a post");
        for side in [&pair.left, &pair.right] {
            let other = Side::new(side.agent.clone(), fixture.classes().0, 1 << 20);
            deregister(fixture, other.pool);
        }
        crate::pair::expect_done(&transfer);
        blocks.verify(&pair.right.pool, Pattern::new(round));
    }
}

/// The target parts with the initiator under a running transfer; later the two meet again.
pub fn disconnect_by_the_target(fixture: &dyn Fixture) {
    let mut rng = Rng::new(33);
    for op in [Op::Write, Op::Read] {
        let mut cut_short = 0;
        let pair = pair(fixture, BULK);
        for round in 0..ROUNDS {
            let blocks = Scattered::bulk(op, &mut rng);
            blocks.prepare(&pair, Pattern::new(round));
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            let moment = Moment::new(&mut rng, round);
            transfer.post().expect("a post");
            moment.wait();
            disconnect(fixture, &pair.right, pair.left.name());
            let watch = Watch::begin(&pair.right.pool);
            let done = done_or(&transfer, "peer.lost");
            cancel(fixture, &transfer);
            Watch::begin(&pair.left.pool).end();
            watch.end();
            let arrived = blocks.arrived(blocks.destination(&pair), Pattern::new(round));
            assert!(!done || arrived == blocks.bytes());
            cut_short += u64::from(!done);
            meet_again(&pair);
        }
        assert!(cut_short > 0 || fixture.unstoppable(), "{op:?}: no transfer was cut short");
    }
}

/// The initiator parts with the target under its own running transfer; later the two meet again.
pub fn disconnect_by_the_initiator(fixture: &dyn Fixture) {
    let mut rng = Rng::new(34);
    for op in [Op::Write, Op::Read] {
        let mut cut_short = 0;
        let pair = pair(fixture, BULK);
        for round in 0..ROUNDS {
            let blocks = Scattered::bulk(op, &mut rng);
            blocks.prepare(&pair, Pattern::new(round));
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            let moment = Moment::new(&mut rng, round);
            transfer.post().expect("a post");
            moment.wait();
            disconnect(fixture, &pair.left, pair.right.name());
            assert!(!pair.left.agent.check_remote(pair.right.name(), None));
            let done = done_or(&transfer, "peer.lost");
            cancel(fixture, &transfer);
            let watch = Watch::begin(&pair.left.pool);
            Watch::begin(&pair.right.pool).end();
            watch.end();
            let arrived = blocks.arrived(blocks.destination(&pair), Pattern::new(round));
            assert!(!done || arrived == blocks.bytes());
            cut_short += u64::from(!done);
            meet_again(&pair);
        }
        assert!(cut_short > 0 || fixture.unstoppable(), "{op:?}: no transfer was cut short");
    }
}

/// Disconnects until the answer is yes: at once, unless the transport cannot stop what has begun.
#[track_caller]
fn disconnect(fixture: &dyn Fixture, side: &Side, peer: &str) {
    let begun = Instant::now();
    let timeout = if fixture.unstoppable() { std::time::Duration::from_millis(1) } else { PROMPT };
    loop {
        match side.agent.disconnect_within(peer, timeout) {
            Ok(()) => return,
            Err(DisconnectError::Busy { .. }) if fixture.unstoppable() => {}
            Err(other) => panic!("unexpected: {other}"),
        }
        assert!(begun.elapsed() < PATIENCE, "the peer never becomes quiet");
    }
}

/// Loads the metadata anew and moves something, so that nothing of the parting stays behind.
fn meet_again(pair: &Pair) {
    eventually("the metadata of the other is dropped", || {
        !pair.left.agent.check_remote(pair.right.name(), None)
            && !pair.right.agent.check_remote(pair.left.name(), None)
    });
    pair.meet();
    run(&pair.left.one_block(Op::Write, &pair.right, 0, 1 << 20, TransferOptions::default()));
    run(&pair.right.one_block(Op::Read, &pair.left, 0, 1 << 20, TransferOptions::default()));
}
