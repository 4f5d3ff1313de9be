//! Several processes on one host: every way between two memories, many peers at once, all bytes compared.

use std::time::{Duration, Instant};

use kvferry_testkit::harness::{Chance, Launch, Memory, Request, State, Worker, link};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

const BLOCK: u64 = 64 << 10;
const BLOCKS: u32 = 512;
const BYTES: u64 = BLOCK * BLOCKS as u64;

fn worker(name: &str) -> Worker {
    Launch::new(CHILD, name).start()
}

/// What a pair of memories is expected to go by.
struct Way {
    local: Memory,
    remote: Memory,
    mechanism: &'static str,
    by_target: bool,
}

const fn way(local: Memory, remote: Memory, mechanism: &'static str, by_target: bool) -> Way {
    Way { local, remote, mechanism, by_target }
}

/// Moves shuffled blocks both ways over each of `ways` and compares all of them.
fn both_ways(a: &Worker, b: &Worker, ways: &[Way]) {
    let mut chance = Chance::seeded();
    for (i, way) in ways.iter().enumerate() {
        let near = a.registered(way.local, BYTES).buffer;
        let far = b.registered(way.remote, BYTES).buffer;
        link(a, b);
        let seed = 100 + i as u64;

        a.fill(near, seed);
        b.poison(far);
        let pairs = chance.pairs(BLOCKS);
        let written = a.run(&a.write(near, b, far).in_blocks_of(BLOCK).paired(&pairs));
        b.expect_blocks(far, seed, BLOCK, &pairs);
        check_way(a, b, written, way);

        b.fill(far, seed + 50);
        a.poison(near);
        let pairs = chance.pairs(BLOCKS);
        let read = a.run(&a.read(near, b, far).in_blocks_of(BLOCK).paired(&pairs));
        let turned: Vec<_> = pairs.iter().map(|(here, there)| (*there, *here)).collect();
        a.expect_blocks(near, seed + 50, BLOCK, &turned);
        check_way(a, b, read, way);
    }
}

fn check_way(a: &Worker, b: &Worker, transfer: u64, way: &Way) {
    let measured = a.measured(transfer);
    let what = format!("{:?} to {:?}", way.local, way.remote);
    assert_eq!((measured.path.as_str(), measured.mechanism.as_str()), ("same_host", way.mechanism), "{what}");
    assert_eq!((measured.bytes, measured.blocks), (BYTES, u64::from(BLOCKS)), "{what}");
    let name = |memory| match memory {
        Memory::Private => "private memory",
        Memory::Shared => "kvferry memory",
        Memory::File => "file-backed memory",
    };
    let line = format!("{} to {}: same_host {}", name(way.local), name(way.remote), way.mechanism);
    let line = if way.by_target { line + " by the target" } else { line };
    let reports = a.path(b.name());
    assert!(reports.iter().any(|report| report.starts_with(&line)), "no {line:?} in {reports:#?}");
}

#[test]
fn every_pair_of_memories_goes_by_its_best_way() {
    let (a, b) = (worker("a"), worker("b"));
    both_ways(
        &a,
        &b,
        &[
            way(Memory::Private, Memory::Private, "cma", false),
            way(Memory::Private, Memory::Shared, "map", false),
            way(Memory::Shared, Memory::Shared, "map", false),
            way(Memory::Shared, Memory::Private, "map", true),
            way(Memory::File, Memory::Private, "cma", false),
            way(Memory::Private, Memory::File, "cma", false),
            way(Memory::File, Memory::Shared, "map", false),
        ],
    );
}

#[test]
fn the_target_copies_where_only_it_can_reach_both_memories() {
    let (a, b) = (worker("a"), worker("b"));
    // Injected: this process is made to see Yama's EPERM.
    a.expect::<()>(&Request::Yama { on: true });
    both_ways(
        &a,
        &b,
        &[
            way(Memory::Private, Memory::Private, "cma", true),
            way(Memory::File, Memory::Private, "cma", true),
            way(Memory::Private, Memory::Shared, "map", false),
            way(Memory::Shared, Memory::Private, "map", true),
        ],
    );
}

#[test]
fn sizes_from_a_word_to_more_than_a_chunk() {
    let (a, b) = (worker("a"), worker("b"));
    for (memory, remote) in [
        (Memory::Private, Memory::Private),
        (Memory::Shared, Memory::Private),
        (Memory::Private, Memory::Shared),
    ] {
        for bytes in [8, 4096, 4104, 16 << 10, (16 << 10) + 8, (2 << 20) - 8, (2 << 20) + 8, 5_000_000] {
            let near = a.registered(memory, bytes).buffer;
            let far = b.registered(remote, bytes).buffer;
            link(&a, &b);
            a.fill(near, bytes);
            b.poison(far);
            a.run(&a.write(near, &b, far));
            b.expect_filled(far, bytes);
            a.poison(near);
            a.run(&a.read(near, &b, far));
            a.expect_filled(near, bytes);
        }
    }
}

