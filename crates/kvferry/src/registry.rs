//! The regions of one agent.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvferry_proto::{MAX_BLOB_REGIONS, MemoryKind, RangeMap, RegionDesc, RegionId, RegionKey, human_size};

use crate::alloc::AllocTable;
use crate::error::{DeregisterError, RegionFault, RegisterCause, RegisterError};
use crate::region::{Backing, LocalRegion, Owner, RegionInfo};

mod check;
mod cuda;

use check::Checker;

/// Most faults that a dry run lists.
const MAX_FAULTS: usize = 100;

/// The regions of one agent: what peers may reach, and what is being given back.
///
/// A region that is being deregistered is *quarantined*: it is out of the range map and the metadata at once,
/// but its memory is not free until peers have let go of it.
#[derive(Debug)]
pub(crate) struct Registry {
    allocs: AllocTable,
    most: usize,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of registration, for ids count up.
    regions: BTreeMap<RegionId, Entry>,
    last_id: u64,
    generation: u64,
    /// Of the regions that are not quarantined; made when it is asked for.
    ranges: Option<Arc<RangeMap>>,
}

#[derive(Debug)]
struct Entry {
    region: Arc<LocalRegion>,
    quarantined: bool,
}

impl Registry {
    /// For `most` regions, quarantined ones included.
    fn with_room_for(most: usize) -> Self {
        Self { allocs: AllocTable::default(), most, state: RwLock::default() }
    }

    /// The shared memory of the agent.
    pub(crate) fn allocs(&self) -> &AllocTable {
        &self.allocs
    }

    /// Registers all of `descs`, or none of them. `owner` is kept as long as any of the regions is held.
    ///
    /// # Safety
    /// Each range stays mapped, and is not accessed in conflict with posted transfers, until its region is
    /// deregistered and nothing holds it any more.
    pub(crate) unsafe fn register(
        &self,
        descs: &[RegionDesc],
        owner: Option<Owner>,
    ) -> Result<Vec<RegionId>, RegisterError> {
        let backings = self.check_all(descs)?;
        let keys = match random_keys(descs.len()) {
            Ok(keys) => keys,
            Err(what) => return Err(refuse(descs, 0, RegisterCause::System { what })),
        };
        let mut state = self.write();
        // Checked with the lock held: of two batches at once only one may fit.
        let room = self.most.saturating_sub(state.regions.len());
        if descs.len() > room {
            return Err(refuse(descs, room, RegisterCause::Limit { most: self.most }));
        }
        let mut ids = Vec::with_capacity(descs.len());
        for ((desc, backing), key) in descs.iter().zip(backings).zip(keys) {
            state.last_id += 1;
            let id = RegionId(state.last_id);
            // SAFETY: the caller vouches for the range, the check just made for its backing.
            let region = unsafe { LocalRegion::new((id, key), *desc, backing, owner.clone()) };
            state.regions.insert(id, Entry { region: Arc::new(region), quarantined: false });
            ids.push(id);
        }
        if !ids.is_empty() {
            state.changed();
        }
        log(ids.iter().filter_map(|id| state.regions.get(id)));
        Ok(ids)
    }

    /// What would keep each of `descs` from being registered, up to a hundred of them. Registers nothing.
    pub(crate) fn validate(&self, descs: &[RegionDesc]) -> Vec<RegionFault> {
        let mut checker = Checker::new(&self.allocs);
        let faults = descs.iter().enumerate().filter_map(|(index, desc)| {
            let cause = checker.check(desc).err()?;
            Some(RegionFault { index, total: descs.len(), desc: *desc, cause })
        });
        faults.take(MAX_FAULTS).collect()
    }

    /// The region of that id, unless it is quarantined or gone.
    pub(crate) fn get(&self, id: RegionId) -> Option<Arc<LocalRegion>> {
        let state = self.read();
        let entry = state.regions.get(&id)?;
        (!entry.quarantined).then(|| Arc::clone(&entry.region))
    }

    /// All regions, quarantined or not, in the order of registration.
    pub(crate) fn regions(&self) -> Vec<RegionInfo> {
        let state = self.read();
        let info = |entry: &Entry| RegionInfo {
            id: entry.region.id(),
            desc: entry.region.desc(),
            shared: entry.region.backing().is_shared(),
            quarantined: entry.quarantined,
        };
        state.regions.values().map(info).collect()
    }

    /// What the metadata is to hold: the regions that are not quarantined, and the generation of this set.
    pub(crate) fn snapshot(&self) -> (u64, Vec<Arc<LocalRegion>>) {
        let state = self.read();
        let live = state.live().map(|entry| Arc::clone(&entry.region)).collect();
        (state.generation, live)
    }

    /// The first number that no region has had yet, and which of the smaller ones peers may reach, ascending.
    pub(crate) fn live_ids(&self) -> (u64, Vec<RegionId>) {
        let state = self.read();
        (state.last_id + 1, state.live().map(|entry| entry.region.id()).collect())
    }

    /// Counts the changes of the set that peers may reach.
    pub(crate) fn generation(&self) -> u64 {
        self.read().generation
    }

