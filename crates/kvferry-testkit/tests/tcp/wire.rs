//! Connections that break, or stall, between two agents that are both alive.

use std::time::Duration;

use kvferry_testkit::{
    Proxy,
    harness::{
        Buffer, Chance, Memory, PATIENCE, Request, State, Worker, eventually, now_ns, rounds, sleep_until,
    },
};

use crate::{TORN, launch, worker};

const BYTES: u64 = 64 << 20;
const BLOCK: u64 = 64 << 10;

/// An agent that writes to another over a proxy.
struct Rig {
    a: Worker,
    b: Worker,
    proxy: Proxy,
    near: Buffer,
    far: Buffer,
}

impl Rig {
    fn new(a: Worker) -> Self {
        let b = worker("b");
        let near = a.registered(Memory::Private, BYTES).buffer;
        let far = b.registered(Memory::Private, BYTES).buffer;
        a.fill(near, 1);
        let proxy = Proxy::before(&b);
        proxy.introduce(&a, &b);
        Self { a, b, proxy, near, far }
    }

    /// A write that runs, or has just ended.
    fn posted(&self, chance: &mut Chance) -> u64 {
        self.b.poison(self.far);
        let spec = self.a.write(self.near, &self.b, self.far).in_blocks_of(BLOCK);
        let transfer = self.a.transfer(&spec).unwrap_or_else(|e| panic!("{e:?}"));
        self.a.post(transfer).unwrap();
        sleep_until(now_ns() + chance.below(20_000_000));
        transfer
    }

    /// A transfer works, without any metadata being loaded again.
    #[track_caller]
    fn expect_as_before(&self) {
        self.a.connect("b").unwrap_or_else(|e| panic!("{e:?}"));
        self.b.poison(self.far);
        let transfer = self.a.run(&self.a.write(self.near, &self.b, self.far).in_blocks_of(BLOCK));
        self.b.expect_filled(self.far, 1);
        self.a.release(transfer).unwrap();
    }
}

#[test]
fn a_reset_of_an_idle_link_is_mended_and_the_metadata_stays() {
    reset_idle(Proxy::reset);
}

#[test]
fn an_orderly_end_of_an_idle_link_is_mended_and_the_metadata_stays() {
    reset_idle(Proxy::finish);
}

#[test]
fn a_reset_of_one_idle_data_stream_is_mended_and_the_metadata_stays() {
    reset_idle(Proxy::reset_one);
}

fn reset_idle(reset: fn(&Proxy)) {
    let rig = Rig::new(worker("a"));
    rig.expect_as_before();
    assert_eq!(rig.proxy.routes(), 3, "one control connection and two data streams");
    for _ in 0..rounds(5) {
        reset(&rig.proxy);
        // The loss takes a moment to be seen.
        std::thread::sleep(Duration::from_millis(30));
        assert!(rig.a.expect::<bool>(&Request::Check { peer: "b".into() }), "its metadata went");
        rig.expect_as_before();
    }
    // Old epochs leave nothing behind.
    let settled = || {
        let (here, there) = (rig.a.stats(), rig.b.stats());
        (here.links_out, here.lingering, there.links_in, there.lingering) == (1, 0, 1, 0)
    };
    assert!(eventually(PATIENCE, settled), "{:?} {:?}", rig.a.stats(), rig.b.stats());
}

#[test]
fn a_reset_in_a_write_fails_it_with_the_link_and_the_next_one_works() {
    reset_in_a_write(Proxy::reset);
}

#[test]
fn a_reset_of_one_stream_in_a_write_fails_it_with_the_link_and_the_next_one_works() {
    reset_in_a_write(Proxy::reset_one);
}

