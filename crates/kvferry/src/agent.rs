use std::{
    fmt,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use kvferry_proto::{
    BlockList, Blocks, ByeReason, Incarnation, Loss, MemoryKind, Op, Plan, PlanSide, RegionDesc, RegionId,
    RevokeScope, Selection,
};

use crate::{
    alloc::SharedBuf,
    control::Command,
    error::{
        AllocError, ConnectError, DeregisterError, DisconnectError, FaultCause, LostCause, NotifyError,
        PeerError, PrepareError, RegionFault, RegisterError, TransferError,
    },
    inbox::Notification,
    links::wait_until,
    path::PathReport,
    peer::{LinkState, Peer},
    prepared::{Indices, ListSide, PreparedList},
    queue::CompletionQueue,
    region::{RegionInfo, RegionOwner},
    registration::{Registration, Rejected},
    settings::Settings,
    stats::Stats,
    transfer::{NewTransfer, Status, Transfer, TransferCore, TransferOptions},
    transport::{AdmitError, Link},
};

mod builder;
mod metadata;
mod peers;
mod shared;

pub use builder::AgentBuilder;
pub(crate) use peers::Peers;
pub(crate) use shared::Shared;

/// One end of transfers: registers memory, knows peers, moves blocks, tells and is told.
///
/// Clones are the same agent. When the last one is dropped the agent says goodbye to its peers, which takes at most 100 ms.
///
/// Callable from any thread. In a forked child every call answers `agent.forked`.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<shared::Inner>,
}

impl Agent {
    /// Begins to build an agent of that name: 1 to 256 bytes, by which peers know it.
    pub fn builder(name: impl Into<String>) -> AgentBuilder {
        AgentBuilder::new(name.into())
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.shared().identity.name
    }

    /// What tells this life of the agent from others of the same name.
    pub fn incarnation(&self) -> Incarnation {
        self.shared().identity.incarnation
    }

    /// The settings that it was built with.
    pub fn settings(&self) -> &Settings {
        &self.shared().settings
    }

    // Memory.

    /// Registers memory that is not ours: all of `descs`, or none.
    ///
    /// # Safety
    /// Each range stays mapped, and is not accessed in conflict with posted transfers (this agent's or a peer's), until
    /// [`Agent::deregister`] of its id has returned `Ok`.
    ///
    /// # Errors
    /// The first region that cannot be registered, with its cause and how many others are bad. An empty batch is fine.
    pub unsafe fn register_raw(&self, descs: &[RegionDesc]) -> Result<Vec<RegionId>, RegisterError> {
        self.usable().map_err(|forked| if forked { RegisterError::Forked } else { RegisterError::Closed })?;
        // SAFETY: as the caller promises.
        unsafe { self.shared().registry.register(descs, None) }
    }

    /// Registers memory that `owner` vouches for; the registration owns it until it is deregistered and quiet.
    ///
    /// # Errors
    /// As [`Agent::register_raw`]; the owner comes back.
    pub fn register<M: RegionOwner>(&self, owner: M) -> Result<Registration<M>, Rejected<M>> {
        Registration::new(self, owner)
    }

    /// As [`Agent::register_raw`], for memory that `owner` keeps.
    ///
    /// # Safety
    /// The ranges are as [`RegionOwner`] asks for while `owner` lives.
    pub(crate) unsafe fn register_owned(
        &self,
        descs: &[RegionDesc],
        owner: crate::region::Owner,
    ) -> Result<Vec<RegionId>, RegisterError> {
        self.usable().map_err(|forked| if forked { RegisterError::Forked } else { RegisterError::Closed })?;
        // SAFETY: as the caller promises.
        unsafe { self.shared().registry.register(descs, Some(owner)) }
    }

    /// Gives regions up without waiting.
    pub(crate) fn abandon(&self, ids: Vec<RegionId>) {
        if !self.shared().forked() {
            self.shared().abandon(ids);
        }
    }

