//! Who is known: names and incarnations, which metadata is taken, and who is dead.

mod dead;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use self::dead::DeadList;
pub use self::dead::REMEMBERED_DEATHS;
use crate::frame::LiveRegions;
use crate::region::{Incarnation, RegionId};
use crate::revoke::{Tombstones, TooManyTombstones};

/// Longest name of an agent, in bytes of UTF-8.
pub const MAX_AGENT_NAME: usize = 256;

/// One life of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The agent's name.
    pub name: String,
    /// Random bits that tell this life from the next.
    pub incarnation: Incarnation,
}

/// Whether a name can be an agent's: 1 to [`MAX_AGENT_NAME`] bytes.
pub fn is_agent_name(name: &str) -> bool {
    (1..=MAX_AGENT_NAME).contains(&name.len())
}

/// Metadata that the application wants to load.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Whose it is.
    pub identity: &'a Identity,
    /// Counts the states of that agent's regions; larger is newer.
    pub generation: u64,
    /// Whether it describes some regions only.
    pub partial: bool,
}

/// The link to the incarnation that is known so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldLink {
    /// There is none, or it broke.
    Down,
    /// It is up.
    Alive,
}

/// What to do with offered metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first of this name: taken.
    New,
    /// Of the incarnation that is known.
    Known(Update),
    /// Of another incarnation: the peer seems to have restarted. Drop all that belonged to the old one. It counts as
    /// dead once the new one is [reached](PeerTable::reached); until then the offer may as well have been outdated.
    Replace {
        /// The one that was known.
        old: Incarnation,
    },
    /// Of another incarnation, but the link to the known one is alive. Nothing is changed: reach the new one and call
    /// [`PeerTable::confirm`], or answer that the metadata is stale.
    NeedsReachability {
        /// The one that is known.
        current: Incarnation,
    },
    /// Not taken; nothing is changed.
    Refused(OfferRefusal),
}

/// What happens to the region set of a known incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The offered regions are all there are.
    Replace,
    /// The offered regions come on top.
    Merge,
    /// The same metadata again, or older: whatever that has beyond what is known was taken back since.
    Unchanged,
}

/// Why offered metadata is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferRefusal {
    /// The incarnation is dead.
    #[error("incarnation {incarnation} is dead")]
    Dead {
        /// Which.
        incarnation: Incarnation,
    },
    /// It has the name of this agent.
    #[error("it has the name of this agent")]
    SelfName,
    /// No agent can have this name.
    #[error("name of {len} bytes, 1 to {MAX_AGENT_NAME} are allowed")]
    Name {
        /// Its length.
        len: usize,
    },
}

/// Who opened a connection to this agent and proved the capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// Nothing contradicts it; it may or may not have been loaded.
    Fine,
    /// Another incarnation of this name is known. Nothing is changed: the peer may have restarted, which metadata of
    /// the new one or the loss of the old one will show.
    OtherIncarnation {
        /// The one that is known.
        known: Incarnation,
    },
    /// The incarnation is dead: refuse it.
    Dead,
}

/// How an incarnation was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its process ended, or another one took its name: it never comes back and is refused from now on.
    Dead,
    /// Silence or a broken connection: it may come back with the same metadata.
    Presumed,
}

#[derive(Debug)]
struct Known {
    incarnation: Incarnation,
    /// Generation of the last full metadata; none if only parts were loaded.
    generation: Option<u64>,
    revoked: Tombstones,
    /// Those that this one has replaced without having been reached: incarnations have no order, so the offer may have
    /// been an outdated one.
    replaced: Vec<Incarnation>,
}

impl Known {
    fn new(offer: &Offer<'_>) -> Self {
        Self {
            incarnation: offer.identity.incarnation,
            generation: (!offer.partial).then_some(offer.generation),
            revoked: Tombstones::new(),
            replaced: Vec::new(),
        }
    }

    fn update(&mut self, offer: &Offer<'_>) -> Verdict {
        if offer.partial {
            return Verdict::Known(Update::Merge);
        }
        let offered = offer.generation;
        match self.generation {
            Some(known) if offered <= known => Verdict::Known(Update::Unchanged),
            _ => {
                self.generation = Some(offered);
                Verdict::Known(Update::Replace)
            }
        }
    }
}

/// The peers whose metadata is loaded, and the dead.
#[derive(Debug)]
pub struct PeerTable {
    own: String,
    known: HashMap<String, Known>,
    dead: DeadList,
}

impl PeerTable {
    /// Nobody known; `own` is the name of this agent.
    pub fn new(own: impl Into<String>) -> Self {
        Self { own: own.into(), known: HashMap::new(), dead: DeadList::default() }
    }

