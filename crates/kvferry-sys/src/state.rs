//! The state of a transfer in one atomic word.
//!
//! ```text
//!   63             32 31        16 15      8 7       0
//!   +----------------+------------+---------+---------+
//!   |    attempt     |  inflight  |  phase  |  flags  |
//!   +----------------+------------+---------+---------+
//!
//!   Created --post--> Posted --enter--> Running --land--> Landed --finish--> Done, Failed
//!                       |                  |
//!                       +------------------+--finish--> Done, Failed
//!                       +------------------+--cancel--> Cancelled
//!   Done, Failed, Cancelled --post (inflight 0)--> Posted, next attempt
//! ```
//! `inflight` counts what may still touch the memory of this attempt; it is independent of the phase, because a
//! transfer can have failed while a copy of it still runs. The memory is quiet when `inflight` is 0 and the phase is
//! one of the last three. The flags are reserved and zero.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use thiserror::Error;

use crate::sync::{AtomicU64, Ordering};

const PHASE_SHIFT: u32 = 8;
const INFLIGHT_SHIFT: u32 = 16;
const ATTEMPT_SHIFT: u32 = 32;

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Phase {
    /// Never posted.
    Created = 0,
    /// Posted, nothing has begun.
    Posted = 1,
    /// Something has begun to touch the memory.
    Running = 2,
    /// The data is visible at its destination; the notification is not yet acknowledged.
    Landed = 3,
    /// Complete.
    Done = 4,
    /// Ended by an error.
    Failed = 5,
    /// Ended by its owner.
    Cancelled = 6,
}

impl Phase {
    /// Done, failed or cancelled: nothing new begins in this attempt.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Posted, running or landed.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Posted | Self::Running | Self::Landed)
    }

    const fn of(word: u64) -> Self {
        match (word >> PHASE_SHIFT) as u8 {
            0 => Self::Created,
            1 => Self::Posted,
            2 => Self::Running,
            3 => Self::Landed,
            4 => Self::Done,
            5 => Self::Failed,
            // The word is private and only ever holds the seven.
            _ => Self::Cancelled,
        }
    }
}

/// What a [`StateWord`] held at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// How often the transfer has been posted.
    pub attempt: u32,
    /// Where the attempt stands.
    pub phase: Phase,
    /// How many things may still touch the memory of this attempt.
    pub inflight: u16,
}

impl Snapshot {
    /// The attempt is over and nothing touches its memory any more.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.inflight == 0 && !self.phase.is_active()
    }

    const fn unpack(word: u64) -> Self {
        Self {
            attempt: (word >> ATTEMPT_SHIFT) as u32,
            phase: Phase::of(word),
            inflight: (word >> INFLIGHT_SHIFT) as u16,
        }
    }

    const fn pack(self) -> u64 {
        (self.attempt as u64) << ATTEMPT_SHIFT
            | (self.inflight as u64) << INFLIGHT_SHIFT
            | (self.phase as u64) << PHASE_SHIFT
    }
}

/// Why a transfer could not be posted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PostRefused {
    /// An earlier post of this transfer is still under way.
    #[error("the transfer is already posted")]
    Active,
    /// The earlier attempt is over, but something of it may still touch the memory.
    #[error("the memory of the transfer's last attempt is not quiet yet")]
    NotQuiet,
}

/// The state of one transfer; every change is one atomic step.
#[derive(Debug)]
pub struct StateWord(AtomicU64);

impl StateWord {
    /// A transfer that was never posted.
    #[must_use]
    pub fn new() -> Self {
        let fresh = Snapshot { attempt: 0, phase: Phase::Created, inflight: 0 };
        Self(AtomicU64::new(fresh.pack()))
    }

    /// What the word holds now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::unpack(self.0.load(Ordering::Acquire))
    }

    /// Begins the next attempt and returns its number. Of several concurrent posts exactly one wins.
    pub fn post(&self) -> Result<u32, PostRefused> {
        self.update(|now| {
            if now.phase.is_active() {
                return Err(PostRefused::Active);
            }
            if now.inflight != 0 {
                return Err(PostRefused::NotQuiet);
            }
            Ok(Snapshot { attempt: now.attempt.wrapping_add(1), phase: Phase::Posted, inflight: 0 })
        })
        .map(|new| new.attempt)
    }

    /// Counts one thing in that is about to touch the memory of `attempt`; the attempt runs from now on.
    ///
    /// False, and nothing may be touched, if the attempt is over, landed or not the current one, or if 65,535 things
    /// are in flight.
    #[must_use]
    pub fn enter(&self, attempt: u32) -> bool {
        self.update(|now| {
            if now.attempt != attempt || !matches!(now.phase, Phase::Posted | Phase::Running) {
                return Err(());
            }
            let inflight = now.inflight.checked_add(1).ok_or(())?;
            Ok(Snapshot { phase: Phase::Running, inflight, ..now })
        })
        .is_ok()
    }

    /// Keeps `attempt`, which has ended, from becoming quiet, so that no next one begins meanwhile; [`exit`](Self::exit) lets it
    /// go. False if it has not ended, is quiet already or is not the current one.
    #[must_use]
    pub fn hold(&self, attempt: u32) -> bool {
        self.update(|now| {
            let ended = now.attempt == attempt && now.phase.is_final() && now.inflight > 0;
            let inflight = now.inflight.checked_add(1).filter(|_| ended);
            inflight.map(|inflight| Snapshot { inflight, ..now }).ok_or(())
        })
        .is_ok()
    }

    /// Counts one thing out that [`enter`](Self::enter) had let in, and returns what holds then.
    pub fn exit(&self) -> Snapshot {
        self.update(|now| match now.inflight.checked_sub(1) {
            Some(inflight) => Ok(Snapshot { inflight, ..now }),
            None => Err(now),
        })
        .unwrap_or_else(|now| now)
    }

    /// The data of `attempt` is visible at its destination. False if the attempt is over or not the current one.
    pub fn land(&self, attempt: u32) -> bool {
        self.update(|now| {
            let may = now.attempt == attempt && matches!(now.phase, Phase::Posted | Phase::Running);
            may.then_some(Snapshot { phase: Phase::Landed, ..now }).ok_or(())
        })
        .is_ok()
    }

    /// Ends `attempt` as done, failed or cancelled. Of several concurrent ends one wins; false for the others, for an
    /// attempt that is not the current one, and for a `phase` that is no end.
    pub fn finish(&self, attempt: u32, phase: Phase) -> bool {
        self.update(|now| {
            let may = now.attempt == attempt && now.phase.is_active() && phase.is_final();
            may.then_some(Snapshot { phase, ..now }).ok_or(())
        })
        .is_ok()
    }

    /// Ends the current attempt as cancelled and returns its number; None if there is nothing to cancel.
    ///
    /// A landed attempt goes on: its data is in place and its notification may be on the way already.
    pub fn cancel(&self) -> Option<u32> {
        self.update(|now| {
            let may = matches!(now.phase, Phase::Posted | Phase::Running);
            may.then_some(Snapshot { phase: Phase::Cancelled, ..now }).ok_or(())
        })
        .ok()
        .map(|new| new.attempt)
    }

    /// Replaces the word by what `step` makes of it, as one step; returns the new value, or the step's refusal.
    fn update<E>(&self, step: impl Fn(Snapshot) -> Result<Snapshot, E>) -> Result<Snapshot, E> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let new = step(Snapshot::unpack(word))?;
            match self.0.compare_exchange_weak(word, new.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(new),
                Err(actual) => word = actual,
            }
        }
    }
}

impl Default for StateWord {
    fn default() -> Self {
        Self::new()
    }
}
