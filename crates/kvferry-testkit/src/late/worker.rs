use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use kvferry::transport::Backlog;

use super::lock;
use super::op::LateOp;

/// An attempt that waits for its time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) due: Instant,
    pub(super) op: Arc<LateOp>,
    pub(super) attempt: u32,
}

/// The copy thread of one agent. It ends with the last handle to it, after what is queued.
#[derive(Debug)]
pub(super) struct Worker {
    sender: Mutex<mpsc::Sender<Job>>,
    waiting: Arc<AtomicUsize>,
}

impl Worker {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let theirs = waiting.clone();
        thread::Builder::new().name("late-copy".into()).spawn(move || work(&receiver, &theirs))?;
        Ok(Self { sender: Mutex::new(sender), waiting })
    }

    pub(super) fn queue(&self, job: Job, depth: usize) -> Result<(), Backlog> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= depth {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(Backlog);
        }
        lock(&self.sender).send(job).map_err(|_| Backlog)
    }
}

fn work(receiver: &mpsc::Receiver<Job>, waiting: &AtomicUsize) {
    let mut jobs: BinaryHeap<Reverse<Job>> = BinaryHeap::new();
    let mut last = false;
    loop {
        let now = Instant::now();
        match jobs.peek() {
            Some(Reverse(job)) if job.due <= now => {
                if let Some(Reverse(job)) = jobs.pop() {
                    waiting.fetch_sub(1, Ordering::SeqCst);
                    job.op.run(job.attempt);
                }
                jobs.extend(receiver.try_iter().map(Reverse));
                continue;
            }
            None if last => return,
            next => {
                let left = next.map_or(Duration::from_secs(3600), |Reverse(job)| job.due - now);
                match receiver.recv_timeout(left) {
                    Ok(job) => jobs.push(Reverse(job)),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        last = true;
                        let left = jobs.peek().map_or(Duration::ZERO, |Reverse(job)| job.due - now);
                        thread::sleep(left);
                    }
                }
            }
        }
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}
