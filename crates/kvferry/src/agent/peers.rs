use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use kvferry_proto::{Identity, Loss, PeerTable};

use crate::peer::Peer;

/// Whose metadata is loaded.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) table: PeerTable,
    by_name: HashMap<String, Arc<Peer>>,
    /// The last lost peer of each name, for as long as somebody holds on to it.
    former: HashMap<String, Weak<Peer>>,
}

impl Peers {
    pub(crate) fn new(own: &str) -> Self {
        Self { table: PeerTable::new(own), by_name: HashMap::new(), former: HashMap::new() }
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Peer>> {
        self.by_name.get(name).cloned()
    }

    /// The peer of exactly this incarnation.
    pub(crate) fn get(&self, identity: &Identity) -> Option<Arc<Peer>> {
        self.by_name.get(&identity.name).filter(|p| p.incarnation == identity.incarnation).cloned()
    }

    /// Puts a peer under its name; returns whom it replaces, or who was lost under that name and is still held on to.
    pub(crate) fn insert(&mut self, peer: &Arc<Peer>) -> Option<Arc<Peer>> {
        let former = self.former.remove(&peer.name).and_then(|p| p.upgrade());
        self.by_name.insert(peer.name.clone(), peer.clone()).or(former)
    }

    /// Forgets a peer on the application's word.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Peer>> {
        self.table.remove(name);
        self.by_name.remove(name)
    }

    /// Forgets a peer that is lost.
    pub(crate) fn lost(&mut self, peer: &Arc<Peer>, loss: Loss) {
        let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
        self.table.lost(&identity, loss);
        if self.by_name.get(&peer.name).is_some_and(|p| Arc::ptr_eq(p, peer)) {
            self.by_name.remove(&peer.name);
            self.former.retain(|_, p| p.strong_count() > 0);
            self.former.insert(peer.name.clone(), Arc::downgrade(peer));
        }
    }

    /// Forgets everybody.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<Peer>> {
        self.by_name.drain().map(|(_, peer)| peer).collect()
    }
}
