//! Forty rounds of each way to take memory back, at random moments of a transfer of 256 MiB.

use std::time::Duration;

use kvferry_testkit::harness::{Chance, Failure, Request, State, Times, now_ns, rounds, sleep_until};

use crate::rig::{BLOCK, By, Rig, SEED};

const BYTES: u64 = 256 << 20;
const POOLS: usize = 4;

/// Every how many rounds the memory is watched for a second rather than for 50 ms.
const WATCH: u32 = 10;

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

const ACTS: [Act; 6] = [
    Act::Cancel,
    Act::Release,
    Act::DeregisterHere,
    Act::DeregisterThere,
    Act::DisconnectThere,
    Act::DisconnectHere,
];

/// A pool that must not change any more, to be looked at again.
struct Watched {
    pool: usize,
    until: u64,
    digest: u64,
    what: String,
}

#[test]
fn writes_by_map() {
    every_act(By::Map, true, 40);
}

#[test]
fn reads_by_map() {
    every_act(By::Map, false, 40);
}

#[test]
fn writes_by_cma() {
    every_act(By::Cma, true, 40);
}

#[test]
fn reads_by_cma() {
    every_act(By::Cma, false, 40);
}

#[test]
fn writes_by_the_target_over_a_mapping() {
    every_act(By::MapByTarget, true, 20);
}

#[test]
fn reads_by_the_target_over_a_mapping() {
    every_act(By::MapByTarget, false, 20);
}

#[test]
fn writes_by_the_target_over_cma_with_yama_injected() {
    every_act(By::CmaByTarget, true, 20);
}

#[test]
fn reads_by_the_target_over_cma_with_yama_injected() {
    every_act(By::CmaByTarget, false, 20);
}

/// What an act's rounds came to.
#[derive(Default)]
struct Tally {
    /// The share of poison that was left, a round.
    shares: Vec<f64>,
    returns: Times,
    /// Within how many nanoseconds of the post acts come: longer while they come early, shorter while they come late, whatever
    /// the machine gives us just now.
    window: u64,
    watched: Vec<Watched>,
}

fn every_act(by: By, write: bool, times: u32) {
    let mut rig = Rig::new(by, write, BYTES, POOLS);
    let mut whole: Vec<u64> = (0..3).map(|round| rig.whole(round)).collect();
    whole.sort_unstable();
    println!("{by:?}: 256 MiB in {:.1?}", Duration::from_nanos(whole[1]));
    let mut chance = Chance::seeded();
    for act in ACTS {
        let mut tally = Tally { window: whole[1], ..Tally::default() };
        for round in 0..rounds(times) {
            let pool = tally.next_pool(&rig);
            let moment = chance.below(tally.window);
            let (took, digest) = one_round(&mut rig, act, pool, moment, &mut chance);
            tally.returns.push(took);
            let watch = if round % WATCH == WATCH / 2 { 1_000_000_000 } else { 50_000_000 };
            let what = format!("{by:?} {act:?}, round {round}");
            tally.watched.push(Watched { pool, until: now_ns() + watch, digest, what });
        }
        while let Some(watched) = tally.watched.pop() {
            tally.look_again(&rig, &watched);
        }
        tally.check(&format!("{by:?} {act:?}"));
    }
}

impl Tally {
    /// A pool that nobody watches, after the oldest watch if all are watched.
    fn next_pool(&mut self, rig: &Rig) -> usize {
        let now = now_ns();
        while let Some(due) = self.watched.iter().position(|w| w.until <= now) {
            let due = self.watched.swap_remove(due);
            self.look_again(rig, &due);
        }
        if let Some(free) = (0..POOLS).find(|pool| self.watched.iter().all(|w| w.pool != *pool)) {
            return free;
        }
        let first = (0..POOLS).min_by_key(|&i| self.watched[i].until).expect("some pools");
        let first = self.watched.swap_remove(first);
        self.look_again(rig, &first);
        first.pool
    }

    fn look_again(&mut self, rig: &Rig, watched: &Watched) {
        sleep_until(watched.until);
        let what = &watched.what;
        let scan = rig.receiver().renew(rig.pools[watched.pool].buffer, SEED);
        assert_eq!(scan.foreign(), 0, "{what}: bytes from nowhere: {scan:?}");
        assert_eq!(scan.marks, BYTES / BLOCK, "{what}: memory moved after it was handed back");
        assert_eq!(scan.digest, watched.digest, "{what}: memory changed after it was handed back");
        // Marks stand where poison or pattern did.
        let left = if scan.pattern == 0 { 1.0 } else { scan.poisoned() };
        self.window = if left == 0.0 { self.window * 8 / 10 } else { self.window * 11 / 10 }.max(1_000_000);
        self.shares.push(left);
    }

