//! A transport that takes its time.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvferry::transport::Backlog;

use crate::tapped::{Report, Tap, TappedOp, TappedSink};

type Deed = Box<dyn FnOnce() + Send>;

/// Hands operations on late, and their ends too.
#[derive(Debug)]
pub struct Throttled {
    submit_after: Duration,
    report_after: Duration,
    timer: Mutex<mpsc::Sender<(Instant, Deed)>>,
}

impl Throttled {
    /// Delays each submission and each report by these times. The order of reports stays.
    pub fn new(submit_after: Duration, report_after: Duration) -> Arc<Self> {
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new()
            .name("throttle".into())
            .spawn(move || keep_time(&receiver))
            .expect("a thread");
        Arc::new(Self { submit_after, report_after, timer: Mutex::new(sender) })
    }

    fn later(&self, after: Duration, deed: impl FnOnce() + Send + 'static) {
        let timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails only if the thread has panicked, which the test has seen then.
        let _ = timer.send((Instant::now() + after, Box::new(deed)));
    }

    fn let_go_later(&self, op: Arc<TappedOp<Self>>, attempt: u32) {
        self.later(self.submit_after, move || {
            while op.let_go(attempt) == Err(Backlog) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

impl Tap for Throttled {
    fn submit(&self, op: &Arc<TappedOp<Self>>, attempt: u32) -> Result<(), Backlog> {
        if self.submit_after.is_zero() {
            return op.pass(attempt);
        }
        op.hold(attempt);
        self.let_go_later(op.clone(), attempt);
        Ok(())
    }

    fn report(&self, sink: &Arc<TappedSink<Self>>, attempt: u32, report: Report) {
        if self.report_after.is_zero() {
            return sink.forward(attempt, report);
        }
        let sink = sink.clone();
        self.later(self.report_after, move || sink.forward(attempt, report));
    }
}

/// Does what is due, earliest first, and among equals in the order of arrival.
fn keep_time(receiver: &mpsc::Receiver<(Instant, Deed)>) {
    let mut waiting: Vec<(Instant, Deed)> = Vec::new();
    loop {
        let next = waiting.iter().map(|(due, _)| *due).min();
        let left =
            next.map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(Instant::now()));
        match receiver.recv_timeout(left) {
            Ok(deed) => waiting.push(deed),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if waiting.is_empty() => return,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(left),
        }
        let now = Instant::now();
        // Stable, so what is due at one time goes in the order in which it came.
        waiting.sort_by_key(|(due, _)| *due);
        let due = waiting.iter().take_while(|(due, _)| *due <= now).count();
        waiting.drain(..due).for_each(|(_, deed)| deed());
    }
}
