//! How late this machine is by itself: what is measured beside other people's work must be judged by that.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

const NAP: Duration = Duration::from_millis(5);

/// A thread that naps and notes how much too late it wakes.
#[derive(Clone, Debug)]
pub(super) struct Machine(Arc<Mutex<Histogram<u32>>>);

/// How late threads wake, in milliseconds.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct Lateness {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Machine {
    pub(super) fn start() -> Self {
        let histogram = Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("bounds in order");
        let machine = Self(Arc::new(Mutex::new(histogram)));
        let ours = machine.clone();
        std::thread::spawn(move || {
            loop {
                let begun = Instant::now();
                std::thread::sleep(NAP);
                let late = begun.elapsed().saturating_sub(NAP).as_nanos() as u64;
                ours.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(late.max(1_000));
            }
        });
        machine
    }

    pub(super) fn lateness(&self) -> Lateness {
        let histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = |ns: u64| ns as f64 / 1e6;
        Lateness {
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }
}
