//! A peer that comes back under its name.

use std::time::{Duration, Instant};

use kvferry_testkit::harness::{
    Launch, Memory, PATIENCE, Place, Request, State, Trap, TrapAct, Worker, eventually, link, rounds,
};

use crate::{CHILD, expect_no_leak};

const BYTES: u64 = 8 << 20;
const BLOCK: u64 = 64 << 10;

fn peer() -> Worker {
    Launch::new(CHILD, "peer").start()
}

/// Posts a transfer that is held in its first chunk.
fn held_transfer(agent: &Worker, peer: &Worker) -> u64 {
    let near = agent.registered(Memory::Private, BYTES).buffer;
    let far = peer.registered(Memory::Private, BYTES).buffer;
    link(agent, peer);
    let transfer = agent.transfer(&agent.write(near, peer, far).in_blocks_of(BLOCK)).unwrap();
    agent.expect::<()>(&Request::Arm(Trap { place: Place::Copy, after: 0, act: TrapAct::Hold }));
    agent.post(transfer).unwrap();
    assert!(eventually(PATIENCE, || agent.expect::<(u64, u64)>(&Request::Trapped).0 > 0));
    transfer
}

/// Loads a peer under a known name, at once, and moves data with it.
fn works_at_once(agent: &Worker, peer: &Worker, seed: u64) {
    let near = agent.registered(Memory::Private, BYTES);
    let far = peer.registered(Memory::Private, BYTES).buffer;
    agent.fill(near.buffer, seed);
    let begun = Instant::now();
    link(agent, peer);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(500), "the new incarnation was welcome after {took:?} only");
    let transfer = agent.run(&agent.write(near.buffer, peer, far).in_blocks_of(BLOCK));
    peer.expect_filled(far, seed);
    agent.release(transfer).unwrap();
    agent.deregister(near.region).unwrap();
    agent.expect::<()>(&Request::Free { buffer: near.buffer.index });
}

#[test]
fn a_killed_peer_is_welcome_again_at_once() {
    let agent = Launch::new(CHILD, "agent").start();
    let mut before = agent.holdings();
    let mut old = peer();
    link(&agent, &old);
    for round in 0..rounds(20) {
        if round == 3 {
            before = agent.holdings();
        }
        // Not a moment is left to learn of the death first.
        old.kill();
        let new = peer();
        works_at_once(&agent, &new, u64::from(round));
        old.reap();
        old = new;
    }
    expect_no_leak(&agent, before);
}

#[test]
fn transfers_of_a_killed_peer_end_when_it_comes_back() {
    let agent = Launch::new(CHILD, "agent").start();
    for _ in 0..rounds(5) {
        let old = peer();
        let transfer = held_transfer(&agent, &old);
        let new = peer();
        old.kill();
        agent.load(&new).unwrap_or_else(|e| panic!("{e:?}"));
        let ended = agent.wait(transfer, 5_000).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(["peer.lost", "peer.restarted"].contains(&ended.code()), "{ended:?}");
        agent.expect::<()>(&Request::Spring);
        agent.release(transfer).unwrap_or_else(|e| panic!("{e:?}"));
        works_at_once(&agent, &new, 1);
    }
}

#[test]
fn transfers_of_a_living_peer_end_with_restarted_when_another_takes_its_name() {
    let agent = Launch::new(CHILD, "agent").start();
    let old = peer();
    let transfer = held_transfer(&agent, &old);
    let new = peer();
    agent.load(&new).unwrap_or_else(|e| panic!("{e:?}"));
    let ended = agent.wait(transfer, 5_000).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(ended.code(), "peer.restarted");
    let State::Failed(failure) = &ended else { panic!("{ended:?}") };
    assert!(failure.text.contains("peer restarted"), "{}", failure.text);
    agent.event("restarted", "peer").unwrap_or_else(|e| panic!("{e:?}"));
    agent.expect::<()>(&Request::Spring);
    agent.release(transfer).unwrap_or_else(|e| panic!("{e:?}"));
    works_at_once(&agent, &new, 2);
    // The old one is refused by its metadata: its name is taken and it is not forgotten who had it.
    let stale = agent.load(&old).unwrap_err();
    assert_eq!(stale.code, "metadata.stale", "{stale:?}");
    works_at_once(&agent, &new, 3);
}

#[test]
fn a_stopped_peer_is_replaced_and_may_go_on() {
    let agent = Launch::new(CHILD, "agent").start();
    let old = peer();
    link(&old, &agent);
    let transfer = held_transfer(&agent, &old);
    let metadata = old.metadata();
    old.stop();
    let new = peer();
    agent.load(&new).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(agent.wait(transfer, 5_000).unwrap().code(), "peer.restarted");
    agent.expect::<()>(&Request::Spring);
    works_at_once(&agent, &new, 4);
    old.resume();
    // It is none the worse, and none the wiser: its own link to the agent still stands or is refused in words.
    let answer = old.connect("agent");
    assert!(answer.as_ref().err().is_none_or(|e| e.code != "harness"), "{answer:?}");
    let stale = agent.ask::<String>(&Request::Load { metadata }).unwrap_err();
    assert_eq!(stale.code, "metadata.stale", "{stale:?}");
    works_at_once(&agent, &new, 5);
}

#[test]
fn an_unreachable_newcomer_does_not_replace_a_living_peer() {
    let agent = Launch::new(CHILD, "agent").start();
    let living = peer();
    works_at_once(&agent, &living, 6);
    let newcomer = peer();
    let metadata = newcomer.metadata();
    newcomer.kill();
    newcomer.reap();
    let stale = agent.ask::<String>(&Request::Load { metadata }).unwrap_err();
    assert_eq!(stale.code, "metadata.stale", "{stale:?}");
    works_at_once(&agent, &living, 7);
}
