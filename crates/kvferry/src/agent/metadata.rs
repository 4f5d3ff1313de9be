use std::sync::Arc;

use kvferry_proto::{
    Blob, Capability, Offer, OfferRefusal, OldLink, RegionId, RemoteRegion, Update, Verdict,
};

use super::{Agent, Peers, Shared};
use crate::{
    control::Command,
    error::{LostCause, MetadataError},
    peer::{Contact, Peer},
    queue::Event,
    region::LocalRegion,
};

impl Agent {
    /// What a peer needs to reach this agent and its memory: connection information, the capability, all regions.
    ///
    /// Whoever holds it can connect: hand it to peers over a channel that you trust.
    pub fn metadata(&self) -> Vec<u8> {
        let shared = self.shared();
        let (generation, regions) = shared.registry.snapshot();
        let blob = shared.blob(generation, &regions, false, true);
        // Names, endpoints and regions were checked when they came to be.
        blob.encode().unwrap_or_default()
    }

    /// The same for some regions only; a peer adds them to what it knows. An empty list with `with_connection` is
    /// connection information alone.
    ///
    /// # Errors
    /// A region is not registered.
    pub fn partial_metadata(
        &self,
        ids: &[RegionId],
        with_connection: bool,
    ) -> Result<Vec<u8>, MetadataError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(MetadataError::Forked);
        }
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let region = |id| shared.registry.get(id).ok_or(MetadataError::UnknownRegion(id));
        let regions = ids.into_iter().map(region).collect::<Result<Vec<_>, _>>()?;
        let blob = shared.blob(shared.registry.generation(), &regions, true, with_connection);
        blob.encode().map_err(|source| MetadataError::Blob { source })
    }

    /// Takes in a peer's metadata, begins to connect to it, and returns its name.
    ///
    /// Metadata of another incarnation replaces what is known of the name, and its transfers fail with `peer.restarted`.
    /// Where the link to the known incarnation is alive, the new one must be reached first (which may take as long as
    /// `connect_timeout`).
    ///
    /// # Errors
    /// The bytes are refused whole, or stale; nothing has changed then.
    pub fn load_remote(&self, metadata: &[u8]) -> Result<String, MetadataError> {
        let shared = self.shared();
        if shared.forked() {
            return Err(MetadataError::Forked);
        }
        let blob = Blob::decode(metadata).map_err(|source| MetadataError::Blob { source })?;
        let name = blob.identity.name.clone();
        let offer = Offer { identity: &blob.identity, generation: blob.generation, partial: blob.partial };

        let mut peers = shared.peers();
        let known = peers.by_name(&name);
        let alive = known.as_ref().is_some_and(|p| p.link().is_some());
        let verdict = peers.table.offer(&offer, if alive { OldLink::Alive } else { OldLink::Down });
        match verdict {
            Verdict::Known(update) => {
                if let Some(peer) = known {
                    // Under the lock under which revocations are noted: none slips in between.
                    take_update(&peers, &peer, blob, update);
                    drop(peers);
                    self.begin_connect(&peer);
                }
                Ok(name)
            }
            Verdict::New | Verdict::Replace { .. } => {
                let peer = shared.new_peer(&blob);
                let old = peers.insert(&peer);
                drop(peers);
                self.replace(old, &peer);
                Ok(name)
            }
            Verdict::NeedsReachability { .. } => {
                drop(peers);
                let peer = shared.new_peer(&blob);
                if let Err(error) = self.linked(&peer, self.settings().connect_timeout) {
                    let detail =
                        format!("the incarnation that is known is alive, and this one is not: {error}");
                    return Err(MetadataError::Stale { peer: name, detail });
                }
                let mut peers = shared.peers();
                peers.table.confirm(&offer);
                let old = peers.insert(&peer);
                drop(peers);
                self.replace(old, &peer);
                Ok(name)
            }
            Verdict::Refused(OfferRefusal::SelfName) => Err(if blob.identity == shared.identity {
                MetadataError::Own
            } else {
                let detail = "it has the name of this agent".into();
                MetadataError::Stale { peer: name, detail }
            }),
            Verdict::Refused(refusal) => {
                Err(MetadataError::Stale { peer: name, detail: refusal.to_string() })
            }
        }
    }

    fn replace(&self, old: Option<Arc<Peer>>, new: &Arc<Peer>) {
        let shared = self.shared();
        if let Some(old) = old.filter(|old| old.incarnation != new.incarnation) {
            shared.counters.peer_restarted();
            tracing::info!(target: "kvferry::peer", peer = %new.name, incarnation = %new.incarnation, "restarted");
            shared.part_with(&old, LostCause::Restarted);
            old.restarted();
            shared.publish(&Event::PeerRestarted { peer: new.name.clone(), incarnation: new.incarnation });
        }
        self.begin_connect(new);
    }

    fn begin_connect(&self, peer: &Arc<Peer>) {
        let reachable = peer.contact.read().unwrap_or_else(|e| e.into_inner()).secret.is_some();
        if reachable && peer.begin_connect() {
            self.shared().mailbox.send(Command::Connect { peer: peer.clone() });
        }
    }
}

impl Shared {
    pub(crate) fn blob(
        &self,
        generation: u64,
        regions: &[Arc<LocalRegion>],
        partial: bool,
        with_connection: bool,
    ) -> Blob {
        let remote = |region: &Arc<LocalRegion>| RemoteRegion {
            id: region.id(),
            key: region.key(),
            desc: region.desc(),
            reach: self.transport.reach(region),
        };
        Blob {
            identity: self.identity.clone(),
            generation,
            partial,
            host: Some(self.host),
            endpoints: if with_connection { self.endpoints.clone() } else { Vec::new() },
            capability: with_connection
                .then(|| Capability { secret: self.secret.clone(), token: self.settings.token.is_some() }),
            regions: regions.iter().map(remote).collect(),
        }
    }

    pub(crate) fn new_peer(&self, blob: &Blob) -> Arc<Peer> {
        let peer = Peer::new(&blob.identity.name, blob.identity.incarnation, contact(blob));
        peer.take_regions(blob.regions.clone(), true);
        Arc::new(peer)
    }

    /// A peer by name; the agent itself by its own, with the regions that it has now.
    pub(crate) fn peer(&self, name: &str) -> Option<Arc<Peer>> {
        if name != self.identity.name {
            return self.peers().by_name(name);
        }
        let (generation, regions) = self.registry.snapshot();
        let blob = self.blob(generation, &regions, false, true);
        let mut own = crate::lock(&self.own_peer);
        match &*own {
            Some(peer) if peer.gone().is_none() => {
                peer.take_regions(blob.regions, true);
                Some(peer.clone())
            }
            _ => {
                let peer = self.new_peer(&blob);
                *own = Some(peer.clone());
                Some(peer)
            }
        }
    }
}

/// Takes newer metadata of a known incarnation in, less the regions that it has taken back meanwhile.
fn take_update(peers: &Peers, peer: &Peer, blob: Blob, update: Update) {
    if blob.capability.is_some() {
        *peer.contact.write().unwrap_or_else(|e| e.into_inner()) = contact(&blob);
    }
    let mut regions = blob.regions;
    regions.retain(|r| !peers.table.is_revoked(&peer.name, r.id));
    match update {
        Update::Replace => peer.take_regions(regions, true),
        Update::Merge => peer.take_regions(regions, false),
        Update::Unchanged => {}
    }
}

fn contact(blob: &Blob) -> Contact {
    Contact {
        host: blob.host,
        endpoints: blob.endpoints.clone(),
        secret: blob.capability.as_ref().map(|c| c.secret.clone()),
    }
}
