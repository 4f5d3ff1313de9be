use std::time::Duration;

use hdrhistogram::Histogram;

/// Rates of the counted rounds, in GB/s (10^9 bytes a second).
#[derive(Debug, Default)]
pub(crate) struct Rates(Vec<f64>);

impl Rates {
    pub(crate) fn record(&mut self, bytes: u64, took: Duration) {
        self.0.push(bytes as f64 / took.as_secs_f64().max(1e-9) / 1e9);
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => 0.0,
            n if n.is_multiple_of(2) => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
            n => sorted[n / 2],
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }
}

/// Times of single steps.
#[derive(Debug)]
pub(crate) struct Times {
    nanoseconds: Histogram<u64>,
}

impl Times {
    pub(crate) fn new() -> Self {
        let nanoseconds = Histogram::new_with_bounds(1, 600_000_000_000, 3);
        // The bounds are constants that the library takes.
        Self { nanoseconds: nanoseconds.unwrap_or_else(|_| unreachable!("bounds of a histogram")) }
    }

    pub(crate) fn record(&mut self, took: Duration) {
        self.nanoseconds.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The `quantile` (0 to 1) in microseconds.
    pub(crate) fn microseconds(&self, quantile: f64) -> f64 {
        self.nanoseconds.value_at_quantile(quantile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests;
