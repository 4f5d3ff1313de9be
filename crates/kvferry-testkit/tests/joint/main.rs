//! One host, and memory there that no copy gets at: it goes over TCP while the rest is mapped, and a transfer that needs both
//! is still one transfer.

mod processes;

use kvferry::{
    Agent, Block, Executor, Mechanism, MemoryKind, Op, Path, Registration, Route, Settings, Status, Transfer,
    TransferError, TransferOptions,
};
use kvferry_testkit::{
    MemoryClass::{self, Private, Shared},
    Pattern, Pool, conformance,
    conformance::Fixture,
    eventually, expect_done, run, unique_name,
};

/// Agents that may not reach into each other's memory.
struct Apart;

impl Fixture for Apart {
    fn agent(&self, stem: &str, settings: Settings) -> Agent {
        agent(stem, "cma", settings)
    }

    fn route(&self) -> Route {
        Route { path: Path::Tcp, mechanism: Mechanism::Stream, executor: Executor::Initiator }
    }
}

conformance!(private_memory, Apart);

const POOL: u64 = 4 << 20;
const BLOCK: u64 = 16 << 10;

fn agent(stem: &str, forbid: &str, settings: Settings) -> Agent {
    let forbid = forbid.parse().expect("paths and mechanisms");
    let settings = Settings { address: Some("127.0.0.1".into()), forbid, ..settings };
    Agent::builder(unique_name(stem)).settings(settings).build().expect("an agent")
}

/// An agent with private memory and memory that others can map.
struct Side {
    agent: Agent,
    private: Registration<Pool>,
    shared: Registration<Pool>,
}

impl Side {
    fn new(stem: &str, forbid: &str) -> Self {
        let agent = agent(stem, forbid, Settings::default());
        let pool = |class: MemoryClass| agent.register(Pool::new(&agent, class, POOL)).expect("a pool");
        let (private, shared) = (pool(Private), pool(Shared));
        Self { agent, private, shared }
    }

    fn name(&self) -> &str {
        self.agent.name()
    }

    /// Every other block of the private pool, and every other of the shared one, by turns.
    fn blocks(&self) -> Vec<Block> {
        let places = (0..POOL / BLOCK / 2).map(|i| 2 * i * BLOCK);
        places.flat_map(|at| [self.private.block(at, BLOCK), self.shared.block(at, BLOCK)]).collect()
    }

    fn fill(&self, pattern: Pattern) {
        self.private.fill(pattern);
        self.shared.fill(pattern);
    }

    /// Every other block came, what lies between is as it was.
    fn verify(&self, came: Pattern, stayed: Pattern) {
        for pool in [&self.private, &self.shared] {
            for at in (0..POOL).step_by(2 * BLOCK as usize) {
                assert_eq!(pool.difference_in(came, at, at, BLOCK), None);
                assert_eq!(pool.difference_in(stayed, at + BLOCK, at + BLOCK, BLOCK), None);
            }
        }
    }
}

fn pair(ours: &str, theirs: &str) -> (Side, Side) {
    let (left, right) = (Side::new("left", ours), Side::new("right", theirs));
    left.agent.load_remote(&right.agent.metadata()).expect("metadata");
    right.agent.load_remote(&left.agent.metadata()).expect("metadata");
    (left, right)
}

fn transfer(op: Op, ours: &Side, theirs: &Side, note: Option<&[u8]>) -> Result<Transfer, TransferError> {
    let (near, far) = (ours.blocks(), theirs.blocks());
    let options = TransferOptions::default();
    let options = if let Some(note) = note { options.notify(note) } else { options };
    flat(op, ours, &near, theirs, &far, options)
}

fn flat(
    op: Op,
    ours: &Side,
    near: &[Block],
    theirs: &Side,
    far: &[Block],
    options: TransferOptions,
) -> Result<Transfer, TransferError> {
    let (near, far) = ((MemoryKind::Dram, near), (MemoryKind::Dram, far));
    ours.agent.transfer_flat(op, near, theirs.name(), far, options)
}

/// Writes the whole of one pool over another.
fn whole(ours: &Side, near: &Pool, theirs: &Side, far: &Pool) {
    let (near, far) = ([near.block(0, POOL)], [far.block(0, POOL)]);
    run(&flat(Op::Write, ours, &near, theirs, &far, TransferOptions::default()).expect("a transfer"));
}

