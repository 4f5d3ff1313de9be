use std::sync::Arc;

use kvferry_proto::{Op, Plan, Reach, RemoteRegion, RouteId};
use kvferry_sys::{Pid, RemoteSlice, SharedMemory};

use super::{
    copy::Far,
    route::{Class, Router, Way},
};
use crate::{
    path::WhyNot,
    transport::{OpRequest, RemoteRef, Share},
};

/// The way of every pair of regions of one plan.
#[derive(Debug)]
pub(super) struct Routes {
    local: Box<[Class]>,
    remote: Box<[Class]>,
    /// By local and remote class.
    ways: [[Option<Way>; 3]; 3],
    /// Where the peer's shared regions are mapped here, by slot: the memory and the offset of the region in it.
    mapped: Box<[Option<Mapped>]>,
    pid: Option<Pid>,
    share: Share,
}

/// A peer's memory file that is mapped here, and where in it a region begins.
type Mapped = (Arc<SharedMemory>, u64);

/// A pair of regions without a way.
#[derive(Debug)]
pub(super) struct NoWay {
    pub(super) local: u32,
    pub(super) remote: u32,
    pub(super) why_not: Vec<WhyNot>,
}

impl Routes {
    /// Chooses the way for each pair of classes that the plan's regions have.
    pub(super) fn choose(router: &Router, request: &OpRequest, pid: Option<Pid>) -> Self {
        let bytes = request.plan.bytes();
        let ways = Class::ALL.map(|l| Class::ALL.map(|r| router.choose(l, r, bytes).ok()));
        Self {
            local: request.local.iter().map(|r| Class::of_local(r)).collect(),
            remote: request.remote.iter().map(|r| Class::of_remote(&r.region)).collect(),
            ways,
            mapped: vec![None; request.remote.len()].into(),
            pid,
            share: request.share.clone(),
        }
    }

    /// Makes sure that every block of our share has a way; returns the ways in use.
    pub(super) fn check(&self, router: &Router, plan: &Plan) -> Result<Vec<Way>, NoWay> {
        let mut used = Vec::new();
        for (l, r) in plan.slot_pairs().into_iter().filter(|(l, r)| self.share.holds(*l, *r)) {
            let (local, remote) = (self.local[l as usize], self.remote[r as usize]);
            match self.ways[local as usize][remote as usize] {
                Some(way) if used.contains(&way) => {}
                Some(way) => used.push(way),
                None => {
                    let why_not = router.choose(local, remote, plan.bytes()).err().unwrap_or_default();
                    return Err(NoWay { local: l, remote: r, why_not });
                }
            }
        }
        Ok(used)
    }

    /// The memory files of the peer that the initiator must map.
    pub(super) fn wanted(&self, remote: &[RemoteRef]) -> Vec<(usize, u64, u64)> {
        let maps = |slot: usize| {
            let class = self.remote[slot] as usize;
            self.ways.iter().any(|row| row[class] == Some(Way::Map))
        };
        let key = |region: &RemoteRegion| {
            region.reach.iter().find_map(|r| match r {
                Reach::Map { memfd, offset } => Some((*memfd, *offset)),
                _ => None,
            })
        };
        (0..remote.len())
            .filter(|&slot| maps(slot))
            .filter_map(|slot| key(&remote[slot].region).map(|(memfd, offset)| (slot, memfd, offset)))
            .collect()
    }

    /// Notes where a shared region is mapped.
    pub(super) fn map(&mut self, slot: usize, memory: Arc<SharedMemory>, offset: u64) {
        self.mapped[slot] = Some((memory, offset));
    }

    /// The route of a pair that the initiator copies.
    pub(super) fn initiated(&self, local: u32, remote: u32) -> Option<RouteId> {
        self.of(local, remote).filter(|way| matches!(way, Way::Map | Way::Cma)).map(|way| RouteId(way as u8))
    }

    /// The route of a pair that the target copies.
    pub(super) fn delegated(&self, local: u32, remote: u32) -> Option<RouteId> {
        self.of(local, remote)
            .filter(|way| matches!(way, Way::MapByTarget | Way::CmaByTarget))
            .map(|way| RouteId(way as u8))
    }

    /// How many bytes of a plan the initiator copies, and how many the target.
    pub(super) fn bytes(&self, plan: &Plan, used: &[Way]) -> (u64, u64) {
        let bytes = self.share.bytes(plan);
        match split(used) {
            (Some(_), Some(_)) => {
                let initiated = plan.bytes_between(|local, remote| self.initiated(local, remote).is_some());
                (initiated, bytes - initiated)
            }
            (None, _) => (0, bytes),
            (_, None) => (bytes, 0),
        }
    }

    /// The far end of a segment.
    pub(super) fn far(&self, slot: u32, region: &RemoteRegion, addr: u64, len: u64) -> Option<Far> {
        let offset = addr.checked_sub(region.desc.addr)?;
        match &self.mapped[slot as usize] {
            Some((memory, start)) => memory.slice(start.checked_add(offset)?, len).map(Far::Mapped),
            None => Some(Far::Process { pid: self.pid?, slice: RemoteSlice { addr, len } }),
        }
    }

    fn of(&self, local: u32, remote: u32) -> Option<Way> {
        if !self.share.holds(local, remote) {
            return None;
        }
        self.ways[self.local[local as usize] as usize][self.remote[remote as usize] as usize]
    }
}

/// A way in use of those that the initiator copies, and of those that the target copies.
pub(super) fn split(used: &[Way]) -> (Option<Way>, Option<Way>) {
    let initiated = used.iter().copied().find(|w| matches!(w, Way::Map | Way::Cma));
    let delegated = used.iter().copied().find(|w| matches!(w, Way::MapByTarget | Way::CmaByTarget));
    (initiated, delegated)
}

/// Which way the bytes of `op` go, for the target: whether the initiator's memory is the source.
pub(super) fn writes(op: Op) -> bool {
    op == Op::Write
}
