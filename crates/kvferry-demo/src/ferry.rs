//! A worker's side of kvferry: its pools, registered; its peer, met; pages, sent and received.

mod watch;

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, Result};
use kvferry::{
    Agent, CompletionQueue, MemoryKind, Op, PreparedList, Settings, Status, Transfer, TransferError,
    TransferOptions,
};
use kvferry_kv::{KvEntry, KvPart, PageGrid, PeerLayout, RegisteredBuffers, WorkerBuffers};
use serde::{Deserialize, Serialize};

use crate::control::{Memory, Setup};
use crate::memory::{Holds, PoolMemory};
use crate::paths;
use crate::pools::KvPools;
use crate::sequence::LogitsHash;
use crate::shape::Shape;
use crate::stamp::Stamp;
use crate::worker::{Input, Voice};
use watch::Watch;

/// What a peer needs to reach a worker's pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The agent's metadata.
    blob: Vec<u8>,
    /// Where the pools lie, and of which layers they are.
    layout: PeerLayout,
}

/// How bytes went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) mechanism: String,
}

/// What travels with the last pages of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) request: usize,
    /// Tokens of the prompt.
    pub(crate) tokens: usize,
    /// First token of the answer.
    pub(crate) first: u32,
    /// Over the logits that chose it.
    pub(crate) logits: LogitsHash,
    /// Whether these were finite.
    pub(crate) finite: bool,
}

/// A typed error of the engine, as it goes to the parent.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// The stable code.
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What the agent has to tell.
pub(crate) enum Happening {
    /// A transfer has ended.
    Ended {
        /// Its handle.
        transfer: u64,
        status: Status,
        at: Stamp,
    },
    /// The peer sent a notification.
    Notice(Vec<u8>),
    /// The peer is gone.
    Lost(Fault),
}

/// What a transfer moved.
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) merged: u64,
    pub(crate) copy: Duration,
    pub(crate) route: Option<Route>,
}

/// A worker's agent with its pools registered.
pub(crate) struct Ferry {
    agent: Agent,
    queue: CompletionQueue,
    buffers: RegisteredBuffers,
    grid: PageGrid,
    peer: Option<Peer>,
    /// Transfers that have not ended.
    open: HashMap<u64, Transfer>,
    watch: Option<Watch>,
}

/// The other side, its pages and ours as lists that transfers pick from.
struct Peer {
    grid: PageGrid,
    local: PreparedList,
    remote: PreparedList,
}

impl Ferry {
    /// Builds an agent, and pools in the memory that the set-up wants, and registers them.
    pub(crate) fn open(name: &str, setup: &Setup, shape: &Shape) -> Result<(Self, KvPools)> {
        kvferry::init_logging()?;
        let settings = paths::settings(Settings::from_env()?, setup.path, setup.address.as_deref())?;
        let agent = Agent::builder(name).settings(settings).build()?;
        let pools = KvPools::new(shape, setup.page_size, setup.pages, |len| match setup.memory {
            Memory::Private => PoolMemory::private(len),
            Memory::Kvferry => PoolMemory::shared(&agent, len),
        })?;
        let buffers = WorkerBuffers { kv: entries(&pools), ..WorkerBuffers::default() };
        let holds = Holds(pools.memories().iter().map(PoolMemory::hold).collect());
        let buffers = buffers.register(&agent, holds).map_err(|rejected| rejected.error)?;
        let ferry = Self {
            queue: agent.completion_queue().context("cannot open a queue of events")?,
            grid: buffers.layout().pages()?,
            agent,
            buffers,
            peer: None,
            open: HashMap::new(),
            watch: None,
        };
        Ok((ferry, pools))
    }

    /// Tells `inputs` of everything that happens from now on, and the parent of a lost peer.
    pub(crate) fn watch(&mut self, inputs: Sender<Input>, voice: Voice) -> Result<()> {
        self.watch = Some(Watch::start(self.agent.clone(), self.queue.clone(), inputs, voice)?);
        Ok(())
    }

    /// What the peer needs to know.
    pub(crate) fn card(&self) -> Card {
        Card { blob: self.agent.metadata(), layout: self.buffers.layout().clone() }
    }

