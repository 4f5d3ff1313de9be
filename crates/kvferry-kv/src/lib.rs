//! An LLM worker's buffers on kvferry: what must be registered before a prefill or decode worker serves, what
//! its peer must know of it, and the pages of its KV pools as blocks of a transfer.

mod buffers;
mod error;
mod layout;
mod pages;
mod plan;
mod registered;
#[cfg(test)]
mod testing;

pub use buffers::{AuxBuffer, KvEntry, KvPart, StateComponent, StateTensor, WorkerBuffers};
pub use error::{BufferCause, BufferFault, BufferPlace, RejectedOwner, WorkerBuffersError};
pub use layout::PeerLayout;
pub use pages::{LayoutMismatch, PageError, PageGrid, PagePool};
pub use registered::RegisteredBuffers;
