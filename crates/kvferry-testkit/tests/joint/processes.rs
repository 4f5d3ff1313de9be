//! Two processes of one host: what goes through sockets ends as everything on one host does.

use std::time::Duration;

use kvferry_testkit::harness::{Launch, Memory, State, Times, Worker, link, now_ns, rounds, sleep_until};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

const BYTES: u64 = 64 << 20;
const BLOCK: u64 = 64 << 10;

fn worker(name: &str) -> Worker {
    let launch = Launch::new(CHILD, name).env("KVFERRY_FORBID", "cma").env("KVFERRY_ADDRESS", "127.0.0.1");
    launch.env("KVFERRY_PEER_TIMEOUT", "200ms").start()
}

/// Posts a write of private memory, which takes the sockets.
fn write(a: &Worker, b: &Worker) -> u64 {
    let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Private, BYTES));
    a.fill(near.buffer, 1);
    b.poison(far.buffer);
    link(a, b);
    let transfer = a.transfer(&a.write(near.buffer, b, far.buffer).in_blocks_of(BLOCK)).unwrap();
    a.post(transfer).unwrap();
    transfer
}

#[test]
fn a_killed_target_is_noticed_by_its_death_not_by_silence() {
    let mut times = Times::default();
    for round in 0..rounds(10) {
        let (a, b) = (worker("a"), worker("b"));
        let transfer = write(&a, &b);
        sleep_until(now_ns() + u64::from(round) * 1_000_000);
        let killed = b.kill();
        let lost = a.event("lost", "b").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(lost.cause, "its process died");
        times.push_between(killed, lost.stamp);
        let ended = a.wait(transfer, 5_000).unwrap();
        assert!(ended == State::Done || ended.code() == "peer.lost", "{ended:?}");
        a.release(transfer).unwrap();
        b.reap();
    }
    times.print("death of a peer that is reached by sockets as well");
    assert!(times.quantile(0.5) < Duration::from_millis(10), "{:?}", times.quantile(0.5));
}

#[test]
fn a_stopped_target_is_waited_for() {
    let (a, b) = (worker("a"), worker("b"));
    let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Private, BYTES));
    a.fill(near.buffer, 1);
    b.poison(far.buffer);
    link(&a, &b);
    let transfer = a.transfer(&a.write(near.buffer, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
    b.stop();
    a.post(transfer).unwrap();
    // Three times as long as a peer on another host may be silent.
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(a.status(transfer), State::Running);
    b.resume();
    assert_eq!(a.wait(transfer, 10_000), Ok(State::Done));
    b.expect_filled(far.buffer, 1);
    assert_eq!(a.measured(transfer).mechanism, "stream");
}
