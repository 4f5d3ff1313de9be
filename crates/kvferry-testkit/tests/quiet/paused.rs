//! A copier that is stopped between its look at the epoch and its copy: nobody is told that the memory is free.

use std::time::Duration;

use kvferry_testkit::harness::{Failure, Launch, Memory, Place, Request, State, Trap, TrapAct, link};

use crate::{
    CHILD,
    rig::{By, Rig, SEED},
};

const BYTES: u64 = 64 << 20;

/// Posts a transfer whose executor stops as a whole in front of its sixth chunk.
fn stopped_in_a_transfer(by: By, write: bool) -> (Rig, u64) {
    let rig = Rig::new(by, write, BYTES, 1);
    let transfer = rig.prepared(0);
    rig.executor().expect::<()>(&Request::Arm(Trap { place: Place::Copy, after: 5, act: TrapAct::Stop }));
    // The answer may be stopped as well.
    drop(rig.a.begin::<()>(&Request::Post { transfer }));
    rig.executor().await_stopped();
    (rig, transfer)
}

fn code(outcome: Result<(), Failure>) -> String {
    outcome.err().map(|failure| failure.code).unwrap_or_default()
}

/// Nothing lands any more in the pool.
fn expect_still(rig: &Rig) {
    let pool = rig.pools[0].buffer;
    let before = rig.receiver().scan(pool, SEED);
    assert_eq!(before.foreign(), 0);
    assert!(before.poison > 0, "the transfer was over");
    for pause in [50, 950] {
        std::thread::sleep(Duration::from_millis(pause));
        assert_eq!(
            rig.receiver().scan(pool, SEED),
            before,
            "{:?}: memory changed after it was handed back",
            rig.by
        );
    }
}

#[test]
fn a_stopped_initiator_keeps_the_targets_region_in_quarantine() {
    for by in [By::Cma, By::Map] {
        for write in [true, false] {
            let (rig, transfer) = stopped_in_a_transfer(by, write);
            let region = if write { rig.pools[0].region } else { rig.source.region };
            let again = Request::Deregister { regions: vec![region], timeout_ms: Some(200) };
            for _ in 0..3 {
                let failure = rig.b.ask::<()>(&again).expect_err("a stopped copier holds the region");
                assert_eq!(failure.code, "deregister.busy");
                assert!(failure.text.contains("\"a\""), "who is busy? {}", failure.text);
            }
            let quarantined = |rig: &Rig| {
                let regions: Vec<kvferry_testkit::harness::RegionState> = rig.b.expect(&Request::Regions);
                regions.iter().any(|r| r.id == region && r.quarantined)
            };
            assert!(quarantined(&rig));
            assert_eq!(rig.b.stats().quarantined, 1);

            // Other peers of the target are not affected, and find nothing of the region.
            let c = Launch::new(CHILD, "c").start();
            let near = c.registered(Memory::Private, 1 << 20).buffer;
            let free = rig.b.registered(Memory::Private, 1 << 20).buffer;
            c.fill(near, 5);
            link(&c, &rig.b);
            c.run(&c.write(near, &rig.b, free));
            rig.b.expect_filled(free, 5);
            let taken = if write { rig.pools[0].buffer } else { rig.source.buffer };
            let refused = c.transfer(&kvferry_testkit::harness::TransferSpec {
                remote: (taken.addr, 1 << 20),
                ..c.write(near, &rig.b, free)
            });
            assert_eq!(refused.unwrap_err().code, "prepare.bounds");

            rig.a.resume();
            let patient = Request::Deregister { regions: vec![region], timeout_ms: Some(10_000) };
            rig.b.ask::<()>(&patient).unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
            assert!(!quarantined(&rig));
            expect_still(&rig);
            assert_eq!(rig.a.wait(transfer, 5_000).unwrap().code(), "region.revoked");
        }
    }
}

#[test]
fn a_stopped_initiator_keeps_the_target_from_disconnecting() {
    for by in [By::Cma, By::Map] {
        let (rig, transfer) = stopped_in_a_transfer(by, true);
        let disconnect = |timeout| Request::Disconnect { peer: "a".into(), timeout_ms: Some(timeout) };
        for _ in 0..2 {
            assert_eq!(code(rig.b.ask(&disconnect(200))), "disconnect.busy", "{by:?}");
        }
        rig.a.resume();
        rig.b.ask::<()>(&disconnect(10_000)).unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
        expect_still(&rig);
        assert_eq!(rig.a.wait(transfer, 5_000).unwrap().code(), "peer.lost");
        rig.a.event("lost", "b").unwrap();
        link(&rig.a, &rig.b);
        rig.whole(0);
    }
}

#[test]
fn a_dead_initiator_no_longer_holds_the_targets_region() {
    for by in [By::Cma, By::Map] {
        let (rig, _) = stopped_in_a_transfer(by, true);
        let region = rig.pools[0].region;
        let soon = Request::Deregister { regions: vec![region], timeout_ms: Some(200) };
        assert_eq!(code(rig.b.ask(&soon)), "deregister.busy", "{by:?}");
        rig.a.kill();
        let patient = Request::Deregister { regions: vec![region], timeout_ms: Some(10_000) };
        rig.b.ask::<()>(&patient).unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
        expect_still(&rig);
    }
}

#[test]
fn a_stopped_target_that_copies_keeps_the_initiators_memory() {
    for by in [By::MapByTarget, By::CmaByTarget] {
        for write in [true, false] {
            let (rig, transfer) = stopped_in_a_transfer(by, write);
            let cancel = |timeout| Request::Cancel { transfer, timeout_ms: Some(timeout) };
            let release = |timeout| Request::Release { transfer, timeout_ms: Some(timeout) };
            for request in [cancel(200), cancel(200), release(200)] {
                let failure = rig.a.ask::<()>(&request).expect_err("a stopped copier holds the memory");
                assert_eq!(failure.code, "cancel.still_running", "{by:?}");
                assert!(failure.text.contains("\"b\""), "who is it? {}", failure.text);
            }
            let region = if write { rig.source.region } else { rig.pools[0].region };
            let deregister =
                |timeout| Request::Deregister { regions: vec![region], timeout_ms: Some(timeout) };
            assert_eq!(code(rig.a.ask(&deregister(200))), "deregister.busy", "{by:?}");
            rig.b.resume();
            rig.a.ask::<()>(&cancel(10_000)).unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
            rig.a.ask::<()>(&deregister(10_000)).unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
            expect_still(&rig);
            assert_eq!(rig.a.status(transfer), State::Cancelled);
            rig.a.ask::<()>(&release(1_000)).unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
        }
    }
}
