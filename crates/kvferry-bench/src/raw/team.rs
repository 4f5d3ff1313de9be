use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// Does one work a thread, all at once; returns how long it took from the start signal to the end of the last.
///
/// The calling thread does the first. Starting and joining the others is not part of the time.
pub(super) fn at_once<W: Send>(works: Vec<W>, run: impl Fn(W) -> Result<()> + Sync) -> Result<Duration> {
    let mut works = works.into_iter();
    let first = works.next();
    let others = works.len();
    let (ready, go) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = &run;
    let timed = |work| run(work).map(|()| Instant::now());
    thread::scope(|scope| {
        let helpers: Vec<_> = works
            .map(|work| {
                scope.spawn(|| {
                    ready.fetch_add(1, SeqCst);
                    while go.load(SeqCst) == 0 {
                        // There may be more threads than processors.
                        thread::yield_now();
                    }
                    timed(work)
                })
            })
            .collect();
        while ready.load(SeqCst) < others {
            thread::yield_now();
        }
        let started = Instant::now();
        go.store(1, SeqCst);
        let mut ends = vec![first.map_or(Ok(started), timed)];
        ends.extend(helpers.into_iter().map(|helper| {
            helper.join().unwrap_or_else(|_| Err(anyhow!("a thread of the raw loop panicked")))
        }));
        let mut last = started;
        for end in ends {
            last = last.max(end?);
        }
        Ok(last - started)
    })
}

#[cfg(test)]
mod tests;
