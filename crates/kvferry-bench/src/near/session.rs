use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kvferry::{Agent, Indices, Mechanism, MemoryKind, PreparedList, Status, Transfer, TransferOptions};

use super::{RowError, engine, explain};
use crate::content::Scene;
use crate::far::{self, NEAR, PATIENCE, cpu_time};
use crate::layout::Layout;
use crate::message::{Plan, Reply, Request, Role, Setup, VERSION};
use crate::opposite::Peer;
use crate::options::{BenchOp, BenchPath, Memory, Options};
use crate::pool::{Pool, blocks};
use crate::raw::{Lanes, NearWires, Reached, Stream};
use crate::row::Limit;

/// Two agents that reach each other, their pools, and the connections of the raw loops.
pub(super) struct Session<'o> {
    pub(super) options: &'o Options,
    pub(super) agent: Agent,
    pub(super) pool: Pool,
    /// The far agent's name.
    pub(super) far: String,
    /// Where the far pool begins.
    base: u64,
    pub(super) wires: NearWires,
    /// Copy threads of the agent, and threads of the raw loops.
    threads: usize,
    setup: String,
}

/// Who takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Engine,
    Raw,
}

impl<'o> Session<'o> {
    pub(super) fn start(
        options: &'o Options,
        path: BenchPath,
        memory: Memory,
        peer: &mut Peer,
    ) -> Result<Self> {
        let agent = far::agent(NEAR, path, options.threads)?;
        let pool = Pool::new(&agent, memory, options.pool)?;
        let reply = peer.ask(&Request::Setup(Setup {
            version: VERSION,
            path,
            memory,
            pool: options.pool,
            threads: options.threads,
            metadata: agent.metadata(),
        }))?;
        let Reply::Ready { metadata, base, door } = reply else {
            bail!("the far side answered out of turn: {reply:?}");
        };
        let far = agent.load_remote(&metadata)?;
        let connected = agent.connect(&far, agent.settings().connect_timeout);
        connected
            .map_err(|error| anyhow::anyhow!("no way over {path}: {}", explain(&error, error.code())))?;
        let mut wires = NearWires::connect(&door, peer.host)?;
        peer.order(&Request::Accept)?;
        wires.receive(options.pool)?;
        let threads = agent.settings().threads;
        let setup = format!("{path}, {memory} memory");
        Ok(Self { options, agent, pool, far, base, wires, threads, setup })
    }

    /// What the rows of the setup have in common.
    pub(super) fn describe(&self) -> String {
        let reports = self.agent.path(&self.far).unwrap_or_default();
        let route = reports.iter().find_map(|report| report.route);
        let route =
            route.map_or_else(String::new, |route| format!(", copied by the {} as {route}", route.executor));
        let raw = match self.wires {
            NearWires::Unix { .. } => format!("the raw loop has {}", self.threads),
            NearWires::Tcp(_) => {
                "the raw loop has a thread for each of its 2 streams on each side".to_owned()
            }
        };
        format!("{}: {} copy threads a side{route}; {raw}", self.setup, self.threads)
    }

    /// Begins a row on both sides.
    pub(super) fn begin(&self, peer: &mut Peer, plan: &Plan) -> Result<Stage<'_>> {
        peer.begin(&Request::Begin(*plan));
        let scene = Scene::set(&self.pool, plan, Role::Near);
        peer.over()?;
        Ok(Stage { scene: scene? })
    }

    /// The blocks of a row as prepared lists, ours and the peer's.
    pub(super) fn prepare(&self, layout: &Layout) -> Result<(PreparedList, PreparedList), RowError> {
        let list = |base, offsets| blocks(base, offsets, layout.shape.len);
        let near = list(self.pool.addr(), &layout.near);
        let far = list(self.base, &layout.far);
        let local = engine!(self.agent.prepare_local(MemoryKind::Dram, near.as_slice()))?;
        let remote = engine!(self.agent.prepare_remote(&self.far, MemoryKind::Dram, far.as_slice()))?;
        Ok((local, remote))
    }

    /// A transfer of all blocks of a row.
    pub(super) fn transfer(&self, plan: &Plan, layout: &Layout) -> Result<Transfer, RowError> {
        let (local, remote) = self.prepare(layout)?;
        let options = TransferOptions::default();
        engine!(self.agent.transfer(plan.op.into(), &local, Indices::All, &remote, Indices::All, options))
    }

    /// The raw loop of a mechanism over the same blocks.
    pub(super) fn raw(&self, mechanism: Mechanism, plan: &Plan, layout: &Layout) -> Result<Raw<'_>> {
        let pieces = layout.pieces();
        let lanes = |reached| Lanes::new(&self.pool, reached, plan.op, &pieces, self.threads);
        Ok(match (mechanism, &self.wires) {
            (Mechanism::Cma | Mechanism::Map, NearWires::Unix { .. }) => {
                Raw::Lanes(lanes(self.reached(mechanism)?)?, limit_of(mechanism)?)
            }
            (Mechanism::Stream, NearWires::Tcp(sockets)) => Raw::Streams {
                streams: Stream::share(&self.pool, Role::Near, &pieces, sockets)?,
                send: plan.op == BenchOp::Write,
            },
            (mechanism, _) => bail!("there is no raw loop of mechanism {mechanism} on this path"),
        })
    }

    /// One bare call for a row of one block.
    pub(super) fn call(&self, mechanism: Mechanism, plan: &Plan, layout: &Layout) -> Result<Lanes<'_>> {
        Lanes::new(&self.pool, self.reached(mechanism)?, plan.op, &layout.pieces(), 1)
    }

    fn reached(&self, mechanism: Mechanism) -> Result<Reached<'_>> {
        match (mechanism, &self.wires) {
            (Mechanism::Cma, NearWires::Unix { pid, .. }) => Ok(Reached::Cma { pid: *pid, base: self.base }),
            (Mechanism::Map, NearWires::Unix { memory, .. }) => {
                Ok(Reached::Map(memory.as_ref().context("the far pool can't be mapped")?))
            }
            (mechanism, _) => bail!("there is no raw loop of mechanism {mechanism} on this path"),
        }
    }

    /// CPU seconds of both processes until now.
    pub(super) fn cpu_time(&self, peer: &mut Peer) -> Result<f64> {
        Ok(peer.cpu_time()? + cpu_time())
    }
}