    /// What would keep each of `descs` from being registered, at most a hundred of them. Registers nothing.
    pub fn validate(&self, descs: &[RegionDesc]) -> Vec<RegionFault> {
        self.shared().registry.validate(descs)
    }

    /// All registered regions, those in quarantine too.
    pub fn regions(&self) -> Vec<RegionInfo> {
        self.shared().registry.regions()
    }

    /// Takes regions back, with the time-out of the settings: see [`Agent::deregister_within`].
    ///
    /// # Errors
    /// As there.
    pub fn deregister(&self, ids: &[RegionId]) -> Result<(), DeregisterError> {
        self.deregister_within(ids, self.settings().cancel_timeout)
    }

    /// Takes regions back. `Ok` means that no peer's write can land in them any more, nor any transfer of ours touch them:
    /// transfers that would have fail with `region.revoked`.
    ///
    /// # Errors
    /// A peer has not answered in time: the regions stay in quarantine (nothing new reaches them, their memory must stay)
    /// and the call can be repeated. Or an id is unknown; then nothing has changed.
    pub fn deregister_within(&self, ids: &[RegionId], timeout: Duration) -> Result<(), DeregisterError> {
        self.usable()
            .map_err(|forked| if forked { DeregisterError::Forked } else { DeregisterError::Closed })?;
        self.shared().deregister(ids, timeout)
    }

    /// Allocates `len` zeroed bytes that peers of this host can map.
    ///
    /// # Errors
    /// `len` is 0, or the system has no room.
    pub fn alloc(&self, len: usize) -> Result<SharedBuf, AllocError> {
        if self.shared().forked() {
            return Err(AllocError::Forked);
        }
        self.shared().registry.allocs().alloc(len, self.settings().collapse)
    }

    // Lists and transfers.

