//! kill -9 of either side, idle and in a transfer, and a peer that comes back under its name.

use std::time::{Duration, Instant};

use kvferry_testkit::harness::{
    Chance, Memory, Request, State, Times, Worker, link, now_ns, rounds, sleep_until,
};

use crate::{TORN, worker};

const BYTES: u64 = 64 << 20;
const BLOCK: u64 = 64 << 10;

/// Sockets are closed once the memory of the dying process is torn down; the machine may be busy.
const MEDIAN: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(500);

fn check_times(what: &str, times: &Times) {
    times.print(what);
    assert!(times.quantile(0.5) <= MEDIAN, "{what}: half took longer than {MEDIAN:?}");
    assert!(times.longest() <= LONGEST, "{what}: longer than {LONGEST:?}");
}

/// The survivor learns of the death and forgets the peer.
fn expect_lost(survivor: &Worker, killed: u64, events: &mut Times) {
    let lost = survivor.event("lost", "victim").unwrap_or_else(|e| panic!("{e:?}"));
    events.push_between(killed, lost.stamp);
    // The endpoints on this host are tried again first: one of them may still answer, and tell of the death.
    let causes = ["its channel broke and could not be opened again", "its process died"];
    assert!(causes.iter().any(|cause| lost.cause.starts_with(cause)), "{}", lost.cause);
    assert!(!survivor.expect::<bool>(&Request::Check { peer: "victim".into() }), "its metadata stays");
    assert_eq!(survivor.connect("victim").unwrap_err().code, "peer.unknown");
}

#[test]
fn a_peer_killed_while_idle() {
    let survivor = worker("survivor");
    let mut events = Times::default();
    for _ in 0..rounds(10) {
        let victim = worker("victim");
        link(&survivor, &victim);
        link(&victim, &survivor);
        let killed = victim.kill();
        expect_lost(&survivor, killed, &mut events);
    }
    check_times("idle", &events);
    let stats = survivor.stats();
    assert_eq!((stats.links_in, stats.links_out, stats.lingering), (0, 0, 0), "{stats:?}");
}

#[test]
fn a_target_killed_in_a_write() {
    survivor_initiates(true);
}

#[test]
fn a_target_killed_in_a_read() {
    survivor_initiates(false);
}

fn survivor_initiates(write: bool) {
    let survivor = worker("survivor");
    let ours = survivor.registered(Memory::Private, BYTES).buffer;
    survivor.fill(ours, 1);
    let (mut events, mut failures) = (Times::default(), Times::default());
    let mut chance = Chance::seeded();
    let (mut window, mut inside) = (20_000_000, 0);
    for round in 0..rounds(10) {
        let victim = worker("victim");
        let theirs = victim.registered(Memory::Private, BYTES).buffer;
        link(&survivor, &victim);
        let spec =
            if write { survivor.write(ours, &victim, theirs) } else { survivor.read(ours, &victim, theirs) };
        let transfer = survivor.transfer(&spec.in_blocks_of(BLOCK)).unwrap();
        survivor.post(transfer).unwrap();
        let at = now_ns() + chance.below(window);
        let ending = survivor.begin_aside::<State>(&Request::Wait { transfer, timeout_ms: 10_000 });
        sleep_until(at);
        let killed = victim.kill();
        let (stamp, ended) = ending.finish_stamped();
        match ended {
            Ok(State::Done) => window = (window * 7 / 10).max(1_000_000),
            Ok(State::Failed(failure)) => {
                inside += 1;
                failures.push_between(killed, stamp);
                assert!(["link.lost", "peer.lost"].contains(&failure.code.as_str()), "{failure:?}");
                assert!(failure.text.contains("\"victim\""), "{failure:?}");
            }
            other => panic!("round {round}: {other:?}"),
        }
        expect_lost(&survivor, killed, &mut events);
        // The other end is closed for good: nothing is left to wait for.
        survivor.release(transfer).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
    }
    check_times("event", &events);
    check_times("transfer", &failures);
    assert!(inside * 4 >= rounds(10), "only {inside} deaths inside a transfer");
    // The survivor serves another peer as if nothing had happened.
    let other = worker("other");
    let theirs = other.registered(Memory::Private, BYTES).buffer;
    survivor.fill(ours, 9);
    link(&survivor, &other);
    survivor.run(&survivor.write(ours, &other, theirs).in_blocks_of(BLOCK));
    other.expect_filled(theirs, 9);
}

