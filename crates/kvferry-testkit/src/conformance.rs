//! What every transport must pass: the contracts of transfers, of quiet and of notifications, seen through the public API.
//!
//! A transport brings a [`Fixture`]; the macro [`conformance!`](crate::conformance!) makes a test of each case for it.

use std::time::{Duration, Instant};

use kvferry::{
    Agent, Block, CancelError, DeregisterError, Op, RegionOwner, Registration, Route, Settings, Status,
    Transfer, TransferOptions,
};

use crate::hook::{Point, Slow};
use crate::memory::{MemoryClass, Pool};
use crate::pair::{PATIENCE, Pair, Side};
use crate::pattern::Pattern;
use crate::rng::Rng;

mod copying;
mod parting;
mod stopping;
mod telling;

pub use copying::{
    both_directions_at_once, grids, index_arrays, large_blocks, many_at_once, merging, no_blocks, repost,
    round_trip, to_itself,
};
pub use parting::{
    deregister_by_the_initiator, deregister_by_the_target, disconnect_by_the_initiator,
    disconnect_by_the_target, other_regions_live_on,
};
pub use stopping::{cancel_after, cancel_before, cancel_during, cancel_then_repost, drop_while_running};
pub use telling::{
    ended_early_tells_nobody, notifications_in_order, notified_after_the_data, path_names_the_transport,
    telemetry_adds_up,
};

/// Bytes of a transfer that takes long enough to be interrupted.
pub const BULK: u64 = 16 << 20;

/// Bytes of a block of such a transfer.
const BULK_BLOCK: u64 = 64 << 10;

/// How long memory that is said to be quiet is watched.
const WATCHED: Duration = Duration::from_millis(50);

/// The longest that a transport whose copies can be stopped may take to become quiet: a few chunks, and a busy machine.
const PROMPT: Duration = Duration::from_millis(500);

/// A transport under test.
pub trait Fixture {
    /// An agent that moves memory by it.
    fn agent(&self, stem: &str, settings: Settings) -> Agent;

    /// The memory of the agents that start most transfers, and of their peers.
    fn classes(&self) -> (MemoryClass, MemoryClass) {
        (MemoryClass::Private, MemoryClass::Private)
    }

    /// The way that a large transfer between the two takes.
    fn route(&self) -> Route;

    /// Whether an operation that has begun goes on to its last byte, whoever asks it to stop.
    fn unstoppable(&self) -> bool {
        false
    }
}

/// Makes a module of that name with a test for every case, over the fixture.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $fixture:expr) => {
        mod $module {
            use super::*;
            $crate::conformance!(@cases $fixture;
                round_trip, large_blocks, grids, index_arrays, merging, no_blocks, repost, many_at_once,
                both_directions_at_once, to_itself,
                cancel_before, cancel_during, cancel_after, cancel_then_repost, drop_while_running,
                deregister_by_the_target, deregister_by_the_initiator, other_regions_live_on,
                disconnect_by_the_target, disconnect_by_the_initiator,
                notifications_in_order, notified_after_the_data, ended_early_tells_nobody,
                path_names_the_transport, telemetry_adds_up);
        }
    };
    (@cases $fixture:expr; $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case(&$fixture);
            }
        )*
    };
}

/// Two agents over the fixture, which know each other, with pools of `len` bytes.
fn pair(fixture: &dyn Fixture, len: u64) -> Pair {
    let (left, right) = fixture.classes();
    let left = Side::new(fixture.agent("left", Settings::default()), left, len);
    let right = Side::new(fixture.agent("right", Settings::default()), right, len);
    let pair = Pair { left, right };
    pair.meet();
    pair
}

/// A transfer of many blocks, each side's scattered over its pool in an order of its own.
struct Scattered {
    op: Op,
    block: u64,
    /// Where each block lies: in the left pool, and in the right one.
    places: Vec<(u64, u64)>,
}

impl Scattered {
    /// `count` blocks of `block` bytes within pools of `len` bytes.
    fn new(op: Op, rng: &mut Rng, (block, count): (u64, usize), len: u64) -> Self {
        let slots = len / block;
        let (near, far) = (rng.distinct(count, slots), rng.distinct(count, slots));
        Self { op, block, places: near.into_iter().zip(far).map(|(n, f)| (n * block, f * block)).collect() }
    }

    /// All of a bulk pool.
    fn bulk(op: Op, rng: &mut Rng) -> Self {
        Self::new(op, rng, (BULK_BLOCK, (BULK / BULK_BLOCK) as usize), BULK)
    }

    fn bytes(&self) -> u64 {
        self.block * self.places.len() as u64
    }

    fn local(&self, pair: &Pair) -> Vec<Block> {
        self.places.iter().map(|(near, _)| pair.left.pool.block(*near, self.block)).collect()
    }

    fn remote(&self, pair: &Pair) -> Vec<Block> {
        self.places.iter().map(|(_, far)| pair.right.pool.block(*far, self.block)).collect()
    }

    fn transfer(&self, pair: &Pair, options: TransferOptions) -> Transfer {
        let (local, remote) = (self.local(pair), self.remote(pair));
        pair.left.transfer(self.op, &local, &pair.right, &remote, options).expect("a transfer")
    }

