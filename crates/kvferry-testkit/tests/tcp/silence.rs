//! A peer that is stopped: on a wire, silence counts as death, and what it still holds must not land later.

use std::time::Duration;

use kvferry_proto::MAX_STREAM_PAYLOAD;
use kvferry_testkit::harness::{
    Buffer, Chance, Launch, Memory, Request, State, Worker, link, now_ns, rounds, sleep_until,
};

use crate::{TORN, launch};

const BYTES: u64 = 64 << 20;
const BLOCK: u64 = 64 << 10;

/// For how long an end that the target told before it was stopped may be on its way to the initiator.
const ON_ITS_WAY_MS: u64 = 50;

fn hasty(name: &str) -> Launch {
    launch(name).env("KVFERRY_PEER_TIMEOUT", "200ms").env("KVFERRY_CANCEL_TIMEOUT", "300ms")
}

/// A write, in the midst of which the target is stopped. None if it was over by then.
fn stopped_in_a_write(a: &Worker, b: &Worker, near: Buffer, far: Buffer, window: &mut u64) -> Option<u64> {
    let mut chance = Chance::seeded();
    b.poison(far);
    let transfer = a.transfer(&a.write(near, b, far).in_blocks_of(BLOCK)).unwrap();
    a.post(transfer).unwrap();
    sleep_until(now_ns() + chance.below(*window));
    b.stop();
    match a.wait(transfer, ON_ITS_WAY_MS) {
        Ok(ended) => assert_eq!(ended, State::Done),
        Err(_) => return Some(transfer),
    }
    *window = (*window * 7 / 10).max(500_000);
    b.resume();
    a.release(transfer).unwrap();
    None
}

/// What landed in a target's memory after it had been stopped and went on.
///
/// It looks for word from the initiator before each receive. One that was stopped between that look and the receive, a
/// frame of each of its two threads, ends when it goes on; all else is to be discarded.
#[derive(Default)]
struct Late {
    rounds: u32,
    landed: u32,
}

impl Late {
    const MOST: usize = 2 * MAX_STREAM_PAYLOAD as usize;

    /// Lets a stopped worker go on and panics if more changes in its memory than may.
    #[track_caller]
    fn resume(&mut self, b: &Worker, far: Buffer) {
        let before = b.peek(far);
        b.resume();
        std::thread::sleep(Duration::from_millis(150));
        let after = b.peek(far);
        let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
        assert!(
            changed <= Self::MOST,
            "round {}: {changed} bytes landed after the target went on",
            self.rounds
        );
        self.rounds += 1;
        self.landed += u32::from(changed > 0);
    }

    /// Panics if there were few rounds to judge by, or if it was no rare moment at which something landed.
    #[track_caller]
    fn expect_rare(&self) {
        let Self { rounds: inside, landed } = *self;
        assert!(inside >= rounds(10) / 4, "only {inside} stops inside a transfer");
        assert!(landed * 2 <= inside, "in {landed} of {inside} rounds bytes landed after the target went on");
    }
}

#[test]
fn a_stopped_target_is_lost_by_silence_and_discards_what_was_under_way() {
    let (mut late, mut window) = (Late::default(), 20_000_000);
    let a = hasty("a").start();
    let near = a.registered(Memory::Private, BYTES).buffer;
    a.fill(near, 1);
    for round in 0..rounds(10) {
        // Only the initiator is hasty: the target's own view of silence is not what this is about.
        let name = format!("b-{round}");
        let b = launch(&name).start();
        let far = b.registered(Memory::Private, BYTES).buffer;
        link(&a, &b);
        let Some(transfer) = stopped_in_a_write(&a, &b, near, far, &mut window) else { continue };
        let stopped = now_ns();
        let lost = a.event("lost", &name).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(lost.cause, "it was silent for longer than the peer time-out");
        let after = Duration::from_nanos(lost.stamp.saturating_sub(stopped));
        assert!(after < Duration::from_millis(1_500), "lost after {after:?} only");
        let ended = a.wait(transfer, 5_000).unwrap();
        assert_eq!(ended.code(), "peer.lost", "{ended:?}");
        assert!(!a.expect::<bool>(&Request::Check { peer: name }), "its metadata stays");
        let fenced = a.release(transfer).expect_err("nobody has said that nothing lands any more");
        assert_eq!(fenced.code, "cancel.fenced", "round {round}: {fenced:?}");
        a.expect::<()>(&Request::Discard { transfer });
        late.resume(&b, far);
    }
    late.expect_rare();
}

#[test]
fn a_write_cancelled_while_the_target_is_stopped_is_discarded() {
    let (mut late, mut window) = (Late::default(), 20_000_000);
    let a = launch("a").env("KVFERRY_CANCEL_TIMEOUT", "200ms").start();
    let b = launch("b").start();
    let near = a.registered(Memory::Private, BYTES).buffer;
    let far = b.registered(Memory::Private, BYTES).buffer;
    a.fill(near, 1);
    link(&a, &b);
    for round in 0..rounds(10) {
        let Some(transfer) = stopped_in_a_write(&a, &b, near, far, &mut window) else { continue };
        let fenced = a.cancel(transfer).expect_err("nobody has said that nothing lands any more");
        assert_eq!(fenced.code, "cancel.fenced", "round {round}: {fenced:?}");
        late.resume(&b, far);
        // It has said so by now, the link is as good as before, and so is the transfer.
        a.cancel(transfer).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        assert_eq!(a.status(transfer), State::Cancelled);
        a.post(transfer).unwrap();
        assert_eq!(a.wait(transfer, 10_000), Ok(State::Done));
        b.expect_filled(far, 1);
        a.release(transfer).unwrap();
    }
    late.expect_rare();
}

#[test]
fn a_stopped_initiator_is_lost_by_silence_and_reaches_nothing_afterwards() {
    let (a, b) = (launch("a").start(), hasty("b").start());
    let near = a.registered(Memory::Private, BYTES).buffer;
    let far = b.registered(Memory::Private, BYTES);
    a.fill(near, 1);
    b.poison(far.buffer);
    link(&a, &b);
    // Stopped before the last frame of its handshake is out, it would never have been there.
    b.event("up", "a").unwrap_or_else(|e| panic!("{e:?}"));
    let transfer = a.transfer(&a.write(near, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
    a.post(transfer).unwrap();
    a.stop();
    let lost = b.event("lost", "a").unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(lost.cause, "it was silent for longer than the peer time-out");
    b.deregister(far.region).unwrap_or_else(|e| panic!("{e:?}"));
    let before = b.scan(far.buffer, 1);
    assert!(before.foreign() <= TORN, "{before:?}");
    a.resume();
    // Done, if the stop came late; else its link is gone and, after the reconnect, its region.
    let ended = a.wait(transfer, 5_000).unwrap();
    let codes = ["", "link.lost", "peer.lost", "region.revoked"];
    assert!(codes.contains(&ended.code()), "{ended:?}");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(b.scan(far.buffer, 1), before, "memory changed after it was handed back");
}
