//! Notifications, reports and numbers.

use std::time::Instant;

use kvferry::{Op, Status, TransferOptions};

use super::{BULK, Fixture, Moment, ROUNDS, Scattered, cancel, deregister, done_or, pair};
use crate::pair::{eventually, expect_done, run};
use crate::pattern::Pattern;
use crate::rng::Rng;

const BLOCK: u64 = 8192;
const COUNT: u64 = 64;

/// One after the other arrives in that order, bare ones among those of transfers, and once each. When a transfer is done,
/// the peer has its notification already.
pub fn notifications_in_order(fixture: &dyn Fixture) {
    let pair = pair(fixture, BLOCK * COUNT);
    let mut sent = Vec::new();
    let mut received = Vec::new();
    for n in 0..COUNT {
        let payload = format!("transfer {n}");
        let options = TransferOptions::default().notify(payload.clone());
        run(&pair.left.one_block(Op::Write, &pair.right, n * BLOCK, BLOCK, options));
        received.extend(pair.right.agent.notifications());
        sent.push(payload);
        assert_eq!(received.last().map(|n| &n.payload[..]), sent.last().map(String::as_bytes));
        let payload = format!("bare {n}");
        pair.left.agent.notify(pair.right.name(), payload.as_bytes()).expect("room");
        sent.push(payload);
    }
    eventually("the last notification", || {
        received.extend(pair.right.agent.notifications());
        received.len() >= sent.len()
    });
    let texts: Vec<_> = received.iter().map(|n| String::from_utf8_lossy(&n.payload).into_owned()).collect();
    assert_eq!(texts, sent);
    let from = (pair.left.name(), pair.left.agent.incarnation());
    assert!(received.iter().all(|n| (n.from.as_str(), n.incarnation) == from));
}

/// Whoever sees the notification sees the data, also with many transfers under way.
pub fn notified_after_the_data(fixture: &dyn Fixture) {
    let pair = pair(fixture, BLOCK * COUNT);
    let pattern = Pattern::new(40);
    pair.left.pool.fill(pattern);
    for _ in 0..4 {
        pair.right.pool.fill(Pattern::POISON);
        let block = |n: u64| {
            let options = TransferOptions::default().notify(n.to_le_bytes());
            pair.left.one_block(Op::Write, &pair.right, n * BLOCK, BLOCK, options)
        };
        let transfers: Vec<_> = (0..COUNT).map(block).collect();
        let mut seen = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| transfers.iter().for_each(|transfer| transfer.post().expect("a post")));
            eventually("all notifications", || {
                for note in pair.right.agent.notifications() {
                    let n = u64::from_le_bytes(note.payload.try_into().expect("a number"));
                    let difference = pair.right.pool.difference_in(pattern, n * BLOCK, n * BLOCK, BLOCK);
                    assert_eq!(difference, None, "block {n} was announced before it was there");
                    seen += 1;
                }
                seen == COUNT
            });
        });
        transfers.iter().for_each(expect_done);
    }
    assert!(pair.right.agent.notifications().is_empty());
}

/// A transfer that is cancelled or fails sends no notification; one that is done does.
pub fn ended_early_tells_nobody(fixture: &dyn Fixture) {
    let mut rng = Rng::new(41);
    let pair = pair(fixture, BULK);
    let blocks = Scattered::bulk(Op::Write, &mut rng);
    let transfer = blocks.transfer(&pair, TransferOptions::default().notify("done"));
    let mut expected = 0;
    for round in 0..ROUNDS {
        let moment = Moment::new(&mut rng, round);
        transfer.post().expect("a post");
        moment.wait();
        cancel(fixture, &transfer);
        // Bytes in place at the time of the cancel: it goes on to done.
        eventually("the end", || transfer.status().is_final());
        expected += usize::from(transfer.status() == Status::Done);
    }
    assert_eq!(notes_until_last(&pair), expected);

    transfer.post().expect("a post");
    let crate::Pair { left, right } = pair;
    deregister(fixture, right.pool);
    let expected = usize::from(done_or(&transfer, "region.revoked"));
    left.agent.notify(right.agent.name(), b"last").expect("room");
    let mut notes = Vec::new();
    eventually("the last notification", || {
        notes.extend(right.agent.notifications());
        notes.last().is_some_and(|n| n.payload == b"last")
    });
    assert_eq!(notes.len() - 1, expected);
}

/// Path, telemetry and statistics agree on how the bytes went.
pub fn path_names_the_transport(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let blocks = Scattered::bulk(Op::Write, &mut Rng::new(42));
    let route = fixture.route();
    let transfer = blocks.transfer(&pair, TransferOptions::default());
    run(&transfer);
    let reports = pair.left.agent.path(pair.right.name()).expect("a peer");
    let shown: Vec<String> = reports.iter().map(ToString::to_string).collect();
    assert!(reports.iter().any(|report| report.route == Some(route)), "{route} is not among {shown:?}");
    assert!(shown.iter().any(|text| text.contains(&route.to_string())), "{shown:?}");
    let telemetry = transfer.telemetry();
    assert_eq!((telemetry.path, telemetry.mechanism), (Some(route.path), Some(route.mechanism)));
    let stats = pair.left.agent.stats();
    let counted = stats.paths.get(&(route.path, route.mechanism)).copied().unwrap_or_default();
    assert_eq!((counted.transfers, counted.bytes), (1, BULK));
    assert!(stats.to_string().contains(route.path.name()), "{stats}");
}

/// Bytes, blocks and times of a transfer add up, for each attempt anew.
pub fn telemetry_adds_up(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let mut rng = Rng::new(43);
    for op in [Op::Write, Op::Read] {
        for (block, count) in [(64, 4), (4096, 256), (64 << 10, 256)] {
            let blocks = Scattered::new(op, &mut rng, (block, count), BULK);
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            assert_eq!(transfer.telemetry().merged, 0);
            for _ in 0..2 {
                let begun = Instant::now();
                run(&transfer);
                let took = begun.elapsed();
                let t = transfer.telemetry();
                assert_eq!((t.bytes, t.blocks), (blocks.bytes(), count as u64));
                assert!(0 < t.merged && t.merged <= t.blocks, "{t:?}");
                assert!(t.queue + t.copy <= took && t.post <= took, "{t:?} of {took:?}");
                assert!(!t.copy.is_zero(), "{t:?}");
            }
        }
    }
}

/// How many notifications the right side has, up to one that is sent now.
fn notes_until_last(pair: &crate::Pair) -> usize {
    pair.left.agent.notify(pair.right.name(), b"last").expect("room");
    let mut notes = Vec::new();
    eventually("the last notification", || {
        notes.extend(pair.right.agent.notifications());
        notes.last().is_some_and(|n| n.payload == b"last")
    });
    notes.len() - 1
}
