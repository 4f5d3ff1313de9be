//! Taking memory back from peers: the owner's and the copier's half of the revocation protocol.
//!
//! A link has two sides, and each owns memory that the other's copiers touch. An owner counts its revocations in an
//! *epoch*. To revoke it bumps the epoch, sends [`Frame::Revoke`](crate::Frame::Revoke) and waits for evidence that
//! nothing of an earlier epoch runs any more: the busy words of a page that both share, or, where there is none, the
//! copier's acknowledgement. The copier's side carries the revocation out and then *acknowledges* its epoch.
//!
//! The order in which a copier works is part of the protocol. For each chunk:
//! 1. load the acknowledged epoch;
//! 2. look whether the regions, the operation and the link are still good (after 1: a copier that looked before could
//!    run a revoked chunk under the new epoch, for which nobody waits);
//! 3. publish [`busy_word`] of it;
//! 4. compare the owner's epoch with it, and step back if they differ;
//! 5. copy, then clear the busy word.
//!
//! A page outlives its connection: when a connection breaks, a copier may still be between 4 and 5. So the owner keeps
//! the page's [`Revocations`] until a revocation of everything, begun at the break, is quiet.

mod tombstones;

#[cfg(test)]
mod tests;

pub use self::tombstones::{MAX_TOMBSTONES, Tombstones, TooManyTombstones};

use std::collections::VecDeque;
use std::time::Instant;

use crate::frame::{Frame, MAX_FRAME_IDS};
use crate::region::RegionId;

/// What one revocation takes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokeScope {
    /// Regions that are deregistered.
    pub regions: Vec<RegionId>,
    /// Operations that the copier runs for the owner and that are cancelled.
    pub ops: Vec<u64>,
    /// Everything of this link.
    pub all: bool,
}

impl RevokeScope {
    /// Regions that are deregistered.
    pub fn regions(regions: impl Into<Vec<RegionId>>) -> Self {
        Self { regions: regions.into(), ..Self::default() }
    }

    /// Operations that are cancelled.
    pub fn ops(ops: impl Into<Vec<u64>>) -> Self {
        Self { ops: ops.into(), ..Self::default() }
    }

    /// Everything of this link.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// How many regions and operations this names.
    pub fn len(&self) -> usize {
        self.regions.len() + self.ops.len()
    }

    /// Whether it takes nothing back.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.all
    }

    /// Cut into pieces that each fit into a frame. Each is a revocation of its own, with its own epoch, in this order;
    /// when the last is quiet, all are.
    pub fn split(mut self) -> Vec<Self> {
        let mut pieces = Vec::new();
        while self.len() > MAX_FRAME_IDS {
            let from_regions = self.regions.len().min(MAX_FRAME_IDS);
            let from_ops = MAX_FRAME_IDS - from_regions;
            pieces.push(Self {
                regions: self.regions.drain(..from_regions).collect(),
                ops: self.ops.drain(..from_ops).collect(),
                all: self.all,
            });
        }
        if pieces.is_empty() || !self.is_empty() {
            pieces.push(self);
        }
        pieces
    }
}

/// What a copier publishes while it runs a chunk under the epoch `acknowledged`; 0 stands for idle.
pub fn busy_word(acknowledged: u64) -> u64 {
    acknowledged.saturating_add(1)
}

/// Whether a copier's busy word rules out a chunk of an epoch before `epoch`.
///
/// A word that was once quiet stays so for this epoch, although it may read as busy again for a moment: that copier
/// then sees the new epoch and steps back.
pub fn word_is_quiet(word: u64, epoch: u64) -> bool {
    word == 0 || word > epoch
}

/// What counts as proof that a copier's side is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The busy words of a shared page; an acknowledgement alone says nothing about a chunk that had begun.
    Words,
    /// The copier's acknowledgement, sent when what it still had of earlier epochs is gone.
    Acks,
}

/// How a revocation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that was revoked can be touched any more by this peer.
    Quiet,
    /// Not yet known.
    Waiting {
        /// When waiting ends.
        until: Instant,
    },
    /// The time is over and the copier is not quiet. The memory stays quarantined; ask again later.
    StillBusy,
}

/// Why a revocation can't begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// Epochs must come in the order in which the shared word was bumped: bump and begin under one lock.
    #[error("epoch {epoch} does not follow {last}")]
    EpochOrder {
        /// The new one.
        epoch: u64,
        /// The last.
        last: u64,
    },
    /// More than one frame holds; see [`RevokeScope::split`].
    #[error("{count} regions and operations, at most {MAX_FRAME_IDS} in one revocation")]
    TooMany {
        /// How many.
        count: usize,
    },
}

#[derive(Debug)]
struct Pending {
    epoch: u64,
    scope: RevokeScope,
    deadline: Instant,
    /// A bit for each busy word that was not yet seen quiet.
    busy: u64,
}

impl Pending {
    /// Whether all words are quiet for this epoch, now or earlier.
    fn observe(&mut self, words: &[u64]) -> bool {
        let mut all = true;
        for (index, &word) in words.iter().enumerate() {
            let bit = 1_u64.checked_shl(index as u32).unwrap_or(0);
            if word_is_quiet(word, self.epoch) {
                self.busy &= !bit;
            } else if bit == 0 || self.busy & bit != 0 {
                all = false;
            }
        }
        all
    }
}

/// The owner's revocations towards the copiers of one link (or one page).
///
/// Several may be outstanding. One whose time ran out stays until there is evidence; it holds its scope, which says what
/// must stay quarantined.
#[derive(Debug)]
pub struct Revocations {
    evidence: Evidence,
    last: u64,
    pending: VecDeque<Pending>,
    quieted: VecDeque<(u64, RevokeScope)>,
    dead: bool,
}

