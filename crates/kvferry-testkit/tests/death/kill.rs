//! kill -9 of either side, fifty times each, idle and in a transfer.

use std::{cell::Cell, time::Duration};

use kvferry_testkit::harness::{
    Buffer, Chance, Failure, Launch, Memory, PATIENCE, Request, State, Ticket, Times, Worker, eventually,
    link, now_ns, rounds, sleep_until,
};

use crate::{CHILD, check_times, expect_no_leak};

const BLOCK: u64 = 64 << 10;
const BYTES: u64 = 64 << 20;

/// Rounds before the first count of what the survivor holds.
const WARM: u32 = 3;

fn victim() -> Worker {
    Launch::new(CHILD, "victim").start()
}

/// A death that is about to come.
struct Doom<'a> {
    /// When, by the monotonic clock.
    at: u64,
    /// The end of the survivor's transfer, if it has one.
    ending: Option<Ticket<'a, State>>,
}

/// What the survivor's transfer came to, where it has one.
type Ending = Option<Result<State, Failure>>;

/// Kills fifty victims beside one survivor. `prepare` makes a victim busy; `learn` looks at what that came to.
fn kill_many<'a>(
    what: &str,
    survivor: &'a Worker,
    mut prepare: impl FnMut(&Worker) -> Doom<'a>,
    mut learn: impl FnMut(Ending),
) {
    let (mut events, mut failures) = (Times::default(), Times::default());
    let mut before = survivor.holdings();
    for round in 0..rounds(50) + WARM {
        if round == WARM {
            before = survivor.holdings();
            (events, failures) = (Times::default(), Times::default());
        }
        let victim = victim();
        link(survivor, &victim);
        link(&victim, survivor);
        let doom = prepare(&victim);
        sleep_until(doom.at);
        let killed = victim.kill();
        let lost = survivor.event("lost", "victim").unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(lost.cause, "its process died", "{what}");
        events.push_between(killed, lost.stamp);
        learn(doom.ending.map(|ending| {
            let (stamp, ended) = ending.finish_stamped();
            if let Ok(State::Failed(_)) = ended {
                failures.push_between(killed, stamp);
            }
            ended
        }));
        assert!(
            !survivor.expect::<bool>(&Request::Check { peer: "victim".into() }),
            "{what}: its metadata stays"
        );
        assert_eq!(survivor.connect("victim").unwrap_err().code, "peer.unknown", "{what}");
        victim.reap();
    }
    check_times(&format!("{what}: event"), &events);
    if failures.count() > 0 {
        check_times(&format!("{what}: transfer"), &failures);
    }
    expect_no_leak(survivor, before);
    // The kernel may still be taking the last one apart.
    let mut stats = survivor.stats();
    let forgotten = eventually(PATIENCE, || {
        stats = survivor.stats();
        (stats.links_in, stats.links_out, stats.lingering, stats.queue_depth) == (0, 0, 0, 0)
    });
    assert!(forgotten, "{what}: {stats:?}");
}

fn idle<'a>() -> Doom<'a> {
    Doom { at: now_ns(), ending: None }
}

#[test]
fn a_peer_killed_while_idle() {
    let survivor = Launch::new(CHILD, "survivor").start();
    kill_many("idle", &survivor, |_| idle(), |_| ());
}

#[test]
fn a_peer_killed_while_idle_with_a_forked_child_alive() {
    let survivor = Launch::new(CHILD, "survivor").start();
    let fork = |victim: &Worker| {
        victim.adopt(victim.expect(&Request::ForkSleeper));
        idle()
    };
    kill_many("idle, forked child alive", &survivor, fork, |_| ());
}

