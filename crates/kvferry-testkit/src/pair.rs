//! Two agents in one process, with a pool each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvferry::{
    Agent, Block, MemoryKind, Op, Registration, Settings, Status, Transfer, TransferError, TransferOptions,
};

use crate::memory::{MemoryClass, Pool};

/// Longer than anything takes that is going to end at all.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An agent and its registered pool.
#[derive(Debug)]
pub struct Side {
    /// The agent.
    pub agent: Agent,
    /// Its pool.
    pub pool: Registration<Pool>,
}

/// Two agents that have loaded each other's metadata.
#[derive(Debug)]
pub struct Pair {
    /// Starts most transfers.
    pub left: Side,
    /// The other.
    pub right: Side,
}

/// A name that no other agent of this process has.
pub fn unique_name(stem: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An agent with the default settings, whatever the environment says.
pub fn agent(stem: &str) -> Agent {
    agent_with(stem, Settings::default())
}

/// An agent with these settings.
pub fn agent_with(stem: &str, settings: Settings) -> Agent {
    Agent::builder(unique_name(stem)).settings(settings).build().expect("an agent")
}

impl Side {
    /// Allocates and registers a pool of `len` bytes.
    pub fn new(agent: Agent, class: MemoryClass, len: u64) -> Self {
        let pool = Pool::new(&agent, class, len);
        let pool = agent.register(pool).expect("a registered pool");
        Self { agent, pool }
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        self.agent.name()
    }

    /// Loads the other's metadata as it is now.
    pub fn meet(&self, other: &Self) {
        let name = self.agent.load_remote(&other.agent.metadata()).expect("good metadata");
        assert_eq!(name, other.name());
    }

    /// Makes a transfer of flat lists between this side's pool and `other`'s.
    pub fn transfer(
        &self,
        op: Op,
        local: &[Block],
        other: &Self,
        remote: &[Block],
        options: TransferOptions,
    ) -> Result<Transfer, TransferError> {
        let (local, remote) = ((MemoryKind::Dram, local), (MemoryKind::Dram, remote));
        self.agent.transfer_flat(op, local, other.name(), remote, options)
    }

    /// As [`Side::transfer`], for one block of `len` bytes at the same offset on both sides.
    pub fn one_block(
        &self,
        op: Op,
        other: &Self,
        offset: u64,
        len: u64,
        options: TransferOptions,
    ) -> Transfer {
        let (local, remote) = ([self.pool.block(offset, len)], [other.pool.block(offset, len)]);
        self.transfer(op, &local, other, &remote, options).expect("a transfer")
    }
}

impl Pair {
    /// Two agents with the default settings and pools of `len` bytes of one class.
    pub fn new(class: MemoryClass, len: u64) -> Self {
        Self::with(Settings::default(), (class, class), len)
    }

    /// Two agents with these settings, and pools of `len` bytes of the classes of left and right.
    pub fn with(settings: Settings, (left, right): (MemoryClass, MemoryClass), len: u64) -> Self {
        let left = Side::new(agent_with("left", settings.clone()), left, len);
        let right = Side::new(agent_with("right", settings), right, len);
        let pair = Self { left, right };
        pair.meet();
        pair
    }

    /// Each loads the other's metadata as it is now.
    pub fn meet(&self) {
        self.left.meet(&self.right);
        self.right.meet(&self.left);
    }
}

/// Posts, waits and expects `Done`.
#[track_caller]
pub fn run(transfer: &Transfer) {
    transfer.post().expect("a post");
    expect_done(transfer);
}

/// Waits for the end and expects `Done`.
#[track_caller]
pub fn expect_done(transfer: &Transfer) {
    match transfer.wait(PATIENCE) {
        Ok(Status::Done) => {}
        other => panic!("expected done, got {other:?}"),
    }
}

/// Asks until the answer is yes; panics after [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
