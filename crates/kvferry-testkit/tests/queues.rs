//! What is posted is bounded, what ends is told: queues, descriptors, futures.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use kvferry::{
    CompletionQueue, Event, LostCause, Op, PostError, Settings, Status, Transfer, TransferOptions,
};
use kvferry_testkit::hook::{Pause, Point, Slow, unpaused};
use kvferry_testkit::{MemoryClass, PATIENCE, Pair, Pattern, Side, agent_with, eventually, expect_done, run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const LEN: u64 = 1 << 20;

/// Whether the queue's descriptor is readable within a time.
fn readable(queue: &CompletionQueue, within: Duration) -> bool {
    let mut fds = [PollFd::new(queue, PollFlags::IN)];
    let timeout = Timespec::try_from(within).expect("a time");
    poll(&mut fds, Some(&timeout)).expect("a poll") == 1
}

fn drain(queue: &CompletionQueue) -> Vec<Event> {
    std::iter::from_fn(|| queue.try_next()).collect()
}

fn settings(queue_depth: usize) -> Settings {
    Settings { queue_depth, ..Settings::default() }
}

#[test]
fn so_many_transfers_can_be_posted_to_a_peer_and_no_more() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::with(settings(2), (MemoryClass::Private, MemoryClass::Private), LEN);
    let other = Side::new(agent_with("other", Settings::default()), MemoryClass::Private, LEN);
    pair.left.meet(&other);
    let make =
        |n: u64| pair.left.one_block(Op::Write, &pair.right, n * 65536, 65536, TransferOptions::default());
    let transfers: Vec<_> = (0..3).map(make).collect();
    transfers[0].post().expect("a post");
    transfers[1].post().expect("a post");
    assert_eq!(pair.left.agent.stats().queue_depth, 2);
    let error = transfers[2].post().expect_err("the queue is full");
    assert_eq!(error, PostError::Backlog { depth: 2 });
    assert_eq!((error.code(), error.remedy().is_empty()), ("post.backlog", false));
    assert_eq!(error.to_string(), "2 transfers are posted already: the queue is full (post.backlog)");
    assert_eq!(transfers[2].status(), Status::Created);
    // Another peer has a queue of its own.
    let elsewhere = pair.left.one_block(Op::Write, &other, 0, LEN, TransferOptions::default());
    elsewhere.post().expect("room");
    // A cancelled one makes room, also one that has not begun.
    pause.await_arrivals(1);
    pause.open();
    expect_done(&transfers[0]);
    eventually("room", || transfers[2].post().is_ok());
    transfers.iter().for_each(expect_done);
    expect_done(&elsewhere);
    eventually("nothing is posted any more", || pair.left.agent.stats().queue_depth == 0);
}

#[test]
fn a_failed_post_leaves_no_trace_in_the_queue() {
    let _unpaused = unpaused();
    let pair = Pair::with(settings(2), (MemoryClass::Private, MemoryClass::Private), LEN);
    let small = pair.left.one_block(Op::Write, &pair.right, 0, 64, TransferOptions::default());
    let large = pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default());
    for _ in 0..100 {
        // Too large a notification, and a post of what runs.
        small.post_with_notification(Some(vec![0; 2 << 20])).expect_err("too large");
        large.post().expect("a post");
        let again = large.post();
        assert!(again.is_ok() || again.is_err_and(|error| error == PostError::Active));
        expect_done(&large);
    }
    for _ in 0..100 {
        run(&small);
        run(&large);
    }
    assert_eq!(pair.left.agent.stats().queue_depth, 0);
}

#[test]
fn dropping_what_has_landed_gives_its_place_back() {
    let _unpaused = unpaused();
    let pair = Pair::with(settings(4), (MemoryClass::Private, MemoryClass::Private), LEN);
    let queue = pair.left.agent.completion_queue().expect("a queue");
    for n in 0..200_usize {
        // Copied by the post itself: at the drop the notification is on its way.
        let options = TransferOptions::default().notify(n.to_string()).queue(&queue);
        let transfer = pair.left.one_block(Op::Write, &pair.right, 0, 64, options);
        eventually("room", || match transfer.post() {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), "post.backlog");
                false
            }
        });
        drop(transfer);
    }
    eventually("nothing is posted", || pair.left.agent.stats().queue_depth == 0);
    // Each was told, or cancelled before it could be.
    let mut ended = 0;
    let mut told = 0;
    eventually("all have ended", || {
        ended += drain(&queue).iter().filter(|event| matches!(event, Event::Completed { .. })).count();
        told += pair.right.agent.notifications().len();
        ended == 200
    });
    assert_eq!(told as u64 + pair.left.agent.stats().cancels, 200);
}

