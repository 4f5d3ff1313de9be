use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use kvferry_proto::{
    Endpoint, Host, Incarnation, LiveRegions, NotifyCredit, NotifySender, RangeMap, RegionId, RemoteRegion,
    Reservation, Secret,
};

use crate::{
    error::{ConnectError, FaultCause, FaultSide, LostCause, NotifyError, PostError},
    transfer::TransferCore,
    transport::{Link, RemoteRef},
};

/// One incarnation of a peer whose metadata is loaded, and the link that we opened to it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) contact: RwLock<Contact>,
    regions: RwLock<RemoteSet>,
    link: Mutex<LinkState>,
    /// The channel of the link that is up, or 0; spares a post the lock.
    channel: AtomicU64,
    link_changed: Condvar,
    gone: Mutex<Option<FaultCause>>,
    /// Set once the peer is gone; spares the lock.
    is_gone: AtomicBool,
    /// The peer has taken all of its memory back: it parts with us, and its goodbye is on the way.
    parts: AtomicBool,
    outstanding: AtomicUsize,
    /// The sender of notifications while no session has it, and the room that it knows of.
    sender: Mutex<Option<NotifySender>>,
    credit: RwLock<NotifyCredit>,
    transfers: Mutex<HashMap<u64, Weak<TransferCore>>>,
    /// Links that were lost, until the peer's end of them is known to be closed.
    former_links: Mutex<Vec<Arc<dyn Link>>>,
}

/// How to reach the peer and prove that we may.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contact {
    pub(crate) host: Option<Host>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) secret: Option<Secret>,
}

/// How far the link to a peer has come.
#[derive(Clone, Debug)]
pub(crate) enum LinkState {
    /// Nobody has tried yet.
    Idle,
    /// The control thread is at it.
    Connecting,
    /// Ready.
    Up { link: Arc<dyn Link>, channel: u64 },
    /// The last try failed; another may succeed.
    Failed(ConnectError),
    /// The peer is gone for good.
    Gone(ConnectError),
}

#[derive(Debug, Default)]
struct RemoteSet {
    by_id: HashMap<RegionId, RemoteRef>,
    map: Arc<RangeMap>,
}

impl Peer {
    pub(crate) fn new(name: &str, incarnation: Incarnation, contact: Contact) -> Self {
        Self {
            name: name.into(),
            incarnation,
            contact: RwLock::new(contact),
            regions: RwLock::default(),
            link: Mutex::new(LinkState::Idle),
            channel: AtomicU64::new(0),
            link_changed: Condvar::new(),
            gone: Mutex::new(None),
            is_gone: AtomicBool::new(false),
            parts: AtomicBool::new(false),
            outstanding: AtomicUsize::new(0),
            sender: Mutex::new(None),
            credit: RwLock::default(),
            transfers: Mutex::default(),
            former_links: Mutex::default(),
        }
    }

    // Regions.

    /// Takes in the regions of a blob: in place of the known ones, or beside them. Regions that their owner has revoked stay out.
    pub(crate) fn take_regions(&self, regions: Vec<RemoteRegion>, replace: bool) {
        let mut set = self.regions.write().unwrap_or_else(|e| e.into_inner());
        let mut old = std::mem::take(&mut set.by_id);
        if replace {
            let listed: HashMap<_, _> = regions.iter().map(|r| (r.id, ())).collect();
            // A transfer under way holds its own reference; what stays revoked must stay known as such.
            old.retain(|id, r| listed.contains_key(id) || r.is_revoked());
        }
        for region in regions {
            match old.get_mut(&region.id) {
                Some(known) => known.region = region,
                None => {
                    old.insert(region.id, RemoteRef { region, revoked: Arc::new(AtomicBool::new(false)) });
                }
            }
        }
        set.by_id = old;
        set.rebuild();
    }

    /// The peer has revoked these regions (`None` = all). What is `noted` elsewhere as revoked need not be remembered here.
    pub(crate) fn revoke_regions(&self, ids: Option<&[RegionId]>, noted: bool) {
        let mut set = self.regions.write().unwrap_or_else(|e| e.into_inner());
        match ids {
            Some(ids) => {
                for id in ids {
                    let Some(region) = set.by_id.get(id) else { continue };
                    region.revoked.store(true, SeqCst);
                    if noted {
                        set.by_id.remove(id);
                    }
                }
            }
            None => set.by_id.values().for_each(|r| r.revoked.store(true, SeqCst)),
        }
        set.rebuild();
    }

