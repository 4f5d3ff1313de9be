//! Two workers with pools, and transfers between them.

use kvferry_testkit::harness::{
    Buffer, Chance, Launch, Memory, Registered, Request, State, TransferSpec, Worker, link,
};

use crate::CHILD;

pub(crate) const BLOCK: u64 = 64 << 10;
pub(crate) const SEED: u64 = 77;

/// How bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Map,
    Cma,
    /// The target copies, over a mapping of the initiator's memory.
    MapByTarget,
    /// The target copies, since the initiator is made to see Yama (injected).
    CmaByTarget,
}

impl By {
    pub(crate) fn target_executes(self) -> bool {
        matches!(self, Self::MapByTarget | Self::CmaByTarget)
    }

    /// The memory of the initiator and of the target.
    fn memories(self) -> (Memory, Memory) {
        match self {
            Self::Map => (Memory::Private, Memory::Shared),
            Self::MapByTarget => (Memory::Shared, Memory::Private),
            Self::Cma | Self::CmaByTarget => (Memory::Private, Memory::Private),
        }
    }

    fn mechanism(self) -> &'static str {
        match self {
            Self::Map | Self::MapByTarget => "map",
            Self::Cma | Self::CmaByTarget => "cma",
        }
    }
}

/// An initiator and a target; one has the source, the other the destinations.
pub(crate) struct Rig {
    pub(crate) a: Worker,
    pub(crate) b: Worker,
    pub(crate) by: By,
    pub(crate) write: bool,
    pub(crate) source: Registered,
    pub(crate) pools: Vec<Registered>,
    pub(crate) pairs: Vec<(u32, u32)>,
}

impl Rig {
    pub(crate) fn new(by: By, write: bool, bytes: u64, pools: usize) -> Self {
        Self::with_threads("2", by, write, bytes, pools)
    }

    /// With so many copy threads on each side.
    pub(crate) fn with_threads(threads: &str, by: By, write: bool, bytes: u64, pools: usize) -> Self {
        let start = |name| Launch::new(CHILD, name).env("KVFERRY_THREADS", threads).start();
        let (a, b) = (start("a"), start("b"));
        if by == By::CmaByTarget {
            a.expect::<()>(&Request::Yama { on: true });
        }
        let (near, far) = by.memories();
        let (from, to) = if write { ((&a, near), (&b, far)) } else { ((&b, far), (&a, near)) };
        let source = from.0.registered(from.1, bytes);
        from.0.fill(source.buffer, SEED);
        let pools: Vec<Registered> = (0..pools).map(|_| to.0.registered(to.1, bytes)).collect();
        pools.iter().for_each(|pool| to.0.poison(pool.buffer));
        link(&a, &b);
        // One order on both sides: each block goes to its own place, at a time of its own.
        let pairs = Chance::seeded().same_pairs((bytes / BLOCK) as u32);
        Self { a, b, by, write, source, pools, pairs }
    }

    /// Who has the destinations.
    pub(crate) fn receiver(&self) -> &Worker {
        if self.write { &self.b } else { &self.a }
    }

    /// Who has the source.
    pub(crate) fn sender(&self) -> &Worker {
        if self.write { &self.a } else { &self.b }
    }

    /// Whose threads copy.
    pub(crate) fn executor(&self) -> &Worker {
        if self.by.target_executes() { &self.b } else { &self.a }
    }

    pub(crate) fn spec(&self, pool: Buffer) -> TransferSpec {
        let spec = if self.write {
            self.a.write(self.source.buffer, &self.b, pool)
        } else {
            self.a.read(pool, &self.b, self.source.buffer)
        };
        spec.in_blocks_of(BLOCK).paired(&self.pairs)
    }

    /// Creates a transfer into a pool, which holds poison only.
    #[track_caller]
    pub(crate) fn prepared(&self, pool: usize) -> u64 {
        let pool = self.pools[pool].buffer;
        let transfer = self.a.transfer(&self.spec(pool)).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(self.a.measured(transfer).mechanism, self.by.mechanism(), "{:?}", self.by);
        transfer
    }

    /// Runs a whole transfer, makes sure that it arrives whole, and returns its nanoseconds.
    pub(crate) fn whole(&self, pool: usize) -> u64 {
        let transfer = self.prepared(pool);
        self.a.post(transfer).unwrap();
        assert_eq!(self.a.wait(transfer, 20_000), Ok(State::Done));
        let scan = self.receiver().renew(self.pools[pool].buffer, SEED);
        assert_eq!(scan.pattern, scan.words, "{:?}: {scan:?}", self.by);
        let measured = self.a.measured(transfer);
        self.a.release(transfer).unwrap();
        measured.queue_ns + measured.copy_ns
    }
}
