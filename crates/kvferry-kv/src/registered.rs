//! Buffers that are registered.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use kvferry::{Agent, DeregisterError, RegionId, RegionOwner, RegisterError, human_size};

use crate::buffers::WorkerBuffers;
use crate::error::{RejectedOwner, WorkerBuffersError};
use crate::layout::PeerLayout;
use crate::plan::{Group, Plan};

/// A worker's buffers, registered with an agent.
///
/// Dropping it starts to deregister them and does not wait: peers start nothing new, but one may still be in
/// a copy. Call [`deregister`](RegisteredBuffers::deregister) to know that the memory is free. An owner that
/// was given with the buffers is dropped when they are known to be free; if a peer has not let go by then, it
/// is leaked and that is logged.
#[must_use = "dropping it deregisters the buffers"]
pub struct RegisteredBuffers {
    agent: Agent,
    ids: Vec<RegionId>,
    layout: PeerLayout,
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl RegisteredBuffers {
    /// What a peer must know of the buffers.
    pub fn layout(&self) -> &PeerLayout {
        &self.layout
    }

    /// The ids of the regions, for partial metadata. Empty once they are deregistered.
    pub fn ids(&self) -> &[RegionId] {
        &self.ids
    }

    /// Takes the buffers back: Ok only when no peer can touch them any more. Waits as long as the agent's
    /// `cancel_timeout`.
    ///
    /// # Errors
    /// A peer has not let go. The memory must stay mapped, and the call can be repeated.
    pub fn deregister(&mut self) -> Result<(), DeregisterError> {
        self.deregister_within(self.agent.settings().cancel_timeout)
    }

    /// As [`deregister`](RegisteredBuffers::deregister), waiting as long as `timeout`.
    ///
    /// # Errors
    /// A peer has not let go.
    pub fn deregister_within(&mut self, timeout: Duration) -> Result<(), DeregisterError> {
        if !self.ids.is_empty() {
            self.agent.deregister_within(&self.ids, timeout)?;
            self.ids.clear();
        }
        self.owner = None;
        Ok(())
    }
}

impl Drop for RegisteredBuffers {
    fn drop(&mut self) {
        let Err(error) = self.deregister_within(Duration::ZERO) else { return };
        let Some(owner) = self.owner.take() else { return };
        // In a forked child the memory is the parent's to free.
        if !matches!(error, DeregisterError::Forked) {
            tracing::warn!(target: "kvferry::register", "the worker's memory is leaked, still in use: {error}");
        }
        std::mem::forget(owner);
    }
}

impl fmt::Debug for RegisteredBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuffers")
            .field("agent", &self.agent.name())
            .field("ids", &self.ids)
            .field("layout", &self.layout)
            .field("owned", &self.owner.is_some())
            .finish()
    }
}

/// # Safety
/// As for `Agent::register_raw`, for all of `buffers`.
pub(crate) unsafe fn register(
    buffers: &WorkerBuffers,
    agent: &Agent,
) -> Result<RegisteredBuffers, WorkerBuffersError> {
    let plan = Plan::new(buffers);
    if !plan.item_faults().is_empty()
        && let Some(error) = WorkerBuffersError::of(buffers.validate(agent))
    {
        return Err(error);
    }
    for place in plan.left_out() {
        tracing::debug!(target: "kvferry::register", "{place} is null or empty and left out");
    }
    // One batch, so that all of it or nothing is registered.
    // SAFETY: the caller's promise is the one asked for.
    let ids = unsafe { agent.register_raw(plan.descs()) }.map_err(|error| explain(&plan, error))?;
    for Group { list, kind, count, bytes } in plan.groups() {
        let size = human_size(bytes);
        tracing::debug!(
            target: "kvferry::register", list, %kind, count, bytes,
            "registered the worker's {list} buffers in {kind}: {count}, {size}"
        );
    }
    Ok(RegisteredBuffers { agent: agent.clone(), ids, layout: PeerLayout::of(buffers), owner: None })
}

pub(crate) fn register_owned<O: RegionOwner>(
    buffers: &WorkerBuffers,
    agent: &Agent,
    owner: O,
) -> Result<RegisteredBuffers, RejectedOwner<O>> {
    let plan = Plan::new(buffers);
    if let Some(error) = WorkerBuffersError::of(plan.faults_outside(&owner.regions())) {
        return Err(RejectedOwner { error, owner });
    }
    // SAFETY: all buffers lie in the owner's memory, which by its contract may be registered while it lives;
    // the result keeps it until the agent says that the buffers are free, and leaks it where the agent does
    // not.
    match unsafe { register(buffers, agent) } {
        Ok(mut registered) => {
            registered.owner = Some(Box::new(owner));
            Ok(registered)
        }
        Err(error) => Err(RejectedOwner { error, owner }),
    }
}

/// The agent's error in the worker's words.
fn explain(plan: &Plan, error: RegisterError) -> WorkerBuffersError {
    match error {
        RegisterError::Region { fault, others } => match plan.fault(fault.index, fault.cause.clone()) {
            Some(fault) => WorkerBuffersError::Buffer { fault, others },
            None => WorkerBuffersError::Agent(RegisterError::Region { fault, others }),
        },
        error => WorkerBuffersError::Agent(error),
    }
}