    /// The peer has told which of its regions exist: the others are gone.
    pub(crate) fn keep_only_live(&self, live: &LiveRegions, noted: bool) {
        let set = self.regions.read().unwrap_or_else(|e| e.into_inner());
        let gone: Vec<RegionId> = set.by_id.keys().copied().filter(|id| live.excludes(*id)).collect();
        drop(set);
        if !gone.is_empty() {
            self.revoke_regions(Some(&gone), noted);
        }
    }

    /// The live regions, for lookups by address.
    pub(crate) fn range_map(&self) -> Arc<RangeMap> {
        self.regions.read().unwrap_or_else(|e| e.into_inner()).map.clone()
    }

    /// All live regions.
    pub(crate) fn regions(&self) -> Vec<RemoteRegion> {
        let set = self.regions.read().unwrap_or_else(|e| e.into_inner());
        set.by_id.values().filter(|r| !r.is_revoked()).map(|r| r.region.clone()).collect()
    }

    /// A region by id, revoked or not.
    pub(crate) fn region(&self, id: RegionId) -> Option<RemoteRef> {
        self.regions.read().unwrap_or_else(|e| e.into_inner()).by_id.get(&id).cloned()
    }

    // Link.

    pub(crate) fn link_state(&self) -> LinkState {
        crate::lock(&self.link).clone()
    }

    /// The link and its channel, if it is up.
    pub(crate) fn link(&self) -> Option<(Arc<dyn Link>, u64)> {
        match &*crate::lock(&self.link) {
            LinkState::Up { link, channel } => Some((link.clone(), *channel)),
            _ => None,
        }
    }

    /// The control channel, if the link is up.
    pub(crate) fn channel(&self) -> Option<u64> {
        Some(self.channel.load(SeqCst)).filter(|channel| *channel != 0)
    }

    /// Marks the start of a try; false if one is under way, has succeeded, or the peer is gone.
    pub(crate) fn begin_connect(&self) -> bool {
        let mut link = crate::lock(&self.link);
        let begin = matches!(*link, LinkState::Idle | LinkState::Failed(_));
        if begin {
            *link = LinkState::Connecting;
        }
        begin
    }

    pub(crate) fn set_link(&self, state: LinkState) {
        let mut link = crate::lock(&self.link);
        if !matches!(*link, LinkState::Gone(_)) {
            let channel = if let LinkState::Up { channel, .. } = state { channel } else { 0 };
            self.channel.store(channel, SeqCst);
            *link = state;
        }
        drop(link);
        self.link_changed.notify_all();
    }

    /// Waits while a try is under way.
    pub(crate) fn await_link(&self, timeout: Duration) -> LinkState {
        let deadline = Instant::now() + timeout;
        let mut link = crate::lock(&self.link);
        while matches!(*link, LinkState::Connecting) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            link = self.link_changed.wait_timeout(link, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        link.clone()
    }

    /// Remembers a link that was lost.
    pub(crate) fn keep_former(&self, link: Arc<dyn Link>) {
        crate::lock(&self.former_links).push(link);
    }

    /// The peer's ends of the links that were lost are closed.
    pub(crate) fn supersede_former(&self) {
        let former = std::mem::take(&mut *crate::lock(&self.former_links));
        former.iter().for_each(|link| link.superseded());
    }

    // The end.

    /// Why nothing can be posted to this peer any more.
    pub(crate) fn gone(&self) -> Option<FaultCause> {
        self.is_gone.load(SeqCst).then(|| crate::lock(&self.gone).clone()).flatten()
    }

    /// Notes that the peer parts with us, or is there again.
    pub(crate) fn set_parting(&self, parts: bool) {
        self.parts.store(parts, SeqCst);
    }

    /// What a transfer fails with that found memory of the peer taken back.
    pub(crate) fn cause_of_revocation(&self, cause: FaultCause) -> FaultCause {
        match cause {
            FaultCause::Revoked { side: FaultSide::Remote } if self.parts.load(SeqCst) => {
                FaultCause::PeerLost { peer: self.name.clone(), cause: LostCause::Disconnected }
            }
            cause => cause,
        }
    }

    /// Another incarnation was loaded after this one was lost: that says more.
    pub(crate) fn restarted(&self) {
        if let Some(cause) = &mut *crate::lock(&self.gone) {
            *cause = FaultCause::PeerRestarted { peer: self.name.clone() };
        }
    }

    /// Marks the peer as gone, fails its transfers and gives its link up. Only the first cause counts.
    pub(crate) fn go(&self, cause: FaultCause, error: ConnectError) {
        if let Some(link) = self.leave(cause.clone(), error) {
            link.lost(cause);
        }
    }

    /// Marks the peer as gone and fails its transfers; returns its link, which still carries what ends them.
    pub(crate) fn leave(&self, cause: FaultCause, error: ConnectError) -> Option<Arc<dyn Link>> {
        crate::lock(&self.gone).get_or_insert_with(|| cause.clone());
        self.is_gone.store(true, SeqCst);
        let link = std::mem::replace(&mut *crate::lock(&self.link), LinkState::Gone(error));
        self.channel.store(0, SeqCst);
        self.link_changed.notify_all();
        // Before the regions are marked: the transfers fail for the peer's sake, not for theirs.
        self.fail_transfers(&cause);
        self.revoke_regions(None, false);
        match link {
            LinkState::Up { link, .. } => Some(link),
            _ => None,
        }
    }

    /// Ends every active transfer with `cause`.
    pub(crate) fn fail_transfers(&self, cause: &FaultCause) {
        for transfer in self.transfers() {
            transfer.fail(cause.clone());
        }
    }

    // Transfers.

    pub(crate) fn adopt_transfer(&self, handle: u64, transfer: &Arc<TransferCore>) {
        crate::lock(&self.transfers).insert(handle, Arc::downgrade(transfer));
    }

    pub(crate) fn forget_transfer(&self, handle: u64) {
        crate::lock(&self.transfers).remove(&handle);
    }

    pub(crate) fn transfers(&self) -> Vec<Arc<TransferCore>> {
        crate::lock(&self.transfers).values().filter_map(Weak::upgrade).collect()
    }

    /// Takes a place among the posted transfers.
    pub(crate) fn take_slot(&self, depth: usize) -> Result<Slot<'_>, PostError> {
        if self.outstanding.fetch_add(1, SeqCst) >= depth {
            self.return_slot();
            return Err(PostError::Backlog { depth });
        }
        Ok(Slot { peer: self, kept: false })
    }

