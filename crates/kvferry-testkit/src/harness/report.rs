//! How often, how long, and what to say.

use std::time::Duration;

/// `rounds` in the quick suite; `KVFERRY_SOAK` multiplies them.
///
/// # Panics
/// `KVFERRY_SOAK` is no number from 1 on.
pub fn rounds(rounds: u32) -> u32 {
    match std::env::var("KVFERRY_SOAK") {
        Ok(factor) => match factor.parse() {
            Ok(factor @ 1u32..) => rounds.saturating_mul(factor),
            _ => panic!("KVFERRY_SOAK={factor} is no factor: a number from 1 on"),
        },
        Err(_) => rounds,
    }
}

/// Says that a test can't run here, and why; the test then returns.
pub fn skip(reason: impl std::fmt::Display) {
    println!("skipped: {reason}");
}

/// Durations, for their quantiles.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Takes one in.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Takes one in, in nanoseconds between two stamps of one clock.
    pub fn push_between(&mut self, from: u64, to: u64) {
        self.push(Duration::from_nanos(to.saturating_sub(from)));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The quantile, such as 0.5; zero of none.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (share * sorted.len() as f64) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// The longest; zero of none.
    pub fn longest(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// Prints the median and the tail.
    pub fn print(&self, what: &str) {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        println!("{what}: p50 {p50:.1?}, p99 {p99:.1?}, longest {:.1?} of {}", self.longest(), self.0.len());
    }
}
