//! Ends that die, or fall silent, before a link is up.

use std::time::{Duration, Instant};

use kvferry_testkit::harness::{
    Chance, Launch, Memory, PATIENCE, Request, Times, Worker, eventually, link, now_ns, rounds, sleep_until,
};

use crate::{
    CHILD, expect_no_leak,
    raw::{Raw, RawListener, STAGES, Stage},
};

/// How long the agents here wait for a handshake.
const HANDSHAKE: Duration = Duration::from_millis(400);

fn impatient(name: &str) -> Worker {
    Launch::new(CHILD, name).env("KVFERRY_CONNECT_TIMEOUT", "400ms").start()
}

/// A transfer between two workers, both of which are as well as ever.
fn moves_data(a: &Worker, b: &Worker) {
    let (near, far) = (a.registered(Memory::Private, 1 << 20), b.registered(Memory::Private, 1 << 20));
    a.fill(near.buffer, 1);
    link(a, b);
    a.run(&a.write(near.buffer, b, far.buffer));
    b.expect_filled(far.buffer, 1);
    a.deregister(near.region).unwrap();
    b.deregister(far.region).unwrap();
    for (worker, buffer) in [(a, near.buffer), (b, far.buffer)] {
        worker.expect::<()>(&Request::Free { buffer: buffer.index });
    }
}

#[test]
fn an_initiator_that_falls_silent_in_the_handshake_is_let_go() {
    let (target, other) = (impatient("target"), impatient("other"));
    moves_data(&other, &target);
    let before = target.holdings();
    for stage in STAGES {
        let raws: Vec<Raw> = (0..8).map(|_| Raw::connect(&target.metadata(), stage)).collect();
        // Meanwhile others are served.
        moves_data(&other, &target);
        let begun = Instant::now();
        assert!(eventually(PATIENCE, || raws.iter().all(Raw::is_closed)), "{stage:?}: never let go");
        assert!(
            begun.elapsed() < HANDSHAKE + Duration::from_secs(1),
            "{stage:?}: after {:?}",
            begun.elapsed()
        );
    }
    expect_no_leak(&target, before);
}

#[test]
fn an_initiator_that_dies_in_the_handshake_leaves_nothing() {
    let (target, other) = (impatient("target"), impatient("other"));
    moves_data(&other, &target);
    let before = target.holdings();
    for stage in STAGES {
        for _ in 0..rounds(50) {
            drop(Raw::connect(&target.metadata(), stage));
        }
        moves_data(&other, &target);
    }
    expect_no_leak(&target, before);
    let stats = target.stats();
    assert_eq!((stats.links_in, stats.lingering), (1, 0), "{stats:?}");
}

#[test]
fn a_target_that_falls_silent_in_the_handshake_is_a_timeout() {
    let agent = impatient("agent");
    let before = agent.holdings();
    for stage in [Stage::Silent, Stage::Half, Stage::Proven] {
        let listener = RawListener::new("silent");
        agent.ask::<String>(&Request::Load { metadata: listener.metadata.clone() }).unwrap();
        let _raw = listener.accept(stage);
        let begun = Instant::now();
        let failure = agent.connect("silent").unwrap_err();
        assert_eq!(failure.code, "connect.timeout", "{stage:?}: {failure:?}");
        assert!(
            begun.elapsed() < HANDSHAKE + Duration::from_secs(1),
            "{stage:?}: after {:?}",
            begun.elapsed()
        );
        agent.expect::<()>(&Request::Remove { peer: "silent".into() });
    }
    expect_no_leak(&agent, before);
}

#[test]
fn a_target_that_dies_in_the_handshake_is_an_error_at_once() {
    let agent = impatient("agent");
    let before = agent.holdings();
    for stage in STAGES {
        let listener = RawListener::new("dying");
        agent.ask::<String>(&Request::Load { metadata: listener.metadata.clone() }).unwrap();
        let connecting =
            agent.begin_aside::<()>(&Request::Connect { peer: "dying".into(), timeout_ms: 5_000 });
        // The call is to wait for this very connection, not to begin another after it.
        std::thread::sleep(Duration::from_millis(50));
        drop(listener.accept(stage));
        let died = now_ns();
        let (told, outcome) = connecting.finish_stamped();
        let failure = outcome.expect_err("nobody is there");
        assert_eq!(failure.code, "connect.unreachable", "{stage:?}: {failure:?}");
        assert!(told.saturating_sub(died) < 100_000_000, "{stage:?}: after {} ns", told - died);
        // It is not forgotten: nobody said that the process is dead. But nobody listens there any more.
        drop(listener);
        assert_eq!(agent.connect("dying").unwrap_err().code, "connect.unreachable");
        agent.expect::<()>(&Request::Remove { peer: "dying".into() });
    }
    expect_no_leak(&agent, before);
}

#[test]
fn a_target_killed_while_we_connect() {
    let agent = Launch::new(CHILD, "agent").start();
    let mut chance = Chance::seeded();
    let mut times = Times::default();
    let (mut failed, mut before) = (0, agent.holdings());
    for round in 0..rounds(50) {
        if round == 3 {
            before = agent.holdings();
        }
        let target = Launch::new(CHILD, "target").start();
        let metadata = target.metadata();
        let moment = now_ns() + 1_000_000 + chance.below(2_000_000);
        // Loading begins to connect.
        let loading = agent.begin_at::<String>(moment - chance.below(2_000_000), &Request::Load { metadata });
        let connecting = agent.begin::<()>(&Request::Connect { peer: "target".into(), timeout_ms: 5_000 });
        sleep_until(moment);
        let killed = target.kill();
        loading.finish().unwrap();
        let (told, outcome) = connecting.finish_stamped();
        match outcome {
            // It was up just before, or is dead by now and said so.
            Ok(()) => {
                let lost = agent.event("lost", "target").unwrap_or_else(|e| panic!("{e:?}"));
                times.push_between(killed, lost.stamp);
            }
            Err(failure) => {
                failed += 1;
                let codes = ["connect.unreachable", "peer.lost", "peer.unknown"];
                assert!(codes.contains(&failure.code.as_str()), "{failure:?}");
                times.push_between(killed, told);
            }
        }
        target.reap();
        let _ = agent.ask::<()>(&Request::Remove { peer: "target".into() });
    }
    println!("{failed} of {} died before the link was up", rounds(50));
    crate::check_times("killed while we connect", &times);
    expect_no_leak(&agent, before);
}

#[test]
fn an_initiator_killed_while_it_connects() {
    let (target, other) = (Launch::new(CHILD, "target").start(), Launch::new(CHILD, "other").start());
    let mut chance = Chance::seeded();
    moves_data(&other, &target);
    let mut before = target.holdings();
    for round in 0..rounds(50) {
        if round == 3 {
            before = target.holdings();
        }
        let initiator = Launch::new(CHILD, "initiator").start();
        let moment = now_ns() + 1_000_000 + chance.below(2_000_000);
        let loading = initiator.begin_at::<String>(
            moment - chance.below(2_000_000),
            &Request::Load { metadata: target.metadata() },
        );
        sleep_until(moment);
        initiator.kill();
        let _ = loading.finish();
        initiator.reap();
    }
    moves_data(&other, &target);
    expect_no_leak(&target, before);
    let gone = || {
        let stats = target.stats();
        (stats.links_in, stats.lingering) == (1, 0)
    };
    assert!(eventually(PATIENCE, gone), "{:?}", target.stats());
}