    /// Checks blocks of our memory and binds them to its regions.
    ///
    /// # Errors
    /// The first block that is not inside a region, with the nearest one.
    pub fn prepare_local<'a>(
        &self,
        kind: MemoryKind,
        blocks: impl Into<Blocks<'a>>,
    ) -> Result<PreparedList, PrepareError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(PrepareError::Forked);
        }
        let list = BlockList::build(blocks, kind, &shared.registry.range_map())
            .map_err(|source| PrepareError::List { side: "local", source })?;
        let mut regions = Vec::with_capacity(list.regions().len());
        for entry in list.regions() {
            let region = shared.registry.get(entry.id);
            regions.push(region.ok_or(PrepareError::Deregistered { side: "local", region: entry.id })?);
        }
        let side = ListSide::Local(regions.into());
        Ok(PreparedList { list: Arc::new(list), side, agent: shared.number })
    }

    /// Checks blocks of a peer's memory against its metadata and binds them to its regions. The agent's own name names the
    /// agent itself.
    ///
    /// # Errors
    /// The first block that is not inside a region of the metadata, or no metadata of that name is loaded.
    pub fn prepare_remote<'a>(
        &self,
        peer: &str,
        kind: MemoryKind,
        blocks: impl Into<Blocks<'a>>,
    ) -> Result<PreparedList, PrepareError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(PrepareError::Forked);
        }
        let peer = shared.peer(peer).ok_or_else(|| PrepareError::UnknownPeer(peer.into()))?;
        let list = BlockList::build(blocks, kind, &peer.range_map())
            .map_err(|source| PrepareError::List { side: "remote", source })?;
        let mut regions = Vec::with_capacity(list.regions().len());
        for entry in list.regions() {
            let region = peer.region(entry.id).filter(|r| !r.is_revoked());
            regions.push(region.ok_or(PrepareError::Deregistered { side: "remote", region: entry.id })?);
        }
        let side = ListSide::Remote(peer, regions.into());
        Ok(PreparedList { list: Arc::new(list), side, agent: shared.number })
    }

    /// Creates a transfer of blocks of two prepared lists, in pairs.
    ///
    /// Connects to the peer if there is no link yet, which may take as long as `connect_timeout`.
    ///
    /// # Errors
    /// The two sides do not go together, a list is stale, the peer is out of reach, or there is no way between two regions.
    pub fn transfer<'a>(
        &self,
        op: Op,
        local: &PreparedList,
        local_indices: impl Into<Indices<'a>>,
        remote: &PreparedList,
        remote_indices: impl Into<Indices<'a>>,
        options: TransferOptions,
    ) -> Result<Transfer, TransferError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(PrepareError::Forked.into());
        }
        let wrong = |side, detail| TransferError::WrongSide { side, detail };
        for (side, list) in [("local", local), ("remote", remote)] {
            if list.agent != shared.number {
                return Err(wrong(side, "was prepared by another agent"));
            }
        }
        let ListSide::Local(ours) = &local.side else {
            return Err(wrong("local", "names a peer's memory"));
        };
        let ListSide::Remote(peer, theirs) = &remote.side else {
            return Err(wrong("remote", "names our own memory: prepare it with the peer's name"));
        };
        if let Some(gone) = ours.iter().find(|r| r.is_gone()) {
            return Err(stale("local", format!("region {} was deregistered", gone.id())));
        }
        if let Some(cause) = peer.gone() {
            return Err(TransferError::Lost(cause));
        }
        if let Some(gone) = theirs.iter().find(|r| r.is_revoked()) {
            return Err(stale("remote", format!("the peer deregistered region {}", gone.region.id)));
        }
        let near = PlanSide::new(local.list.clone(), selection(local_indices.into()));
        let far = PlanSide::new(remote.list.clone(), selection(remote_indices.into()));
        let plan =
            Plan::build(op, near, far, !options.no_merge).map_err(|source| TransferError::Plan { source })?;
        let (link, channel) = self.linked(peer, self.settings().connect_timeout)?;
        let core = TransferCore::new(NewTransfer {
            shared: shared.clone(),
            peer: peer.clone(),
            plan,
            local: ours.clone(),
            remote: theirs.clone(),
            options,
        });
        core.admit(&*link, channel).map_err(|error| match error {
            AdmitError::NoRoute { local, remote, why_not } => {
                let far = &theirs[remote as usize].region;
                TransferError::NoPath {
                    local: ours[local as usize].to_string(),
                    remote: format!("region {} of {:?} ({})", far.id, peer.name, far.desc),
                    why_not,
                }
            }
            AdmitError::Lost(cause) => TransferError::Lost(cause),
        })?;
        let handle = shared.transfers.insert(&core);
        core.name(handle);
        peer.adopt_transfer(handle, &core);
        Ok(Transfer::new(core))
    }

    /// Creates a transfer of two flat lists, in pairs: block n of one side goes with block n of the other.
    ///
    /// # Errors
    /// As [`Agent::prepare_local`], [`Agent::prepare_remote`] and [`Agent::transfer`].
    pub fn transfer_flat<'a, 'b>(
        &self,
        op: Op,
        (local_kind, local): (MemoryKind, impl Into<Blocks<'a>>),
        peer: &str,
        (remote_kind, remote): (MemoryKind, impl Into<Blocks<'b>>),
        options: TransferOptions,
    ) -> Result<Transfer, TransferError> {
        let local = self.prepare_local(local_kind, local)?;
        let remote = self.prepare_remote(peer, remote_kind, remote)?;
        self.transfer(op, &local, Indices::All, &remote, Indices::All, options)
    }

    /// How far the transfer of a handle has come; `None` once it was released.
    pub fn transfer_status(&self, handle: u64) -> Option<Status> {
        self.shared().transfers.get(handle).map(|core| core.status())
    }

    // Peers.

    /// Connects to a peer whose metadata is loaded, or to the agent itself, unless that is done already.
    ///
    /// # Errors
    /// Why there is no link after `timeout`.
    pub fn connect(&self, peer: &str, timeout: Duration) -> Result<(), ConnectError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(ConnectError::Forked);
        }
        let peer = shared.peer(peer).ok_or_else(|| ConnectError::UnknownPeer { peer: peer.into() })?;
        self.linked(&peer, timeout).map(|_| ())
    }

    fn linked(&self, peer: &Arc<Peer>, timeout: Duration) -> Result<(Arc<dyn Link>, u64), ConnectError> {
        if peer.begin_connect() {
            self.shared().mailbox.send(Command::Connect { peer: peer.clone() });
        }
        match peer.await_link(timeout) {
            LinkState::Up { link, channel } => Ok((link, channel)),
            LinkState::Failed(error) | LinkState::Gone(error) => Err(error),
            LinkState::Idle | LinkState::Connecting => {
                Err(ConnectError::Timeout { peer: peer.name.clone(), after: timeout, tried: Vec::new() })
            }
        }
    }

    /// Forgets a peer's metadata and closes the link that we opened to it; its transfers fail. It may be loaded again.
    ///
    /// # Errors
    /// No metadata of that name is loaded.
    pub fn remove_remote(&self, peer: &str) -> Result<(), PeerError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(PeerError::Forked);
        }
        let found = shared.peers().remove(peer).ok_or_else(|| PeerError::Unknown(peer.into()))?;
        shared.part_with(&found, LostCause::DisconnectedByUs);
        Ok(())
    }

    /// Parts with a peer, with the time-out of the settings: see [`Agent::disconnect_within`].
    ///
    /// # Errors
    /// As there.
    pub fn disconnect(&self, peer: &str) -> Result<(), DisconnectError> {
        self.disconnect_within(peer, self.settings().cancel_timeout)
    }

    /// Parts with a peer in both directions: forgets its metadata, closes all links from and to it. `Ok` means that none of
    /// its writes can land in our memory any more, until it connects anew.
    ///
    /// # Errors
    /// A copy that the peer has begun may still be under way: call again. Or nothing is known of that name.
    pub fn disconnect_within(&self, peer: &str, timeout: Duration) -> Result<(), DisconnectError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(DisconnectError::Forked);
        }
        let known = shared.peers().remove(peer);
        if known.is_none() && !shared.links.knows(peer) && !shared.is_parting(peer) {
            return Err(DisconnectError::Unknown(peer.into()));
        }
        // Remembered until it has ended, so that a repeated call finds what the first one has waited for.
        shared.keep_parting(peer, Vec::new());
        let mut link = None;
        if let Some(known) = &known {
            // Transfers first: they end for the peer's sake, and over the link while it stands.
            shared.keep_parting(peer, known.transfers());
            let (fault, error) = parting(known, LostCause::DisconnectedByUs);
            link = known.leave(fault.clone(), error).map(|link| (link, fault));
        }
        let channels = shared.links.channels(peer);
        let mut revoking = shared.links.revoke(Some(peer), &RevokeScope::all());
        let quiet = wait_until(timeout, || revoking.is_quiet() & shared.has_parted(peer));
        if let Some((link, fault)) = link {
            link.lost(fault);
        }
        for channel in channels {
            shared.mailbox.send(Command::Close { channel, reason: ByeReason::Disconnected });
        }
        if !quiet {
            return Err(DisconnectError::Busy { peer: peer.into(), waited: timeout });
        }
        shared.forget_parting(peer);
        Ok(())
    }

    /// Whether a peer's metadata is loaded and, if blocks are given, covers each of them.
    pub fn check_remote<'a>(&self, peer: &str, blocks: Option<(MemoryKind, Blocks<'a>)>) -> bool {
        if self.shared().forked() {
            return false;
        }
        let Some(peer) = self.shared().peer(peer) else { return false };
        if peer.gone().is_some() {
            return false;
        }
        blocks.is_none_or(|(kind, blocks)| BlockList::build(blocks, kind, &peer.range_map()).is_ok())
    }

    /// How each kind of pair of regions in use reaches a peer, and for each better way why it is not taken.
    ///
    /// # Errors
    /// No metadata of that name is loaded.
    pub fn path(&self, peer: &str) -> Result<Vec<PathReport>, PeerError> {
        if self.shared().forked() {
            return Err(PeerError::Forked);
        }
        let found = self.shared().peer(peer).ok_or_else(|| PeerError::Unknown(peer.into()))?;
        let mut reports = match found.link_state() {
            LinkState::Up { link, .. } => link.report(&self.shared().registry.snapshot().1, &found.regions()),
            LinkState::Idle | LinkState::Connecting => {
                vec![PathReport::unconnected("not connected yet".into())]
            }
            LinkState::Failed(error) | LinkState::Gone(error) => {
                vec![PathReport::unconnected(error.to_string())]
            }
        };
        for report in &mut reports {
            report.why_not.extend_from_slice(&self.shared().idle_hardware);
        }
        Ok(reports)
    }

    // Notifications and events.

    /// Sends a notification to a peer, in order with all others from here. Connects if need be.
    ///
    /// # Errors
    /// The peer is out of reach, its inbox has no room, or the payload is longer than 1 MiB.
    pub fn notify(&self, peer: &str, payload: &[u8]) -> Result<(), NotifyError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(ConnectError::Forked.into());
        }
        let peer = shared.peer(peer).ok_or_else(|| ConnectError::UnknownPeer { peer: peer.into() })?;
        self.linked(&peer, self.settings().connect_timeout)?;
        let reservation = peer.reserve(payload.to_vec())?;
        shared.mailbox.send(Command::Notify { peer, reservation, token: None });
        Ok(())
    }

    /// Takes all notifications that have come in; those of one sender are in the order in which it issued them.
    pub fn notifications(&self) -> Vec<Notification> {
        self.shared().take_notifications()
    }

    /// A new queue of what happens to peers from now on.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn events(&self) -> std::io::Result<CompletionQueue> {
        self.shared().subscribe()
    }

    /// A new queue of what happens to peers, and of the ends of the transfers that are created with it.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn completion_queue(&self) -> std::io::Result<CompletionQueue> {
        self.shared().subscribe()
    }

    /// Counters since the agent was built.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let mut stats = shared.counters.snapshot();
        (stats.links_out, stats.links_in, stats.links_lingering) = shared.links.count();
        stats.regions_overlapping = shared.registry.overlapping();
        stats.regions_quarantined = shared.registry.quarantined().len();
        stats
    }

    /// Err(true) in a forked child, Err(false) after the close.
    fn usable(&self) -> Result<(), bool> {
        let shared = self.shared();
        if shared.forked() {
            return Err(true);
        }
        if shared.closed.load(SeqCst) { Err(false) } else { Ok(()) }
    }
}

