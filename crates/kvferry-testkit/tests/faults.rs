//! What the engine makes of transports that fail.

use std::sync::Arc;
use std::time::Duration;

use kvferry::{
    Agent, Block, CompletionQueue, Event, FaultCause, FaultSide, LostCause, MemoryKind, Op, RegionOwner,
    Settings, Status, Transfer, TransferOptions,
};
use kvferry_testkit::hook::{Pause, Point, unpaused};
use kvferry_testkit::{
    Call, Fault, Faulty, MemoryClass, PATIENCE, Pair, Pattern, PrivateMemory, Recording, Side, agent,
    eventually, expect_done, run, tapped, unique_name,
};

const LEN: u64 = 1 << 20;

/// A pair of which each side's transport can be made to fail.
fn faulty_pair() -> (Pair, [Arc<Faulty>; 2]) {
    let taps = [0; 2].map(|_| Arc::new(Faulty::default()));
    let side = |stem, tap: &Arc<Faulty>| {
        let tap = tap.clone();
        let agent = Agent::builder(unique_name(stem)).settings(Settings::default());
        let agent = agent.wrap_transport(move |inner| tapped(&tap, inner)).build().expect("an agent");
        Side::new(agent, MemoryClass::Private, LEN)
    };
    let pair = Pair { left: side("left", &taps[0]), right: side("right", &taps[1]) };
    pair.meet();
    (pair, taps)
}

#[track_caller]
fn expect_failed(transfer: &Transfer, code: &str) -> FaultCause {
    match transfer.wait(PATIENCE) {
        Ok(Status::Failed(fault)) => {
            assert_eq!(fault.code(), code, "{fault}");
            assert!(!fault.remedy().is_empty());
            fault.cause.clone()
        }
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// Posts over a link that has just come back: until the transfer is ready for it, the answer is `link.lost`.
#[track_caller]
fn post_soon(transfer: &Transfer) {
    eventually("a post over the new link", || match transfer.post() {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.code(), "link.lost", "{error}");
            false
        }
    });
}

#[track_caller]
fn await_lost(events: &CompletionQueue) -> LostCause {
    loop {
        if let Event::PeerLost { cause, .. } = events.wait(PATIENCE).expect("an event") {
            return cause;
        }
    }
}

#[test]
fn a_failed_operation_fails_its_transfer_with_that_cause_and_tells_nobody() {
    let _unpaused = unpaused();
    let (pair, [tap, _]) = faulty_pair();
    let queue = pair.left.agent.completion_queue().expect("a queue");
    let options = TransferOptions::default().notify("done").queue(&queue);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, LEN, options);
    let causes = [
        FaultCause::Unmapped { side: FaultSide::Remote, block: 3, addr: 0x7f00 },
        FaultCause::Denied { detail: "the test says so".into() },
        FaultCause::Revoked { side: FaultSide::Local },
    ];
    for cause in &causes {
        for fault in [Fault::AtOnce(cause.clone()), Fault::AtTheEnd(cause.clone())] {
            tap.fail_next(fault);
            transfer.post().expect("a post");
            assert_eq!(&expect_failed(&transfer, cause.code()), cause);
            // Quiet soon, so that it can be cancelled and posted again.
            transfer.cancel().expect("quiet");
        }
    }
    let stats = pair.left.agent.stats();
    assert!(causes.iter().all(|cause| stats.failures.get(cause.code()) == Some(&2)), "{stats:?}");
    assert_eq!(stats.cancels, 0, "what has failed is not cancelled");
    pair.left.pool.fill(Pattern::new(1));
    run(&transfer);
    pair.right.pool.verify(Pattern::new(1));
    assert_eq!(pair.right.agent.notifications().len(), 1);
    let ended =
        std::iter::from_fn(|| queue.try_next()).filter(|event| matches!(event, Event::Completed { .. }));
    assert_eq!(ended.count(), 7);
}

#[test]
fn a_transport_without_room_refuses_the_post_and_takes_it_later() {
    let _unpaused = unpaused();
    let (pair, [tap, _]) = faulty_pair();
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default().notify("done"));
    for _ in 0..3 {
        tap.fail_next(Fault::Backlog);
        let error = transfer.post().expect_err("no room");
        assert_eq!(error.code(), "post.backlog", "{error}");
        transfer.cancel().expect("nothing runs");
    }
    run(&transfer);
    assert_eq!(pair.right.agent.notifications().len(), 1);
    assert_eq!(pair.left.agent.stats().queue_depth, 0);
}

