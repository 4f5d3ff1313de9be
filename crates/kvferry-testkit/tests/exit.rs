//! The end of a process and of an agent: never in anybody's way.

use std::time::Duration;

use kvferry_testkit::harness::{
    Exit, Launch, Memory, PATIENCE, Place, Request, State, Times, Trap, TrapAct, Worker, eventually, link,
    now_ns, rounds,
};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

const BYTES: u64 = 128 << 20;
const BLOCK: u64 = 64 << 10;

/// What the contract adds to an exit at most, and what two busy cores add to a measurement.
const MORE: Duration = Duration::from_millis(100);
const SLACK: Duration = Duration::from_millis(100);

/// What goes on in the process that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Writing,
    Reading,
    /// The peer copies for it.
    Served,
    /// It copies for its peer.
    Serving,
}

/// Ends a process that has all that it takes to be busy, and is so if `posted`. Returns how long that took.
fn end(busy: Busy, posted: bool, exit: Exit) -> Duration {
    let (a, b) = (Launch::new(CHILD, "a").start(), Launch::new(CHILD, "b").start());
    let near =
        a.registered(if busy == Busy::Served { Memory::Shared } else { Memory::Private }, BYTES).buffer;
    let far =
        b.registered(if busy == Busy::Serving { Memory::Shared } else { Memory::Private }, BYTES).buffer;
    link(&a, &b);
    link(&b, &a);
    let (initiator, spec) = match busy {
        Busy::Serving => (&b, b.write(far, &a, near)),
        Busy::Reading => (&a, a.read(near, &b, far)),
        Busy::Writing | Busy::Served => (&a, a.write(near, &b, far)),
    };
    let transfer = initiator.transfer(&spec.in_blocks_of(BLOCK)).unwrap();
    if posted {
        initiator.post(transfer).unwrap();
    }
    let begun = now_ns();
    drop(a.begin::<()>(&Request::Exit(exit)));
    let status = a.reap();
    let took = Duration::from_nanos(now_ns() - begun);
    assert!(status.success(), "{busy:?}, {exit:?}: ended with {status}");
    b.event("lost", "a").unwrap_or_else(|e| panic!("{busy:?}, {exit:?}: {e:?}"));
    if posted && busy == Busy::Serving {
        let ended = b.wait(transfer, 5_000).unwrap_or_else(|e| panic!("{busy:?}, {exit:?}: {e:?}"));
        // In good order the regions go first.
        let codes = ["peer.lost", if exit == Exit::Orderly { "region.revoked" } else { "peer.lost" }];
        assert!(ended == State::Done || codes.contains(&ended.code()), "{busy:?}, {exit:?}: {ended:?}");
    }
    took
}

fn ends_in_time(exit: Exit) {
    for busy in [Busy::Writing, Busy::Reading, Busy::Served, Busy::Serving] {
        let (mut idle, mut times) = (Times::default(), Times::default());
        for _ in 0..rounds(4) {
            idle.push(end(busy, false, exit));
            times.push(end(busy, true, exit));
        }
        idle.print(&format!("{exit:?}: idle before {busy:?}"));
        times.print(&format!("{exit:?}: {busy:?}"));
        let most = idle.quantile(0.5) + MORE + SLACK;
        assert!(times.longest() < most, "{exit:?}, {busy:?}: {:?} rather than {most:?}", times.longest());
    }
}

#[test]
fn a_process_that_exits_while_a_transfer_runs() {
    ends_in_time(Exit::Now);
}

#[test]
fn a_process_that_drops_its_agent_and_returns_while_a_transfer_runs() {
    ends_in_time(Exit::Orderly);
}

/// Closes an agent; returns how long the drop took.
fn close(worker: &Worker) -> Duration {
    Duration::from_nanos(worker.expect(&Request::Close))
}

