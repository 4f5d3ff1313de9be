//! Much at once: both ways, many transfers, many peers; nobody stands still, and nobody takes it all.

use std::time::{Duration, Instant};

use kvferry::{Op, Settings, TransferOptions};
use kvferry_testkit::{
    MemoryClass, PATIENCE, Pair, Pattern, Side,
    conformance::Fixture,
    expect_done,
    harness::{Memory, State, Times, Worker, link},
};

use crate::{LOOPBACK, worker};

const BYTES: u64 = 64 << 20;
const BLOCK: u64 = 64 << 10;

/// Longer than bare notifications may take beside bulk data.
const PROMPT: Duration = Duration::from_millis(20);

fn pair(bytes: u64) -> Pair {
    let side = |stem| Side::new(LOOPBACK.agent(stem, Settings::default()), MemoryClass::Private, bytes);
    let pair = Pair { left: side("left"), right: side("right") };
    pair.meet();
    pair
}

#[test]
fn two_bulk_writers_to_each_other_both_come_through() {
    let (a, b) = (worker("a"), worker("b"));
    let mut ends = Vec::new();
    link(&a, &b);
    link(&b, &a);
    let sides = [(&a, &b, 1), (&b, &a, 2)];
    for (from, to, seed) in sides {
        let near = from.registered(Memory::Private, 2 * BYTES).buffer;
        let far = to.registered(Memory::Private, 2 * BYTES).buffer;
        from.fill(near, seed);
        to.poison(far);
        ends.push((near, far));
    }
    link(&a, &b);
    link(&b, &a);
    let transfers: Vec<u64> = sides
        .iter()
        .zip(&ends)
        .map(|((from, to, _), (near, far))| {
            from.transfer(&from.write(*near, to, *far).in_blocks_of(BLOCK)).unwrap()
        })
        .collect();
    for round in 0..3 {
        for ((from, to, _), (transfer, (_, far))) in sides.iter().zip(transfers.iter().zip(&ends)) {
            to.poison(*far);
            from.post(*transfer).unwrap();
        }
        for ((from, ..), transfer) in sides.iter().zip(&transfers) {
            assert_eq!(from.wait(*transfer, 20_000), Ok(State::Done), "round {round}");
        }
        for ((_, to, seed), (_, far)) in sides.iter().zip(&ends) {
            to.expect_filled(*far, *seed);
        }
    }
}

#[test]
fn sixty_four_transfers_in_flight_all_come_through() {
    let pair = pair(BYTES);
    let part = BYTES / 64;
    for (op, seed) in [(Op::Write, 3), (Op::Read, 4)] {
        let (from, to) = if op == Op::Write { (&pair.left, &pair.right) } else { (&pair.right, &pair.left) };
        from.pool.fill(Pattern::new(seed));
        to.pool.fill(Pattern::POISON);
        let transfers: Vec<_> = (0..64)
            .map(|i| pair.left.one_block(op, &pair.right, i * part, part, TransferOptions::default()))
            .collect();
        transfers.iter().for_each(|t| t.post().expect("a post"));
        transfers.iter().for_each(expect_done);
        to.pool.verify(Pattern::new(seed));
    }
}

#[test]
fn a_small_transfer_does_not_wait_for_a_large_one() {
    let pair = pair(4 * BYTES);
    let (small, mut shares) = (1 << 20, Vec::new());
    for op in [Op::Write, Op::Read] {
        let large = pair.left.one_block(op, &pair.right, 0, 4 * BYTES - small, TransferOptions::default());
        let little =
            pair.left.one_block(op, &pair.right, 4 * BYTES - small, small, TransferOptions::default());
        for _ in 0..3 {
            let begun = Instant::now();
            large.post().expect("a post");
            little.post().expect("a post");
            expect_done(&little);
            let first = begun.elapsed();
            expect_done(&large);
            shares.push(first.as_secs_f64() / begun.elapsed().as_secs_f64());
        }
    }
    shares.sort_by(f64::total_cmp);
    println!("the small one took {:.2} of the large one's time (median)", shares[shares.len() / 2]);
    assert!(shares[shares.len() / 2] < 0.5, "{shares:?}");
}

