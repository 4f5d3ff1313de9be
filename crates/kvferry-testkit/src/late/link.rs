use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use kvferry::transport::{Acknowledge, AdmitError, AttachContext, Link, LinkOp, Message, OpRequest, Outbox};
use kvferry::{
    Executor, FaultCause, FaultSide, LocalRegion, LostCause, Mechanism, Path, PathReport, Route, WhyNot,
};
use kvferry_proto::{Reach, RemoteRegion, RevokeScope};
use kvferry_sys::RegionSlice;

use super::op::LateOp;
use super::wire::{Barred, INITIATOR, TARGET, Wire};
use super::{LateEvidence, MECHANISM, NAME, Shop, lock};

/// Initiator to target: the number of the wire.
pub(super) const HELLO: u8 = 1;
/// Target to initiator: found it.
pub(super) const WELCOME: u8 = 2;

/// How everything goes.
pub(super) const ROUTE: Route =
    Route { path: Path::Other(NAME), mechanism: Mechanism::Other(NAME), executor: Executor::Initiator };

pub(super) fn encode(kind: u8, number: u64) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend(number.to_le_bytes());
    body
}

pub(super) fn decode(body: &[u8]) -> Option<(u8, u64)> {
    let (kind, number) = body.split_first()?;
    Some((*kind, u64::from_le_bytes(number.try_into().ok()?)))
}

/// One end of a wire.
pub(super) struct LateLink {
    me: Weak<Self>,
    pub(super) shop: Arc<Shop>,
    pub(super) wire: Arc<Wire>,
    end: usize,
    peer: String,
    outbox: Outbox,
    /// Counts what our agent took back.
    epoch: Mutex<u64>,
    /// Up to which of our epochs the other end has acknowledged.
    acknowledged: AtomicU64,
    /// Epochs of the other end that are to be acknowledged, in this order, once they are quiet.
    owed: Mutex<VecDeque<u64>>,
    lost: OnceLock<FaultCause>,
    ops: Mutex<Vec<Weak<LateOp>>>,
}

impl LateLink {
    pub(super) fn new(shop: Arc<Shop>, wire: Arc<Wire>, context: &AttachContext) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shop,
            wire,
            end: if context.initiator { INITIATOR } else { TARGET },
            peer: context.peer.clone(),
            outbox: context.outbox.clone(),
            epoch: Mutex::new(0),
            acknowledged: AtomicU64::new(0),
            owed: Mutex::default(),
            lost: OnceLock::new(),
            ops: Mutex::default(),
        })
    }

    /// Why nothing begins any more, if that is so.
    pub(super) fn lost_cause(&self) -> Option<FaultCause> {
        self.lost.get().cloned()
    }

    /// What an operation of ours, the initiator's, fails with that may not begin.
    pub(super) fn cause_of(&self, barred: Barred) -> FaultCause {
        let lost = |cause| FaultCause::PeerLost { peer: self.peer.clone(), cause };
        match barred {
            Barred::Region(INITIATOR) => FaultCause::Revoked { side: FaultSide::Local },
            Barred::Region(_) => FaultCause::Revoked { side: FaultSide::Remote },
            Barred::Everything(INITIATOR) => lost(LostCause::DisconnectedByUs),
            Barred::Everything(_) => lost(LostCause::Disconnected),
        }
    }

    /// A copy is over: tells the other end of epochs that have become quiet by that.
    pub(super) fn finished(&self, run: u64) {
        self.wire.finish(run);
        self.pay();
    }

    fn pay(&self) {
        // Under the lock, so that the epochs go out in their order.
        let mut owed = lock(&self.owed);
        while let Some(epoch) = owed.front().copied().filter(|epoch| self.wire.is_quiet(1 - self.end, *epoch))
        {
            owed.pop_front();
            self.outbox.applied(epoch);
        }
    }

    fn by_word(&self) -> bool {
        self.shop.options.evidence == LateEvidence::Word
    }
}

impl Link for LateLink {
    fn path(&self) -> Path {
        Path::Other(NAME)
    }

    fn report(&self, _: &[Arc<LocalRegion>], _: &[RemoteRegion]) -> Vec<PathReport> {
        vec![PathReport {
            local: "any memory",
            remote: "any memory",
            route: Some(ROUTE),
            why_not: vec![WhyNot { way: "cma", reason: "the late transport stands in for hardware".into() }],
        }]
    }

    fn admit(&self, request: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError> {
        if let Some(cause) = self.lost_cause() {
            return Err(AdmitError::Lost(cause));
        }
        let slice = |reach: &Reach| match reach {
            Reach::Other { mechanism: MECHANISM, key } => Shop::find(key),
            _ => None,
        };
        let mut far: Vec<RegionSlice> = Vec::with_capacity(request.remote.len());
        for (slot, remote) in request.remote.iter().enumerate() {
            let Some(found) = remote.region.reach.iter().find_map(slice) else {
                let why_not = vec![WhyNot { way: NAME, reason: "the peer's region is not on offer".into() }];
                return Err(AdmitError::NoRoute { local: 0, remote: slot as u32, why_not });
            };
            far.push(found);
        }
        let Some(me) = self.me.upgrade() else { return Ok(Vec::new()) };
        let op = LateOp::new(me, request, far);
        let mut ops = lock(&self.ops);
        ops.retain(|op| op.strong_count() > 0);
        ops.push(Arc::downgrade(&op));
        Ok(vec![op])
    }

    fn message(&self, _: Message) -> Result<(), String> {
        Err("an unexpected message of the late transport".into())
    }

    fn revoke(&self, scope: RevokeScope) -> u64 {
        // One lock for all, so that the other end hears of the epochs in their order.
        let mut epoch = lock(&self.epoch);
        for piece in scope.split() {
            *epoch += 1;
            // What our own operations do to our own memory we need nobody else to tell us.
            if !self.by_word() || self.end == INITIATOR || self.lost.get().is_some() {
                self.wire.revoke(self.end, *epoch, &piece);
            }
            self.outbox.revoked(*epoch, piece);
        }
        *epoch
    }

    fn is_quiet(&self, epoch: u64) -> bool {
        if self.by_word() && self.end == TARGET && self.lost.get().is_none() {
            return self.acknowledged.load(Ordering::SeqCst) >= epoch;
        }
        self.wire.is_quiet(self.end, epoch)
    }

    fn acknowledge(&self, epoch: u64, scope: &RevokeScope) -> Acknowledge {
        if !self.by_word() || self.end == TARGET {
            return Acknowledge::Now;
        }
        self.wire.revoke(TARGET, epoch, scope);
        lock(&self.owed).push_back(epoch);
        self.pay();
        Acknowledge::Later
    }

    fn revoke_acknowledged(&self, epoch: u64) {
        self.acknowledged.fetch_max(epoch, Ordering::SeqCst);
    }

    fn lost(&self, cause: FaultCause) {
        let _ = self.lost.set(cause.clone());
        // No message comes any more: what a real wire learns from closing its connection, we look up.
        self.wire.revoke(self.end, *lock(&self.epoch), &RevokeScope::all());
        let ops: Vec<_> = lock(&self.ops).iter().filter_map(Weak::upgrade).collect();
        ops.iter().for_each(|op| op.fail(&cause));
    }

    fn linger(&self) -> bool {
        self.wire.is_idle()
    }
}

impl fmt::Debug for LateLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateLink").field("end", &self.end).field("lost", &self.lost).finish_non_exhaustive()
    }
}