    pub(crate) fn return_slot(&self) {
        self.outstanding.fetch_sub(1, SeqCst);
    }

    // Notifications.

    /// Reserves room in the peer's inbox for a payload.
    pub(crate) fn reserve(&self, payload: Vec<u8>) -> Result<Reservation, NotifyError> {
        let credit = self.credit.read().unwrap_or_else(|e| e.into_inner());
        let bytes = payload.len();
        credit.reserve(payload).map_err(|error| match error {
            kvferry_proto::NotifyError::TooLarge { .. } => {
                NotifyError::TooLarge { bytes, max: kvferry_proto::MAX_NOTIFICATION }
            }
            _ => NotifyError::Backlog { peer: self.name.clone(), bytes },
        })
    }

    /// The sender that an earlier session has left.
    pub(crate) fn take_sender(&self) -> Option<NotifySender> {
        crate::lock(&self.sender).take()
    }

    /// Without a session: a bare notification waits in the sender for the next one, if it is one that a session knew.
    pub(crate) fn issue_later(&self, reservation: Reservation) {
        if let Some(sender) = &mut *crate::lock(&self.sender)
            && let Err(error) = sender.issue(reservation, None)
        {
            tracing::debug!(target: "kvferry::notify", peer = %self.name, "a notification was dropped: {error}");
        }
    }

    pub(crate) fn put_sender(&self, sender: NotifySender) {
        *crate::lock(&self.sender) = Some(sender);
    }

    /// Where room is reserved from now on.
    pub(crate) fn set_credit(&self, credit: NotifyCredit) {
        *self.credit.write().unwrap_or_else(|e| e.into_inner()) = credit;
    }
}

impl RemoteSet {
    fn rebuild(&mut self) {
        let live = self.by_id.values().filter(|r| !r.is_revoked());
        self.map = Arc::new(RangeMap::new(live.map(|r| (r.region.id, r.region.desc))));
    }
}

/// A place among a peer's posted transfers, given back unless kept.
pub(crate) struct Slot<'a> {
    peer: &'a Peer,
    kept: bool,
}

impl Slot<'_> {
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.peer.return_slot();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_takes_back_as_it_parts_is_the_loss_of_the_peer() {
        let peer = Peer::new("b", Incarnation([1; 16]), Contact::default());
        let revoked = |side| FaultCause::Revoked { side };
        assert_eq!(peer.cause_of_revocation(revoked(FaultSide::Remote)).code(), "region.revoked");
        peer.set_parting(true);
        assert_eq!(peer.cause_of_revocation(revoked(FaultSide::Remote)).code(), "peer.lost");
        assert_eq!(peer.cause_of_revocation(revoked(FaultSide::Local)).code(), "region.revoked");
        peer.set_parting(false);
        assert_eq!(peer.cause_of_revocation(revoked(FaultSide::Remote)).code(), "region.revoked");
    }
}