fn reset_in_a_write(reset: fn(&Proxy)) {
    let rig = Rig::new(worker("a"));
    let mut chance = Chance::seeded();
    let mut inside = 0;
    for round in 0..rounds(10) {
        let transfer = rig.posted(&mut chance);
        reset(&rig.proxy);
        let ended = rig.a.wait(transfer, 5_000).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        if ended != State::Done {
            inside += 1;
            assert_eq!(ended.code(), "link.lost", "round {round}: {ended:?}");
            assert!(ended_text(&ended).contains("127.0.0.1:"), "no address in {ended:?}");
        }
        rig.a.release(transfer).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        let before = rig.b.scan(rig.far, 1);
        assert!(before.foreign() <= TORN, "round {round}: {before:?}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rig.b.scan(rig.far, 1), before, "round {round}: memory changed after a release");
        assert!(rig.a.expect::<bool>(&Request::Check { peer: "b".into() }), "its metadata went");
        rig.expect_as_before();
    }
    assert!(inside * 4 >= rounds(10), "only {inside} breaks inside a transfer");
}

fn ended_text(state: &State) -> &str {
    if let State::Failed(failure) = state { &failure.text } else { "" }
}

#[test]
fn bytes_that_the_network_still_holds_do_not_land_once_a_release_was_ok() {
    let rig = Rig::new(launch("a").env("KVFERRY_CANCEL_TIMEOUT", "200ms").start());
    let mut chance = Chance::seeded();
    let (mut inside, mut fenced) = (0, 0);
    for round in 0..rounds(10) {
        let transfer = rig.posted(&mut chance);
        rig.proxy.hold(true);
        rig.proxy.shut(true);
        // A moment, in which the proxy takes in what it then holds.
        std::thread::sleep(Duration::from_millis(20));
        // The initiator's end breaks; the target's does not, and the rest is on its way there.
        rig.proxy.finish_near();
        let ended = rig.a.wait(transfer, 5_000).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        inside += u32::from(ended != State::Done);
        let released = rig.a.release(transfer);
        let before = rig.b.peek(rig.far);
        // What is said on one connection may come later than what was sent on another.
        rig.proxy.hold_control(true);
        rig.proxy.hold(false);
        std::thread::sleep(Duration::from_millis(50));
        let after = rig.b.peek(rig.far);
        match released {
            Ok(()) => assert!(before == after, "round {round}: bytes landed after a release that was Ok"),
            Err(failure) => {
                fenced += 1;
                assert_eq!(failure.code, "cancel.fenced", "round {round}: {failure:?}");
            }
        }
        rig.proxy.reset();
        rig.proxy.shut(false);
        rig.expect_as_before();
        if rig.a.status_or_gone(transfer) {
            rig.a.release(transfer).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        }
    }
    println!("{inside} inside a transfer, {fenced} fenced");
    assert!(inside * 4 >= rounds(10), "only {inside} breaks inside a transfer");
}

trait Still {
    fn status_or_gone(&self, transfer: u64) -> bool;
}

impl Still for Worker {
    /// Whether there still is such a transfer.
    fn status_or_gone(&self, transfer: u64) -> bool {
        self.ask::<State>(&Request::Status { transfer }).is_ok()
    }
}

#[test]
fn a_half_open_link_is_lost_by_silence() {
    let hasty = launch("a").env("KVFERRY_PEER_TIMEOUT", "200ms").env("KVFERRY_CANCEL_TIMEOUT", "200ms");
    let rig = Rig::new(hasty.start());
    let mut chance = Chance::seeded();
    let transfer = rig.posted(&mut chance);
    rig.proxy.hold(true);
    let held = now_ns();
    let lost = rig.a.event("lost", "b").unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(lost.cause, "it was silent for longer than the peer time-out");
    let after = Duration::from_nanos(lost.stamp.saturating_sub(held));
    assert!(after < Duration::from_millis(1_500), "lost after {after:?} only");
    let ended = rig.a.wait(transfer, 5_000).unwrap();
    if ended != State::Done {
        assert_eq!(ended.code(), "peer.lost", "{ended:?}");
        assert_eq!(rig.a.release(transfer).unwrap_err().code, "cancel.fenced");
    }
    // Met anew, on a way that lets bytes through, it is as good as before.
    rig.proxy.reset();
    rig.proxy.hold(false);
    rig.proxy.introduce(&rig.a, &rig.b);
    rig.expect_as_before();
}

#[test]
fn small_blocks_cost_little_beside_their_bytes() {
    let (a, b) = (worker("a"), worker("b"));
    let (len, blocks) = (128, 32 << 10);
    let near = a.registered(Memory::Private, len * blocks).buffer;
    let far = b.registered(Memory::Private, len * blocks).buffer;
    let proxy = Proxy::before(&b);
    proxy.introduce(&a, &b);
    // No two that follow each other are neighbours, on either side.
    let place = |i: u64, step: u64| (i * step % blocks) as u32;
    let pairs: Vec<_> = (0..blocks).map(|i| (place(i, 4_099), place(i, 10_243))).collect();
    for (what, payload) in [("a write", len), ("a read", 0)] {
        let (from, spec) =
            if payload > 0 { (&a, a.write(near, &b, far)) } else { (&b, a.read(near, &b, far)) };
        from.fill(if payload > 0 { near } else { far }, 7);
        let transfer = a.transfer(&spec.in_blocks_of(len).paired(&pairs)).unwrap_or_else(|e| panic!("{e:?}"));
        let before = proxy.sent();
        a.post(transfer).unwrap();
        assert_eq!(a.wait(transfer, 20_000), Ok(State::Done), "{what}");
        let cost = (proxy.sent() - before) as f64 / blocks as f64 - payload as f64;
        println!("{what}: {cost:.2} bytes a block of {len}");
        assert!(cost < 5.0, "{what}: {cost:.2} bytes a block of {len}");
        let (ours, theirs) = (a.peek(near), b.peek(far));
        let block = |bytes: &[u8], i: u32| bytes[i as usize * len as usize..][..len as usize].to_vec();
        let wrong = pairs.iter().filter(|(i, j)| block(&ours, *i) != block(&theirs, *j)).count();
        assert_eq!(wrong, 0, "{what}: wrong blocks");
    }
}