    /// The regions that are not quarantined, to be searched by address.
    pub(crate) fn range_map(&self) -> Arc<RangeMap> {
        if let Some(ranges) = &self.read().ranges {
            return Arc::clone(ranges);
        }
        let mut state = self.write();
        let state = &mut *state;
        let ranges = state.ranges.take().unwrap_or_else(|| {
            let live = state.regions.values().filter(|entry| !entry.quarantined);
            Arc::new(RangeMap::new(live.map(|entry| (entry.region.id(), entry.region.desc()))))
        });
        state.ranges = Some(Arc::clone(&ranges));
        ranges
    }

    /// How many regions share bytes with another.
    pub(crate) fn overlapping(&self) -> usize {
        self.range_map().overlapping()
    }

    /// Quarantines the regions: from now on nothing new reaches them. An id that is quarantined already stays
    /// so.
    ///
    /// # Errors
    /// An id is unknown; nothing is changed then.
    pub(crate) fn begin_deregister(&self, ids: &[RegionId]) -> Result<(), DeregisterError> {
        let mut state = self.write();
        if let Some(&id) = ids.iter().find(|id| !state.regions.contains_key(id)) {
            return Err(DeregisterError::Unknown { id });
        }
        let mut changed = false;
        for id in ids {
            if let Some(entry) = state.regions.get_mut(id) {
                changed |= !entry.quarantined;
                entry.region.mark_gone();
                entry.quarantined = true;
            }
        }
        if changed {
            state.changed();
        }
        Ok(())
    }

    /// Forgets quarantined regions, now that no peer can touch them. Their owner is dropped once no transfer
    /// holds them. Ids that are not quarantined are left alone.
    pub(crate) fn finish_deregister(&self, ids: &[RegionId]) {
        let mut freed = Vec::with_capacity(ids.len());
        let mut state = self.write();
        for id in ids {
            if state.regions.get(id).is_some_and(|entry| entry.quarantined) {
                freed.extend(state.regions.remove(id));
            }
        }
        // What drops with an owner is the caller's code, which may come back here.
        drop(state);
        drop(freed);
    }

    /// The regions that are being deregistered.
    pub(crate) fn quarantined(&self) -> Vec<RegionId> {
        let state = self.read();
        let quarantined = state.regions.iter().filter(|(_, entry)| entry.quarantined);
        quarantined.map(|(id, _)| *id).collect()
    }

    /// What backs each of `descs`; or the first bad one, and how many others there are.
    fn check_all(&self, descs: &[RegionDesc]) -> Result<Vec<Backing>, RegisterError> {
        let mut checker = Checker::new(&self.allocs);
        let mut backings = Vec::with_capacity(descs.len());
        let mut first = None;
        let mut others = 0;
        for (index, desc) in descs.iter().enumerate() {
            match (checker.check(desc), &first) {
                (Ok(backing), _) => backings.push(backing),
                (Err(cause), None) => {
                    first = Some(RegionFault { index, total: descs.len(), desc: *desc, cause });
                }
                (Err(_), Some(_)) => others += 1,
            }
        }
        match first {
            None => Ok(backings),
            Some(fault) => Err(RegisterError::Region { fault, others }),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Registry {
    fn default() -> Self {
        // What the metadata can carry.
        Self::with_room_for(MAX_BLOB_REGIONS)
    }
}

impl State {
    fn live(&self) -> impl Iterator<Item = &Entry> {
        self.regions.values().filter(|entry| !entry.quarantined)
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.ranges = None;
    }
}

/// The whole batch refused for the sake of the region at `index`.
fn refuse(descs: &[RegionDesc], index: usize, cause: RegisterCause) -> RegisterError {
    let nothing = RegionDesc { addr: 0, len: 0, kind: MemoryKind::Dram, device: 0 };
    let desc = descs.get(index).copied().unwrap_or(nothing);
    let others = descs.len().saturating_sub(index + 1);
    RegisterError::Region { fault: RegionFault { index, total: descs.len(), desc, cause }, others }
}

fn random_keys(count: usize) -> Result<Vec<RegionKey>, String> {
    let mut bytes = vec![0; count * size_of::<u64>()];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers for its key: {error}"))?;
    let (keys, _) = bytes.as_chunks();
    Ok(keys.iter().map(|key| RegionKey(u64::from_ne_bytes(*key))).collect())
}

/// A line for each region, and one for each kind of memory in the batch.
fn log<'a>(entries: impl Iterator<Item = &'a Entry>) {
    let mut totals: BTreeMap<MemoryKind, (usize, u64)> = BTreeMap::new();
    for (index, Entry { region, .. }) in entries.enumerate() {
        let desc = region.desc();
        tracing::debug!(
            target: "kvferry::register",
            index,
            id = region.id().0,
            address = format_args!("{:#x}", desc.addr),
            length = desc.len,
            kind = %desc.kind,
            device = desc.device,
            backing = %region.backing(),
            "region"
        );
        let (count, bytes) = totals.entry(desc.kind).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(desc.len);
    }
    for (kind, (count, bytes)) in totals {
        let (size, noun) = (human_size(bytes), if count == 1 { "region" } else { "regions" });
        tracing::info!(target: "kvferry::register", %kind, count, bytes, "registered {count} {noun}, {size}");
    }
}

#[cfg(test)]
mod tests;