    fn source<'a>(&self, pair: &'a Pair) -> &'a Pool {
        if self.op == Op::Write { &pair.left.pool } else { &pair.right.pool }
    }

    fn destination<'a>(&self, pair: &'a Pair) -> &'a Pool {
        if self.op == Op::Write { &pair.right.pool } else { &pair.left.pool }
    }

    /// A pattern into the source, poison into the destination.
    fn prepare(&self, pair: &Pair, pattern: Pattern) {
        self.source(pair).fill(pattern);
        self.destination(pair).fill(Pattern::POISON);
    }

    /// From where to where each block goes.
    fn ways(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.places.iter().map(|&(near, far)| if self.op == Op::Write { (near, far) } else { (far, near) })
    }

    /// Panics unless all blocks have arrived in `destination` and nothing else has changed there.
    #[track_caller]
    fn verify(&self, destination: &Pool, pattern: Pattern) {
        let mut there = vec![false; destination.len().div_ceil(self.block) as usize];
        for (from, to) in self.ways() {
            if let Some(difference) = destination.difference_in(pattern, from, to, self.block) {
                panic!("{:?} of the block from {from:#x} to {to:#x}: {difference}", self.op);
            }
            there[(to / self.block) as usize] = true;
        }
        for (slot, _) in there.iter().enumerate().filter(|(_, there)| !**there) {
            let at = slot as u64 * self.block;
            let len = self.block.min(destination.len() - at);
            if let Some(difference) = destination.difference_in(Pattern::POISON, at, at, len) {
                panic!("{:?} wrote outside its blocks: {difference}", self.op);
            }
        }
    }

    /// Bytes that have arrived. Panics if one is neither what it was nor what was to come.
    #[track_caller]
    fn arrived(&self, destination: &Pool, pattern: Pattern) -> u64 {
        let bytes = || vec![0; self.block as usize];
        let (mut there, mut new, mut old) = (bytes(), bytes(), bytes());
        let mut arrived = 0;
        for (from, to) in self.ways() {
            destination.load(to, &mut there);
            pattern.fill(from, &mut new);
            Pattern::POISON.fill(to, &mut old);
            // Byte by byte: a wire may end in the midst of a word.
            for (there, (new, old)) in there.iter().zip(new.iter().zip(&old)) {
                assert!(
                    there == new || there == old,
                    "a block is neither as it was nor as it should be nor a mixture"
                );
                arrived += u64::from(there == new);
            }
        }
        arrived
    }
}

/// Memory that is said to be quiet from now on.
struct Watch<'a> {
    pool: &'a Pool,
    before: Vec<u8>,
    until: Instant,
}

impl<'a> Watch<'a> {
    fn begin(pool: &'a Pool) -> Self {
        Self { pool, before: pool.snapshot(), until: Instant::now() + WATCHED }
    }

    /// Panics if a byte has changed when it was watched for long enough.
    #[track_caller]
    fn end(self) {
        std::thread::sleep(self.until.saturating_duration_since(Instant::now()));
        let after = self.pool.snapshot();
        // Compared as a whole first: that is quick.
        if self.before != after {
            let changed = self.before.iter().zip(&after).position(|(b, a)| b != a);
            panic!("memory that was said to be quiet has changed, first at {changed:x?}");
        }
    }
}

/// Cancels until the answer is yes: at once, unless the transport cannot stop what has begun.
#[track_caller]
fn cancel(fixture: &dyn Fixture, transfer: &Transfer) {
    let begun = Instant::now();
    if !fixture.unstoppable() {
        transfer.cancel_within(PROMPT).expect("a transfer that stops soon");
        return;
    }
    loop {
        match transfer.cancel_within(Duration::from_millis(1)) {
            Ok(()) => return,
            Err(CancelError::StillRunning { .. }) => {}
            Err(other) => panic!("unexpected: {other}"),
        }
        assert!(begun.elapsed() < PATIENCE, "the transfer never becomes quiet");
    }
}

/// Deregisters until the answer is yes, as [`cancel`].
#[track_caller]
fn deregister<M: RegionOwner>(fixture: &dyn Fixture, mut registration: Registration<M>) -> std::sync::Arc<M> {
    let begun = Instant::now();
    let timeout = if fixture.unstoppable() { Duration::from_millis(1) } else { PROMPT };
    loop {
        match registration.deregister_within(timeout) {
            Ok(memory) => return memory,
            Err((again, DeregisterError::Busy { .. })) if fixture.unstoppable() => registration = again,
            Err((_, other)) => panic!("unexpected: {other}"),
        }
        assert!(begun.elapsed() < PATIENCE, "the memory never becomes quiet");
    }
}

/// Waits for the end, which must be done or failed with this code; returns whether it is done.
#[track_caller]
fn done_or(transfer: &Transfer, code: &str) -> bool {
    match transfer.wait(PATIENCE) {
        Ok(Status::Done) => true,
        Ok(Status::Failed(fault)) => {
            assert_eq!(fault.code(), code, "{fault}");
            false
        }
        other => panic!("expected done or failed, got {other:?}"),
    }
}

/// How often each interruption is tried.
const ROUNDS: u64 = 4;

/// The moment of an interruption: at once or a little later, in a copy that is slowed down or at full speed.
///
/// Slowed down are only the engine's own copy threads; other transports know how to take their time.
struct Moment {
    slow: Option<Slow>,
    after: Duration,
}

impl Moment {
    fn new(rng: &mut Rng, round: u64) -> Self {
        let chunks = BULK >> 21;
        match round {
            0 => Self { slow: Some(Slow::at(Point::BeforeCopy, CHUNK)), after: Duration::ZERO },
            1 => {
                let after = Duration::from_micros(rng.below(CHUNK.as_micros() as u64 * chunks / 2));
                Self { slow: Some(Slow::at(Point::BeforeCopy, CHUNK)), after }
            }
            _ => Self { slow: None, after: Duration::from_micros(rng.below(3000)) },
        }
    }

    fn wait(&self) {
        if self.slow.is_some() {
            std::thread::sleep(self.after);
            return;
        }
        let until = Instant::now() + self.after;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// How long a chunk of a slow copy takes at least.
const CHUNK: Duration = Duration::from_millis(1);
