//! What a worker hands over to be registered.

use std::fmt;

use kvferry::{Agent, MemoryKind, RegionDesc, RegionOwner};
use serde::{Deserialize, Serialize};

use crate::error::{BufferFault, RejectedOwner, WorkerBuffersError};
use crate::plan::Plan;
use crate::registered::{self, RegisteredBuffers};

/// All buffers of one worker that its peers read or write: KV pools, aux rows, state.
///
/// Entries that are null or have no bytes are left out, whatever else they say: a worker that holds some
/// layers only, or has no state, passes its lists as they are. So a null address with a length is no error
/// here, though it is one to `Agent::register_raw`.
///
/// Registering is all or nothing, and an error names the entry as the worker knows it: `kv entry 41 of 80
/// (layer 1 V, DRAM): 0x7f1200000000, 1.2 GiB: address is not mapped from 0x7f1230000000 on; allocate the
/// pool before the engine starts (register.unmapped)`. Entries count from 0 and include those left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerBuffers {
    /// The KV pools, one entry for each layer and part.
    pub kv: Vec<KvEntry>,
    /// Buffers of per-request rows (first token, sampling state, room), always in host memory.
    pub aux: Vec<AuxBuffer>,
    /// State beside the KV cache: sliding windows, recurrent layers.
    pub state: Vec<StateComponent>,
}

/// The pool of one layer's K, V, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KvEntry {
    /// Address of the first byte.
    pub ptr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of one item, that is of one page of this pool; divides the length.
    pub item_len: u64,
    /// Where the pool is.
    pub kind: MemoryKind,
    /// The device of that kind; 0 for host memory.
    pub device: u32,
    /// The layer, as the model counts.
    pub layer: u32,
    /// What of the layer it holds.
    pub part: KvPart,
}

/// What a KV pool holds of its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum KvPart {
    /// Keys.
    K,
    /// Values.
    V,
    /// Both in one item, or what takes their place (MLA's latent vectors).
    Packed,
}

/// A buffer of per-request rows, in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuxBuffer {
    /// Address of the first byte.
    pub ptr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of one item, that is of one row; divides the length.
    pub item_len: u64,
}

/// A named kind of state and its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateComponent {
    /// The name by which both sides know it, such as `swa` or `mamba`.
    pub name: String,
    /// Its tensors.
    pub tensors: Vec<StateTensor>,
}

/// One tensor of a state component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateTensor {
    /// Address of the first byte.
    pub ptr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of one item, that is of one slot or page; divides the length.
    pub item_len: u64,
    /// Where the tensor is.
    pub kind: MemoryKind,
    /// The device of that kind; 0 for host memory.
    pub device: u32,
    /// The layer, if it belongs to one.
    pub layer: Option<u32>,
}

impl WorkerBuffers {
    /// Registers all buffers with the agent, or none of them.
    ///
    /// # Errors
    /// An entry cannot be registered, or its item length does not divide its length. Nothing is registered
    /// then.
    ///
    /// # Safety
    /// As for `Agent::register_raw`: every buffer stays mapped, and is not accessed in conflict with posted
    /// transfers, until [`RegisteredBuffers::deregister`] has returned Ok.
    pub unsafe fn register_raw(&self, agent: &Agent) -> Result<RegisteredBuffers, WorkerBuffersError> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { registered::register(self, agent) }
    }

    /// Registers all buffers with the agent, or none of them, and keeps `owner`, in whose memory they lie,
    /// until they are deregistered.
    ///
    /// # Errors
    /// As [`WorkerBuffers::register_raw`], or a buffer is not inside the owner's memory. The owner comes
    /// back.
    pub fn register<O: RegionOwner>(
        &self,
        agent: &Agent,
        owner: O,
    ) -> Result<RegisteredBuffers, RejectedOwner<O>> {
        registered::register_owned(self, agent, owner)
    }

    /// What would keep each entry from being registered: all of them, in the order of this struct. Registers
    /// nothing.
    pub fn validate(&self, agent: &Agent) -> Vec<BufferFault> {
        let plan = Plan::new(self);
        let mut faults = plan.item_faults();
        // The agent lists a limited number of faults at a time; here all are wanted.
        let mut from = 0;
        while let Some(rest) = plan.descs().get(from..).filter(|rest| !rest.is_empty()) {
            let found = agent.validate(rest);
            let Some(last) = found.last().map(|fault| fault.index) else { break };
            faults.extend(found.into_iter().filter_map(|fault| plan.fault(from + fault.index, fault.cause)));
            from += last + 1;
        }
        faults.sort_by_key(BufferFault::order);
        faults
    }
}

impl KvEntry {
    pub(crate) fn desc(&self) -> RegionDesc {
        RegionDesc { addr: self.ptr, len: self.len, kind: self.kind, device: self.device }
    }
}

impl AuxBuffer {
    pub(crate) fn desc(&self) -> RegionDesc {
        RegionDesc { addr: self.ptr, len: self.len, kind: MemoryKind::Dram, device: 0 }
    }
}

impl StateTensor {
    pub(crate) fn desc(&self) -> RegionDesc {
        RegionDesc { addr: self.ptr, len: self.len, kind: self.kind, device: self.device }
    }
}

impl fmt::Display for KvPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::K => "K",
            Self::V => "V",
            Self::Packed => "K+V",
        })
    }
}

#[cfg(test)]
mod tests;
