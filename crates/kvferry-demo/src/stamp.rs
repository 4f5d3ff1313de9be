//! Moments on the clock that all processes of a host share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment of `CLOCK_MONOTONIC`, comparable between processes of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// This moment.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Time since `earlier`; zero if that came later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    #[cfg(test)]
    pub(crate) fn at_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
}

/// Milliseconds, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    thousandths(duration.as_secs_f64() * 1e3)
}

/// A number without what nobody can measure.
pub(crate) fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
