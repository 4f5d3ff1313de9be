//! A simulator of agents: processes with sessions, peer tables, transfers, copy threads and shared pages, a clock that
//! is not real, connections that delay and break, and processes that stop, die and come back.
//!
//! Each seed is one schedule. An observer checks the promises at every step; a seed that breaks one is printed, and
//! `SIMULATION_SEED=n cargo test -p kvferry-proto --test simulation one_seed` runs it alone. `SIMULATION_SEEDS=n` sets
//! how many are run. The engine here is a model, but sessions, revocations, notifications, peers and frames are those
//! that ship. The last tests run engines with mistakes, and fail if the observer does *not* object.

mod app;
mod bug;
mod calls;
mod connecting;
mod control;
mod copier;
mod delegation;
mod ledger;
mod net;
mod process;
mod rng;
mod world;

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bug::{BUGS, Bug};
use ledger::Seen;
use world::run;

/// Schedules in the suite.
const SEEDS: u64 = 12_000;

/// Runs seeds on all cores until one fails or `count` are through.
fn run_all(count: u64) -> Result<Seen, (u64, String)> {
    let next = AtomicU64::new(0);
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let work = || {
        let mut seen = Seen::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return Ok(seen);
            }
            match run(seed, Bug::None) {
                Ok(one) => seen.add(&one),
                Err(violation) => {
                    next.store(count, Ordering::Relaxed);
                    return Err((seed, violation));
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut all = Seen::default();
        for worker in workers {
            all.add(&worker.join().expect("a schedule panicked")?);
        }
        Ok(all)
    })
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn promises_hold_in_random_schedules() {
    let count = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    match run_all(count) {
        Ok(seen) => {
            println!("{count} schedules: {seen:?}");
            // Schedules that reach nothing prove nothing.
            let Seen { done, done_delegated, failed, cancelled, delivered, .. } = seen;
            for often in [done, done_delegated, failed, cancelled, delivered, seen.stepped_back] {
                assert!(often > count, "{seen:?}");
            }
            for rarely in [
                seen.deregister_busy,
                seen.disconnect_busy,
                seen.cancel_busy,
                seen.reconnects,
                seen.backlog,
                seen.replaced,
                seen.refused_dead,
                seen.silent,
                seen.delivered_for_lost_link,
            ] {
                assert!(rarely > count / 500, "{seen:?}");
            }
        }
        Err((seed, violation)) => panic!("SIMULATION_SEED={seed}: {violation}"),
    }
}

#[test]
fn one_seed() {
    let seed = number("SIMULATION_SEED").unwrap_or(0);
    if let Err(violation) = run(seed, Bug::None) {
        panic!("SIMULATION_SEED={seed}: {violation}");
    }
}

#[test]
fn schedules_are_reproducible() {
    for seed in 0..200 {
        assert_eq!(run(seed, Bug::None), run(seed, Bug::None));
    }
}

#[test]
fn mistakes_are_noticed() {
    for (bug, words) in BUGS {
        let noticed = (0..SEEDS).find(|&seed| run(seed, bug).is_err_and(|why| why.contains(words)));
        let seed = noticed.unwrap_or_else(|| panic!("nobody noticed {bug:?}"));
        println!("{bug:?}: noticed by seed {seed}");
    }
}
