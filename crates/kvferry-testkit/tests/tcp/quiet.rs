//! Memory taken back by either side at random moments of a transfer: after `Ok` nothing of it moves any more.

use std::time::Duration;

use kvferry_testkit::harness::{
    Chance, Failure, Memory, Registered, Request, Scan, State, Times, Worker, link, now_ns, rounds,
};

use crate::{TORN, worker};

const BYTES: u64 = 64 << 20;
const BLOCK: u64 = 64 << 10;
const SEED: u64 = 77;

/// How long the memory is watched afterwards.
const WATCHED: Duration = Duration::from_millis(20);

/// How memory is taken back. "Here" is the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Cancel,
    Release,
    DeregisterHere,
    DeregisterThere,
    DisconnectHere,
    DisconnectThere,
}

impl Act {
    /// Whether `Ok` speaks for the memory of the initiator, and of the target: a wire takes nothing back from the other end, so
    /// whoever deregisters or disconnects vouches for its own memory alone.
    fn vouches(self) -> (bool, bool) {
        match self {
            Self::Cancel | Self::Release => (true, true),
            Self::DeregisterHere | Self::DisconnectHere => (true, false),
            Self::DeregisterThere | Self::DisconnectThere => (false, true),
        }
    }
}

/// An initiator and a target; one has the source, the other the pool.
struct Rig {
    a: Worker,
    b: Worker,
    write: bool,
    source: Registered,
    pool: Registered,
    pairs: Vec<(u32, u32)>,
}

impl Rig {
    fn new(write: bool) -> Self {
        let (a, b) = (worker("a"), worker("b"));
        let (from, to) = if write { (&a, &b) } else { (&b, &a) };
        let source = from.registered(Memory::Private, BYTES);
        from.fill(source.buffer, SEED);
        let pool = to.registered(Memory::Private, BYTES);
        link(&a, &b);
        let pairs = Chance::seeded().same_pairs((BYTES / BLOCK) as u32);
        Self { a, b, write, source, pool, pairs }
    }

    fn receiver(&self) -> &Worker {
        if self.write { &self.b } else { &self.a }
    }

    fn sender(&self) -> &Worker {
        if self.write { &self.a } else { &self.b }
    }

    fn transfer(&self) -> u64 {
        let spec = if self.write {
            self.a.write(self.source.buffer, &self.b, self.pool.buffer)
        } else {
            self.a.read(self.pool.buffer, &self.b, self.source.buffer)
        };
        let spec = spec.in_blocks_of(BLOCK).paired(&self.pairs);
        self.a.transfer(&spec).unwrap_or_else(|e| panic!("{e:?}"))
    }

    /// The region on the initiator's side, and on the target's.
    fn regions(&mut self) -> (&mut Registered, &mut Registered) {
        if self.write { (&mut self.source, &mut self.pool) } else { (&mut self.pool, &mut self.source) }
    }

    /// Runs a whole transfer, and returns its nanoseconds.
    fn whole(&self) -> u64 {
        let transfer = self.transfer();
        self.a.post(transfer).unwrap();
        assert_eq!(self.a.wait(transfer, 20_000), Ok(State::Done));
        let scan = self.receiver().renew(self.pool.buffer, SEED);
        assert_eq!(scan.pattern, scan.words, "{scan:?}");
        let measured = self.a.measured(transfer);
        assert_eq!((measured.path.as_str(), measured.mechanism.as_str()), ("tcp", "stream"));
        self.a.release(transfer).unwrap();
        measured.queue_ns + measured.copy_ns
    }
}

#[test]
fn a_cancelled_write() {
    many_rounds(true, Act::Cancel);
}

#[test]
fn a_cancelled_read() {
    many_rounds(false, Act::Cancel);
}

#[test]
fn a_released_write() {
    many_rounds(true, Act::Release);
}

#[test]
fn a_released_read() {
    many_rounds(false, Act::Release);
}

#[test]
fn a_write_of_memory_that_the_initiator_deregisters() {
    many_rounds(true, Act::DeregisterHere);
}

#[test]
fn a_read_into_memory_that_the_initiator_deregisters() {
    many_rounds(false, Act::DeregisterHere);
}

#[test]
fn a_write_into_memory_that_the_target_deregisters() {
    many_rounds(true, Act::DeregisterThere);
}

#[test]
fn a_read_of_memory_that_the_target_deregisters() {
    many_rounds(false, Act::DeregisterThere);
}

#[test]
fn a_write_whose_initiator_disconnects() {
    many_rounds(true, Act::DisconnectHere);
}

#[test]
fn a_read_whose_initiator_disconnects() {
    many_rounds(false, Act::DisconnectHere);
}

#[test]
fn a_write_whose_target_disconnects() {
    many_rounds(true, Act::DisconnectThere);
}

#[test]
fn a_read_whose_target_disconnects() {
    many_rounds(false, Act::DisconnectThere);
}

fn many_rounds(write: bool, act: Act) {
    let mut rig = Rig::new(write);
    // The first one touches all pages for the first time.
    rig.whole();
    // Follows what the machine gives us: longer while acts come early, shorter while they come late.
    let mut window = rig.whole();
    println!("64 MiB in {:.1?}", Duration::from_nanos(window));
    let mut chance = Chance::seeded();
    let (mut returns, mut inside) = (Times::default(), 0);
    for round in 0..rounds(10) {
        let moment = chance.below(window);
        let (share, took) = one_round(&mut rig, act, moment, &mut chance, round);
        returns.push(took);
        inside += u32::from(share > 0.0 && share < 1.0);
        window = (if share == 0.0 { window * 8 / 10 } else { window * 11 / 10 }).max(1_000_000);
    }
    returns.print(&format!("{act:?}, write {write}: {inside} of {} inside; return", rounds(10)));
    assert!(inside * 5 >= rounds(10), "{act:?}: only {inside} of {} came inside a transfer", rounds(10));
}