fn stale(side: &'static str, detail: String) -> TransferError {
    TransferError::StaleList { side, detail }
}

fn selection(indices: Indices<'_>) -> Selection {
    match indices {
        Indices::All => Selection::All,
        Indices::List(indices) => Selection::List(indices.into()),
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = &self.shared().identity;
        write!(f, "Agent({:?}, {})", identity.name, identity.incarnation)
    }
}

impl Shared {
    /// Fails a peer's transfers and closes the link that we opened to it.
    fn part_with(&self, peer: &Arc<Peer>, cause: LostCause) {
        let channel = peer.channel();
        let (fault, error) = parting(peer, cause);
        peer.go(fault, error);
        if let Some(channel) = channel {
            self.mailbox.send(Command::Close { channel, reason: ByeReason::Disconnected });
        }
    }

    /// Forgets a lost peer, unless another has taken its name.
    pub(crate) fn forget_peer(&self, peer: &Arc<Peer>, loss: Loss) {
        self.peers().lost(peer, loss);
    }
}

/// What transfers and connections to a peer fail with that we part with.
fn parting(peer: &Peer, cause: LostCause) -> (FaultCause, ConnectError) {
    let name = || peer.name.clone();
    let error = ConnectError::Lost { peer: name(), cause: cause.clone() };
    let fault = match cause {
        LostCause::Restarted => FaultCause::PeerRestarted { peer: name() },
        cause => FaultCause::PeerLost { peer: name(), cause },
    };
    (fault, error)
}
