//! Two agents of one process over TCP on loopback.

use std::time::Duration;

use kvferry::{Agent, Block, ConnectError, MemoryKind, Op, Path, Settings, Status, TransferOptions};

const WAIT: Duration = Duration::from_secs(20);

fn settings() -> Settings {
    Settings {
        address: Some("127.0.0.1".into()),
        forbid: "same_process,same_host".parse().unwrap(),
        peer_timeout: Duration::from_millis(500),
        ..Settings::default()
    }
}

fn agent(name: &str) -> Agent {
    Agent::builder(name).settings(settings()).build().unwrap()
}

fn blocks(base: u64, len: u64, order: impl Iterator<Item = u64>) -> Vec<Block> {
    order.map(|i| Block { addr: base + i * len, len, device: 0 }).collect()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn scattered_blocks_go_both_ways() {
    let (a, b) = (agent("a"), agent("b"));
    let (count, len) = (4096, 4096);
    let ours = a.register(a.alloc((count * len) as usize).unwrap()).unwrap();
    let theirs = b.register(b.alloc((count * len) as usize).unwrap()).unwrap();
    let bytes = pattern((count * len) as usize);
    ours.copy_in(0, &bytes).unwrap();
    a.load_remote(&b.metadata()).unwrap();
    let near = blocks(ours.addr(), len, (0..count).map(|i| i * 1021 % count));
    let far = blocks(theirs.addr(), len, (0..count).map(|i| i * 2039 % count));
    let dram = MemoryKind::Dram;

    let write = a
        .transfer_flat(
            Op::Write,
            (dram, &near),
            "b",
            (dram, &far),
            TransferOptions::default().notify("there"),
        )
        .unwrap();
    write.post().unwrap();
    assert_eq!(write.wait(WAIT).unwrap(), Status::Done);
    assert_eq!(write.telemetry().path, Some(Path::Tcp));
    assert_eq!(b.notifications()[0].payload, b"there");
    let mut there = vec![0; bytes.len()];
    theirs.copy_out(0, &mut there).unwrap();
    for i in 0..count as usize {
        let (from, to) = ((i * 1021 % 4096) * 4096, (i * 2039 % 4096) * 4096);
        assert_eq!(bytes[from..from + 4096], there[to..to + 4096], "block {i}");
    }

    ours.fill(0);
    let read =
        a.transfer_flat(Op::Read, (dram, &near), "b", (dram, &far), TransferOptions::default()).unwrap();
    for _ in 0..3 {
        read.post().unwrap();
        assert_eq!(read.wait(WAIT).unwrap(), Status::Done);
    }
    let mut back = vec![0; bytes.len()];
    ours.copy_out(0, &mut back).unwrap();
    assert_eq!(back, bytes);
}

#[test]
fn a_closed_peer_is_lost_and_says_which_address_was_tried() {
    let (a, b) = (agent("a"), agent("b"));
    a.load_remote(&b.metadata()).unwrap();
    a.connect("b", WAIT).unwrap();
    let metadata = b.metadata();
    drop(b);
    let events = std::time::Instant::now();
    while a.check_remote("b", None) {
        assert!(events.elapsed() < Duration::from_secs(2), "the loss was not noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
    match a.load_remote(&metadata) {
        Ok(_) => {
            let error = a.connect("b", WAIT).unwrap_err();
            assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
            assert!(error.to_string().contains("tcp:127.0.0.1:"), "{error}");
        }
        Err(error) => assert_eq!(error.code(), "metadata.stale"),
    }
}

#[test]
fn a_write_that_is_cancelled_is_quiet_on_both_sides() {
    let (a, b) = (agent("a"), agent("b"));
    let len = 64 << 20;
    let ours = a.register(a.alloc(len).unwrap()).unwrap();
    let theirs = b.register(b.alloc(len).unwrap()).unwrap();
    a.load_remote(&b.metadata()).unwrap();
    let dram = MemoryKind::Dram;
    let near = blocks(ours.addr(), len as u64, 0..1);
    let far = blocks(theirs.addr(), len as u64, 0..1);
    let write =
        a.transfer_flat(Op::Write, (dram, &near), "b", (dram, &far), TransferOptions::default()).unwrap();
    let (mut at_return, mut later) = (vec![0; len], vec![0; len]);
    for round in 0..20_u64 {
        theirs.fill(0xee);
        ours.fill(round as u8);
        write.post().unwrap();
        std::thread::sleep(Duration::from_micros(round * 500));
        write.cancel().unwrap();
        ours.fill(0x77);
        theirs.copy_out(0, &mut at_return).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        theirs.copy_out(0, &mut later).unwrap();
        assert!(at_return == later, "something landed after the cancel of round {round}");
        assert!(!later.contains(&0x77), "memory was read after the cancel of round {round}");
    }
}

/// How often the threads of data streams have gone to sleep so far.
fn sleeps() -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        if comm.trim() == "kvferry-stream" {
            sum += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default();
        }
    }
    sum
}

#[test]
fn whoever_posts_and_waits_moves_small_transfers_by_itself() {
    const COUNT: u64 = 300;
    let dram = MemoryKind::Dram;
    let mut slept = Vec::new();
    let asleep = Duration::ZERO;
    for (inline_limit, spin) in [(16 << 10, asleep), (0, asleep), (16 << 10, Duration::from_millis(1))] {
        let settings = || Settings { inline_limit, spin, ..settings() };
        let agent = |name| Agent::builder(name).settings(settings()).build().unwrap();
        let (a, b) = (agent("a"), agent("b"));
        let ours = a.register(a.alloc(4096).unwrap()).unwrap();
        let theirs = b.register(b.alloc(4096).unwrap()).unwrap();
        a.load_remote(&b.metadata()).unwrap();
        let (near, far) = (blocks(ours.addr(), 4096, 0..1), blocks(theirs.addr(), 4096, 0..1));
        for op in [Op::Write, Op::Read] {
            let transfer =
                a.transfer_flat(op, (dram, &near), "b", (dram, &far), TransferOptions::default()).unwrap();
            let before = sleeps();
            for i in 0..COUNT {
                let byte = [i as u8; 4096];
                let (from, to) = if op == Op::Write { (&ours, &theirs) } else { (&theirs, &ours) };
                from.copy_in(0, &byte).unwrap();
                transfer.post().unwrap();
                assert_eq!(transfer.wait(WAIT).unwrap(), Status::Done);
                let mut there = [0; 4096];
                to.copy_out(0, &mut there).unwrap();
                assert_eq!(there, byte, "{op:?} {i}");
            }
            slept.push(sleeps() - before);
        }
    }
    println!("sleeps of stream threads in {COUNT} transfers: {slept:?}");
    // The target's thread sleeps once each time; the initiator's not at all, unless it has to do the work.
    // On a busy machine it has to now and then, since whoever waits is kept from it.
    let (alone, rest) = slept.split_at(2);
    let (helped, spinning) = rest.split_at(2);
    assert!(helped.iter().all(|n| *n > COUNT * 3 / 2), "{slept:?}");
    assert!(alone.iter().zip(helped).all(|(alone, helped)| alone * 3 < helped * 2), "{slept:?}");
    // Nor does the target's, while it still looks for the next one when that comes.
    assert!(alone.iter().zip(spinning).all(|(alone, spinning)| spinning * 2 < *alone), "{slept:?}");
}

/// Two agents with `len` bytes of memory each.
fn two_with_memory(
    len: usize,
) -> (Agent, Agent, kvferry::Registration<kvferry::SharedBuf>, kvferry::Registration<kvferry::SharedBuf>) {
    let (a, b) = (agent("a"), agent("b"));
    let ours = a.register(a.alloc(len).unwrap()).unwrap();
    let theirs = b.register(b.alloc(len).unwrap()).unwrap();
    a.load_remote(&b.metadata()).unwrap();
    (a, b, ours, theirs)
}

#[test]
fn two_small_transfers_at_once_are_both_heard_of() {
    let (a, b, ours, theirs) = two_with_memory(8192);
    let dram = MemoryKind::Dram;
    let one = |op, place: u64| {
        let near = [Block { addr: ours.addr() + place, len: 4096, device: 0 }];
        let far = [Block { addr: theirs.addr() + place, len: 4096, device: 0 }];
        let (near, far) = ((dram, &near[..]), (dram, &far[..]));
        a.transfer_flat(op, near, "b", far, TransferOptions::default()).unwrap()
    };
    let (read, write) = (one(Op::Read, 0), one(Op::Write, 4096));
    for round in 0..2000 {
        // Their answers may come in one piece, of which whoever waits for the first takes the second as well.
        read.post().unwrap();
        write.post().unwrap();
        if round % 3 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(read.wait(WAIT).unwrap(), Status::Done, "{round}");
        assert_eq!(write.wait(WAIT).unwrap(), Status::Done, "{round}");
    }
    drop(b);
}

#[test]
fn what_is_left_of_a_cancelled_read_does_not_come_into_the_next() {
    const LEN: usize = 8 << 20;
    let (a, b, ours, theirs) = two_with_memory(LEN);
    let (near, far) = (blocks(ours.addr(), 65_536, 0..128), blocks(theirs.addr(), 65_536, 0..128));
    let dram = MemoryKind::Dram;
    let read =
        a.transfer_flat(Op::Read, (dram, &near), "b", (dram, &far), TransferOptions::default()).unwrap();
    let mut there = vec![0; LEN];
    for round in 0..100_u64 {
        theirs.copy_in(0, &vec![1; LEN]).unwrap();
        read.post().unwrap();
        std::thread::sleep(Duration::from_micros(30 * (round % 50)));
        if read.cancel().is_err() || read.status() != Status::Cancelled {
            continue;
        }
        theirs.copy_in(0, &vec![2; LEN]).unwrap();
        read.post().unwrap();
        assert_eq!(read.wait(WAIT).unwrap(), Status::Done, "{round}");
        ours.copy_out(0, &mut there).unwrap();
        let stale = there.iter().filter(|byte| **byte != 2).count();
        assert_eq!(stale, 0, "round {round}: bytes of the attempt before");
    }
    drop(b);
}
