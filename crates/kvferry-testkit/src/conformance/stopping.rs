//! Cancel: `Ok` means that nothing of the transfer touches memory any more, on either side.

use kvferry::{Op, Status, TransferOptions};

use super::{BULK, Fixture, Moment, ROUNDS, Scattered, Watch, cancel, deregister, pair};
use crate::pair::{expect_done, run};
use crate::pattern::Pattern;
use crate::rng::Rng;

/// Rounds on a machine so busy that a cancel comes late each time.
const MOST_ROUNDS: u64 = 10 * ROUNDS;

/// A cancel that leaves no more than so much to arrive has come early.
const EARLY: u64 = BULK / 4 * 3;

/// A transfer that was never posted has nothing to cancel and can be posted afterwards.
pub fn cancel_before(fixture: &dyn Fixture) {
    let pair = pair(fixture, 1 << 20);
    let mut rng = Rng::new(20);
    let blocks = Scattered::new(Op::Write, &mut rng, (4096, 64), 1 << 20);
    blocks.prepare(&pair, Pattern::new(20));
    let transfer = blocks.transfer(&pair, TransferOptions::default());
    transfer.cancel().expect("nothing runs");
    assert_eq!(transfer.status(), Status::Created);
    run(&transfer);
    blocks.verify(&pair.right.pool, Pattern::new(20));
}

/// A transfer that is cancelled while it runs stops; not a byte changes afterwards, and none outside its blocks.
pub fn cancel_during(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let mut rng = Rng::new(21);
    for op in [Op::Write, Op::Read] {
        let mut least = u64::MAX;
        for round in 0..MOST_ROUNDS {
            if round >= ROUNDS && least < EARLY {
                break;
            }
            let blocks = Scattered::bulk(op, &mut rng);
            let pattern = Pattern::new(round);
            blocks.prepare(&pair, pattern);
            let transfer = blocks.transfer(&pair, TransferOptions::default());
            let moment = Moment::new(&mut rng, round);
            transfer.post().expect("a post");
            moment.wait();
            cancel(fixture, &transfer);
            let status = transfer.status();
            assert!(matches!(status, Status::Cancelled | Status::Done), "{status}");
            let destination = blocks.destination(&pair);
            Watch::begin(destination).end();
            let arrived = blocks.arrived(destination, pattern);
            if status == Status::Done {
                assert_eq!(arrived, blocks.bytes());
            }
            blocks.source(&pair).verify(pattern);
            least = least.min(arrived);
        }
        assert!(least < EARLY, "{op:?}: an early cancel stopped nothing: at least {least} bytes arrived");
    }
}

/// A transfer that is done stays done.
pub fn cancel_after(fixture: &dyn Fixture) {
    let pair = pair(fixture, 1 << 20);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, 1 << 20, TransferOptions::default());
    run(&transfer);
    transfer.cancel().expect("nothing runs");
    assert_eq!(transfer.status(), Status::Done);
    transfer.release().expect("nothing runs");
}

/// After a cancel the same transfer can be posted again, and then all of it arrives.
pub fn cancel_then_repost(fixture: &dyn Fixture) {
    let pair = pair(fixture, BULK);
    let mut rng = Rng::new(22);
    for op in [Op::Write, Op::Read] {
        let blocks = Scattered::bulk(op, &mut rng);
        let transfer = blocks.transfer(&pair, TransferOptions::default());
        blocks.prepare(&pair, Pattern::new(0));
        for round in 0..ROUNDS {
            let moment = Moment::new(&mut rng, round);
            transfer.post().expect("a post");
            moment.wait();
            cancel(fixture, &transfer);
        }
        blocks.prepare(&pair, Pattern::new(1));
        run(&transfer);
        blocks.verify(blocks.destination(&pair), Pattern::new(1));
    }
}

/// Dropping a running transfer cancels it. Its memory can be taken back and is quiet then.
pub fn drop_while_running(fixture: &dyn Fixture) {
    let mut rng = Rng::new(23);
    for (round, op) in (0..ROUNDS).zip([Op::Write, Op::Read].into_iter().cycle()) {
        let pair = pair(fixture, BULK);
        let blocks = Scattered::bulk(op, &mut rng);
        blocks.prepare(&pair, Pattern::new(0));
        let transfer = blocks.transfer(&pair, TransferOptions::default());
        let moment = Moment::new(&mut rng, round);
        transfer.post().expect("a post");
        moment.wait();
        let begun = std::time::Instant::now();
        drop(transfer);
        assert!(begun.elapsed().as_millis() < 100, "a drop waited for {:?}", begun.elapsed());
        let other = pair.left.one_block(op, &pair.right, 0, 4096, TransferOptions::default());
        other.post().expect("a post");
        expect_done(&other);
        let destination = if op == Op::Write { pair.right.pool } else { pair.left.pool };
        Watch::begin(&deregister(fixture, destination)).end();
    }
}