/// The raw loop of a row.
pub(super) enum Raw<'s> {
    Lanes(Lanes<'s>, Limit),
    Streams { streams: Vec<Stream<'s>>, send: bool },
}

impl Raw<'_> {
    pub(super) fn limit(&self) -> Limit {
        match self {
            Self::Lanes(_, limit) => *limit,
            Self::Streams { .. } => Limit::Tcp,
        }
    }

    /// Moves all blocks once.
    pub(super) fn round(&mut self, peer: &mut Peer) -> Result<Duration> {
        match self {
            Self::Lanes(lanes, _) => lanes.run(),
            Self::Streams { streams, send } => {
                peer.order(&Request::Stream)?;
                let took = Stream::near(streams, *send)?;
                peer.over()?;
                Ok(took)
            }
        }
    }
}

/// The contents of a row on both sides.
pub(super) struct Stage<'s> {
    pub(super) scene: Scene<'s>,
}

impl Stage<'_> {
    pub(super) fn poison(&self, peer: &mut Peer) -> Result<()> {
        if self.scene.is_destination() { self.scene.poison() } else { peer.order(&Request::Poison) }
    }

    /// Compares the blocks; `flip` makes one wrong before.
    pub(super) fn verify(&self, peer: &mut Peer, flip: bool) -> Result<Option<String>> {
        if !self.scene.is_destination() {
            return peer.compare(&Request::Verify { flip });
        }
        if flip {
            self.scene.flip()?;
        }
        self.scene.verify()
    }

    pub(super) fn verify_gaps(&self, peer: &mut Peer) -> Result<Option<String>> {
        if self.scene.is_destination() {
            self.scene.verify_gaps()
        } else {
            peer.compare(&Request::VerifyGaps)
        }
    }
}

/// Who goes first changes from round to round: what one leaves in the caches is for either.
pub(super) fn turns(round: u32) -> [Turn; 2] {
    if round.is_multiple_of(2) { [Turn::Engine, Turn::Raw] } else { [Turn::Raw, Turn::Engine] }
}

/// Posts and waits; returns the time from post to done.
pub(super) fn move_once(transfer: &Transfer) -> Result<Duration, RowError> {
    let started = Instant::now();
    engine!(transfer.post())?;
    wait_done(transfer)?;
    Ok(started.elapsed())
}

/// Waits until a posted transfer is done.
pub(super) fn wait_done(transfer: &Transfer) -> Result<(), RowError> {
    match engine!(transfer.wait(PATIENCE))? {
        Status::Done => Ok(()),
        Status::Failed(fault) => Err(RowError::Engine(explain(&*fault, fault.code()))),
        other => Err(RowError::Engine(format!("the transfer ended as {other:?}"))),
    }
}

/// The mechanism that a transfer takes.
pub(super) fn mechanism_of(transfer: &Transfer) -> Result<Mechanism, RowError> {
    let mechanism = transfer.telemetry().mechanism;
    mechanism.ok_or_else(|| RowError::Engine("the transfer does not say which mechanism it takes".to_owned()))
}

fn limit_of(mechanism: Mechanism) -> Result<Limit> {
    match mechanism {
        Mechanism::Cma => Ok(Limit::Cma),
        Mechanism::Map => Ok(Limit::Copy),
        Mechanism::Stream => Ok(Limit::Tcp),
        other => bail!("there is no raw loop of mechanism {other}"),
    }
}
