//! Buffers that are registered.

use std::fmt;
use std::time::Duration;

use kvferry::{
    Agent, DeregisterError, RegionDesc, RegionId, RegionOwner, RegisterError, Registration, human_size,
};

use crate::buffers::WorkerBuffers;
use crate::error::{RejectedOwner, WorkerBuffersError};
use crate::layout::PeerLayout;
use crate::plan::{Group, Plan};

/// A worker's buffers, registered with an agent.
///
/// Dropping it starts to deregister them and does not wait: peers start nothing new, but one may still be in
/// a copy. Call [`deregister`](RegisteredBuffers::deregister) to know that the memory is free. An owner that
/// was given with the buffers is dropped once no peer can touch them any more.
#[must_use = "dropping it deregisters the buffers"]
pub struct RegisteredBuffers {
    agent: Agent,
    ids: Vec<RegionId>,
    layout: PeerLayout,
    owned: Option<Box<dyn Owned>>,
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
        match self.owned.take() {
            Some(owned) => owned.deregister_within(timeout).map_err(|(owned, error)| {
                self.owned = Some(owned);
                error
            })?,
            None if self.ids.is_empty() => {}
            None => self.agent.deregister_within(&self.ids, timeout)?,
        }
        self.ids.clear();
        Ok(())
    }
}

impl Drop for RegisteredBuffers {
    fn drop(&mut self) {
        // A registration sees to itself.
        if self.owned.is_none()
            && let Err(error) = self.deregister_within(Duration::ZERO)
        {
            tracing::debug!(target: "kvferry::register", "the worker's memory is not free yet: {error}");
        }
    }
}

impl fmt::Debug for RegisteredBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuffers")
            .field("agent", &self.agent.name())
            .field("ids", &self.ids)
            .field("layout", &self.layout)
            .field("owned", &self.owned.is_some())
            .finish()
    }
}

/// A registration of whatever owner.
trait Owned: Send + Sync {
    fn deregister_within(self: Box<Self>, timeout: Duration)
    -> Result<(), (Box<dyn Owned>, DeregisterError)>;
}

/// A worker's buffers inside the memory of an owner.
struct Inside<O> {
    owner: O,
    descs: Vec<RegionDesc>,
}

impl<O> Inside<O> {
    /// # Safety
    /// Each of `descs` lies inside one of the owner's regions.
    unsafe fn new(owner: O, descs: Vec<RegionDesc>) -> Self {
        Self { owner, descs }
    }
}

// SAFETY: the ranges are parts of what the owner vouches for, for as long as it lives, and it lives as long
// as this.
unsafe impl<O: RegionOwner> RegionOwner for Inside<O> {
    fn regions(&self) -> Vec<RegionDesc> {
        self.descs.clone()
    }
}

impl<O: RegionOwner> Owned for Registration<Inside<O>> {
    fn deregister_within(
        self: Box<Self>,
        timeout: Duration,
    ) -> Result<(), (Box<dyn Owned>, DeregisterError)> {
        match Self::deregister_within(*self, timeout) {
            Ok(_owner) => Ok(()),
            Err((registration, error)) => Err((Box::new(registration), error)),
        }
    }
}

/// # Safety
/// As for `Agent::register_raw`, for all of `buffers`.
pub(crate) unsafe fn register(
    buffers: &WorkerBuffers,
    agent: &Agent,
) -> Result<RegisteredBuffers, WorkerBuffersError> {
    let plan = Plan::new(buffers);
    check_items(&plan, buffers, agent)?;
    // One batch, so that all of it or nothing is registered.
    // SAFETY: the caller's promise is the one asked for.
    let ids = unsafe { agent.register_raw(plan.descs()) }.map_err(|error| explain(&plan, error))?;
    log(&plan);
    Ok(RegisteredBuffers { agent: agent.clone(), ids, layout: PeerLayout::of(buffers), owned: None })
}

pub(crate) fn register_owned<O: RegionOwner>(
    buffers: &WorkerBuffers,
    agent: &Agent,
    owner: O,
) -> Result<RegisteredBuffers, RejectedOwner<O>> {
    let plan = Plan::new(buffers);
    let checked = match WorkerBuffersError::of(plan.faults_outside(&owner.regions())) {
        Some(error) => Err(error),
        None => check_items(&plan, buffers, agent),
    };
    if let Err(error) = checked {
        return Err(RejectedOwner { error, owner });
    }
    // SAFETY: just checked.
    let inside = unsafe { Inside::new(owner, plan.descs().to_vec()) };
    match agent.register(inside) {
        Ok(registration) => {
            log(&plan);
            let (ids, layout) = (registration.ids().to_vec(), PeerLayout::of(buffers));
            Ok(RegisteredBuffers { agent: agent.clone(), ids, layout, owned: Some(Box::new(registration)) })
        }
        Err(rejected) => {
            let error = explain(&plan, rejected.error);
            Err(RejectedOwner { error, owner: rejected.owner.owner })
        }
    }
}

/// The agent knows nothing of items.
fn check_items(plan: &Plan, buffers: &WorkerBuffers, agent: &Agent) -> Result<(), WorkerBuffersError> {
    if plan.item_faults().is_empty() {
        return Ok(());
    }
    // With those of the agent, so that the first fault is the worker's first.
    WorkerBuffersError::of(buffers.validate(agent)).map_or(Ok(()), Err)
}

fn log(plan: &Plan) {
    for place in plan.left_out() {
        tracing::debug!(target: "kvferry::register", "{place} is null or empty and left out");
    }
    for Group { list, kind, count, bytes } in plan.groups() {
        let size = human_size(bytes);
        tracing::debug!(
            target: "kvferry::register", list, %kind, count, bytes,
            "registered the worker's {list} buffers in {kind}: {count}, {size}"
        );
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
