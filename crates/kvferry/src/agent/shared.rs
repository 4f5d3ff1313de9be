use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use kvferry_proto::{Endpoint, Host, Identity, RegionId, RevokeScope, Secret};
use kvferry_sys::ForkGuard;

use super::Peers;
use crate::{
    control::{Command, Mailbox},
    error::DeregisterError,
    inbox::{Inbox, Notification},
    links::{Links, Revoking, wait_until},
    path::WhyNot,
    peer::Peer,
    queue::{CompletionQueue, Event, WeakQueue},
    registry::Registry,
    settings::Settings,
    stats::Counters,
    transfer::{TransferCore, TransferTable},
    transport::{
        Transport,
        same_host::{Board, CopyPool},
        tcp::TcpTransport,
    },
    watch::Watch,
};

/// How long closing an agent may take.
const CLOSE: Duration = Duration::from_millis(90);

/// What the threads of an agent, its peers and its transfers share.
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    /// Tells the agents of this process apart.
    pub(crate) number: usize,
    pub(crate) settings: Arc<Settings>,
    pub(crate) secret: Secret,
    pub(crate) host: Host,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Hardware that would be a better way, and that this build cannot use.
    pub(crate) idle_hardware: Vec<WhyNot>,
    pub(crate) registry: Arc<Registry>,
    /// What reaches peers over Unix sockets: the built-in transport for this host, or the one that was given.
    pub(crate) transport: Arc<dyn Transport>,
    /// What reaches peers over TCP.
    pub(crate) tcp: Option<TcpTransport>,
    pub(crate) board: Arc<Board>,
    pub(crate) links: Links,
    pub(crate) counters: Counters,
    pub(crate) transfers: TransferTable,
    pub(crate) mailbox: Mailbox,
    pub(super) own_peer: Mutex<Option<Arc<Peer>>>,
    peers: Mutex<Peers>,
    inbox: Inbox,
    queues: Mutex<Vec<WeakQueue>>,
    abandoned: Mutex<Vec<Withdrawal>>,
    /// Transfers of peers that we part with, until they are quiet.
    parting: Mutex<HashMap<String, Vec<Arc<TransferCore>>>>,
    pub(crate) closed: AtomicBool,
    fork: ForkGuard,
}