#[test]
fn an_agent_dropped_with_live_transfers_and_registrations() {
    let b = Launch::new(CHILD, "b").start();
    let mut times = Times::default();
    for round in 0..rounds(10) {
        let a = Launch::new(CHILD, "a").start();
        let near = a.registered(Memory::Private, BYTES / 2);
        let shared = a.registered(Memory::Shared, BYTES / 2);
        let (far, back) = (b.registered(Memory::Private, BYTES / 2), b.registered(Memory::Shared, BYTES / 2));
        b.poison(far.buffer);
        link(&a, &b);
        link(&b, &a);
        let there = a.transfer(&a.write(near.buffer, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
        let served = a.transfer(&a.write(shared.buffer, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
        let into = b.transfer(&b.write(back.buffer, &a, near.buffer).in_blocks_of(BLOCK)).unwrap();
        for (worker, transfer) in [(&a, there), (&a, served), (&b, into)] {
            worker.post(transfer).unwrap();
        }
        let took = close(&a);
        assert!(took < MORE + SLACK, "round {round}: {took:?}");
        times.push(took);
        let lost = b.event("lost", "a").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(lost.cause, "it closed its agent");
        let ended = b.wait(into, 5_000).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(ended == State::Done || ["peer.lost", "region.revoked"].contains(&ended.code()), "{ended:?}");
        b.release(into).unwrap_or_else(|e| panic!("{e:?}"));
        // Nothing of the closed agent writes any more.
        let settled = b.scan(far.buffer, 0);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(b.scan(far.buffer, 0), settled, "round {round}: a closed agent writes");
        // The process itself lives on and can have another agent.
        a.build();
        link(&b, &a);
        for registered in [far, back] {
            b.deregister(registered.region).unwrap_or_else(|e| panic!("{e:?}"));
            b.expect::<()>(&Request::Free { buffer: registered.buffer.index });
        }
        drop(a);
        b.event("lost", "a").unwrap_or_else(|e| panic!("{e:?}"));
    }
    times.print("drop with live transfers");
}

#[test]
fn a_drop_does_not_wait_for_a_stopped_peer() {
    // The peer stops in the middle of a copy into our memory by cma and by map, in one for us, and with ours into its memory.
    for (near, far, copies) in [
        (Memory::Private, Memory::Private, true),
        (Memory::Shared, Memory::Private, true),
        (Memory::Private, Memory::Shared, false),
    ] {
        let (a, b) = (Launch::new(CHILD, "a").start(), Launch::new(CHILD, "b").start());
        let near = a.registered(near, BYTES / 2);
        let far = b.registered(far, BYTES / 2);
        link(&a, &b);
        link(&b, &a);
        let there = a.transfer(&a.write(near.buffer, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
        let into = b.transfer(&b.write(far.buffer, &a, near.buffer).in_blocks_of(BLOCK)).unwrap();
        if copies {
            b.expect::<()>(&Request::Arm(Trap { place: Place::Copy, after: 3, act: TrapAct::Stop }));
        }
        drop(b.begin::<()>(&Request::Post { transfer: into }));
        a.post(there).unwrap();
        if copies {
            b.await_stopped()
        } else {
            b.stop()
        }
        let took = close(&a);
        println!("{took:?}");
        assert!(took < MORE + SLACK, "a drop took {took:?}");
        b.resume();
        b.event("lost", "a").unwrap_or_else(|e| panic!("{e:?}"));
    }
}

#[test]
fn a_transfer_dropped_in_a_copy_that_hangs_blocks_nobody() {
    let (a, b) = (Launch::new(CHILD, "a").start(), Launch::new(CHILD, "b").start());
    let near = a.registered(Memory::Private, BYTES / 2);
    let far = b.registered(Memory::Private, BYTES / 2);
    link(&a, &b);
    let transfer = a.transfer(&a.write(near.buffer, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
    a.expect::<()>(&Request::Arm(Trap { place: Place::Copy, after: 1, act: TrapAct::Hold }));
    a.post(transfer).unwrap();
    assert!(eventually(PATIENCE, || a.expect::<(u64, u64)>(&Request::Trapped).0 > 0));
    let begun = now_ns();
    a.expect::<()>(&Request::Discard { transfer });
    let took = Duration::from_nanos(now_ns() - begun);
    assert!(took < MORE, "a drop took {took:?}");
    // Its memory is held all the same.
    let soon = Request::Deregister { regions: vec![near.region], timeout_ms: Some(100) };
    assert_eq!(a.ask::<()>(&soon).unwrap_err().code, "deregister.busy");
    let took = {
        let begun = now_ns();
        let closed = close(&a);
        println!("closed in {closed:?}");
        Duration::from_nanos(now_ns() - begun)
    };
    assert!(took < MORE + SLACK, "a drop took {took:?}");
    a.expect::<()>(&Request::Spring);
}