#[test]
fn one_initiator_and_four_targets_at_once() {
    let a = worker("a");
    let targets: Vec<Worker> = (0..4).map(|i| worker(&format!("target-{i}"))).collect();
    let mut chance = Chance::seeded();
    let mut moves = Vec::new();
    for (i, target) in targets.iter().enumerate() {
        let memory = if i % 2 == 0 { Memory::Private } else { Memory::Shared };
        let near = a.registered(Memory::Private, BYTES).buffer;
        let far = target.registered(memory, BYTES).buffer;
        a.fill(near, i as u64);
        target.poison(far);
        link(&a, target);
        let pairs = chance.pairs(BLOCKS);
        let spec =
            a.write(near, target, far).in_blocks_of(BLOCK).paired(&pairs).notifying(&format!("for {i}"));
        moves.push((a.transfer(&spec).unwrap(), far, pairs));
    }
    let begun = Instant::now();
    for (transfer, ..) in &moves {
        a.post(*transfer).unwrap();
    }
    for (i, ((transfer, far, pairs), target)) in moves.iter().zip(&targets).enumerate() {
        // 128 MiB in all: whoever waits is woken at the end, not by the time-out.
        assert_eq!(a.wait(*transfer, 5_000), Ok(State::Done));
        let told = target.notifications(1);
        assert_eq!((told[0].from.as_str(), told[0].payload.as_str()), ("a", format!("for {i}").as_str()));
        target.expect_blocks(*far, i as u64, BLOCK, pairs);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "128 MiB took {:?}", begun.elapsed());
}

#[test]
fn three_initiators_and_one_target_that_answers_all_of_them() {
    let target = worker("target");
    let initiators: Vec<Worker> = (0..3).map(|i| worker(&format!("initiator-{i}"))).collect();
    let mut moves = Vec::new();
    for (i, initiator) in initiators.iter().enumerate() {
        let ours = initiator.registered(Memory::Private, BYTES).buffer;
        let back = initiator.registered(Memory::Shared, BYTES).buffer;
        let theirs = target.registered(Memory::Private, BYTES).buffer;
        initiator.fill(ours, i as u64);
        initiator.poison(back);
        target.fill(theirs, 10 + i as u64);
        moves.push((ours, back, theirs));
    }
    // Each writes to the target's half and the target reads and writes back at the same time, over links of its own.
    let mut running = Vec::new();
    for (initiator, (ours, back, theirs)) in initiators.iter().zip(&moves) {
        link(initiator, &target);
        link(&target, initiator);
        let there = initiator.transfer(&initiator.read(*ours, &target, *theirs).in_blocks_of(BLOCK)).unwrap();
        let back = target.transfer(&target.write(*theirs, initiator, *back).in_blocks_of(BLOCK)).unwrap();
        running.push((there, back));
    }
    for (initiator, (there, back)) in initiators.iter().zip(&running) {
        initiator.post(*there).unwrap();
        target.post(*back).unwrap();
    }
    for (i, (initiator, (there, back))) in initiators.iter().zip(&running).enumerate() {
        assert_eq!(initiator.wait(*there, 20_000), Ok(State::Done));
        assert_eq!(target.wait(*back, 20_000), Ok(State::Done));
        initiator.expect_filled(moves[i].0, 10 + i as u64);
        initiator.expect_filled(moves[i].1, 10 + i as u64);
    }
}

#[test]
fn notifications_come_after_their_data_and_in_order() {
    let (a, b) = (worker("a"), worker("b"));
    let near = a.registered(Memory::Private, BYTES).buffer;
    let far = b.registered(Memory::Private, BYTES).buffer;
    a.fill(near, 3);
    b.poison(far);
    link(&a, &b);
    let spec = a.write(near, &b, far).in_blocks_of(BLOCK).notifying("data");
    let transfer = a.transfer(&spec).unwrap();
    a.post(transfer).unwrap();
    // The initiator does nothing more: its engine sends the notification by itself.
    assert_eq!(b.notifications(1)[0].payload, "data");
    b.expect_filled(far, 3);
    assert_eq!(a.wait(transfer, 5_000), Ok(State::Done));

    for i in 0..200 {
        a.expect::<()>(&Request::Notify { peer: "b".into(), payload: format!("{i}") });
    }
    let told = b.notifications(200);
    let numbers: Vec<String> = told.iter().map(|n| n.payload.clone()).collect();
    assert_eq!(numbers, (0..200).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[test]
fn memory_that_vanishes_is_named_and_kills_nobody() {
    let (a, b) = (worker("a"), worker("b"));
    let near = a.registered(Memory::Private, BYTES).buffer;
    let gone = b.registered(Memory::Private, BYTES).buffer;
    let short = b.registered(Memory::File, BYTES).buffer;
    link(&a, &b);
    b.expect::<()>(&Request::Unmap { buffer: gone.index, offset: BYTES / 2 });
    b.expect::<()>(&Request::Truncate { buffer: short.index, bytes: BYTES / 2 });
    for far in [gone, short] {
        for spec in [a.write(near, &b, far), a.read(near, &b, far)] {
            let transfer = a.transfer(&spec.in_blocks_of(BLOCK)).unwrap();
            a.post(transfer).unwrap();
            let State::Failed(failure) = a.wait(transfer, 10_000).unwrap() else {
                panic!("memory that is not there was copied")
            };
            assert_eq!(failure.code, "region.unmapped", "{failure:?}");
            let first = format!("{:#x} (block {})", far.addr + BYTES / 2, BLOCKS / 2);
            assert!(failure.text.contains(&first), "no {first:?} in {}", failure.text);
        }
    }
    // The same from the other executor, and both processes still work.
    let shared = a.registered(Memory::Shared, BYTES).buffer;
    let transfer = a.transfer(&a.write(shared, &b, short).in_blocks_of(BLOCK)).unwrap();
    a.post(transfer).unwrap();
    assert_eq!(a.wait(transfer, 10_000).unwrap().code(), "region.unmapped");
    let whole = b.registered(Memory::Private, BYTES).buffer;
    link(&a, &b);
    a.fill(near, 1);
    a.run(&a.write(near, &b, whole).in_blocks_of(BLOCK));
    b.expect_filled(whole, 1);
}