    /// Metadata is to be loaded. `old_link` is the state of the link to the incarnation of this name that is known so
    /// far. New, Known and Replace have taken effect when this returns; leave out regions that are
    /// [revoked](Self::is_revoked).
    pub fn offer(&mut self, offer: &Offer<'_>, old_link: OldLink) -> Verdict {
        let Identity { name, incarnation } = offer.identity;
        let incarnation = *incarnation;
        if !is_agent_name(name) {
            return Verdict::Refused(OfferRefusal::Name { len: name.len() });
        }
        if *name == self.own {
            return Verdict::Refused(OfferRefusal::SelfName);
        }
        if self.dead.contains(name, incarnation) {
            return Verdict::Refused(OfferRefusal::Dead { incarnation });
        }
        match self.known.get_mut(name) {
            None => {
                self.known.insert(name.clone(), Known::new(offer));
                Verdict::New
            }
            Some(known) if known.incarnation == incarnation => known.update(offer),
            Some(known) if old_link == OldLink::Alive => {
                Verdict::NeedsReachability { current: known.incarnation }
            }
            Some(known) => {
                let old = known.incarnation;
                let mut replaced = std::mem::replace(known, Known::new(offer)).replaced;
                replaced.retain(|&earlier| earlier != incarnation);
                if replaced.len() == REMEMBERED_DEATHS {
                    replaced.remove(0);
                }
                replaced.push(old);
                known.replaced = replaced;
                Verdict::Replace { old }
            }
        }
    }

    /// The offered incarnation was reached, after [`Verdict::NeedsReachability`].
    pub fn confirm(&mut self, offer: &Offer<'_>) -> Verdict {
        let verdict = self.offer(offer, OldLink::Down);
        self.reached(offer.identity);
        verdict
    }

    /// A link to this incarnation is up: those that it has replaced are dead. Without effect if it is not the one that
    /// is known.
    pub fn reached(&mut self, identity: &Identity) {
        let replaced = self.current(identity).map(|known| std::mem::take(&mut known.replaced));
        for old in replaced.into_iter().flatten() {
            self.dead.insert(&identity.name, old);
        }
    }

    /// Judges who opened a connection to this agent.
    pub fn inbound(&self, identity: &Identity) -> Inbound {
        if self.dead.contains(&identity.name, identity.incarnation) {
            return Inbound::Dead;
        }
        match self.known.get(&identity.name) {
            Some(known) if known.incarnation != identity.incarnation => {
                Inbound::OtherIncarnation { known: known.incarnation }
            }
            _ => Inbound::Fine,
        }
    }

    /// The incarnation is lost: its metadata is forgotten if it is the one that is known. Returns whether it was.
    pub fn lost(&mut self, identity: &Identity, loss: Loss) -> bool {
        if loss == Loss::Dead {
            self.dead.insert(&identity.name, identity.incarnation);
        }
        let known = self.incarnation(&identity.name) == Some(identity.incarnation);
        if known {
            self.known.remove(&identity.name);
        }
        known
    }

    /// The application forgets the peer. That is no death: the same incarnation may be loaded again. Returns who it was.
    pub fn remove(&mut self, name: &str) -> Option<Incarnation> {
        self.known.remove(name).map(|known| known.incarnation)
    }

    /// The incarnation that is known under a name.
    pub fn incarnation(&self, name: &str) -> Option<Incarnation> {
        self.known.get(name).map(|known| known.incarnation)
    }

    /// Whether an incarnation is remembered as dead.
    pub fn is_dead(&self, identity: &Identity) -> bool {
        self.dead.contains(&identity.name, identity.incarnation)
    }

    /// The peer took regions back: no metadata brings them again. Without effect for other incarnations.
    ///
    /// # Errors
    /// There would be too many to remember.
    pub fn revoked(&mut self, identity: &Identity, regions: &[RegionId]) -> Result<(), TooManyTombstones> {
        match self.current(identity) {
            Some(known) => known.revoked.insert_all(regions),
            None => Ok(()),
        }
    }

    /// The peer told which regions it has, at the beginning of a connection: those it left out count as taken back.
    ///
    /// # Errors
    /// There would be too many to remember.
    pub fn live(&mut self, identity: &Identity, live: &LiveRegions) -> Result<(), TooManyTombstones> {
        match self.current(identity) {
            Some(known) => known.revoked.insert_dead(live),
            None => Ok(()),
        }
    }

    /// Whether the known incarnation of this name took region `id` back.
    pub fn is_revoked(&self, name: &str, id: RegionId) -> bool {
        self.known.get(name).is_some_and(|known| known.revoked.contains(id))
    }

    /// Names of all peers whose metadata is loaded, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    fn current(&mut self, identity: &Identity) -> Option<&mut Known> {
        self.known.get_mut(&identity.name).filter(|known| known.incarnation == identity.incarnation)
    }
}