#[test]
fn a_refused_attachment_says_why_on_the_side_that_connects() {
    let _unpaused = unpaused();
    let (pair, taps) = faulty_pair();
    for tap in &taps {
        let (left, right) = (&pair.left.agent, pair.right.name());
        let _ = left.remove_remote(right);
        tap.refuse_attachments("not today");
        pair.left.meet(&pair.right);
        let error = left.connect(right, PATIENCE).expect_err("refused by one side");
        assert_eq!(error.code(), "connect.refused", "{error}");
        assert!(error.to_string().contains("not today"), "{error}");
        tap.admit_attachments();
        left.connect(right, PATIENCE).expect("another try");
        run(&pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default()));
    }
    // With nobody else's attachment in the way.
    let (left, right) = (agent("left"), Arc::new(Faulty::default()));
    let tap = right.clone();
    let right_agent = Agent::builder(unique_name("right")).settings(Settings::default());
    let right_agent = right_agent.wrap_transport(move |inner| tapped(&tap, inner)).build().expect("an agent");
    right.refuse_attachments("not today");
    left.load_remote(&right_agent.metadata()).expect("metadata");
    let error = left.connect(right_agent.name(), PATIENCE).expect_err("refused by the target");
    assert_eq!(error.code(), "connect.refused", "{error}");
    assert!(error.to_string().contains("not today"), "{error}");
    right.admit_attachments();
    left.connect(right_agent.name(), PATIENCE).expect("another try");
}

#[test]
fn a_lost_link_fails_what_runs_and_comes_back_once() {
    let pause = Pause::at(Point::BeforeCopy);
    let (pair, [tap, _]) = faulty_pair();
    let (left, right) = (&pair.left.agent, pair.right.name());
    let events = left.events().expect("a queue");
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default().notify("done"));
    for round in 0..3 {
        post_soon(&transfer);
        pause.await_arrivals(round + 1);
        tap.lose_links(right);
        let cause = expect_failed(&transfer, "link.lost");
        assert!(matches!(cause, FaultCause::LinkLost { .. }), "{cause}");
        pause.allow(1);
        transfer.cancel().expect("quiet");
        // The metadata stays, and the engine connects anew by itself.
        assert!(left.check_remote(right, None));
        left.connect(right, PATIENCE).expect("a new link");
    }
    drop(pause);
    let _unpaused = unpaused();
    pair.left.pool.fill(Pattern::new(2));
    // What was created before the loss works over the new link.
    post_soon(&transfer);
    expect_done(&transfer);
    pair.right.pool.verify(Pattern::new(2));
    assert_eq!(pair.right.agent.notifications().len(), 1);
    let lost =
        std::iter::from_fn(|| events.try_next()).filter(|event| matches!(event, Event::PeerLost { .. }));
    assert_eq!(lost.count(), 0, "the peer itself was never lost");
}

#[test]
fn notifications_survive_a_lost_link() {
    let _unpaused = unpaused();
    let (pair, [tap, _]) = faulty_pair();
    let (left, right) = (&pair.left.agent, pair.right.name());
    left.connect(right, PATIENCE).expect("a link");
    let mut sent = 0_u64;
    let mut received = Vec::new();
    for _ in 0..20 {
        for n in 0..50 {
            if n == 25 {
                tap.lose_links(right);
            }
            // While there is no link a call waits for it or says that there is none; it never lies.
            match left.notify(right, &sent.to_le_bytes()) {
                Ok(()) => sent += 1,
                Err(error) => assert!(["link.lost", "notify.backlog"].contains(&error.code()), "{error}"),
            }
        }
        received.extend(pair.right.agent.notifications());
    }
    eventually("the last one", || {
        received.extend(pair.right.agent.notifications());
        received.last().is_some_and(|note| note.payload == (sent - 1).to_le_bytes())
    });
    // At most once, in order, and none is missing that was accepted.
    let numbers: Vec<u64> = received
        .into_iter()
        .map(|note| u64::from_le_bytes(note.payload.try_into().expect("a number")))
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(numbers.len() as u64, sent);
}

#[test]
fn a_link_that_does_not_come_back_means_that_the_peer_is_lost() {
    let _unpaused = unpaused();
    let (pair, [tap, _]) = faulty_pair();
    let (left, right) = (&pair.left.agent, pair.right.name());
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default());
    run(&transfer);
    let events = left.events().expect("a queue");
    tap.refuse_attachments("no more");
    tap.lose_links(right);
    let cause = await_lost(&events);
    assert!(matches!(&cause, LostCause::Unreachable(text) if text.contains("no more")), "{cause}");
    assert!(!left.check_remote(right, None));
    assert_eq!(transfer.post().expect_err("nobody is there").code(), "peer.lost");
    tap.admit_attachments();
    // Silence or a broken line is no death: the same life is welcome again.
    pair.left.meet(&pair.right);
    run(&pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default()));
}

#[test]
fn a_dead_peer_is_told_at_once_and_never_taken_back() {
    let pause = Pause::at(Point::BeforeCopy);
    let (pair, [tap, _]) = faulty_pair();
    let (left, right) = (&pair.left.agent, pair.right.name());
    let events = left.events().expect("a queue");
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default());
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    tap.declare_dead(right);
    let cause = expect_failed(&transfer, "peer.lost");
    assert!(matches!(cause, FaultCause::PeerLost { cause: LostCause::Died, .. }), "{cause}");
    assert_eq!(await_lost(&events), LostCause::Died);
    assert!(!left.check_remote(right, None));
    assert_eq!(
        left.load_remote(&pair.right.agent.metadata()).expect_err("it is dead").code(),
        "metadata.stale"
    );
    let error = transfer.cancel_within(Duration::from_millis(10)).expect_err("the copy is held");
    assert_eq!(error.code(), "cancel.still_running");
    pause.open();
    transfer.cancel().expect("now it is quiet");
}

