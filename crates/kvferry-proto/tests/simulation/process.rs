//! One process: an agent with its memory, its links, its transfers and its threads, as a plain model.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use kvferry_proto::{
    Evidence, FrameReader, Identity, NotifyCredit, NotifyReceiver, NotifySender, PeerTable, RegionId,
    Reservation, Revocations, RevokeScope, Role, Session,
};

use crate::calls::Waiting;
use crate::copier::Copier;
use crate::ledger::AttemptId;
use crate::net::{COPIERS, INITIATOR, TARGET};

/// Memory that is registered, or was. The number is its index.
#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    /// Deregistering has begun; nothing new may begin here.
    pub(crate) revoked: bool,
    /// Deregistering returned Ok: whoever touches it now breaks the promise.
    pub(crate) free: bool,
    /// Own copiers between entering and leaving a chunk.
    pub(crate) uses: u32,
}

/// One end of one link.
pub(crate) struct Link {
    pub(crate) conn: usize,
    /// Own end of the connection.
    pub(crate) side: usize,
    /// None when the connection is over.
    pub(crate) session: Option<Session>,
    pub(crate) reader: FrameReader,
    pub(crate) peer: Option<Identity>,
    pub(crate) page: Option<usize>,
    /// Ours, of our memory, towards the peer's copiers.
    pub(crate) revocations: Revocations,
    /// The peer's epoch that we have carried out, as our copiers read it.
    pub(crate) acknowledged: u64,
    /// What of the peer's memory our copiers must leave alone.
    pub(crate) revoked: HashSet<RegionId>,
    pub(crate) all_revoked: bool,
    /// The peer's revocations that are still to be carried out, and whether their regions are marked already.
    pub(crate) to_apply: VecDeque<(u64, RevokeScope, bool)>,
    pub(crate) up: bool,
    /// No new work may begin: closing or over.
    pub(crate) closing: bool,
    /// Over, and its page is known to be quiet.
    pub(crate) retired: bool,
}

impl Link {
    pub(crate) fn new(conn: usize, session: Session, peer: Option<Identity>, evidence: Evidence) -> Self {
        let side = match session.role() {
            Role::Initiator => INITIATOR,
            Role::Target => TARGET,
        };
        Self {
            conn,
            side,
            session: Some(session),
            reader: FrameReader::new(),
            peer,
            page: None,
            revocations: Revocations::new(evidence),
            acknowledged: 0,
            revoked: HashSet::new(),
            all_revoked: false,
            to_apply: VecDeque::new(),
            up: false,
            closing: false,
            retired: false,
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.up && !self.closing && self.session.is_some()
    }

    pub(crate) fn is_revoked(&self, region: RegionId) -> bool {
        self.all_revoked || self.session.is_none() || self.revoked.contains(&region)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Posted,
    Running,
    Landed,
    Done,
    Failed,
    Cancelled,
}

impl Phase {
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// What can still be cancelled or fail before its data has landed.
    pub(crate) fn is_moving(self) -> bool {
        matches!(self, Self::Posted | Self::Running)
    }
}

/// A transfer that this process started, with a model of its state word.
pub(crate) struct Transfer {
    pub(crate) phase: Phase,
    pub(crate) attempt: u32,
    pub(crate) inflight: u32,
    pub(crate) link: usize,
    pub(crate) is_write: bool,
    /// Whether the target copies.
    pub(crate) delegated: bool,
    pub(crate) local: RegionId,
    pub(crate) remote: RegionId,
    pub(crate) left: u32,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) note: Option<u64>,
    /// The revocation whose quiet proves that the target does no more of it.
    pub(crate) quiet_at: Option<u64>,
}

/// An operation that the peer asked this process to carry out.
pub(crate) struct Served {
    pub(crate) link: usize,
    pub(crate) op: u64,
    pub(crate) id: AttemptId,
    /// Of the peer; written if the transfer is a read.
    pub(crate) remote: RegionId,
    pub(crate) local: RegionId,
    pub(crate) is_write: bool,
    pub(crate) left: u32,
    pub(crate) inflight: u32,
    /// The peer revoked it, or the link is over: say nothing.
    pub(crate) revoked: bool,
    /// Our own memory is gone.
    pub(crate) failed: bool,
    pub(crate) reported: bool,
}

/// One chunk to copy.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Own { transfer: usize, attempt: u32 },
    Served { served: usize },
}

/// A peer whose metadata is loaded.
pub(crate) struct Peer {
    pub(crate) identity: Identity,
    pub(crate) regions: BTreeSet<RegionId>,
    pub(crate) link: Option<usize>,
    /// Between connections.
    pub(crate) sender: Option<NotifySender>,
    pub(crate) reconnect_at: Option<u64>,
    pub(crate) reconnected: bool,
}

/// A notification in the inbox.
pub(crate) struct Held {
    pub(crate) from: Identity,
    pub(crate) cost: u64,
}

pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) secret: [u8; 32],
    pub(crate) died_at: Option<u64>,
    pub(crate) stopped_until: u64,
    /// When it was stopped: from, until.
    pub(crate) stops: Vec<(u64, u64)>,
    pub(crate) generation: u64,
    pub(crate) regions: Vec<Region>,
    pub(crate) table: PeerTable,
    pub(crate) peers: BTreeMap<String, Peer>,
    /// Room at each peer, by name.
    pub(crate) credits: HashMap<String, NotifyCredit>,
    pub(crate) links: Vec<Link>,
    /// Receivers of initiators that are not connected.
    pub(crate) parked: HashMap<Identity, NotifyReceiver>,
    pub(crate) inbox: VecDeque<Held>,
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) served: Vec<Served>,
    pub(crate) work: VecDeque<Work>,
    /// Transfers whose data has landed and whose notification is to be issued.
    pub(crate) to_issue: VecDeque<usize>,
    pub(crate) copiers: [Copier; COPIERS],
    /// Calls of application threads that have not returned.
    pub(crate) waiting: Vec<Waiting>,
    /// Incarnations that this process has seen die.
    pub(crate) saw_die: HashSet<Identity>,
}

impl Process {
    pub(crate) fn new(identity: Identity, secret: [u8; 32]) -> Self {
        Self {
            table: PeerTable::new(identity.name.clone()),
            identity,
            secret,
            died_at: None,
            stopped_until: 0,
            stops: Vec::new(),
            generation: 1,
            regions: vec![Region::default(); 2],
            peers: BTreeMap::new(),
            credits: HashMap::new(),
            links: Vec::new(),
            parked: HashMap::new(),
            inbox: VecDeque::new(),
            transfers: Vec::new(),
            served: Vec::new(),
            work: VecDeque::new(),
            to_issue: VecDeque::new(),
            copiers: Default::default(),
            waiting: Vec::new(),
            saw_die: HashSet::new(),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.died_at.is_none()
    }

    /// Bytes of one sender in the inbox.
    pub(crate) fn held_of(&self, from: &Identity) -> u64 {
        self.inbox.iter().filter(|held| held.from == *from).map(|held| held.cost).sum()
    }

    pub(crate) fn was_stopped(&self, from: u64, until: u64) -> bool {
        self.stops.iter().any(|&(stop, cont)| stop < until && cont > from)
    }
}
