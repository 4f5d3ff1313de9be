//! What a peer must know of a worker's buffers.

use kvferry::RegionDesc;
use serde::{Deserialize, Serialize};

use crate::buffers::{AuxBuffer, KvEntry, StateComponent, WorkerBuffers};
use crate::pages::{PageError, PageGrid};
use crate::plan::is_something;

/// What a peer needs to address a worker's buffers: kinds, pointers, lengths, item lengths and layers. Sent
/// from worker to worker, in whatever encoding.
///
/// Everything keeps its place in the worker's lists. What was not registered, for it was null or empty, is
/// here with a null address and no bytes.
///
/// One that came from a peer is a claim: a transfer that uses it is checked against the peer's metadata when
/// its list is prepared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerLayout {
    /// The KV pools.
    pub kv: Vec<KvEntry>,
    /// The buffers of per-request rows.
    pub aux: Vec<AuxBuffer>,
    /// The state components.
    pub state: Vec<StateComponent>,
}

impl PeerLayout {
    pub(crate) fn of(buffers: &WorkerBuffers) -> Self {
        let WorkerBuffers { mut kv, mut aux, mut state } = buffers.clone();
        for entry in &mut kv {
            let desc = entry.desc();
            settle(&desc, &mut entry.ptr, &mut entry.len);
        }
        for buffer in &mut aux {
            let desc = buffer.desc();
            settle(&desc, &mut buffer.ptr, &mut buffer.len);
        }
        for tensor in state.iter_mut().flat_map(|component| &mut component.tensors) {
            let desc = tensor.desc();
            settle(&desc, &mut tensor.ptr, &mut tensor.len);
        }
        Self { kv, aux, state }
    }

    /// The pages of the KV pools.
    ///
    /// # Errors
    /// The pools do not make up one set of pages.
    pub fn pages(&self) -> Result<PageGrid, PageError> {
        PageGrid::new(&self.kv)
    }
}

fn settle(desc: &RegionDesc, ptr: &mut u64, len: &mut u64) {
    if !is_something(desc) {
        (*ptr, *len) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
