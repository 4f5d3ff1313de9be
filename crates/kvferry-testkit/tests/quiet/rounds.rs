//! Forty rounds of each way to take memory back, at random moments of a transfer of 256 MiB.

use std::time::Duration;

use kvferry_testkit::harness::{Chance, Failure, Request, Scan, State, Times, now_ns, rounds, sleep_until};

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
    before: Scan,
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

fn every_act(by: By, write: bool, times: u32) {
    let mut rig = Rig::new(by, write, BYTES, POOLS);
    let mut whole: Vec<u64> = (0..3).map(|round| rig.whole(round)).collect();
    whole.sort_unstable();
    println!("{by:?}: 256 MiB in {:.1?}", Duration::from_nanos(whole[1]));
    // Follows what the machine gives us just now: longer while acts come early, shorter while they come late.
    let mut window = whole[1];
    let mut chance = Chance::seeded();
    let mut watched = Vec::new();
    for act in ACTS {
        let mut shares = Vec::new();
        let mut returns = Times::default();
        for round in 0..rounds(times) {
            let pool = next_pool(&rig, &mut watched);
            let moment = chance.below(window);
            let (share, took, settled) = one_round(&mut rig, act, pool, moment, &mut chance);
            shares.push(share);
            window = if share == 0.0 { window * 8 / 10 } else { window * 11 / 10 };
            window = window.max(1_000_000);
            returns.push(took);
            let watch = if round % WATCH == WATCH / 2 { 1_000_000_000 } else { 50_000_000 };
            let what = format!("{by:?} {act:?}, round {round}");
            watched.push(Watched { pool, until: now_ns() + watch, before: settled, what });
        }
        let inside = shares.iter().filter(|share| **share > 0.0 && **share < 1.0).count();
        let most = shares.iter().copied().fold(0.0, f64::max);
        returns.print(&format!(
            "{by:?} {act:?}: {inside} of {} inside a transfer, most left {most:.2}; return",
            shares.len()
        ));
        assert!(
            inside * 4 >= shares.len(),
            "{act:?}: only {inside} of {} came inside a transfer",
            shares.len()
        );
        assert!(most > 0.25, "{act:?}: never was more than {most:.2} of the poison left");
    }
    watched.drain(..).for_each(|watched| look_again(&rig, &watched));
}

/// A pool that nobody watches, after the oldest watch if all are watched.
fn next_pool(rig: &Rig, watched: &mut Vec<Watched>) -> usize {
    let due = now_ns();
    let (over, left): (Vec<_>, Vec<_>) = watched.drain(..).partition(|w| w.until <= due);
    over.iter().for_each(|watched| look_again(rig, watched));
    *watched = left;
    if let Some(free) = (0..POOLS).find(|pool| watched.iter().all(|w| w.pool != *pool)) {
        return free;
    }
    let first = (0..watched.len()).min_by_key(|&i| watched[i].until).expect("all are watched");
    let first = watched.remove(first);
    look_again(rig, &first);
    first.pool
}

fn look_again(rig: &Rig, watched: &Watched) {
    sleep_until(watched.until);
    let after = rig.receiver().renew(rig.pools[watched.pool].buffer, SEED);
    assert_eq!(watched.before, after, "{}: memory changed after it was handed back", watched.what);
}

/// One transfer and one act at `moment` nanoseconds into it. Returns the share of the poison that is left, how long the act
/// took to return, and what the pool holds then.
fn one_round(
    rig: &mut Rig,
    act: Act,
    pool: usize,
    moment: u64,
    chance: &mut Chance,
) -> (f64, Duration, Scan) {
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
    let settled = rig.receiver().scan(rig.pools[pool].buffer, SEED);
    assert_eq!(settled.foreign(), 0, "{:?} {act:?}: bytes from nowhere: {settled:?}", rig.by);
    assert_eq!(settled.marks, BYTES / BLOCK, "{:?} {act:?}: memory moved after it was handed back", rig.by);
    rig.sender().expect::<()>(&Request::Unmark { buffer: from, offset: marks.1, step: BLOCK, seed: SEED });
    check_end(rig, act, transfer, &posted);
    repair(rig, act, pool);
    (settled.poisoned(), Duration::from_nanos(returned.saturating_sub(start + moment)), settled)
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