#[test]
fn each_repost_notifies_and_completes_once() {
    // A copy that takes a while leaves time for what is still being done about the attempt before.
    let _slow = Slow::at(Point::BeforeCopy, Duration::from_micros(300));
    let pair = Pair::new(MemoryClass::Private, LEN);
    let queue = pair.left.agent.completion_queue().expect("a queue");
    let options = TransferOptions::default().notify("again").queue(&queue);
    let none = pair.left.transfer(Op::Write, &[], &pair.right, &[], options.clone()).expect("a transfer");
    // Copied by the poster, and by a thread of the pool.
    let small = pair.left.one_block(Op::Write, &pair.right, 0, 64, options.clone());
    let large = pair.left.one_block(Op::Write, &pair.right, 0, 64 << 10, options);
    let (mut posts, mut notes, mut completions) = (0, 0, 0);
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        for transfer in [&none, &small, &large] {
            run(transfer);
            posts += 1;
        }
        notes += pair.right.agent.notifications().len();
        assert_eq!(notes, posts, "done means that the peer has the notification");
        for event in drain(&queue) {
            if let Event::Completed { status, .. } = event {
                assert_eq!(status, Status::Done);
                completions += 1;
            }
        }
    }
    eventually("all completions", || {
        completions += drain(&queue).iter().filter(|event| matches!(event, Event::Completed { .. })).count();
        completions == posts
    });
    println!("{posts} posts");
}

#[test]
fn completions_come_through_a_descriptor() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, LEN);
    let queue = pair.left.agent.completion_queue().expect("a queue");
    let make = |n: u64| {
        let options = TransferOptions::default().queue(&queue);
        pair.left.one_block(Op::Write, &pair.right, n * 65536, 65536, options)
    };
    let transfers: Vec<_> = (0..16).map(make).collect();
    let silent = pair.left.one_block(Op::Write, &pair.right, 0, 65536, TransferOptions::default());
    run(&silent);
    drain(&queue);
    assert!(!readable(&queue, Duration::ZERO) && queue.is_empty());
    for _ in 0..3 {
        transfers.iter().for_each(|transfer| transfer.post().expect("a post"));
        let mut ended: HashMap<u64, Status> = HashMap::new();
        while ended.len() < transfers.len() {
            assert!(readable(&queue, PATIENCE), "{} of {}", ended.len(), transfers.len());
            // Readable means that there is one to take.
            let Some(Event::Completed { transfer, status }) = queue.try_next() else {
                panic!("no completion")
            };
            assert_eq!(ended.insert(transfer, status), None, "each once");
        }
        assert!(transfers.iter().all(|transfer| ended[&transfer.handle()] == Status::Done));
        assert!(!readable(&queue, Duration::ZERO), "an empty queue is not readable");
    }
    assert!(queue.wait(Duration::from_millis(10)).is_none());
    // Handles differ, also from those of transfers that are gone.
    let handles: Vec<_> = transfers.iter().map(Transfer::handle).collect();
    drop(transfers);
    let fresh: Vec<_> = (0..16).map(make).collect();
    assert!(fresh.iter().all(|transfer| !handles.contains(&transfer.handle())));
    assert_eq!(pair.left.agent.transfer_status(handles[0]), None);
    assert_eq!(pair.left.agent.transfer_status(fresh[0].handle()), Some(Status::Created));
}

