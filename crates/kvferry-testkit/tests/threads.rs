//! One agent, many threads: calls of any kind at any time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kvferry::{Agent, Event, Op, PostError, Settings, Status, Transfer, TransferOptions};
use kvferry_testkit::hook::{Pause, Point, unpaused};
use kvferry_testkit::{
    MemoryClass, PATIENCE, Pair, Pattern, Rng, Side, agent, eventually, expect_done, run, unique_name,
};

const LEN: u64 = 1 << 20;

#[test]
fn of_two_threads_that_post_one_handle_exactly_one_wins() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, LEN);
    let queue = pair.left.agent.completion_queue().expect("a queue");
    let options = TransferOptions::default().notify("once").queue(&queue);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, LEN, options);
    let barrier = Barrier::new(2);
    let rounds = 1000;
    let mut completions = 0;
    for round in 0..rounds {
        let post = || {
            barrier.wait();
            transfer.post()
        };
        let posts = thread::scope(|scope| {
            let threads = [scope.spawn(post), scope.spawn(post)];
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let won = posts.iter().filter(|post| post.is_ok()).count();
        let lost = posts.iter().filter(|post| **post == Err(PostError::Active)).count();
        assert_eq!((won, lost), (1, 1), "round {round}: {posts:?}");
        pause.allow(1);
        expect_done(&transfer);
        while let Some(event) = queue.try_next() {
            completions += usize::from(matches!(event, Event::Completed { .. }));
        }
    }
    eventually("one completion a post", || {
        completions += usize::from(matches!(queue.try_next(), Some(Event::Completed { .. })));
        completions == rounds
    });
    assert_eq!(pause.arrivals(), rounds);
    assert_eq!(pair.right.agent.notifications().len(), rounds);
    assert_eq!(pair.left.agent.stats().queue_depth, 0);
}

#[test]
fn a_cancel_that_comes_before_the_copy_has_begun_still_stops_it() {
    let len = 64 << 20;
    for (near, far) in [
        (MemoryClass::Private, MemoryClass::Private),
        (MemoryClass::Private, MemoryClass::Shared),
        (MemoryClass::Shared, MemoryClass::Private),
    ] {
        // The thread that posts may have to wait for a core after its copy has begun: 32 chunks on two threads take 160 ms.
        let pause = Pause::with(Point::BeforeSubmit, |at| {
            if at == Point::BeforeCopy {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let pair = Pair::with(Settings::default(), (near, far), len);
        pair.left.pool.fill(Pattern::new(1));
        pair.right.pool.fill(Pattern::POISON);
        let transfer = pair.left.one_block(Op::Write, &pair.right, 0, len, TransferOptions::default());
        thread::scope(|scope| {
            let posting = scope.spawn(|| transfer.post());
            pause.await_arrivals(1);
            let cancelling = scope.spawn(|| transfer.cancel());
            eventually("the cancel", || transfer.status() == Status::Cancelled);
            pause.open();
            posting.join().expect("no panic").expect("a post");
            cancelling.join().expect("no panic").expect("quiet");
        });
        let copied = pair.right.pool.matching(Pattern::new(1));
        assert!(copied < len / 2, "{near:?} to {far:?}: {copied} bytes were copied after the cancel");
    }
}

#[test]
fn a_post_that_is_cancelled_while_it_begins_takes_nothing_from_the_next() {
    let first = AtomicBool::new(true);
    let pause = Pause::with(Point::BeforeCopy, move |at| {
        if at == Point::Posted && first.swap(false, Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(200));
        }
    });
    let pair = Pair::new(MemoryClass::Private, LEN);
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, LEN, TransferOptions::default().notify("done"));
    thread::scope(|scope| {
        let slow = scope.spawn(|| transfer.post());
        eventually("the first post", || transfer.status() == Status::Posted);
        transfer.cancel().expect("nothing runs");
        transfer.post().expect("the next post");
        slow.join().expect("no panic").expect("a post that was cancelled");
    });
    pause.open();
    expect_done(&transfer);
    assert_eq!(pair.right.agent.notifications().len(), 1);
    assert_eq!(pair.left.agent.stats().queue_depth, 0);
}

#[test]
fn posts_and_cancels_from_many_threads_add_up() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, LEN);
    let queue = pair.left.agent.completion_queue().expect("a queue");
    let transfers: Vec<Transfer> = [64, 32 << 10, LEN]
        .map(|len| {
            let options = TransferOptions::default().notify("done").queue(&queue);
            pair.left.one_block(Op::Read, &pair.right, 0, len, options)
        })
        .into();
    let (posted, until) = (AtomicU64::new(0), Instant::now() + Duration::from_secs(2));
    let (mut ended, mut done, mut notes) = (0, 0, 0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let (transfers, posted) = (&transfers, &posted);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    while Instant::now() < until {
                        let transfer = &transfers[rng.below(3) as usize];
                        match rng.below(4) {
                            0 => drop(transfer.cancel()),
                            1 => drop(transfer.wait(Duration::from_micros(rng.below(500)))),
                            _ => match transfer.post() {
                                Ok(()) => drop(posted.fetch_add(1, Ordering::SeqCst)),
                                Err(error) => {
                                    assert!(["post.active", "notify.backlog"].contains(&error.code()))
                                }
                            },
                        }
                    }
                })
            })
            .collect();
        let mut collect = || {
            while let Some(event) = queue.try_next() {
                if let Event::Completed { status, .. } = event {
                    assert!(matches!(status, Status::Done | Status::Cancelled), "{status}");
                    ended += 1;
                    done += u64::from(status == Status::Done);
                }
            }
            notes += pair.right.agent.notifications().len() as u64;
            (ended, notes, done)
        };
        while threads.iter().any(|thread| !thread.is_finished()) {
            collect();
            thread::sleep(Duration::from_millis(1));
        }
        for transfer in &transfers {
            eventually("the end of it", || matches!(transfer.status(), Status::Done | Status::Cancelled));
        }
        let posted = posted.load(Ordering::SeqCst);
        let begun = Instant::now();
        loop {
            let (ended, notes, done) = collect();
            if (ended, notes) == (posted, done) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{posted} posts, {ended} ends, {done} done, {notes} notes");
            thread::sleep(Duration::from_millis(1));
        }
    });
    println!("{ended} posts, {done} done");
    assert!(done > 100);
    assert_eq!(pair.left.agent.stats().queue_depth, 0);
}