#[test]
fn an_initiator_killed_in_a_write() {
    victim_initiates(true);
}

#[test]
fn an_initiator_killed_in_a_read() {
    victim_initiates(false);
}

fn victim_initiates(write: bool) {
    let survivor = worker("survivor");
    let pool = survivor.alloc(Memory::Private, BYTES);
    let mut events = Times::default();
    let mut chance = Chance::seeded();
    for round in 0..rounds(10) {
        let victim = worker("victim");
        survivor.poison(pool);
        let region = survivor.register(pool).region;
        let theirs = victim.registered(Memory::Private, BYTES).buffer;
        victim.fill(theirs, 1);
        link(&victim, &survivor);
        let spec =
            if write { victim.write(theirs, &survivor, pool) } else { victim.read(theirs, &survivor, pool) };
        let transfer = victim.transfer(&spec.in_blocks_of(BLOCK)).unwrap();
        // A reset may take words along that were not read yet: only who is known to be up can be lost.
        survivor.event("up", "victim").unwrap_or_else(|e| panic!("{e:?}"));
        victim.post(transfer).unwrap();
        sleep_until(now_ns() + chance.below(20_000_000));
        let killed = victim.kill();
        let lost = survivor.event("lost", "victim").unwrap_or_else(|e| panic!("{e:?}"));
        events.push_between(killed, lost.stamp);
        survivor.deregister(region).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        let before = survivor.scan(pool, 1);
        assert!(before.foreign() <= TORN, "round {round}: {before:?}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(survivor.scan(pool, 1), before, "round {round}: a dead process writes");
    }
    check_times("event", &events);
    let stats = survivor.stats();
    assert_eq!((stats.links_in, stats.lingering), (0, 0), "{stats:?}");
}

#[test]
fn a_killed_peer_is_welcome_again_under_its_name() {
    let agent = worker("agent");
    let ours = agent.registered(Memory::Private, 1 << 20).buffer;
    let mut old = worker("peer");
    link(&agent, &old);
    for round in 0..rounds(10) {
        let seed = u64::from(round);
        // Not a moment is left to learn of the death first.
        old.kill();
        let new = worker("peer");
        let theirs = new.registered(Memory::Private, 1 << 20).buffer;
        agent.fill(ours, seed);
        let begun = Instant::now();
        link(&agent, &new);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "the new incarnation was welcome after {took:?} only");
        agent.run(&agent.write(ours, &new, theirs));
        new.expect_filled(theirs, seed);
        old.reap();
        old = new;
    }
}

#[test]
fn a_restarted_peer_fails_what_was_meant_for_the_old_one() {
    let agent = worker("agent");
    let ours = agent.registered(Memory::Private, BYTES).buffer;
    let old = worker("peer");
    let theirs = old.registered(Memory::Private, BYTES).buffer;
    link(&agent, &old);
    let transfer = agent.transfer(&agent.write(ours, &old, theirs).in_blocks_of(BLOCK)).unwrap();
    old.stop();
    agent.post(transfer).unwrap();
    old.kill();
    let new = worker("peer");
    link(&agent, &new);
    let ended = agent.wait(transfer, 5_000).unwrap();
    let codes = ["peer.restarted", "peer.lost", "link.lost"];
    assert!(codes.contains(&ended.code()), "{ended:?}");
    // Another incarnation is no proof that the old one is dead: only the end of its connections is.
    if let Err(failure) = agent.release(transfer) {
        assert_eq!(failure.code, "cancel.fenced", "{failure:?}");
    }
}
