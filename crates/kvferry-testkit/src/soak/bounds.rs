//! The times that are promised, and those that were measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer times are counted as this long, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Fewer times than these say nothing about a promise.
const ENOUGH: u64 = 10;

/// Something whose time is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    CancelSameHost,
    CancelTcp,
    DeregisterSameHost,
    DeregisterTcp,
    DeathSameHost,
    DeathTcp,
    Broken,
    Silence,
    Reconnect,
    BareSameHost,
    BareTcp,
}

impl Bound {
    pub(super) const ALL: [Self; 11] = [
        Self::CancelSameHost,
        Self::CancelTcp,
        Self::DeregisterSameHost,
        Self::DeregisterTcp,
        Self::DeathSameHost,
        Self::DeathTcp,
        Self::Broken,
        Self::Silence,
        Self::Reconnect,
        Self::BareSameHost,
        Self::BareTcp,
    ];

    const fn what(self) -> &'static str {
        match self {
            Self::CancelSameHost => "cancel or release until quiet, same_host",
            Self::CancelTcp => "cancel or release until quiet, tcp",
            Self::DeregisterSameHost => "deregister under a transfer until quiet, same_host",
            Self::DeregisterTcp => "deregister under a transfer until quiet, tcp",
            Self::DeathSameHost => "kill -9 until the event, same_host",
            Self::DeathTcp => "kill -9 until the event, tcp (with the end of its memory)",
            Self::Broken => "RST or FIN until the transfer's error, tcp",
            Self::Silence => "silence until the event, tcp",
            Self::Reconnect => "RST or FIN until connected again, tcp",
            Self::BareSameHost => "bare notification beside bulk data, same_host",
            Self::BareTcp => "bare notification beside bulk data, tcp",
        }
    }

    /// What is promised, in words.
    const fn promise(self) -> &'static str {
        match self {
            Self::CancelSameHost | Self::DeregisterSameHost => "a chunk; 20 ms for its call",
            Self::CancelTcp | Self::DeregisterTcp => "2 RTT + 50 ms",
            Self::DeathSameHost => "10 ms",
            Self::DeathTcp | Self::Broken => "10 ms from RST or FIN",
            Self::Silence => "peer_timeout (1 s) + 10 ms",
            Self::Reconnect => "none",
            Self::BareSameHost | Self::BareTcp => "p99 20 ms",
        }
    }

    /// The promise as a time. None where it can't be told from outside when the time begins, or nothing is promised.
    const fn limit(self) -> Option<Duration> {
        match self {
            Self::CancelSameHost | Self::DeregisterSameHost => Some(Duration::from_millis(20)),
            Self::CancelTcp | Self::DeregisterTcp => Some(Duration::from_millis(50)),
            Self::DeathSameHost | Self::Broken => Some(Duration::from_millis(10)),
            Self::BareSameHost | Self::BareTcp => Some(Duration::from_millis(20)),
            Self::Silence => Some(Duration::from_millis(1_010)),
            Self::DeathTcp | Self::Reconnect => None,
        }
    }
}

/// The times of all bounds, in bounded memory.
#[derive(Debug)]
pub(super) struct Times(Vec<Histogram<u32>>);

/// What was measured of a bound. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) bound: &'static str,
    pub(super) promise: &'static str,
    pub(super) limit_ms: Option<f64>,
    pub(super) count: u64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    /// The share that kept the limit.
    pub(super) within: Option<f64>,
}

impl Times {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1_000, LONGEST, 3).expect("bounds in order");
        Self(Bound::ALL.iter().map(|_| histogram()).collect())
    }

    /// Takes in a time between two stamps, in nanoseconds.
    pub(super) fn push(&mut self, bound: Bound, from: u64, to: u64) {
        self.0[bound as usize].saturating_record(to.saturating_sub(from).max(1_000));
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        Bound::ALL.iter().map(|bound| self.row(*bound)).collect()
    }

    /// The bounds whose median is over what is promised by more than the machine's own lateness accounts for: `slack_ms`.
    pub(super) fn broken(&self, slack_ms: f64) -> Vec<String> {
        let over =
            |row: &Row| row.limit_ms.zip(row.p50_ms).is_some_and(|(limit, p50)| p50 > limit + slack_ms);
        let rows = self.rows().into_iter().filter(|row| row.count >= ENOUGH && over(row));
        rows.map(|row| {
            let (limit, p50) = (row.limit_ms.unwrap_or_default(), row.p50_ms.unwrap_or_default());
            format!(
                "{}: expected {limit:.0} ms at most (and {slack_ms:.0} ms for a busy machine), half of {} took {p50:.1} \
                 ms or more",
                row.bound, row.count
            )
        })
        .collect()
    }

    fn row(&self, bound: Bound) -> Row {
        let times = &self.0[bound as usize];
        let limit = bound.limit();
        let some = |value: f64| (!times.is_empty()).then_some(value);
        let ms = |ns: u64| ns as f64 / 1e6;
        let within =
            |limit: Duration| times.count_between(0, limit.as_nanos() as u64) as f64 / times.len() as f64;
        Row {
            bound: bound.what(),
            promise: bound.promise(),
            limit_ms: limit.map(|limit| limit.as_secs_f64() * 1e3),
            count: times.len(),
            p50_ms: some(ms(times.value_at_quantile(0.5))),
            p99_ms: some(ms(times.value_at_quantile(0.99))),
            max_ms: some(ms(times.max())),
            within: limit.filter(|_| !times.is_empty()).map(within),
        }
    }
}

#[cfg(test)]
mod tests;
