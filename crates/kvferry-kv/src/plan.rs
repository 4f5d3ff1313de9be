//! A worker's buffers as one batch of regions.

use kvferry::{MemoryKind, RegionDesc, RegisterCause};

use crate::buffers::{StateComponent, WorkerBuffers};
use crate::error::{BufferCause, BufferFault, BufferPlace};

/// The buffers that are registered, grouped by kind of memory: first all of host memory, then all of GPU
/// memory.
#[derive(Debug)]
pub(crate) struct Plan {
    parts: Vec<Part>,
    descs: Vec<RegionDesc>,
    left_out: Vec<BufferPlace>,
}

#[derive(Debug, Clone)]
struct Part {
    place: BufferPlace,
    desc: RegionDesc,
    item_len: u64,
}

/// One kind of memory in one of the worker's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    /// `kv`, `aux` or `state`.
    pub(crate) list: &'static str,
    pub(crate) kind: MemoryKind,
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl Plan {
    pub(crate) fn new(buffers: &WorkerBuffers) -> Self {
        let (mut parts, empty): (Vec<Part>, Vec<Part>) =
            all(buffers).partition(|part| is_something(&part.desc));
        // Stable: within a kind the worker's order stays.
        parts.sort_by_key(|part| part.desc.kind);
        let descs = parts.iter().map(|part| part.desc).collect();
        Self { parts, descs, left_out: empty.into_iter().map(|part| part.place).collect() }
    }

    /// What to register, as one batch.
    pub(crate) fn descs(&self) -> &[RegionDesc] {
        &self.descs
    }

    /// The buffers that are null or have no bytes.
    pub(crate) fn left_out(&self) -> &[BufferPlace] {
        &self.left_out
    }

    /// What is registered of each list and kind; nothing for one without any.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for Part { place, desc, .. } in &self.parts {
            let list = match place {
                BufferPlace::Kv { .. } => "kv",
                BufferPlace::Aux { .. } => "aux",
                BufferPlace::State { .. } => "state",
            };
            match groups.iter_mut().find(|group| group.list == list && group.kind == desc.kind) {
                Some(group) => {
                    group.count += 1;
                    group.bytes = group.bytes.saturating_add(desc.len);
                }
                None => groups.push(Group { list, kind: desc.kind, count: 1, bytes: desc.len }),
            }
        }
        groups
    }

    /// The fault of the buffer at `index` of the batch.
    pub(crate) fn fault(&self, index: usize, cause: RegisterCause) -> Option<BufferFault> {
        self.parts.get(index).map(|part| part.fault(cause.into()))
    }

    /// The buffers whose item length does not divide their length.
    pub(crate) fn item_faults(&self) -> Vec<BufferFault> {
        // Nothing but zero is a multiple of zero.
        let bad = |part: &&Part| !part.desc.len.is_multiple_of(part.item_len);
        let fault = |part: &Part| {
            let (len, item_len) = (part.desc.len, part.item_len);
            part.fault(BufferCause::ItemLength { len, item_len })
        };
        self.parts.iter().filter(bad).map(fault).collect()
    }

    /// The buffers that are not inside any of these ranges of memory.
    pub(crate) fn faults_outside(&self, owned: &[RegionDesc]) -> Vec<BufferFault> {
        let outside = |part: &&Part| !owned.iter().any(|owned| holds(owned, &part.desc));
        self.parts.iter().filter(outside).map(|part| part.fault(BufferCause::NotOwned)).collect()
    }
}

impl Part {
    fn fault(&self, cause: BufferCause) -> BufferFault {
        BufferFault { place: self.place.clone(), desc: self.desc, cause }
    }
}

fn all(buffers: &WorkerBuffers) -> impl Iterator<Item = Part> {
    let WorkerBuffers { kv, aux, state } = buffers;
    let entries = kv.iter().enumerate().map(|(index, entry)| Part {
        place: BufferPlace::Kv { index, total: kv.len(), layer: entry.layer, part: entry.part },
        desc: entry.desc(),
        item_len: entry.item_len,
    });
    let rows = aux.iter().enumerate().map(|(index, buffer)| Part {
        place: BufferPlace::Aux { index, total: aux.len() },
        desc: buffer.desc(),
        item_len: buffer.item_len,
    });
    let tensors = state.iter().enumerate().flat_map(|(component, StateComponent { name, tensors })| {
        tensors.iter().enumerate().map(move |(tensor, found)| Part {
            place: BufferPlace::State { component, name: name.clone(), tensor, layer: found.layer },
            desc: found.desc(),
            item_len: found.item_len,
        })
    });
    entries.chain(rows).chain(tensors)
}

pub(crate) fn is_something(desc: &RegionDesc) -> bool {
    desc.addr != 0 && desc.len != 0
}

fn holds(outer: &RegionDesc, inner: &RegionDesc) -> bool {
    let same = (outer.kind, outer.device) == (inner.kind, inner.device);
    let ends = outer.end().zip(inner.end()).is_some_and(|(outer, inner)| inner <= outer);
    same && ends && outer.addr <= inner.addr
}
