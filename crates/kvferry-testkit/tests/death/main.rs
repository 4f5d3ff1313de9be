//! Death of a process is known within milliseconds, as a typed error and an event, and leaves nothing behind with the other.

mod big;
mod handshake;
mod kill;
mod raw;
mod restart;
mod stopped;

use std::time::Duration;

use kvferry_testkit::harness::{Holdings, PATIENCE, Times, Worker, eventually};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

/// The contract is 10 ms. Two cores, on which the dying process is taken apart meanwhile, are given more.
const MEDIAN: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);

/// Prints and checks how long it took to learn of deaths.
fn check_times(what: &str, times: &Times) {
    times.print(what);
    assert!(times.quantile(0.5) <= MEDIAN, "{what}: half took longer than {MEDIAN:?}");
    assert!(times.longest() <= LONGEST, "{what}: longer than {LONGEST:?}");
}

/// Waits until a worker holds no more than it did, but for what the allocator keeps.
#[track_caller]
fn expect_no_leak(worker: &Worker, before: Holdings) {
    let mut now = Holdings::default();
    let settled = eventually(PATIENCE / 6, || {
        now = worker.holdings();
        now.fds <= before.fds
            && now.threads <= before.threads
            && now.mappings <= before.mappings + 8
            && now.resident <= before.resident + (8 << 20)
    });
    assert!(settled, "{} leaks: {before:?} then, {now:?} now", worker.name());
}
