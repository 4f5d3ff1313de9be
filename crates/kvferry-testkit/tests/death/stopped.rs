//! A stopped process is not dead: on one host its memory is still there.

use std::time::Duration;

use kvferry_testkit::harness::{Launch, Memory, Request, State, Worker, link};

use crate::CHILD;

const BYTES: u64 = 16 << 20;
const BLOCK: u64 = 64 << 10;

fn hasty(name: &str) -> Worker {
    Launch::new(CHILD, name).env("KVFERRY_PEER_TIMEOUT", "300ms").start()
}

#[test]
fn copies_go_on_while_the_peer_is_stopped() {
    let (a, b) = (hasty("a"), hasty("b"));
    let near = a.registered(Memory::Private, BYTES).buffer;
    let private = b.registered(Memory::Private, BYTES).buffer;
    let shared = b.registered(Memory::Shared, BYTES).buffer;
    link(&a, &b);
    a.fill(near, 1);
    let created =
        [private, shared].map(|far| a.transfer(&a.write(near, &b, far).in_blocks_of(BLOCK)).unwrap());
    b.stop();
    for transfer in created {
        a.post(transfer).unwrap();
        assert_eq!(a.wait(transfer, 5_000), Ok(State::Done));
    }
    a.run(&a.read(near, &b, private).in_blocks_of(BLOCK));
    // Longer than any silence that would count elsewhere.
    let lost = Request::AwaitEvent { kind: "lost".into(), peer: "b".into(), timeout_ms: 1_500 };
    assert!(
        a.ask::<kvferry_testkit::harness::StampedEvent>(&lost).is_err(),
        "a stopped peer was called dead"
    );
    b.resume();
    for far in [private, shared] {
        b.expect_filled(far, 1);
    }
}

#[test]
fn a_notification_waits_for_a_stopped_peer_and_so_does_its_transfer() {
    let (a, b) = (hasty("a"), hasty("b"));
    let near = a.registered(Memory::Private, BYTES).buffer;
    let far = b.registered(Memory::Private, BYTES).buffer;
    link(&a, &b);
    a.fill(near, 2);
    let transfer = a.transfer(&a.write(near, &b, far).in_blocks_of(BLOCK).notifying("there")).unwrap();
    b.stop();
    a.post(transfer).unwrap();
    assert_eq!(a.wait(transfer, 500).unwrap_err().code, "wait.timeout");
    assert_eq!(a.status(transfer), State::Running);
    b.resume();
    assert_eq!(a.wait(transfer, 5_000), Ok(State::Done));
    assert_eq!(b.notifications(1)[0].payload, "there");
    b.expect_filled(far, 2);
}

#[test]
fn copies_by_a_stopped_target_go_on_with_it() {
    let (a, b) = (hasty("a"), hasty("b"));
    let near = a.registered(Memory::Shared, BYTES).buffer;
    let far = b.registered(Memory::Private, BYTES).buffer;
    link(&a, &b);
    a.fill(near, 3);
    let transfer = a.transfer(&a.write(near, &b, far).in_blocks_of(BLOCK)).unwrap();
    b.stop();
    a.post(transfer).unwrap();
    assert_eq!(a.wait(transfer, 500).unwrap_err().code, "wait.timeout");
    std::thread::sleep(Duration::from_millis(300));
    b.resume();
    assert_eq!(a.wait(transfer, 5_000), Ok(State::Done));
    b.expect_filled(far, 3);
}

#[test]
fn a_stopped_peer_that_is_killed_is_dead() {
    let (a, b) = (hasty("a"), hasty("b"));
    link(&a, &b);
    b.stop();
    let killed = b.kill();
    let lost = a.event("lost", "b").unwrap_or_else(|e| panic!("{e:?}"));
    let took = Duration::from_nanos(lost.stamp - killed);
    assert!(took < crate::LONGEST, "after {took:?}");
}
