//! The monotonic clock, which all processes of a host share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until the monotonic clock shows `at` nanoseconds.
pub fn sleep_until(at: u64) {
    let left = at.saturating_sub(now_ns());
    if left > 0 {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

/// Asks every millisecond until the answer is yes; false if that takes longer than `timeout`.
pub fn eventually(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = now_ns() + timeout.as_nanos() as u64;
    while !done() {
        if now_ns() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
