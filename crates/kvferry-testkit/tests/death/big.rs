//! A peer that dies with 4 GiB of memory, which the kernel takes a third of a second to take apart.

use kvferry_testkit::harness::{
    Launch, Memory, PATIENCE, Place, Request, State, Times, Trap, TrapAct, Worker, eventually, link, rounds,
    skip,
};

use crate::{CHILD, LONGEST, expect_no_leak};

const GIB: u64 = 1 << 30;
const BLOCK: u64 = 64 << 10;

/// Whether the machine has room; says so if not.
fn has_room() -> bool {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|value| value.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())
        .unwrap_or_default()
        * 1024;
    if available < 6 * GIB {
        skip(format!(
            "4 GiB of memory in one process need 6 GiB available, there are {} MiB",
            available >> 20
        ));
    }
    available >= 6 * GIB
}

/// How the survivor learns of a victim with 4 GiB, while `initiator` moves data.
fn dies_with_four_gib(what: &str, survivor_initiates: bool, write: bool) {
    if !has_room() {
        return;
    }
    let survivor = Launch::new(CHILD, "survivor").start();
    let bystander = Launch::new(CHILD, "bystander").start();
    let ours = survivor.registered(Memory::Private, GIB / 4);
    let beside = survivor.registered(Memory::Private, 1 << 20).buffer;
    let theirs = bystander.registered(Memory::Private, 1 << 20).buffer;
    link(&survivor, &bystander);
    survivor.run(&survivor.write(beside, &bystander, theirs));
    let (mut events, mut failures, mut others) = (Times::default(), Times::default(), Times::default());
    let before = survivor.holdings();
    for _ in 0..rounds(2) {
        let victim = Launch::new(CHILD, "victim").start();
        let big = victim.registered(Memory::Private, 4 * GIB).buffer;
        let part = kvferry_testkit::harness::Buffer { len: ours.buffer.len, ..big };
        link(&survivor, &victim);
        link(&victim, &survivor);
        let (initiator, target): (&Worker, &Worker) =
            if survivor_initiates { (&survivor, &victim) } else { (&victim, &survivor) };
        let (near, far) = if survivor_initiates { (ours.buffer, part) } else { (big, ours.buffer) };
        let mut spec =
            if write { initiator.write(near, target, far) } else { initiator.read(near, target, far) };
        spec = spec.in_blocks_of(BLOCK);
        if !survivor_initiates {
            // The first blocks of the big buffer.
            let count = (far.len / BLOCK) as u32;
            spec = spec.paired(&(0..count).map(|n| (n, n)).collect::<Vec<_>>());
        }
        let transfer = initiator.transfer(&spec).unwrap();
        initiator.expect::<()>(&Request::Arm(Trap { place: Place::Copy, after: 4, act: TrapAct::Hold }));
        initiator.post(transfer).unwrap();
        assert!(eventually(PATIENCE, || initiator.expect::<(u64, u64)>(&Request::Trapped).0 > 0));
        let ending = survivor_initiates
            .then(|| survivor.begin_aside::<State>(&Request::Wait { transfer, timeout_ms: 10_000 }));
        initiator.expect::<()>(&Request::Spring);
        let killed = victim.kill();
        let lost = survivor.event("lost", "victim").unwrap_or_else(|e| panic!("{what}: {e:?}"));
        events.push_between(killed, lost.stamp);
        // The survivor goes on meanwhile.
        let begun = std::time::Instant::now();
        survivor.run(&survivor.write(beside, &bystander, theirs));
        others.push(begun.elapsed());
        if let Some(ending) = ending {
            let (stamp, ended) = ending.finish_stamped();
            match ended.unwrap_or_else(|e| panic!("{what}: {e:?}")) {
                State::Done => println!("{what}: too late"),
                ended => {
                    assert_eq!(ended.code(), "peer.lost", "{what}: {ended:?}");
                    failures.push_between(killed, stamp);
                }
            }
            let release = Request::Release { transfer, timeout_ms: Some(20_000) };
            survivor.ask::<()>(&release).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        }
        victim.reap();
    }
    // Two deaths have no median worth the name.
    for (of, times) in [("event", &events), ("transfer", &failures)] {
        times.print(&format!("{what}: {of}"));
        assert!(times.longest() <= LONGEST, "{what}: {of} after more than {LONGEST:?}");
    }
    others.print(&format!("{what}: another peer's transfer meanwhile"));
    assert!(
        others.longest() < std::time::Duration::from_millis(250),
        "{what}: other peers wait for the dying one"
    );
    let patient = Request::Deregister { regions: vec![ours.region], timeout_ms: Some(10_000) };
    survivor.ask::<()>(&patient).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    expect_no_leak(&survivor, before);
}

#[test]
fn a_peer_with_four_gib_while_idle() {
    // No copy touches the dead process here, and its socket ends when it has been taken apart: this is what the kernel's
    // robust futexes are for.
    if !has_room() {
        return;
    }
    let survivor = Launch::new(CHILD, "survivor").start();
    let mut events = Times::default();
    for round in 0..rounds(2) {
        let victim = Launch::new(CHILD, "victim").start();
        victim.registered(Memory::Private, 4 * GIB);
        // Once as initiator only, once as target only.
        if round % 2 == 0 {
            link(&survivor, &victim)
        } else {
            link(&victim, &survivor)
        }
        let killed = victim.kill();
        let lost = survivor.event("lost", "victim").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(lost.cause, "its process died");
        events.push_between(killed, lost.stamp);
        victim.reap();
    }
    events.print("4 GiB, idle: event");
    assert!(events.longest() <= LONGEST, "event after more than {LONGEST:?}");
}

#[test]
fn a_target_with_four_gib_under_a_write() {
    dies_with_four_gib("4 GiB, target, write", true, true);
}

#[test]
fn a_target_with_four_gib_under_a_read() {
    dies_with_four_gib("4 GiB, target, read", true, false);
}

#[test]
fn an_initiator_with_four_gib_in_a_write() {
    dies_with_four_gib("4 GiB, initiator, write", false, true);
}