#[test]
fn a_transfer_over_both_ways_ends_once() {
    let (left, right) = pair("cma", "cma");
    let (old, new) = (Pattern::new(1), Pattern::new(2));
    for op in [Op::Write, Op::Read] {
        let (from, to) = if op == Op::Write { (&left, &right) } else { (&right, &left) };
        from.fill(new);
        to.fill(old);
        let moving = transfer(op, &left, &right, Some(b"all of it")).expect("a transfer");
        run(&moving);
        to.verify(new, old);
        let mut came = Vec::new();
        eventually("the notification", || {
            came.extend(right.agent.notifications());
            !came.is_empty()
        });
        assert_eq!(came.len(), 1);
        assert_eq!(came[0].payload, b"all of it");
        assert!(right.agent.notifications().is_empty());
    }
    let stats = left.agent.stats();
    let moved = POOL / 2;
    let near = stats.paths[&(Path::SameProcess, Mechanism::Map)];
    let far = stats.paths[&(Path::Tcp, Mechanism::Stream)];
    assert_eq!((near.transfers, near.bytes), (2, 2 * moved));
    assert_eq!((far.transfers, far.bytes), (2, 2 * moved));
    assert_eq!(stats.notifications_sent, 2);
}

#[test]
fn the_report_names_both_ways_and_why() {
    let (left, right) = pair("cma", "cma");
    left.agent.connect(right.name(), kvferry_testkit::PATIENCE).expect("connected");
    let lines: Vec<String> =
        left.agent.path(right.name()).expect("a peer").iter().map(ToString::to_string).collect();
    let line =
        |start: &str| lines.iter().find(|l| l.starts_with(start)).expect("a line of that pair").clone();
    let private = line("private memory to private memory");
    assert!(
        private.contains("tcp stream") && private.contains("KVFERRY_FORBID=cma rules it out"),
        "{private}"
    );
    let shared = line("kvferry memory to kvferry memory");
    assert!(shared.contains("same_process map"), "{shared}");
}

#[test]
fn whoever_forbids_tcp_has_no_way_and_hears_why() {
    for (ours, theirs, said) in [
        ("tcp,cma", "cma", "not tcp: KVFERRY_FORBID=tcp,cma rules it out"),
        ("cma", "tcp,cma", "not tcp: on its side: KVFERRY_FORBID=tcp,cma rules it out"),
    ] {
        let (left, right) = pair(ours, theirs);
        let error = transfer(Op::Write, &left, &right, None).expect_err("no way for private memory");
        assert_eq!(error.code(), "transfer.no_path");
        assert!(error.to_string().contains(said), "no {said:?} in {error}");
        // What can be mapped still goes.
        left.fill(Pattern::new(3));
        right.fill(Pattern::POISON);
        whole(&left, &left.private, &right, &right.shared);
        right.shared.verify(Pattern::new(3));
        right.private.verify(Pattern::POISON);
    }
}

#[test]
fn a_cancel_stops_both_ways() {
    let (left, right) = pair("cma", "cma");
    left.fill(Pattern::new(4));
    let moving = transfer(Op::Write, &left, &right, Some(b"never")).expect("a transfer");
    for round in 0..50 {
        right.fill(Pattern::POISON);
        moving.post().expect("posted");
        std::thread::sleep(std::time::Duration::from_micros(20 * round));
        moving.cancel().expect("quiet");
        let ended = moving.status();
        let (private, shared) = (right.private.snapshot(), right.shared.snapshot());
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(private == right.private.snapshot() && shared == right.shared.snapshot(), "round {round}");
        match ended {
            Status::Cancelled => {}
            Status::Done | Status::Running => {
                // All bytes were in place when the cancel came: the notification goes out.
                expect_done(&moving);
                right.verify(Pattern::new(4), Pattern::POISON);
            }
            other => panic!("round {round}: {other}"),
        }
    }
}

#[test]
fn memory_that_the_target_takes_back_fails_the_whole() {
    for private in [true, false] {
        let (left, right) = pair("cma", "cma");
        left.fill(Pattern::new(5));
        let moving = transfer(Op::Write, &left, &right, None).expect("a transfer");
        let gone = if private { &right.private } else { &right.shared };
        right.agent.deregister(gone.ids()).expect("quiet");
        gone.fill(Pattern::POISON);
        let refused = moving.post();
        if refused.is_ok() {
            let status = moving.wait(kvferry_testkit::PATIENCE).expect("an end");
            let Status::Failed(fault) = status else { panic!("{status}") };
            assert_eq!(fault.code(), "region.revoked");
        }
        gone.verify(Pattern::POISON);
        // The other half is untouched by that, and can be written.
        let rest = if private { &right.shared } else { &right.private };
        whole(&left, &left.private, &right, rest);
        rest.verify(Pattern::new(5));
    }
}