#[test]
fn equal_transfers_get_equal_shares() {
    let pair = pair(2 * BYTES);
    let mut shares = Vec::new();
    for op in [Op::Write, Op::Read] {
        let halves = [0, BYTES]
            .map(|offset| pair.left.one_block(op, &pair.right, offset, BYTES, TransferOptions::default()));
        for _ in 0..3 {
            halves.iter().for_each(|t| t.post().expect("a post"));
            halves.iter().for_each(expect_done);
            let [first, second] = halves.each_ref().map(|t| {
                let t = t.telemetry();
                (t.queue + t.copy).as_secs_f64()
            });
            shares.push(first.min(second) / first.max(second));
        }
    }
    shares.sort_by(f64::total_cmp);
    println!("the quicker of two took {:.2} of the other's time (median)", shares[shares.len() / 2]);
    // One after the other would be a half.
    assert!(shares[shares.len() / 2] > 0.7, "{shares:?}");
}

#[test]
fn several_peers_are_served_alike() {
    let a = worker("a");
    let peers: Vec<Worker> = (0..4).map(|i| worker(&format!("peer-{i}"))).collect();
    let near = a.registered(Memory::Private, BYTES).buffer;
    a.fill(near, 5);
    let fars: Vec<_> = peers.iter().map(|peer| peer.registered(Memory::Private, BYTES).buffer).collect();
    let mut transfers = Vec::new();
    for (peer, far) in peers.iter().zip(&fars) {
        link(&a, peer);
        peer.poison(*far);
        transfers.push(a.transfer(&a.write(near, peer, *far).in_blocks_of(BLOCK)).unwrap());
    }
    transfers.iter().for_each(|t| a.post(*t).unwrap());
    for t in &transfers {
        assert_eq!(a.wait(*t, 20_000), Ok(State::Done));
    }
    for (peer, far) in peers.iter().zip(&fars) {
        peer.expect_filled(*far, 5);
    }
    let mut took: Vec<u64> = transfers
        .iter()
        .map(|t| {
            let measured = a.measured(*t);
            measured.queue_ns + measured.copy_ns
        })
        .collect();
    took.sort_unstable();
    println!("64 MiB to each of 4 peers took {took:?} ns");
    // One after the other, the first would take a quarter of the last.
    assert!(took[0] * 2 > took[3], "{took:?}");
}

#[test]
fn sixteen_peers_that_all_write_to_one() {
    let target = Side::new(LOOPBACK.agent("target", Settings::default()), MemoryClass::Private, BYTES);
    let part = BYTES / 16;
    let writers: Vec<Side> = (0..16)
        .map(|i| {
            Side::new(
                LOOPBACK.agent(&format!("writer-{i}"), Settings::default()),
                MemoryClass::Private,
                BYTES,
            )
        })
        .collect();
    target.pool.fill(Pattern::POISON);
    let transfers: Vec<_> = (0..)
        .zip(&writers)
        .map(|(i, writer)| {
            writer.pool.fill(Pattern::new(6));
            writer.meet(&target);
            let options = TransferOptions::default().notify("written");
            let writer = writer.one_block(Op::Write, &target, i * part, part, options);
            writer.post().expect("a post");
            writer
        })
        .collect();
    transfers.iter().for_each(expect_done);
    target.pool.verify(Pattern::new(6));
    assert_eq!(target.agent.notifications().len(), 16);
}

#[test]
fn bare_notifications_overtake_bulk_data() {
    let pair = pair(4 * BYTES);
    let bulk = pair.left.one_block(Op::Write, &pair.right, 0, 4 * BYTES, TransferOptions::default());
    let mut times = Times::default();
    for round in 0..3 {
        bulk.post().expect("a post");
        while !bulk.status().is_final() {
            let begun = Instant::now();
            pair.left.agent.notify(pair.right.name(), b"bare").expect("room");
            let mut came = pair.right.agent.notifications();
            while came.is_empty() {
                assert!(begun.elapsed() < PATIENCE, "round {round}: a notification never came");
                std::thread::sleep(Duration::from_micros(100));
                came = pair.right.agent.notifications();
            }
            times.push(begun.elapsed());
            std::thread::sleep(Duration::from_micros(500));
        }
        expect_done(&bulk);
    }
    times.print("a bare notification beside 256 MiB");
    assert!(times.count() >= 10, "only {} beside the data", times.count());
    assert!(times.quantile(0.99) < PROMPT, "p99 {:?}", times.quantile(0.99));
}