impl Revocations {
    /// None yet, at epoch 0.
    pub fn new(evidence: Evidence) -> Self {
        Self { evidence, last: 0, pending: VecDeque::new(), quieted: VecDeque::new(), dead: false }
    }

    /// The epoch of the last revocation, 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.last
    }

    /// Begins one under `epoch`, to which the caller has bumped the page's word (without a page: one more than
    /// [`epoch`](Self::epoch)). Then tell the peer, by [`Command::Revoke`](crate::Command::Revoke) on the connection
    /// that belongs to this; if that is lost, the page's epoch alone keeps copiers from starting.
    ///
    /// # Errors
    /// The epoch does not exceed the last one, or the scope needs [`RevokeScope::split`]. Nothing is changed.
    pub fn begin(&mut self, epoch: u64, scope: RevokeScope, deadline: Instant) -> Result<(), RevokeError> {
        if epoch <= self.last {
            let last = self.last;
            return Err(RevokeError::EpochOrder { epoch, last });
        }
        if scope.len() > MAX_FRAME_IDS {
            return Err(RevokeError::TooMany { count: scope.len() });
        }
        self.last = epoch;
        self.pending.push_back(Pending { epoch, scope, deadline, busy: u64::MAX });
        if self.dead {
            self.settle(|_| true);
        }
        Ok(())
    }

    /// The busy words of all copiers of the peer, each loaded after the epoch was bumped and a fence.
    ///
    /// The first 64 may be loaded at different times: what was once seen quiet is remembered.
    pub fn on_busy_words(&mut self, words: &[u64]) {
        if self.evidence == Evidence::Words {
            self.settle(|pending| pending.observe(words));
        }
    }

    /// The peer acknowledged `epoch`, and with it all earlier ones.
    pub fn on_ack(&mut self, epoch: u64) {
        if self.evidence == Evidence::Acks {
            self.settle(|pending| pending.epoch <= epoch);
        }
    }

    /// All copiers of this peer are gone, and none of their system calls runs any more.
    pub fn on_copier_dead(&mut self) {
        self.dead = true;
        self.settle(|_| true);
    }

    /// How the revocation under `epoch` stands; epochs never begun count as quiet.
    pub fn outcome(&self, epoch: u64, now: Instant) -> Outcome {
        let Some(pending) = self.pending.iter().find(|pending| pending.epoch == epoch) else {
            return Outcome::Quiet;
        };
        if now >= pending.deadline {
            Outcome::StillBusy
        } else {
            Outcome::Waiting { until: pending.deadline }
        }
    }

    /// Whether nothing is outstanding.
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// What is outstanding: epoch and scope, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = (u64, &RevokeScope)> {
        self.pending.iter().map(|pending| (pending.epoch, &pending.scope))
    }

    /// The next revocation that has become quiet, each once, in time or late: what it held may be let go.
    pub fn poll_quiet(&mut self) -> Option<(u64, RevokeScope)> {
        self.quieted.pop_front()
    }

    /// The next deadline that is still to come.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).filter(|&deadline| deadline > now).min()
    }

    fn settle(&mut self, is_quiet: impl Fn(&mut Pending) -> bool) {
        let mut at = 0;
        while let Some(pending) = self.pending.get_mut(at) {
            if is_quiet(pending)
                && let Some(quiet) = self.pending.remove(at)
            {
                self.quieted.push_back((quiet.epoch, quiet.scope));
            } else {
                at += 1;
            }
        }
    }
}

/// Why a peer's revocation is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcknowledgeError {
    /// Epochs only grow.
    #[error("revocation under epoch {epoch} after {last}")]
    EpochOrder {
        /// The new one.
        epoch: u64,
        /// The last.
        last: u64,
    },
    /// More holes in the peer's numbers than are remembered.
    #[error(transparent)]
    Tombstones(#[from] TooManyTombstones),
}

/// The copier's half: what the owner at the other end of the link has revoked, and what of that is carried out.
#[derive(Debug, Default)]
pub struct Acknowledged {
    received: u64,
    applied: u64,
    regions: Tombstones,
    all: bool,
}

impl Acknowledged {
    /// Nothing revoked, epoch 0 acknowledged.
    pub fn new() -> Self {
        Self::default()
    }

    /// A revocation came. Mark its regions and operations so that copiers see it, fail what touches them, and call
    /// [`applied`](Self::applied) then.
    ///
    /// # Errors
    /// The peer breaks the protocol; nothing is changed.
    pub fn on_revoke(&mut self, epoch: u64, scope: &RevokeScope) -> Result<(), AcknowledgeError> {
        if epoch <= self.received {
            let last = self.received;
            return Err(AcknowledgeError::EpochOrder { epoch, last });
        }
        self.regions.insert_all(&scope.regions)?;
        self.received = epoch;
        self.all |= scope.all;
        Ok(())
    }

    /// The revocation under `epoch`, and so each earlier one, is carried out. The frame says so to the owner; there is
    /// none if that was said before or no such revocation came.
    pub fn applied(&mut self, epoch: u64) -> Option<Frame> {
        if epoch <= self.applied || epoch > self.received {
            return None;
        }
        self.applied = epoch;
        Some(Frame::RevokeAck { epoch })
    }

    /// The last epoch that is carried out: what copiers run under.
    pub fn epoch(&self) -> u64 {
        self.applied
    }

    /// Whether a chunk may run while the owner's epoch is `owner_epoch`.
    pub fn may_run(&self, owner_epoch: u64) -> bool {
        owner_epoch == self.applied && !self.all
    }

    /// Whether region `id` of the owner was revoked on this link.
    pub fn is_revoked(&self, id: RegionId) -> bool {
        self.all || self.regions.contains(id)
    }
}