#[test]
fn the_engine_asks_transports_as_the_contract_says() {
    let _unpaused = unpaused();
    let recording = Arc::new(Recording::default());
    let tap = recording.clone();
    let agent = Agent::builder(unique_name("left")).settings(Settings::default());
    let agent = agent.wrap_transport(move |inner| tapped(&tap, inner)).build().expect("an agent");
    let left = Side::new(agent, MemoryClass::Private, LEN);
    let right = Side::new(kvferry_testkit::agent("right"), MemoryClass::Private, LEN);
    left.meet(&right);
    let transfer = left.one_block(Op::Write, &right, 0, LEN, TransferOptions::default());
    transfer.post().expect("a post");
    expect_done(&transfer);
    run(&transfer);
    let id = left.pool.ids()[0];
    drop(transfer);
    // A copy thread may hold it for a moment longer.
    eventually("the operation is let go", || {
        recording.count(|call| matches!(call, Call::Dropped { .. })) == 1
    });
    left.pool.deregister().expect("nobody uses it");
    left.agent.disconnect(right.name()).expect("nothing runs");
    eventually("the loss", || recording.count(|call| matches!(call, Call::Lost { .. })) > 0);
    let calls = recording.calls();
    let at = |wanted: &dyn Fn(&Call) -> bool| {
        calls.iter().position(wanted).unwrap_or_else(|| panic!("{calls:#?}"))
    };
    let order = [
        at(&|call| matches!(call, Call::Attach { initiator: true, peer } if peer == right.name())),
        at(&|call| matches!(call, Call::Ready { .. })),
        at(&|call| matches!(call, Call::Admit { op: Op::Write, blocks: 1, bytes: LEN, ops: 1, .. })),
        at(&|call| matches!(call, Call::Submit { attempt: 1, .. })),
        at(&|call| matches!(call, Call::Done { attempt: 1, segments: 1, .. })),
        at(&|call| matches!(call, Call::Submit { attempt: 2, .. })),
        at(&|call| matches!(call, Call::Done { attempt: 2, .. })),
        at(&|call| matches!(call, Call::Dropped { .. })),
        at(&|call| matches!(call, Call::Revoke { scope, .. } if scope.regions == [id])),
        at(&|call| matches!(call, Call::Revoke { scope, .. } if scope.all)),
        at(&|call| matches!(call, Call::Lost { .. })),
    ];
    assert!(order.is_sorted(), "{calls:#?}");
    let epochs: Vec<u64> = calls
        .iter()
        .filter_map(|call| match call {
            Call::Revoke { epoch, .. } => Some(*epoch),
            _ => None,
        })
        .collect();
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    assert_eq!(recording.violations(), Vec::<String>::new());
}

/// Registered memory must stay mapped; where it does not, the kernel's answer is told as well as it can be.
#[test]
fn memory_that_vanished_is_named_by_side_block_and_address() {
    let _unpaused = unpaused();
    const BLOCK: u64 = 64 << 10;
    for side in [FaultSide::Local, FaultSide::Remote] {
        for op in [Op::Write, Op::Read] {
            let mut near = PrivateMemory::new(16 * BLOCK);
            let mut far = PrivateMemory::new(16 * BLOCK);
            let (left, right) = (agent("left"), agent("right"));
            let region = |memory: &PrivateMemory| memory.regions();
            // SAFETY: both live longer than the agents. What is unmapped below breaks the contract on purpose: it is
            // touched by system calls only.
            let registered =
                unsafe { (left.register_raw(&region(&near)), right.register_raw(&region(&far))) };
            registered.0.and(registered.1).expect("two regions");
            left.load_remote(&right.metadata()).expect("metadata");
            // Each side's block n lies elsewhere, so that none merge.
            let place = |memory: &PrivateMemory, n: u64| Block {
                addr: memory.addr() + n * BLOCK,
                len: BLOCK,
                device: 0,
            };
            let ours: Vec<_> = (0..16).map(|n| place(&near, n)).collect();
            let theirs: Vec<_> = (0..16).map(|n| place(&far, 15 - n)).collect();
            let kind = MemoryKind::Dram;
            let options = TransferOptions::default().notify("never");
            let transfer = left.transfer_flat(op, (kind, &ours), right.name(), (kind, &theirs), options);
            let transfer = transfer.expect("a transfer");
            let (memory, offset) = match side {
                FaultSide::Local => (&mut near, 7 * BLOCK + 8192),
                _ => (&mut far, 8 * BLOCK + 8192),
            };
            memory.unmap(offset, 4096);
            let gone = memory.addr() + offset;
            transfer.post().expect("a post");
            let cause = expect_failed(&transfer, "region.unmapped");
            assert_eq!(cause, FaultCause::Unmapped { side, block: 7, addr: gone });
            let text = cause.to_string();
            assert!(text.contains(&format!("memory is not mapped at {gone:#x} (block 7)")), "{text}");
            transfer.cancel().expect("quiet");
            assert!(right.notifications().is_empty());
            drop(transfer);
        }
    }
}
