//! A copy that waits for a page: its memory stays held, and nobody else waits, though there is one copy thread only.

use std::time::{Duration, Instant};

use kvferry_testkit::harness::{Launch, Memory, Request, State, Worker, link, skip};

use crate::{
    CHILD,
    rig::{By, Rig, SEED},
};

const BYTES: u64 = 16 << 20;

/// Takes a page of the buffer away after it was registered; false (and says so) where this machine does not allow that.
fn withhold(worker: &Worker, buffer: usize, offset: u64) -> bool {
    match worker.ask::<()>(&Request::Withhold { buffer, offset }) {
        Ok(()) => true,
        Err(failure) => {
            skip(format!("no userfaultfd here: {}", failure.text));
            false
        }
    }
}

/// Makes sure that a transfer hangs, that it is not said to be quiet, and that it is once the page is there.
fn hangs_until_resolved(rig: &Rig, owner: &Worker, meanwhile: impl FnOnce()) {
    let pool = rig.pools[0];
    let transfer = rig.a.transfer(&rig.spec(pool.buffer)).unwrap();
    rig.a.post(transfer).unwrap();
    assert_eq!(rig.a.wait(transfer, 100).unwrap_err().code, "wait.timeout");
    let cancel = |timeout| Request::Cancel { transfer, timeout_ms: Some(timeout) };
    for request in [cancel(200), Request::Release { transfer, timeout_ms: Some(200) }] {
        let failure = rig.a.ask::<()>(&request).expect_err("a copy waits for a page");
        assert_eq!(failure.code, "cancel.still_running");
        let who = if rig.by.target_executes() { "peer \"b\"" } else { "this process" };
        assert!(failure.text.contains(who), "not {who}: {}", failure.text);
    }
    assert_eq!(rig.a.ask::<()>(&Request::Post { transfer }).unwrap_err().code, "post.active");
    let (theirs, ours) = if rig.write { (pool, rig.source) } else { (rig.source, pool) };
    let deregister = |region| Request::Deregister { regions: vec![region], timeout_ms: Some(100) };
    for (worker, region) in [(&rig.b, theirs.region), (&rig.a, ours.region)] {
        assert_eq!(
            worker.ask::<()>(&deregister(region)).unwrap_err().code,
            "deregister.busy",
            "{}",
            worker.name()
        );
    }
    meanwhile();
    owner.expect::<()>(&Request::Resolve);
    rig.a.ask::<()>(&cancel(10_000)).unwrap_or_else(|e| panic!("{e:?}"));
    rig.a
        .ask::<()>(&Request::Release { transfer, timeout_ms: Some(1_000) })
        .unwrap_or_else(|e| panic!("{e:?}"));
    for (worker, region) in [(&rig.b, theirs.region), (&rig.a, ours.region)] {
        let patient = Request::Deregister { regions: vec![region], timeout_ms: Some(10_000) };
        worker.ask::<()>(&patient).unwrap_or_else(|e| panic!("{}: {e:?}", worker.name()));
    }
    let before = rig.receiver().scan(pool.buffer, SEED);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(rig.receiver().scan(pool.buffer, SEED), before, "memory changed after it was handed back");
}

/// Another peer of `worker` moves data with it in both directions, as fast as ever.
fn others_are_not_affected(worker: &Worker) {
    let c = Launch::new(CHILD, "c").start();
    let theirs = worker.registered(Memory::Private, BYTES).buffer;
    let ours = c.registered(Memory::Private, BYTES).buffer;
    worker.fill(theirs, 3);
    link(worker, &c);
    link(&c, worker);
    let begun = Instant::now();
    worker.run(&worker.write(theirs, &c, ours).in_blocks_of(4096));
    c.expect_filled(ours, 3);
    c.fill(ours, 4);
    c.run(&c.write(ours, worker, theirs).in_blocks_of(4096));
    worker.expect_filled(theirs, 4);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "16 MiB there and back took {took:?} beside a copy that hangs");
}

#[test]
fn a_page_of_the_target_under_a_write_and_a_read() {
    for write in [true, false] {
        let rig = Rig::with_threads("1", By::Cma, write, BYTES, 1);
        let page = if write { rig.pools[0].buffer } else { rig.source.buffer };
        if !withhold(&rig.b, page.index, BYTES / 2) {
            return;
        }
        hangs_until_resolved(&rig, &rig.b, || others_are_not_affected(&rig.a));
    }
}

#[test]
fn a_page_of_the_initiator_under_a_write_and_a_read() {
    for by in [By::Cma, By::Map] {
        for write in [true, false] {
            let rig = Rig::with_threads("1", by, write, BYTES, 1);
            let page = if write { rig.source.buffer } else { rig.pools[0].buffer };
            if !withhold(&rig.a, page.index, BYTES / 2) {
                return;
            }
            hangs_until_resolved(&rig, &rig.a, || others_are_not_affected(&rig.a));
        }
    }
}

#[test]
fn a_page_under_a_copy_by_the_target() {
    for by in [By::MapByTarget, By::CmaByTarget] {
        for write in [true, false] {
            let rig = Rig::with_threads("1", by, write, BYTES, 1);
            let page = if write { rig.pools[0].buffer } else { rig.source.buffer };
            if !withhold(&rig.b, page.index, BYTES / 2) {
                return;
            }
            hangs_until_resolved(&rig, &rig.b, || others_are_not_affected(&rig.b));
        }
    }
}

#[test]
fn many_slow_pages_of_one_peer_leave_threads_for_the_others() {
    let rig = Rig::with_threads("1", By::Cma, true, BYTES, 6);
    let mut transfers = Vec::new();
    if !withhold(&rig.b, rig.pools[0].buffer.index, 0) {
        return;
    }
    // Six transfers onto the same page: each takes a thread.
    for _ in 0..6 {
        let transfer = rig.a.transfer(&rig.spec(rig.pools[0].buffer)).unwrap();
        rig.a.post(transfer).unwrap();
        transfers.push(transfer);
    }
    others_are_not_affected(&rig.a);
    rig.b.expect::<()>(&Request::Resolve);
    for transfer in transfers {
        assert_eq!(rig.a.wait(transfer, 10_000), Ok(State::Done));
    }
    rig.b.expect_filled(rig.pools[0].buffer, SEED);
}