/// What a [`Shared`] is made from.
pub(super) struct Parts {
    pub(super) identity: Identity,
    pub(super) number: usize,
    pub(super) settings: Arc<Settings>,
    pub(super) secret: Secret,
    pub(super) host: Host,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) idle_hardware: Vec<WhyNot>,
    pub(super) registry: Arc<Registry>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) tcp: Option<TcpTransport>,
    pub(super) board: Arc<Board>,
    pub(super) mailbox: Mailbox,
    pub(super) fork: ForkGuard,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            peers: Mutex::new(Peers::new(&parts.identity.name)),
            identity: parts.identity,
            number: parts.number,
            settings: parts.settings,
            secret: parts.secret,
            host: parts.host,
            endpoints: parts.endpoints,
            idle_hardware: parts.idle_hardware,
            registry: parts.registry,
            transport: parts.transport,
            tcp: parts.tcp,
            board: parts.board,
            links: Links::default(),
            counters: Counters::default(),
            transfers: TransferTable::default(),
            mailbox: parts.mailbox,
            own_peer: Mutex::new(None),
            inbox: Inbox::default(),
            queues: Mutex::default(),
            abandoned: Mutex::default(),
            parting: Mutex::default(),
            closed: AtomicBool::new(false),
            fork: parts.fork,
        }
    }

    /// Whether this is a forked child, in which the agent does not live.
    pub(crate) fn forked(&self) -> bool {
        self.fork.forked()
    }

    /// The transport that goes with a channel.
    pub(crate) fn transport_of(&self, unix: bool) -> Arc<dyn Transport> {
        match &self.tcp {
            Some(tcp) if !unix => Arc::new(tcp.clone()),
            _ => self.transport.clone(),
        }
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        crate::lock(&self.peers)
    }

    /// Takes all peers out, the agent itself too.
    pub(crate) fn close_peers(&self) -> Vec<Arc<Peer>> {
        let mut all = self.peers().take_all();
        all.extend(crate::lock(&self.own_peer).take());
        all
    }

    pub(crate) fn deregister(&self, ids: &[RegionId], timeout: Duration) -> Result<(), DeregisterError> {
        let mut withdrawal = self.withdraw(ids)?;
        if wait_until(timeout, || withdrawal.is_quiet(self)) {
            self.registry.finish_deregister(ids);
            return Ok(());
        }
        let mut peers = withdrawal.peers.busy();
        if !self.board.is_quiet(withdrawal.ours) {
            peers.push(self.identity.name.clone());
        }
        Err(DeregisterError::Busy { peers, waited: timeout })
    }

    /// Remembers the transfers of a peer that we part with.
    pub(super) fn keep_parting(&self, peer: &str, transfers: Vec<Arc<TransferCore>>) {
        crate::lock(&self.parting).entry(peer.into()).or_default().extend(transfers);
    }

    /// Whether some of them may still touch memory, as far as is known.
    pub(super) fn is_parting(&self, peer: &str) -> bool {
        crate::lock(&self.parting).contains_key(peer)
    }

    /// Looks whether all of them are quiet.
    pub(super) fn has_parted(&self, peer: &str) -> bool {
        let mut parting = crate::lock(&self.parting);
        let Some(transfers) = parting.get_mut(peer) else { return true };
        transfers.retain(|t| !t.is_quiet());
        transfers.is_empty()
    }

    pub(super) fn forget_parting(&self, peer: &str) {
        crate::lock(&self.parting).remove(peer);
    }

    /// Gives regions up without waiting: the control thread sees to the rest.
    pub(crate) fn abandon(&self, ids: Vec<RegionId>) {
        let Ok(mut withdrawal) = self.withdraw(&ids) else { return };
        if withdrawal.is_quiet(self) {
            return self.registry.finish_deregister(&ids);
        }
        crate::lock(&self.abandoned).push(withdrawal);
        self.mailbox.send(Command::Run(Box::new(|| ())));
    }

    /// Whether something must be looked at now and then.
    pub(crate) fn is_lingering(&self) -> bool {
        self.links.is_lingering() || !crate::lock(&self.abandoned).is_empty()
    }

    /// Looks whether what peers did not let go of is quiet now.
    pub(crate) fn linger(&self) {
        self.links.linger();
        let mut quiet = Vec::new();
        crate::lock(&self.abandoned).retain_mut(|withdrawal| {
            let done = withdrawal.is_quiet(self);
            if done {
                quiet.extend_from_slice(&withdrawal.ids);
            }
            !done
        });
        self.registry.finish_deregister(&quiet);
    }

    fn withdraw(&self, ids: &[RegionId]) -> Result<Withdrawal, DeregisterError> {
        // Marked first: whoever begins a copy under the new epochs sees the mark.
        self.registry.begin_deregister(ids)?;
        let ours = self.board.revoke();
        let peers = self.links.revoke(None, &RevokeScope::regions(ids));
        Ok(Withdrawal { ids: ids.to_vec(), ours, peers })
    }

    // Events and notifications.

    pub(crate) fn subscribe(&self) -> io::Result<CompletionQueue> {
        let queue = CompletionQueue::new()?;
        let mut queues = crate::lock(&self.queues);
        queues.retain(|q| q.upgrade().is_some());
        queues.push(queue.downgrade());
        Ok(queue)
    }

    /// Tells all queues.
    pub(crate) fn publish(&self, event: &Event) {
        let queues: Vec<_> = crate::lock(&self.queues).iter().filter_map(WeakQueue::upgrade).collect();
        queues.iter().for_each(|q| q.push(event.clone()));
    }

    pub(crate) fn deliver(&self, from: Identity, payload: Vec<u8>) {
        self.counters.notification_received();
        let peer = from.name.clone();
        if self.inbox.push(from, payload) {
            self.publish(&Event::Notified { peer });
        }
    }

    pub(crate) fn take_notifications(&self) -> Vec<Notification> {
        let (notifications, worth) = self.inbox.drain();
        if !self.forked() {
            for (from, bytes) in worth {
                self.mailbox.send(Command::Drained { from, bytes });
            }
        }
        notifications
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Regions on their way out.
#[derive(Debug)]
struct Withdrawal {
    ids: Vec<RegionId>,
    /// The epoch since when our own copies keep away.
    ours: u64,
    peers: Revoking,
}

impl Withdrawal {
    fn is_quiet(&mut self, shared: &Shared) -> bool {
        self.peers.is_quiet() && shared.board.is_quiet(self.ours)
    }
}

/// What ends with the last clone of an agent.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(super) control: Option<JoinHandle<()>>,
    pub(super) watch: Watch,
    pub(super) pool: Arc<CopyPool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.forked() {
            // The threads exist in the parent only; there is nothing here to end or to wait for.
            std::mem::forget((shared.clone(), self.control.take(), self.pool.clone()));
            return;
        }
        shared.closed.store(true, SeqCst);
        let started = std::time::Instant::now();
        for transfer in shared.transfers.all() {
            transfer.fail(crate::error::FaultCause::Closed);
        }
        let ids: Vec<RegionId> = shared.registry.regions().iter().map(|r| r.id).collect();
        let quiet = shared.deregister(&ids, CLOSE / 2);
        shared.mailbox.send(Command::Shutdown);
        let left = CLOSE.saturating_sub(started.elapsed());
        if let Some(control) = self.control.take()
            && wait_until(left, || control.is_finished())
        {
            let _ = control.join();
        }
        self.watch.stop();
        if let Some(tcp) = &shared.tcp {
            tcp.stop();
        }
        self.pool.stop();
        if let Err(error) = quiet {
            // A peer may still write into what the registrations own: better lost than given to somebody else.
            tracing::warn!(target: "kvferry::register", "the agent's memory stays allocated for ever: {error}");
            std::mem::forget(shared.registry.clone());
        }
    }
}