/// The survivor moves data with a victim that is killed meanwhile.
fn survivor_initiates(what: &str, near: Memory, far: Memory, write: bool, forked: bool) {
    let survivor = Launch::new(CHILD, "survivor").start();
    let ours = survivor.registered(near, BYTES).buffer;
    survivor.fill(ours, 1);
    let mut chance = Chance::seeded();
    let (transfer, window, inside) = (Cell::new(0), Cell::new(10_000_000), Cell::new(0));
    let prepare = |victim: &Worker| {
        if forked {
            victim.adopt(victim.expect(&Request::ForkSleeper));
        }
        let theirs = victim.registered(far, BYTES).buffer;
        link(&survivor, victim);
        let spec =
            if write { survivor.write(ours, victim, theirs) } else { survivor.read(ours, victim, theirs) };
        transfer.set(survivor.transfer(&spec.in_blocks_of(BLOCK)).unwrap());
        survivor.post(transfer.get()).unwrap();
        let at = now_ns() + chance.below(window.get());
        let wait = Request::Wait { transfer: transfer.get(), timeout_ms: 10_000 };
        Doom { at, ending: Some(survivor.begin_aside(&wait)) }
    };
    let learn = |ending: Ending| {
        match ending {
            Some(Ok(State::Done)) => window.set((window.get() * 8 / 10).max(1_000_000)),
            Some(Ok(State::Failed(failure))) => {
                inside.set(inside.get() + 1);
                window.set(window.get() * 11 / 10);
                assert_eq!(failure.code, "peer.lost", "{what}: {failure:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
        // Quiet, though a call into the dying process may take its time.
        let release = Request::Release { transfer: transfer.get(), timeout_ms: Some(10_000) };
        survivor.ask::<()>(&release).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    };
    kill_many(what, &survivor, prepare, learn);
    println!("{what}: {} deaths inside a transfer", inside.get());
    assert!(inside.get() >= rounds(50) / 4, "{what}: only {} deaths inside a transfer", inside.get());
    still_works(&survivor, ours);
}

/// The survivor serves another peer as if nothing had happened.
fn still_works(survivor: &Worker, ours: Buffer) {
    let other = Launch::new(CHILD, "other").start();
    let theirs = other.registered(Memory::Private, ours.len).buffer;
    survivor.fill(ours, 9);
    link(survivor, &other);
    survivor.run(&survivor.write(ours, &other, theirs).in_blocks_of(BLOCK));
    other.expect_filled(theirs, 9);
}

#[test]
fn a_target_killed_in_a_write_by_cma() {
    survivor_initiates("target, write, cma", Memory::Private, Memory::Private, true, false);
}

#[test]
fn a_target_killed_in_a_read_by_cma_with_a_forked_child_alive() {
    survivor_initiates("target, read, cma, forked", Memory::Private, Memory::Private, false, true);
}

#[test]
fn a_target_killed_in_a_write_by_map() {
    survivor_initiates("target, write, map", Memory::Private, Memory::Shared, true, false);
}

#[test]
fn a_target_killed_while_it_copies() {
    survivor_initiates("target that copies, write", Memory::Shared, Memory::Private, true, false);
}

#[test]
fn a_target_killed_while_it_copies_with_a_forked_child_alive() {
    survivor_initiates("target that copies, read, forked", Memory::Shared, Memory::Private, false, true);
}

/// A victim that moves data with the survivor is killed meanwhile: the survivor's memory is free at once, and still.
fn victim_initiates(what: &str, near: Memory, far: Memory, write: bool) {
    let survivor = Launch::new(CHILD, "survivor").start();
    let pool = survivor.alloc(far, BYTES);
    let region = Cell::new(0);
    let mut chance = Chance::seeded();
    let prepare = |victim: &Worker| {
        survivor.poison(pool);
        region.set(survivor.register(pool).region);
        let theirs = victim.registered(near, BYTES).buffer;
        victim.fill(theirs, 1);
        link(victim, &survivor);
        let spec =
            if write { victim.write(theirs, &survivor, pool) } else { victim.read(theirs, &survivor, pool) };
        let transfer = victim.transfer(&spec.in_blocks_of(BLOCK)).unwrap();
        victim.post(transfer).unwrap();
        Doom { at: now_ns() + chance.below(10_000_000), ending: None }
    };
    let learn = |_| {
        let patient = Request::Deregister { regions: vec![region.get()], timeout_ms: Some(5_000) };
        survivor.ask::<()>(&patient).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let before = survivor.scan(pool, 1);
        assert_eq!(before.foreign(), 0, "{what}: {before:?}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(survivor.scan(pool, 1), before, "{what}: a dead process writes");
    };
    kill_many(what, &survivor, prepare, learn);
}

#[test]
fn an_initiator_killed_in_a_write_by_cma() {
    victim_initiates("initiator, write, cma", Memory::Private, Memory::Private, true);
}

#[test]
fn an_initiator_killed_in_a_write_by_map() {
    victim_initiates("initiator, write, map", Memory::Private, Memory::Shared, true);
}

#[test]
fn an_initiator_killed_while_we_copy_for_it() {
    victim_initiates("initiator, we copy", Memory::Shared, Memory::Private, true);
}
