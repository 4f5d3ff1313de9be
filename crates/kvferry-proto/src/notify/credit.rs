//! Room in a peer's inbox, reserved without a lock: a post must not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::{MAX_NOTIFICATION, NotifyError, notification_cost};

/// The room that is left in a peer's inbox; clones share it.
#[derive(Clone, Debug, Default)]
pub struct NotifyCredit {
    // Below zero when a new connection tells of less room than was believed.
    available: Arc<AtomicI64>,
}

impl NotifyCredit {
    /// Takes the room for a notification.
    ///
    /// # Errors
    /// The payload is too long, or there is no room.
    pub fn reserve(&self, payload: Vec<u8>) -> Result<Reservation, NotifyError> {
        let len = payload.len();
        if len > MAX_NOTIFICATION {
            return Err(NotifyError::TooLarge { len });
        }
        let cost = notification_cost(len);
        // The count alone is shared, nothing is published with it.
        self.available
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| {
                available.checked_sub(cost as i64).filter(|&left| left >= 0)
            })
            .map_err(|available| NotifyError::Backlog { needed: cost, available: available.max(0) as u64 })?;
        Ok(Reservation { credit: self.clone(), payload: Some(payload) })
    }

    /// Bytes that can be reserved now.
    pub fn available(&self) -> u64 {
        self.available.load(Ordering::Relaxed).max(0) as u64
    }

    pub(super) fn grow(&self, bytes: i64) {
        self.available.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A payload that has its room in the peer's inbox. Dropping it gives the room back: the transfer failed or was
/// cancelled.
#[derive(Debug)]
#[must_use = "the room is given back when this is dropped"]
pub struct Reservation {
    credit: NotifyCredit,
    payload: Option<Vec<u8>>,
}

impl Reservation {
    /// What will be sent.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }

    pub(super) fn is_of(&self, credit: &NotifyCredit) -> bool {
        Arc::ptr_eq(&self.credit.available, &credit.available)
    }

    /// The room stays taken; the payload is about to use it.
    pub(super) fn spend(mut self) -> Vec<u8> {
        self.payload.take().unwrap_or_default()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(payload) = &self.payload {
            self.credit.grow(notification_cost(payload.len()) as i64);
        }
    }
}
