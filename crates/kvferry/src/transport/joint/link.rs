use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use kvferry_proto::{RemoteRegion, RevokeScope};

use super::{
    super::{Acknowledge, AdmitError, Link, LinkOp, Liveness, Message, OpRequest, Share},
    message::Wire,
};
use crate::{
    error::FaultCause,
    path::{Path, PathReport, WhyNot},
    region::LocalRegion,
};

/// A peer on this host, with data streams for the memory that cannot be reached otherwise.
pub(super) struct JointLink {
    initiator: bool,
    near: Arc<dyn Link>,
    /// The streams, or why there are none.
    far: Result<Arc<dyn Link>, String>,
    /// At the target: the initiator does without the streams after all.
    given_up: AtomicBool,
}

impl JointLink {
    pub(super) fn new(initiator: bool, near: Arc<dyn Link>, far: Result<Arc<dyn Link>, String>) -> Arc<Self> {
        Arc::new(Self { initiator, near, far, given_up: AtomicBool::new(false) })
    }

    fn far(&self) -> Option<&Arc<dyn Link>> {
        self.far.as_ref().ok()
    }
}

impl Link for JointLink {
    fn path(&self) -> Path {
        self.near.path()
    }

    fn has_streams(&self) -> bool {
        self.far.is_ok() && !self.given_up.load(SeqCst)
    }

    fn report(&self, local: &[Arc<LocalRegion>], remote: &[RemoteRegion]) -> Vec<PathReport> {
        let mut pairs = self.near.report(local, remote);
        for pair in pairs.iter_mut().filter(|pair| pair.route.is_none()) {
            match &self.far {
                Ok(far) => pair.route = far.report(local, remote).first().and_then(|far| far.route),
                Err(reason) => pair.why_not.push(WhyNot { way: "tcp", reason: reason.clone() }),
            }
        }
        pairs
    }

    fn carries(&self, local: &LocalRegion, remote: &RemoteRegion) -> bool {
        self.near.carries(local, remote) || self.far().is_some_and(|far| far.carries(local, remote))
    }

    fn admit(&self, request: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError> {
        let (near, far): (HashSet<_>, HashSet<_>) = request
            .plan
            .slot_pairs()
            .into_iter()
            .filter(|(local, remote)| request.share.holds(*local, *remote))
            .partition(|(local, remote)| {
                let (local, remote) = (*local as usize, *remote as usize);
                self.near.carries(&request.local[local], &request.remote[remote].region)
            });
        match &self.far {
            _ if far.is_empty() => self.near.admit(request),
            Err(reason) => self.near.admit(request).map_err(|error| no_streams(error, reason)),
            Ok(streams) if near.is_empty() => streams.admit(request),
            Ok(streams) => {
                let share = |pairs| OpRequest { share: Share::Pairs(Arc::new(pairs)), ..request.clone() };
                let mut ops = self.near.admit(share(near))?;
                ops.extend(streams.admit(share(far))?);
                Ok(ops)
            }
        }
    }

    fn message(&self, message: Message) -> Result<(), String> {
        match (Wire::decode(&message.body), &self.far) {
            (None, _) => self.near.message(message),
            (Some(wire), far) => match (wire?, far) {
                (Wire::Far(body), Ok(far)) => far.message(Message { body, fds: Vec::new() }),
                (Wire::Enough, _) if !self.initiator => {
                    self.given_up.store(true, SeqCst);
                    Ok(())
                }
                // Streams that we gave up waiting for.
                (Wire::Far(_) | Wire::Open { .. } | Wire::Declined { .. }, Err(_)) if self.initiator => {
                    Ok(())
                }
                _ => Err("a message about data streams out of place".into()),
            },
        }
    }

    fn revoke(&self, scope: RevokeScope) -> u64 {
        // The peer hears of it once, by the near way; the streams need no word of the peer to be quiet.
        if let Some(far) = self.far() {
            far.revoke(scope.clone());
        }
        self.near.revoke(scope)
    }

    fn is_quiet(&self, epoch: u64) -> bool {
        self.near.is_quiet(epoch) && self.far().is_none_or(|far| far.is_quiet(epoch))
    }

    fn acknowledge(&self, epoch: u64, scope: &RevokeScope) -> Acknowledge {
        self.near.acknowledge(epoch, scope)
    }

    fn revoke_acknowledged(&self, epoch: u64) {
        self.near.revoke_acknowledged(epoch);
    }

    fn lost(&self, cause: FaultCause) {
        if let Some(far) = self.far() {
            far.lost(cause.clone());
        }
        self.near.lost(cause);
    }

    fn superseded(&self) {
        if let Some(far) = self.far() {
            far.superseded();
        }
        self.near.superseded();
    }

    fn linger(&self) -> bool {
        let near = self.near.linger();
        self.far().is_none_or(|far| far.linger()) && near
    }

    fn liveness(&self) -> Option<Liveness> {
        self.near.liveness()
    }
}

/// Says for a pair without a way why the streams are none.
fn no_streams(error: AdmitError, reason: &str) -> AdmitError {
    match error {
        AdmitError::NoRoute { local, remote, mut why_not } => {
            why_not.push(WhyNot { way: "tcp", reason: reason.into() });
            AdmitError::NoRoute { local, remote, why_not }
        }
        lost => lost,
    }
}

impl fmt::Debug for JointLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointLink").field("near", &self.near).field("far", &self.far).finish_non_exhaustive()
    }
}