/// What eight threads do with one agent, at random, while its peer does the like.
struct Turmoil<'a> {
    left: &'a Agent,
    right: &'a Side,
    verified: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
}

impl Turmoil<'_> {
    const THREADS: u64 = 8;
    /// Each thread has two shares of the peer's pool: one for what it waits for, one for what it gives up without a word,
    /// which may still land while the next transfer runs.
    const SHARE: u64 = 256 << 10;

    fn thread(&self, number: u64) {
        let mut rng = Rng::new(number);
        while !self.stop.load(Ordering::SeqCst) {
            match rng.below(20) {
                0..=9 => self.transfer(number, &mut rng),
                10 => {
                    let _ = self.left.load_remote(&self.right.agent.metadata());
                }
                11 => {
                    let _ = self.left.notify(self.right.name(), b"turmoil");
                }
                12 => {
                    let _ = self.left.path(self.right.name());
                    let _ = self.left.stats().to_string();
                }
                13 => {
                    let metadata = self.left.metadata();
                    assert_eq!(
                        self.left.load_remote(&metadata).expect_err("our own").code(),
                        "metadata.self"
                    );
                }
                14 => drop(self.left.notifications()),
                15 => {
                    let _ = self.left.connect(self.right.name(), Duration::from_millis(50));
                    assert!(self.left.check_remote(self.left.name(), None));
                }
                16 => {
                    // Dropped without a word.
                    let side = Side::new(self.left.clone(), MemoryClass::Private, 4096);
                    let _ = self.left.partial_metadata(side.pool.ids(), true);
                }
                17 => {
                    let queue = self.left.completion_queue().expect("a queue");
                    let _ = queue.wait(Duration::from_millis(1));
                }
                18 if rng.below(10) == 0 => {
                    let _ = self.left.remove_remote(self.right.name());
                }
                19 if rng.below(10) == 0 => {
                    let _ = self.left.disconnect(self.right.name());
                }
                _ => thread::yield_now(),
            }
        }
    }

    /// Registers memory, moves it there and back, compares if both went well, and gives it up.
    fn transfer(&self, number: u64, rng: &mut Rng) {
        let class = if rng.below(2) == 0 { MemoryClass::Private } else { MemoryClass::Shared };
        let near = Side::new(self.left.clone(), class, Self::SHARE);
        let pattern = Pattern::new(rng.bits());
        near.pool.fill(pattern);
        let give_up = rng.below(8) == 0;
        let share = if give_up { Self::THREADS + number } else { number };
        let local = [near.pool.block(0, Self::SHARE)];
        let remote = [self.right.pool.block(share * Self::SHARE, Self::SHARE)];
        let mut arrived = true;
        for op in [Op::Write, Op::Read] {
            let options = TransferOptions::default().notify("moved");
            let done = match near.transfer(op, &local, self.right, &remote, options) {
                Err(error) => self.expected(error.code()),
                Ok(transfer) => match transfer.post() {
                    Err(error) => self.expected(error.code()),
                    Ok(()) if give_up => {
                        drop(transfer);
                        false
                    }
                    Ok(()) => match transfer.wait(PATIENCE).expect("an end") {
                        Status::Failed(fault) => {
                            // Until then something of it may land.
                            transfer.cancel().expect("quiet");
                            self.expected(fault.code())
                        }
                        status => status == Status::Done,
                    },
                },
            };
            arrived &= done;
            if op == Op::Write && arrived {
                near.pool.fill(Pattern::POISON);
            }
        }
        if arrived {
            near.pool.verify(pattern);
            self.verified.fetch_add(1, Ordering::SeqCst);
        }
        if rng.below(2) == 0 {
            near.pool.deregister().expect("memory that becomes quiet");
        }
    }

    /// Counts a refusal that others may have caused; panics for any other.
    fn expected(&self, code: &str) -> bool {
        let codes = [
            "peer.unknown",
            "peer.lost",
            "link.lost",
            "transfer.stale_list",
            "prepare.bounds",
            "prepare.stale",
            "region.revoked",
            "notify.backlog",
            "connect.refused",
            "connect.unreachable",
            "connect.timeout",
        ];
        assert!(codes.contains(&code), "{code} is nothing that others can have caused");
        self.refused.fetch_add(1, Ordering::SeqCst);
        false
    }
}