#[test]
fn a_cancelled_and_a_failed_transfer_complete_too() {
    let pause = Pause::at(Point::BeforeCopy);
    let Pair { left, right } = Pair::new(MemoryClass::Private, LEN);
    let queue = left.agent.completion_queue().expect("a queue");
    let transfer = left.one_block(Op::Write, &right, 0, LEN, TransferOptions::default().queue(&queue));
    let completion = || loop {
        match queue.wait(PATIENCE).expect("an event") {
            Event::Completed { transfer: handle, status } => {
                assert_eq!(handle, transfer.handle());
                return status;
            }
            _ => continue,
        }
    };
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    let error = transfer.cancel_within(Duration::from_millis(20)).expect_err("a copy is held");
    assert_eq!(error.code(), "cancel.still_running", "{error}");
    assert!(error.to_string().contains("this process"), "{error}");
    assert_eq!(completion(), Status::Cancelled);
    assert_eq!(transfer.post().expect_err("it is not quiet").code(), "post.active");
    let held = transfer.release_within(Duration::from_millis(1)).expect_err("it is not quiet");
    assert_eq!(held.code(), "cancel.still_running");
    let transfer = held.transfer;
    pause.open();
    transfer.cancel().expect("now it is");
    transfer.post().expect("a post");
    assert_eq!(
        queue.wait(PATIENCE).map(|event| matches!(event, Event::Completed { status: Status::Done, .. })),
        Some(true)
    );
    drop(pause);

    let pause = Pause::at(Point::BeforeCopy);
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    let (pool, error) = right.pool.deregister_within(Duration::from_millis(20)).expect_err("a copy is held");
    assert_eq!(error.code(), "deregister.busy");
    assert!(error.to_string().contains(left.name()), "{error}");
    assert_eq!((right.agent.regions()[0].quarantined, right.agent.stats().regions_quarantined), (true, 1));
    pause.open();
    pool.deregister().expect("now nothing is");
    // Held in its only chunk it may still have finished.
    match queue.wait(PATIENCE) {
        Some(Event::Completed { status: Status::Done, .. }) => {}
        Some(Event::Completed { status: Status::Failed(fault), .. }) => {
            assert_eq!(fault.code(), "region.revoked")
        }
        other => panic!("unexpected: {other:?}"),
    }
}

#[test]
fn queues_are_independent_and_end_when_they_are_dropped() {
    let _unpaused = unpaused();
    let side = |stem| Side::new(agent_with(stem, Settings::default()), MemoryClass::Private, LEN);
    let pair = Pair { left: side("left"), right: side("right") };
    let agent = &pair.left.agent;
    let (events, one, two) = (agent.events(), agent.completion_queue(), agent.completion_queue());
    let (events, one, two) = (events.expect("a queue"), one.expect("a queue"), two.expect("a queue"));
    pair.left.meet(&pair.right);
    let clone = one.clone();
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default().queue(&one));
    let up = |queue: &CompletionQueue| matches!(queue.wait(PATIENCE), Some(Event::PeerUp { peer, .. }) if peer == pair.right.name());
    assert!(up(&events) && up(&one) && up(&two), "all queues hear of peers");
    run(&transfer);
    assert!(matches!(clone.wait(PATIENCE), Some(Event::Completed { .. })), "clones share");
    assert!(one.is_empty() && two.is_empty() && events.is_empty(), "completions go to their queue only");
    drop((one, clone));
    run(&transfer);
    drop(pair.right);
    assert!(matches!(two.wait(PATIENCE), Some(Event::PeerLost { cause: LostCause::Closed, .. })));
    assert!(matches!(events.wait(PATIENCE), Some(Event::PeerLost { .. })));
    // The agent's end is not the queue's.
    drop((transfer, pair.left));
    assert!(two.try_next().is_none());
}

#[test]
fn many_threads_wait_on_one_queue() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, LEN);
    let queue = pair.left.agent.completion_queue().expect("a queue");
    let make = |n: u64| {
        let options = TransferOptions::default().queue(&queue);
        pair.left.one_block(Op::Write, &pair.right, n * 4096, 4096, options)
    };
    let transfers: Vec<_> = (0..128).map(make).collect();
    run(&transfers[0]);
    // Who waits for the transfer may know of its end before the queue does.
    while !matches!(queue.wait(PATIENCE).expect("its end"), Event::Completed { .. }) {}
    let is_completion = |event| match event {
        Event::Completed { .. } => true,
        // The first transfer has connected.
        Event::PeerUp { .. } => false,
        other => panic!("{other:?}"),
    };
    let counted: usize = thread::scope(|scope| {
        let count = || {
            let mut count = 0;
            while let Some(event) = queue.wait(Duration::from_millis(500)) {
                count += usize::from(is_completion(event));
            }
            count
        };
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        transfers.iter().for_each(|transfer| transfer.post().expect("a post"));
        waiters.into_iter().map(|waiter| waiter.join().expect("no panic")).sum()
    });
    assert_eq!(counted, transfers.len());
}

