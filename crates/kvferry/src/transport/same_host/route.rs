use std::{fmt, sync::Arc};

use kvferry_proto::{Reach, RemoteRegion};
use kvferry_sys::Touch;

use super::message::Denial;
use crate::{
    path::{Executor, Mechanism, Path, PathReport, Route, WhyNot},
    region::{Backing, LocalRegion},
    settings::Settings,
};

/// Below this many bytes a copy by the target is not worth the trip when the initiator can copy by itself.
const WORTH_A_TRIP: u64 = 1 << 20;

/// What kind of memory one end of a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A sealed memory file of ours: others can map it.
    Shared,
    /// Private memory that loads and stores may touch.
    Private,
    /// Memory that only system calls may touch.
    Fragile,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Shared, Self::Private, Self::Fragile];

    pub(super) fn of_local(region: &LocalRegion) -> Self {
        match region.backing() {
            Backing::Shared { .. } => Self::Shared,
            Backing::Private { touch: Touch::LoadStore } => Self::Private,
            Backing::Private { touch: Touch::Syscall } => Self::Fragile,
        }
    }

    pub(super) fn of_remote(region: &RemoteRegion) -> Self {
        let mut class = Self::Fragile;
        for reach in &region.reach {
            match reach {
                Reach::Map { .. } => return Self::Shared,
                Reach::Cma { stable: true } => class = Self::Private,
                _ => {}
            }
        }
        class
    }

    fn name(self) -> &'static str {
        match self {
            Self::Shared => "kvferry memory",
            Self::Private => "private memory",
            Self::Fragile => "file-backed memory",
        }
    }
}

/// How a pair of regions is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Way {
    /// The initiator, between its own memory and a mapping of the target's.
    Map = 0,
    /// The initiator, by `process_vm_readv` and `process_vm_writev`.
    Cma = 1,
    /// The target, between its own memory and a mapping of the initiator's.
    MapByTarget = 2,
    /// The target, by `process_vm_readv` and `process_vm_writev`.
    CmaByTarget = 3,
}

impl Way {
    pub(super) fn executor(self) -> Executor {
        match self {
            Self::Map | Self::Cma => Executor::Initiator,
            Self::MapByTarget | Self::CmaByTarget => Executor::Target,
        }
    }

    pub(super) fn route(self, path: Path) -> Route {
        let mechanism = match self {
            Self::Map | Self::MapByTarget => Mechanism::Map,
            Self::Cma | Self::CmaByTarget => Mechanism::Cma,
        };
        Route { path, mechanism, executor: self.executor() }
    }
}

/// What decides between the ways to one peer.
#[derive(Clone, Debug)]
pub(super) struct Router {
    pub(super) path: Path,
    /// Whether we can reach the peer's memory by system call.
    pub(super) ours: Result<(), Denial>,
    /// Whether the peer can reach ours.
    pub(super) theirs: Result<(), Denial>,
    pub(super) settings: Arc<Settings>,
}

impl Router {
    /// The way for a pair of classes, for a transfer of `bytes` in all.
    pub(super) fn choose(&self, local: Class, remote: Class, bytes: u64) -> Result<Way, Vec<WhyNot>> {
        let mut why_not = Vec::new();
        let map = self.map_way(local, remote, &mut why_not);
        let cma = self.cma_way(&mut why_not);
        match (map, cma) {
            (Some(Way::MapByTarget), Some(Way::Cma)) if bytes < WORTH_A_TRIP => Ok(Way::Cma),
            (Some(way), _) | (None, Some(way)) => Ok(way),
            (None, None) => Err(why_not),
        }
    }

    /// Why no pair at all has a way, if that is so.
    pub(super) fn check(&self) -> Result<(), Vec<WhyNot>> {
        let mut why_not = Vec::new();
        // Memory of `agent.alloc` can always be mapped, unless the settings bar it.
        let Some(reason) = self.barred("map") else { return Ok(()) };
        why_not.push(WhyNot { way: "map", reason });
        match self.cma_way(&mut why_not) {
            Some(_) => Ok(()),
            None => Err(why_not),
        }
    }

    /// The pairs of classes in use; of a side without regions, what it could have.
    pub(super) fn report(
        &self,
        local: impl Iterator<Item = Class>,
        remote: impl Iterator<Item = Class>,
    ) -> Vec<PathReport> {
        let (local, remote) = (distinct(local), distinct(remote));
        let pairs = local.iter().flat_map(|l| remote.iter().map(move |r| (*l, *r)));
        pairs.map(|(local, remote)| self.report_pair(local, remote)).collect()
    }

    fn report_pair(&self, local: Class, remote: Class) -> PathReport {
        let mut why_not = Vec::new();
        let chosen = self.choose(local, remote, u64::MAX).ok();
        if !matches!(chosen, Some(Way::Map | Way::MapByTarget)) {
            self.map_way(local, remote, &mut why_not);
        }
        if chosen.is_none() {
            self.cma_way(&mut why_not);
        }
        if let (Some(Way::CmaByTarget), Err(denial)) = (chosen, &self.ours) {
            why_not.push(WhyNot { way: "cma by the initiator", reason: denial.to_string() });
        }
        PathReport {
            local: local.name(),
            remote: remote.name(),
            route: chosen.map(|way| way.route(self.path)),
            why_not,
        }
    }

    fn map_way(&self, local: Class, remote: Class, why_not: &mut Vec<WhyNot>) -> Option<Way> {
        let way = match (local, remote) {
            (_, Class::Shared) => Some(Way::Map),
            (Class::Shared, Class::Private) => Some(Way::MapByTarget),
            (Class::Shared, Class::Fragile) => {
                why_not.push(WhyNot::new(
                    "map",
                    "the peer's memory is file-backed: it could vanish under a load",
                ));
                None
            }
            _ => {
                why_not
                    .push(WhyNot::new("map", "neither end is kvferry memory; allocate one with agent.alloc"));
                None
            }
        };
        let way = way?;
        match self.barred("map") {
            Some(reason) => {
                why_not.push(WhyNot { way: "map", reason });
                None
            }
            None => Some(way),
        }
    }

    fn cma_way(&self, why_not: &mut Vec<WhyNot>) -> Option<Way> {
        if let Some(reason) = self.barred("cma") {
            why_not.push(WhyNot { way: "cma", reason });
            return None;
        }
        match (&self.ours, &self.theirs) {
            (Ok(()), _) => Some(Way::Cma),
            (Err(_), Ok(())) => Some(Way::CmaByTarget),
            (Err(denial), Err(_)) => {
                why_not.push(WhyNot { way: "cma", reason: denial.to_string() });
                None
            }
        }
    }

    /// Why the settings bar a mechanism on this path, if they do.
    fn barred(&self, mechanism: &'static str) -> Option<String> {
        self.settings.refusal(self.path.name(), mechanism)
    }
}

fn distinct(classes: impl Iterator<Item = Class>) -> Vec<Class> {
    let mut seen = Vec::new();
    for class in classes {
        if !seen.contains(&class) {
            seen.push(class);
        }
    }
    if seen.is_empty() { vec![Class::Shared, Class::Private] } else { seen }
}

impl WhyNot {
    fn new(way: &'static str, reason: &str) -> Self {
        Self { way, reason: reason.into() }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause, self.remedy)
    }
}

#[cfg(test)]
mod tests;