#[test]
fn eight_threads_use_one_agent_for_everything_at_once() {
    let _unpaused = unpaused();
    let left = agent("left");
    let right = Side::new(agent("right"), MemoryClass::Shared, 2 * Turmoil::THREADS * Turmoil::SHARE);
    left.load_remote(&right.agent.metadata()).expect("metadata");
    let (verified, refused, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let turmoil = Turmoil { left: &left, right: &right, verified, refused, stop };
    thread::scope(|scope| {
        for number in 0..Turmoil::THREADS {
            let turmoil = &turmoil;
            scope.spawn(move || {
                // A panic must not leave the others running for ever.
                let _stop = StopOnPanic(&turmoil.stop);
                turmoil.thread(number);
            });
        }
        scope.spawn(|| {
            let _stop = StopOnPanic(&turmoil.stop);
            while !turmoil.stop.load(Ordering::SeqCst) {
                let extra = Side::new(right.agent.clone(), MemoryClass::Private, 4096);
                right.agent.notifications();
                let _ = right.agent.load_remote(&left.metadata());
                let _ = right.agent.notify(left.name(), b"turmoil");
                thread::sleep(Duration::from_millis(2));
                extra.pool.deregister().expect("nobody uses it");
            }
        });
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until && !turmoil.stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        turmoil.stop.store(true, Ordering::SeqCst);
    });
    let (verified, refused) = (turmoil.verified.into_inner(), turmoil.refused.into_inner());
    println!("{verified} round trips verified, {refused} refused");
    assert!(verified > 50, "{verified} round trips, {refused} refused");
    // Afterwards all is as if nothing had been.
    eventually("all memory is given back", || left.regions().is_empty());
    println!("{}", left.stats());
    eventually("nothing is posted", || left.stats().queue_depth == 0);
    left.load_remote(&right.agent.metadata()).expect("metadata");
    let near = Side::new(left.clone(), MemoryClass::Private, LEN);
    near.pool.fill(Pattern::new(9));
    run(&near.one_block(Op::Write, &right, 0, LEN, TransferOptions::default()));
    assert_eq!(right.pool.difference_in(Pattern::new(9), 0, 0, LEN), None);
    eventually("old links are quiet", || left.stats().links_lingering == 0);
    assert!(left.stats().links_out <= 2, "{}", left.stats().links_out);
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn many_threads_connect_over_one_link() {
    let _unpaused = unpaused();
    for _ in 0..10 {
        let (left, right) = (agent("left"), agent("right"));
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    left.load_remote(&right.metadata()).expect("metadata");
                    left.connect(right.name(), PATIENCE).expect("a link");
                });
            }
        });
        eventually("both sides know", || left.stats().peers_up == 1 && right.stats().peers_up == 1);
        assert_eq!((left.stats().links_out, right.stats().links_in), (1, 1));
    }
}