/// Wakes the thread that made it.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread; counts its polls.
fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut polls) = (Context::from_waker(&waker), 0);
    let mut future = pin!(future);
    let deadline = Instant::now() + PATIENCE;
    loop {
        polls += 1;
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, polls);
        }
        thread::park_timeout(PATIENCE);
        assert!(Instant::now() < deadline, "the future was not woken");
    }
}

#[test]
fn a_future_ends_with_the_transfer() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, LEN);
    let options = TransferOptions::default().notify("done");
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, LEN, options);
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| block_on(transfer.completion()))).collect();
        // One that is polled once and dropped changes nothing.
        let mut dropped = Box::pin(transfer.completion());
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(dropped);
        pause.open();
        for waiter in waiting {
            let (status, polls) = waiter.join().expect("no panic");
            assert_eq!(status, Status::Done);
            assert!(polls <= 8, "it does not spin: {polls} polls");
        }
    });
    assert_eq!(pair.right.agent.notifications().len(), 1);
    // Of what has ended it is ready at once.
    assert_eq!(block_on(transfer.completion()), (Status::Done, 1));
    transfer.post().expect("a post");
    let (status, _) = block_on(async {
        let first = transfer.completion().await;
        (first, transfer.completion().await)
    });
    assert_eq!(status, (Status::Done, Status::Done));
}

#[test]
fn a_future_hears_of_failure_and_of_cancel() {
    let pause = Pause::at(Point::BeforeCopy);
    let Pair { left, right } = Pair::new(MemoryClass::Private, LEN);
    let transfer = left.one_block(Op::Read, &right, 0, LEN, TransferOptions::default());
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    let status = thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(transfer.completion()).0);
        let _ = transfer.cancel_within(Duration::from_millis(1));
        waiter.join().expect("no panic")
    });
    assert_eq!(status, Status::Cancelled);
    pause.open();
    transfer.cancel().expect("quiet");
    drop(pause);

    let pause = Pause::at(Point::BeforeCopy);
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    let status = thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(transfer.completion()).0);
        left.agent.remove_remote(right.name()).expect("a peer");
        waiter.join().expect("no panic")
    });
    let Status::Failed(fault) = status else { panic!("{status}") };
    assert_eq!(fault.code(), "peer.lost");
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, LEN);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default());
    // Never posted, it has not ended either.
    let error = transfer.wait(Duration::from_millis(1)).expect_err("not posted");
    assert_eq!(error.code(), "wait.timeout");
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    let begun = Instant::now();
    let error = transfer.wait(Duration::from_millis(50)).expect_err("a copy is held");
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert_eq!(error.to_string(), "the transfer has not ended within 50ms (wait.timeout)");
    assert_eq!(transfer.wait(Duration::ZERO).expect_err("a copy is held").waited, Duration::ZERO);
    assert_eq!(transfer.status(), Status::Running);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| transfer.wait(Duration::MAX))).collect();
        pause.open();
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), Ok(Status::Done));
        }
    });
}

#[test]
fn a_post_waits_for_nobody() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, 16 << 20);
    pair.left.pool.fill(Pattern::new(1));
    let make =
        |n: u64| pair.left.one_block(Op::Write, &pair.right, n << 14, 1 << 14, TransferOptions::default());
    let transfers: Vec<_> = (0..512).map(make).collect();
    let large = pair.left.one_block(Op::Read, &pair.right, 8 << 20, 8 << 20, TransferOptions::default());
    large.post().expect("a post");
    pause.await_arrivals(1);
    // Every copy thread is or will be held; what is posted behind them does not wait.
    let begun = Instant::now();
    transfers.iter().for_each(|transfer| transfer.post().expect("a post"));
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(200), "512 posts took {took:?}");
    pause.open();
    transfers.iter().for_each(expect_done);
    expect_done(&large);
    assert_eq!(pair.right.pool.difference_in(Pattern::new(1), 0, 0, 8 << 20), None);
}
