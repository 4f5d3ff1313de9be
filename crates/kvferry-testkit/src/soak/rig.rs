//! Two agents with memory that live through many rounds.

use std::{path::Path, time::Duration};

use super::{
    act::{Act, Draft, Way},
    ledger::{Bare, Due, Ledger},
};
use crate::{
    Proxy,
    harness::{
        Audit, Failure, Holdings, Launch, Part, Received, Registered, Request, State, TransferSpec, Worker,
        link, now_ns,
    },
};

/// Bytes of the pool that the act is aimed at, and of the source.
pub(super) const MAIN: u64 = 32 << 20;
/// Bytes of the pool for what moves beside.
pub(super) const SIDE: u64 = 16 << 20;

/// Silence for so long is death on a wire.
pub(super) const PEER_TIMEOUT: Duration = Duration::from_millis(1_000);
const CANCEL_TIMEOUT: &str = "250ms";

const SEED: u64 = 77;

/// Rounds of a worker before what it holds is counted first, and from then on.
const WARM: u32 = 12;
const COUNTED: u32 = 10;

/// A worker with its memory.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) worker: Worker,
    pub(super) source: Registered,
    /// The pool that the act is aimed at, and the one for what moves beside.
    pub(super) pools: [Registered; 2],
    rounds: u32,
    before: Holdings,
}

impl Side {
    fn start(child: &Path, name: &str, way: Way) -> Self {
        let mut launch = Launch::new(child, name);
        if way.is_tcp() {
            launch = launch
                .env("KVFERRY_ADDRESS", "127.0.0.1")
                .env("KVFERRY_FORBID", "same_host")
                .env("KVFERRY_CANCEL_TIMEOUT", CANCEL_TIMEOUT)
                .env("KVFERRY_PEER_TIMEOUT", &format!("{}ms", PEER_TIMEOUT.as_millis()));
        }
        let worker = launch.start();
        let memory = way.memories()[usize::from(name == "b")];
        let source = worker.registered(memory, MAIN);
        worker.fill(source.buffer, SEED);
        let pools = [MAIN, SIDE].map(|bytes| worker.registered(memory, bytes));
        Self { worker, source, pools, rounds: 0, before: Holdings::default() }
    }

    /// Counts now and then what the process holds.
    ///
    /// # Panics
    /// It is more than before.
    fn look_for_leaks(&mut self) {
        self.rounds += 1;
        if self.rounds == WARM {
            self.before = self.worker.holdings();
        } else if self.rounds > WARM && self.rounds.is_multiple_of(COUNTED) {
            let (before, now) = (self.before, self.worker.holdings());
            let fine = now.fds <= before.fds + 24
                && now.threads <= before.threads + 8
                && now.mappings <= before.mappings + 64
                && now.resident <= before.resident + (96 << 20);
            assert!(
                fine,
                "{} leaks: expected no more than {before:?} of round {WARM}, found {now:?} in its round {}",
                self.worker.name(),
                self.rounds
            );
        }
    }
}

/// An initiator `a` and a target `b`, on one way.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) way: Way,
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) proxy: Option<Proxy>,
    pub(super) ledger: Ledger,
    /// How long a whole transfer takes, of reads and of writes, in nanoseconds.
    pub(super) whole_ns: [u64; 2],
    child: std::path::PathBuf,
}

impl Rig {
    pub(super) fn new(child: &Path, way: Way) -> Self {
        let (a, b) = (Side::start(child, "a", way), Side::start(child, "b", way));
        let proxy = way.is_tcp().then(|| Proxy::before(&b.worker));
        let rig = Self {
            way,
            a,
            b,
            proxy,
            ledger: Ledger::default(),
            whole_ns: [15_000_000; 2],
            child: child.to_owned(),
        };
        rig.meet_anew();
        rig
    }