#[test]
fn two_agents_may_connect_to_each_other_at_the_same_time() {
    let _unpaused = unpaused();
    for _ in 0..20 {
        let sides = ["left", "right"].map(|stem| Side::new(agent(stem), MemoryClass::Private, LEN));
        let [left, right] = &sides;
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for (here, there) in [(left, right), (right, left)] {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    here.meet(there);
                    run(&here.one_block(Op::Write, there, 0, 4096, TransferOptions::default()));
                });
            }
        });
    }
}

#[test]
fn many_agents_use_one_target() {
    let _unpaused = unpaused();
    let right = Side::new(agent("right"), MemoryClass::Private, 12 * LEN);
    thread::scope(|scope| {
        for n in 0..12 {
            let right = &right;
            scope.spawn(move || {
                let left = Side::new(agent("left"), MemoryClass::Private, LEN);
                left.meet(right);
                left.pool.fill(Pattern::new(n));
                let (local, remote) = ([left.pool.block(0, LEN)], [right.pool.block(n * LEN, LEN)]);
                let transfer =
                    left.transfer(Op::Write, &local, right, &remote, TransferOptions::default().notify("x"));
                let transfer = transfer.expect("a transfer");
                (0..5).for_each(|_| run(&transfer));
                assert_eq!(right.pool.difference_in(Pattern::new(n), 0, n * LEN, LEN), None);
            });
        }
    });
    assert_eq!(right.agent.notifications().len(), 60);
    eventually("all have left", || right.agent.stats().links_in == 0);
    let stats = right.agent.stats();
    assert_eq!((stats.peers_up, stats.peers_lost), (12, 12));
}

#[test]
fn closing_an_agent_under_running_transfers_takes_no_time_and_leaves_nothing_writing() {
    let _unpaused = unpaused();
    let mut rng = Rng::new(70);
    for round in 0..12 {
        let Pair { left, right } = Pair::new(MemoryClass::Private, 16 << 20);
        let op = if round % 2 == 0 { Op::Write } else { Op::Read };
        let events = right.agent.events().expect("a queue");
        let transfer = left.one_block(op, &right, 0, 16 << 20, TransferOptions::default());
        transfer.post().expect("a post");
        thread::sleep(Duration::from_micros(rng.below(2000)));
        // The side that closes is the initiator, then the target.
        let (closing, staying) = if round % 4 < 2 { (left, right) } else { (right, left) };
        let name = closing.name().to_owned();
        let Side { agent, pool } = closing;
        let begun = Instant::now();
        if round % 4 < 2 {
            drop(transfer);
            drop(pool);
            drop(agent);
            assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
            let lost = |event| matches!(event, Event::PeerLost { peer, .. } if peer == name);
            eventually("the loss", || events.try_next().is_some_and(lost));
        } else {
            drop(pool);
            drop(agent);
            assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
            match transfer.wait(PATIENCE).expect("an end") {
                Status::Done => {}
                Status::Failed(fault) => {
                    assert!(["peer.lost", "region.revoked"].contains(&fault.code()), "{fault}");
                }
                other => panic!("unexpected: {other}"),
            }
            transfer.cancel().expect("quiet");
        }
        let before = staying.pool.snapshot();
        thread::sleep(Duration::from_millis(20));
        assert!(before == staying.pool.snapshot(), "memory changes after its writer is gone");
    }
}

#[test]
fn a_clone_keeps_the_agent() {
    let _unpaused = unpaused();
    let left = Agent::builder(unique_name("left")).settings(Settings::default()).build().expect("an agent");
    let clone = left.clone();
    drop(left);
    let right = agent("right");
    clone.load_remote(&right.metadata()).expect("metadata");
    thread::scope(|scope| {
        scope.spawn(|| clone.notify(right.name(), b"hello").expect("room"));
    });
    eventually("the notification", || !right.notifications().is_empty());
}