    /// Takes the peer's card, connects, and readies both sides' pages for transfers. Returns how they will go.
    pub(crate) fn meet(&mut self, card: &Card) -> Result<Option<Route>> {
        let grid = card.layout.pages()?;
        self.grid.check_peer(&grid)?;
        let name = self.agent.load_remote(&card.blob)?;
        self.agent.connect(&name, self.agent.settings().connect_timeout)?;
        let local = self.agent.prepare_local(MemoryKind::Dram, &self.grid.rows()[..])?;
        let remote = self.agent.prepare_remote(&name, MemoryKind::Dram, &grid.rows()[..])?;
        self.peer = Some(Peer { grid, local, remote });
        let route = self.agent.path(&name)?.into_iter().find_map(|report| report.route);
        Ok(route.map(|route| Route { path: route.path.to_string(), mechanism: route.mechanism.to_string() }))
    }

    /// Writes pages of ours, in all layers, to pages of the peer's, with a notice once they are there.
    /// Returns the transfer's handle.
    pub(crate) fn send(
        &mut self,
        local: &[u32],
        remote: &[u32],
        notice: Option<Notice>,
    ) -> Result<u64, Fault> {
        let peer = self.peer.as_ref().ok_or_else(|| Fault::ours("the peer was never met"))?;
        let from = self.grid.indices(local).map_err(|error| Fault::ours(&error.to_string()))?;
        let to = peer.grid.indices(remote).map_err(|error| Fault::ours(&error.to_string()))?;
        let mut options = TransferOptions::default().queue(&self.queue);
        if let Some(notice) = notice {
            let payload = postcard::to_allocvec(&notice);
            options = options.notify(payload.map_err(|error| Fault::ours(&error.to_string()))?);
        }
        let transfer =
            self.agent.transfer(Op::Write, &peer.local, &from[..], &peer.remote, &to[..], options)?;
        transfer.post().map_err(|error| Fault { code: error.code().into(), message: error.to_string() })?;
        let handle = transfer.handle();
        self.open.insert(handle, transfer);
        Ok(handle)
    }

    /// What became of a transfer that has ended.
    pub(crate) fn ended(&mut self, handle: u64, status: &Status) -> Result<Moved, Fault> {
        let transfer = self.open.remove(&handle).ok_or_else(|| Fault::ours("an unknown transfer ended"))?;
        match status {
            Status::Done => {}
            Status::Failed(fault) => {
                return Err(Fault { code: fault.code().into(), message: fault.to_string() });
            }
            other => return Err(Fault::ours(&format!("a transfer ended as {other}"))),
        }
        let told = transfer.telemetry();
        let route = told
            .path
            .zip(told.mechanism)
            .map(|(path, mechanism)| Route { path: path.to_string(), mechanism: mechanism.to_string() });
        Ok(Moved { bytes: told.bytes, blocks: told.blocks, merged: told.merged, copy: told.copy, route })
    }

    /// Takes the pools back from the agent: nobody can touch them any more.
    pub(crate) fn close(mut self) -> Result<()> {
        self.watch = None;
        self.open.clear();
        self.buffers.deregister()?;
        Ok(())
    }
}

impl Fault {
    /// A mistake of this program's.
    fn ours(message: &str) -> Self {
        Self { code: "demo.internal".into(), message: message.into() }
    }
}

impl From<TransferError> for Fault {
    fn from(error: TransferError) -> Self {
        Self { code: error.code().into(), message: error.to_string() }
    }
}

/// The pools as a serving engine hands them over: pointer, length, page length, layer, K or V.
fn entries(pools: &KvPools) -> Vec<KvEntry> {
    let memories = pools.memories().iter().enumerate();
    let entries = memories.map(|(index, memory)| {
        let desc = memory.desc();
        KvEntry {
            ptr: desc.addr,
            len: desc.len,
            item_len: pools.page_bytes() as u64,
            kind: desc.kind,
            device: desc.device,
            layer: (index / 2) as u32,
            part: [KvPart::K, KvPart::V][index % 2],
        }
    });
    entries.collect()
}