    /// Lets the initiator know the target as it is now, and connects it.
    pub(super) fn meet(&self) {
        match &self.proxy {
            Some(proxy) => proxy.introduce(&self.a.worker, &self.b.worker),
            None => link(&self.a.worker, &self.b.worker),
        }
    }

    /// The same where one of them is new.
    pub(super) fn meet_anew(&self) {
        self.forget_events();
        self.meet();
        // A reset may take words along that were not read yet: only who is known to be up can be lost.
        self.b.worker.event("up", "a").unwrap_or_else(|e| panic!("expected a to be up at b: {e:?}"));
    }

    /// A new target, not yet known to anybody, and a way to it.
    pub(super) fn newcomer(&self) -> (Side, Option<Proxy>) {
        let side = Side::start(&self.child, "b", self.way);
        let proxy = self.way.is_tcp().then(|| Proxy::before(&side.worker));
        (side, proxy)
    }

    pub(super) fn replace_target(&mut self, (side, proxy): (Side, Option<Proxy>)) {
        self.b = side;
        self.proxy = proxy;
    }

    pub(super) fn replace_initiator(&mut self) {
        self.a = Side::start(&self.child, "a", self.way);
    }

    pub(super) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a way over TCP")
    }

    /// Who is written to.
    pub(super) fn receiver(&self, write: bool) -> &Side {
        if write { &self.b } else { &self.a }
    }

    /// Who is read from.
    pub(super) fn sender(&self, write: bool) -> &Side {
        if write { &self.a } else { &self.b }
    }

    pub(super) fn receiver_mut(&mut self, write: bool) -> &mut Side {
        if write { &mut self.b } else { &mut self.a }
    }

    pub(super) fn sender_mut(&mut self, write: bool) -> &mut Side {
        if write { &mut self.a } else { &mut self.b }
    }

    pub(super) fn forget_events(&self) {
        for side in [&self.a, &self.b] {
            side.worker.expect::<()>(&Request::ForgetEvents);
        }
    }

    pub(super) fn look_for_leaks(&mut self) {
        self.a.look_for_leaks();
        self.b.look_for_leaks();
    }

    /// Creates a draft's transfer into its pool, which holds poison.
    pub(super) fn transfer(&mut self, draft: &Draft, index: usize) -> u64 {
        let pairs = &draft.transfers[index];
        let mut spec = self.spec(draft.write, draft.block, usize::from(index > 0), pairs);
        if draft.notify[index] {
            spec = spec.notifying(&self.ledger.issue(draft.round, index));
        }
        let made = self.a.worker.transfer(&spec);
        made.unwrap_or_else(|e| panic!("expected a transfer of {} blocks, found {e:?}", pairs.len()))
    }

    fn spec(&self, write: bool, block: u64, pool: usize, pairs: &[(u32, u32)]) -> TransferSpec {
        let (a, b) = (&self.a, &self.b);
        if write {
            a.worker.write(a.source.buffer, &b.worker, b.pools[pool].buffer).in_blocks_of(block).paired(pairs)
        } else {
            let turned: Vec<(u32, u32)> = pairs.iter().map(|(from, to)| (*to, *from)).collect();
            a.worker
                .read(a.pools[pool].buffer, &b.worker, b.source.buffer)
                .in_blocks_of(block)
                .paired(&turned)
        }
    }

    /// What the pool of the main transfer (0) or of the others (1) holds.
    pub(super) fn audit(&self, draft: &Draft, pool: usize) -> Audit {
        let receiver = self.receiver(draft.write);
        let groups = if pool == 0 { draft.transfers[..1].to_vec() } else { draft.transfers[1..].to_vec() };
        let buffer = receiver.pools[pool].buffer.index;
        receiver.worker.expect(&Request::Audit { buffer, seed: SEED, block: draft.block, groups })
    }

    /// Takes in the notifications that have come to the target, after waiting for at least `expected`.
    pub(super) fn hear(&mut self, expected: usize) -> Vec<Bare> {
        let request = Request::AwaitNotifications { count: expected, timeout_ms: 5_000 };
        let received: Vec<Received> = self.b.worker.expect(&request);
        self.ledger.hear("a", &received)
    }

    /// Waits for the notifications of a round that must come, and makes sure that no others did.
    pub(super) fn hear_the_rest(&mut self, round: u64) {
        let deadline = now_ns() + 5_000_000_000;
        self.hear(0);
        while self.ledger.missing(round) > 0 && now_ns() < deadline {
            self.hear(1);
        }
        self.ledger.check(round);
    }

    /// Gives a transfer back; true if nobody knows what the other end still takes in, which the act must allow.
    pub(super) fn release(&self, draft: &Draft, transfer: u64) -> bool {
        let patient = Request::Release { transfer, timeout_ms: (!self.way.is_tcp()).then_some(10_000) };
        match self.a.worker.ask::<()>(&patient) {
            Ok(()) => false,
            Err(failure) if failure.code == "cancel.fenced" && draft.act.may_be_fenced(self.way) => {
                self.a.worker.expect::<()>(&Request::Discard { transfer });
                true
            }
            Err(failure) => panic!("expected a release that is Ok, found {failure:?}"),
        }
    }

    /// Makes sure that a transfer went by the way of this rig.
    pub(super) fn expect_route(&self, transfer: u64) {
        let measured = self.a.worker.measured(transfer);
        let route = (measured.path.as_str(), measured.mechanism.as_str());
        assert_eq!(route, self.way.route(), "expected the way of this rig");
    }

    /// A few blocks go all the way, so that both agents are known to work.
    pub(super) fn prove_life(&mut self, draft: &Draft) {
        const BLOCK: u64 = 64 << 10;
        let pairs: Vec<(u32, u32)> =
            (0..8).map(|i| (i * 3 + 1, (draft.round as u32 + i * 7) % 256)).collect();
        let receiver = self.receiver(draft.write);
        receiver.worker.poison(receiver.pools[1].buffer);
        let spec = self.spec(draft.write, BLOCK, 1, &pairs);
        let text = self.ledger.issue(draft.round, 1_000);
        let transfer = self.a.worker.run(&spec.notifying(&text));
        self.ledger.settle(&text, Due::Must);
        let receiver = self.receiver(draft.write);
        receiver.worker.expect_blocks(receiver.pools[1].buffer, SEED, BLOCK, &pairs);
        self.hear_the_rest(draft.round);
        self.a
            .worker
            .release(transfer)
            .unwrap_or_else(|e| panic!("expected a release that is Ok, found {e:?}"));
    }
}

/// The name of a transfer's end: `done`, `cancelled`, or the code of its failure.
pub(super) fn ending(state: &State) -> &str {
    match state {
        State::Done => "done",
        State::Cancelled => "cancelled",
        State::Failed(failure) => &failure.code,
        State::Created | State::Posted | State::Running => "no end",
    }
}

/// Whether a transfer that was refused when it was posted was refused rightly.
pub(super) fn late(act: Act, refused: &Failure) -> bool {
    refused.code != "harness" && !matches!(act, Act::Whole | Act::Cancel)
}

/// Makes sure that a group holds what it may.
#[track_caller]
pub(super) fn expect_part(way: Way, part: &Part, done: bool, what: &str) {
    if done {
        assert_eq!(part.arrived + part.marks, part.words, "{what}: done, and expected whole: {part:?}");
    }
    let torn = if done { 0 } else { way.torn() };
    assert!(part.foreign() <= torn, "{what}: expected bytes of the source or poison, found others: {part:?}");
}

/// Makes sure that nothing changed where nothing was to move.
#[track_caller]
pub(super) fn expect_untouched(part: &Part, what: &str) {
    assert_eq!(part.poison + part.marks, part.words, "{what}: expected poison outside the blocks: {part:?}");
}
