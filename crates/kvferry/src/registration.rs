use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use kvferry_proto::RegionId;

use crate::{
    agent::Agent,
    error::{DeregisterError, RegisterError},
    region::RegionOwner,
};

/// Memory that is registered, with its owner.
///
/// Dropping it starts the deregistration and never blocks: the owner lives on until no peer can write into it any more, if
/// need be for ever.
pub struct Registration<M: RegionOwner> {
    agent: Agent,
    ids: Vec<RegionId>,
    owner: Option<Arc<M>>,
}

/// Memory that was not registered; the owner comes back.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Rejected<M> {
    /// Why.
    #[source]
    pub error: RegisterError,
    /// The memory.
    pub owner: M,
}

impl<M: RegionOwner> Registration<M> {
    pub(crate) fn new(agent: &Agent, owner: M) -> Result<Self, Rejected<M>> {
        let owner = Arc::new(owner);
        // SAFETY: the owner vouches for its ranges, and lives as long as anything holds one of the regions.
        match unsafe { agent.register_owned(&owner.regions(), owner.clone()) } {
            Ok(ids) => Ok(Self { agent: agent.clone(), ids, owner: Some(owner) }),
            Err(error) => match Arc::try_unwrap(owner) {
                Ok(owner) => Err(Rejected { error, owner }),
                // Nobody else has had it: the registry lets go of what it does not register.
                Err(_) => unreachable!("a refused registration keeps its owner"),
            },
        }
    }

    /// The ids of the regions, in the order in which the owner names them.
    pub fn ids(&self) -> &[RegionId] {
        &self.ids
    }

    /// Takes the memory back, with the time-out of the settings.
    ///
    /// # Errors
    /// A peer may still write into it: the registration comes back, to try again with.
    pub fn deregister(self) -> Result<Arc<M>, (Self, DeregisterError)> {
        let timeout = self.agent.settings().cancel_timeout;
        self.deregister_within(timeout)
    }

    /// Takes the memory back: see [`Agent::deregister_within`].
    ///
    /// # Errors
    /// A peer may still write into it: the registration comes back, to try again with.
    pub fn deregister_within(mut self, timeout: Duration) -> Result<Arc<M>, (Self, DeregisterError)> {
        if let Err(error) = self.agent.deregister_within(&self.ids, timeout) {
            return Err((self, error));
        }
        self.ids.clear();
        match self.owner.take() {
            Some(owner) => Ok(owner),
            None => unreachable!("the owner is taken once"),
        }
    }
}

impl<M: RegionOwner> Deref for Registration<M> {
    type Target = M;

    fn deref(&self) -> &M {
        match &self.owner {
            Some(owner) => owner,
            None => unreachable!("the owner is taken once"),
        }
    }
}

impl<M: RegionOwner> Drop for Registration<M> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.agent.abandon(std::mem::take(&mut self.ids));
        }
    }
}

impl<M: RegionOwner> fmt::Debug for Registration<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl<M> fmt::Debug for Rejected<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}