    fn check(&self, what: &str) {
        let rounds = self.shares.len();
        let inside = self.shares.iter().filter(|share| **share > 0.0 && **share < 1.0).count();
        let most = self.shares.iter().copied().filter(|share| *share < 1.0).fold(0.0, f64::max);
        self.returns
            .print(&format!("{what}: {inside} of {rounds} inside a transfer, most left {most:.2}; return"));
        assert!(inside * 4 >= rounds, "{what}: only {inside} of {rounds} came inside a transfer");
        assert!(most > 0.25, "{what}: never was more than {most:.2} of the poison left");
    }
}

/// One transfer and one act at `moment` nanoseconds into it. Returns how long the act took to return, and the
/// digest of the pool then.
fn one_round(rig: &mut Rig, act: Act, pool: usize, moment: u64, chance: &mut Chance) -> (Duration, u64) {
    let transfer = rig.prepared(pool);
    let (here, there) = if rig.write { (rig.source, rig.pools[pool]) } else { (rig.pools[pool], rig.source) };
    let timeout_ms = None;
    let (actor, request) = match act {
        Act::Cancel => (&rig.a, Request::Cancel { transfer, timeout_ms }),
        Act::Release => (&rig.a, Request::Release { transfer, timeout_ms }),
        Act::DeregisterHere => (&rig.a, Request::Deregister { regions: vec![here.region], timeout_ms }),
        Act::DeregisterThere => (&rig.b, Request::Deregister { regions: vec![there.region], timeout_ms }),
        Act::DisconnectHere => (&rig.a, Request::Disconnect { peer: "b".into(), timeout_ms }),
        Act::DisconnectThere => (&rig.b, Request::Disconnect { peer: "a".into(), timeout_ms }),
    };
    let start = now_ns() + 1_000_000;
    let posted = rig.a.begin_at::<()>(start, &Request::Post { transfer });
    let acted = actor.begin_at::<()>(start + moment, &request);
    let (returned, outcome) = acted.finish_stamped();
    // From here on a word that a transfer writes destroys a mark, and a word that it reads brings one along.
    let marks = (8 * chance.below(BLOCK / 8), 8 * chance.below(BLOCK / 8));
    let (to, from) = (rig.pools[pool].buffer.index, rig.source.buffer.index);
    rig.receiver().expect::<()>(&Request::Mark { buffer: to, offset: marks.0, step: BLOCK });
    rig.sender().expect::<()>(&Request::Mark { buffer: from, offset: marks.1, step: BLOCK });
    outcome.unwrap_or_else(|failure| panic!("{:?} {act:?}: {failure:?}", rig.by));
    // Too late to be posted is as good a moment as any.
    let posted: Result<(), Failure> = posted.finish();
    let digest = rig.receiver().digest(rig.pools[pool].buffer);
    rig.sender().expect::<()>(&Request::Unmark { buffer: from, offset: marks.1, step: BLOCK, seed: SEED });
    check_end(rig, act, transfer, &posted);
    repair(rig, act, pool);
    (Duration::from_nanos(returned.saturating_sub(start + moment)), digest)
}

/// The transfer must have ended, for the right reason.
fn check_end(rig: &Rig, act: Act, transfer: u64, posted: &Result<(), Failure>) {
    if act == Act::Release {
        return;
    }
    if let Err(failure) = posted {
        assert!(act != Act::Cancel, "{failure:?}");
    } else {
        let ended = rig.a.wait(transfer, 5_000).unwrap_or_else(|e| panic!("{:?} {act:?}: {e:?}", rig.by));
        let fits = match (&ended, act) {
            (State::Done, _) => true,
            (State::Cancelled, Act::Cancel) => true,
            (State::Failed(failure), Act::DeregisterHere | Act::DeregisterThere) => {
                failure.code == "region.revoked"
            }
            (State::Failed(failure), Act::DisconnectHere | Act::DisconnectThere) => {
                failure.code == "peer.lost"
            }
            _ => false,
        };
        assert!(fits, "{:?} {act:?} ended as {ended:?}", rig.by);
    }
    rig.a.release(transfer).unwrap_or_else(|e| panic!("{:?} {act:?}: {e:?}", rig.by));
}

/// Makes the next round possible.
fn repair(rig: &mut Rig, act: Act, pool: usize) {
    let again = |worker: &kvferry_testkit::harness::Worker,
                 registered: &mut kvferry_testkit::harness::Registered| {
        *registered = worker.register(registered.buffer);
    };
    match (act, rig.write) {
        (Act::Cancel | Act::Release, _) => {}
        (Act::DeregisterHere, true) => again(&rig.a, &mut rig.source),
        (Act::DeregisterHere, false) => again(&rig.a, &mut rig.pools[pool]),
        (Act::DeregisterThere, true) => again(&rig.b, &mut rig.pools[pool]),
        (Act::DeregisterThere, false) => again(&rig.b, &mut rig.source),
        (Act::DisconnectHere | Act::DisconnectThere, _) => {
            rig.a.event("lost", "b").unwrap_or_else(|e| panic!("{e:?}"));
        }
    }
    if act != Act::Cancel && act != Act::Release {
        kvferry_testkit::harness::link(&rig.a, &rig.b);
    }
}