/// One transfer and one act at `moment` nanoseconds into it. Returns the share of the poison that is left, and how long the act
/// took.
fn one_round(rig: &mut Rig, act: Act, moment: u64, chance: &mut Chance, round: u32) -> (f64, Duration) {
    let what = format!("{act:?} in round {round}");
    rig.receiver().poison(rig.pool.buffer);
    let transfer = rig.transfer();
    let timeout_ms = None;
    let (here, there) = rig.regions();
    let (here, there) = (here.region, there.region);
    let (actor, request) = match act {
        Act::Cancel => (&rig.a, Request::Cancel { transfer, timeout_ms }),
        Act::Release => (&rig.a, Request::Release { transfer, timeout_ms }),
        Act::DeregisterHere => (&rig.a, Request::Deregister { regions: vec![here], timeout_ms }),
        Act::DeregisterThere => (&rig.b, Request::Deregister { regions: vec![there], timeout_ms }),
        Act::DisconnectHere => (&rig.a, Request::Disconnect { peer: "b".into(), timeout_ms }),
        Act::DisconnectThere => (&rig.b, Request::Disconnect { peer: "a".into(), timeout_ms }),
    };
    let start = now_ns() + 1_000_000;
    let posted = rig.a.begin_at::<()>(start, &Request::Post { transfer });
    let acted = actor.begin_at::<()>(start + moment, &request);
    let (returned, outcome) = acted.finish_stamped();
    // From here on a word that lands destroys a mark, and a word that is read brings one along.
    let (vouched_here, vouched_there) = act.vouches();
    let (of_sender, of_receiver) =
        if rig.write { (vouched_here, vouched_there) } else { (vouched_there, vouched_here) };
    let marks = (8 * chance.below(BLOCK / 8), 8 * chance.below(BLOCK / 8));
    let (from, to) = (rig.source.buffer.index, rig.pool.buffer.index);
    if of_receiver {
        rig.receiver().expect::<()>(&Request::Mark { buffer: to, offset: marks.0, step: BLOCK });
    }
    if of_sender {
        rig.sender().expect::<()>(&Request::Mark { buffer: from, offset: marks.1, step: BLOCK });
    }
    outcome.unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
    // Too late to be posted is as good a moment as any.
    let posted: Result<(), Failure> = posted.finish();
    check_end(rig, act, transfer, &posted, &what);
    let settled = rig.receiver().scan(rig.pool.buffer, SEED);
    std::thread::sleep(WATCHED);
    assert_eq!(rig.receiver().scan(rig.pool.buffer, SEED), settled, "{what}: memory changed after its end");
    expect_settled(&settled, if of_receiver { BYTES / BLOCK } else { 0 }, &what);
    if of_sender {
        let unmark = Request::Unmark { buffer: from, offset: marks.1, step: BLOCK, seed: SEED };
        rig.sender().expect::<()>(&unmark);
    }
    repair(rig, act);
    (settled.poisoned(), Duration::from_nanos(returned.saturating_sub(start + moment)))
}

#[track_caller]
fn expect_settled(settled: &Scan, marks: u64, what: &str) {
    assert!(settled.foreign() <= TORN, "{what}: bytes from nowhere: {settled:?}");
    assert_eq!(settled.marks, marks, "{what}: memory moved after it was handed back: {settled:?}");
}

/// The transfer must have ended, for the right reason, and is released.
fn check_end(rig: &Rig, act: Act, transfer: u64, posted: &Result<(), Failure>, what: &str) {
    if act == Act::Release {
        return;
    }
    if let Err(failure) = posted {
        assert!(act != Act::Cancel, "{what}: {failure:?}");
    } else {
        let ended = rig.a.wait(transfer, 5_000).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let fits = match act {
            Act::Cancel => ended == State::Cancelled,
            Act::Release => true,
            Act::DeregisterHere | Act::DeregisterThere => ended.code() == "region.revoked",
            Act::DisconnectHere | Act::DisconnectThere => ended.code() == "peer.lost",
        };
        assert!(fits || ended == State::Done, "{what} ended as {ended:?}");
    }
    match rig.a.release(transfer) {
        Ok(()) => {}
        // We have closed the connection ourselves: nobody can say any more what the other end still takes in.
        Err(failure) if act == Act::DisconnectHere && failure.code == "cancel.fenced" => {
            rig.a.expect::<()>(&Request::Discard { transfer });
        }
        Err(failure) => panic!("{what}: {failure:?}"),
    }
}

/// Makes the next round possible.
fn repair(rig: &mut Rig, act: Act) {
    let write = rig.write;
    match act {
        Act::Cancel | Act::Release => return,
        Act::DeregisterHere if write => rig.source = rig.a.register(rig.source.buffer),
        Act::DeregisterHere => rig.pool = rig.a.register(rig.pool.buffer),
        Act::DeregisterThere if write => rig.pool = rig.b.register(rig.pool.buffer),
        Act::DeregisterThere => rig.source = rig.b.register(rig.source.buffer),
        Act::DisconnectHere | Act::DisconnectThere => {
            rig.a.event("lost", "b").unwrap_or_else(|e| panic!("{e:?}"));
        }
    }
    link(&rig.a, &rig.b);
}
