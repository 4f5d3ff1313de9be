//! What a worker has: an agent, memory, transfers, events.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use kvferry::{Agent, CompletionQueue, Event, Transfer};

use super::{broken, memory::Area, withheld::Withheld};
use crate::harness::{Failure, Received, StampedEvent, now_ns};

/// Everything that requests name by number.
#[derive(Debug, Default)]
pub(super) struct World {
    agent: Mutex<Option<Agent>>,
    areas: Mutex<Vec<Option<Arc<Area>>>>,
    transfers: Mutex<HashMap<u64, Arc<Transfer>>>,
    last_transfer: AtomicU64,
    events: Mutex<Option<Arc<EventLog>>>,
    pub(super) withheld: Mutex<Option<Withheld>>,
    pub(super) received: Mutex<Vec<Received>>,
}

impl World {
    pub(super) fn agent(&self) -> Result<Agent, Failure> {
        lock(&self.agent).clone().ok_or_else(|| broken("there is no agent"))
    }

    pub(super) fn take_in(&self, agent: Agent) -> Result<(), Failure> {
        let queue = agent.events().map_err(broken)?;
        if lock(&self.agent).replace(agent).is_some() {
            return Err(broken("there was an agent already"));
        }
        *lock(&self.events) = Some(EventLog::follow(queue));
        Ok(())
    }

    /// Drops transfers and agent; returns how long that took. Memory stays: the engine has not said that it is free.
    pub(super) fn close(&self) -> Duration {
        let transfers = std::mem::take(&mut *lock(&self.transfers));
        let agent = lock(&self.agent).take();
        if let Some(events) = lock(&self.events).take() {
            events.stopping.store(true, SeqCst);
        }
        let begun = Instant::now();
        drop(transfers);
        drop(agent);
        let took = begun.elapsed();
        std::mem::take(&mut *lock(&self.areas)).into_iter().for_each(std::mem::forget);
        took
    }

    pub(super) fn events(&self) -> Result<Arc<EventLog>, Failure> {
        lock(&self.events).clone().ok_or_else(|| broken("there is no agent"))
    }

    pub(super) fn add_area(&self, area: Area) -> usize {
        let mut areas = lock(&self.areas);
        areas.push(Some(Arc::new(area)));
        areas.len() - 1
    }

    pub(super) fn area(&self, index: usize) -> Result<Arc<Area>, Failure> {
        lock(&self.areas)
            .get(index)
            .cloned()
            .flatten()
            .ok_or_else(|| broken(format!("there is no buffer {index}")))
    }

    /// Changes an area that nobody else uses just now.
    pub(super) fn change_area<R>(
        &self,
        index: usize,
        change: impl FnOnce(&mut Area) -> Result<R, String>,
    ) -> Result<R, Failure> {
        let mut areas = lock(&self.areas);
        let area = areas.get_mut(index).and_then(Option::as_mut).and_then(Arc::get_mut);
        change(area.ok_or_else(|| broken(format!("buffer {index} is not there, or in use")))?).map_err(broken)
    }

    pub(super) fn free_area(&self, index: usize) -> Result<(), Failure> {
        let area = lock(&self.areas).get_mut(index).and_then(Option::take);
        area.map(drop).ok_or_else(|| broken(format!("there is no buffer {index}")))
    }

    pub(super) fn add_transfer(&self, transfer: Transfer) -> u64 {
        let number = self.last_transfer.fetch_add(1, SeqCst) + 1;
        lock(&self.transfers).insert(number, Arc::new(transfer));
        number
    }

    pub(super) fn transfer(&self, number: u64) -> Result<Arc<Transfer>, Failure> {
        lock(&self.transfers)
            .get(&number)
            .cloned()
            .ok_or_else(|| broken(format!("there is no transfer {number}")))
    }

    /// Takes a transfer out that no other request uses.
    pub(super) fn take_transfer(&self, number: u64) -> Result<Transfer, Failure> {
        let taken = lock(&self.transfers)
            .remove(&number)
            .ok_or_else(|| broken(format!("there is no transfer {number}")))?;
        Arc::try_unwrap(taken).map_err(|taken| {
            lock(&self.transfers).insert(number, taken);
            broken(format!("transfer {number} is in use"))
        })
    }

    pub(super) fn all_transfers(&self) -> Vec<(u64, Arc<Transfer>)> {
        lock(&self.transfers).iter().map(|(number, transfer)| (*number, transfer.clone())).collect()
    }

    pub(super) fn put_transfer(&self, number: u64, transfer: Transfer) {
        lock(&self.transfers).insert(number, Arc::new(transfer));
    }
}

/// What happened to peers, with the time.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: Mutex<Vec<StampedEvent>>,
    came: Condvar,
    stopping: AtomicBool,
}

impl EventLog {
    fn follow(queue: CompletionQueue) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let ours = log.clone();
        std::thread::spawn(move || {
            while !ours.stopping.load(SeqCst) {
                let Some(event) = queue.wait(Duration::from_millis(100)) else { continue };
                let stamp = now_ns();
                if let Some(event) = stamped(event, stamp) {
                    lock(&ours.events).push(event);
                    ours.came.notify_all();
                }
            }
        });
        log
    }

    pub(super) fn forget(&self) {
        lock(&self.events).clear();
    }

    /// Takes out the oldest event of this kind about this peer, waiting for it if need be.
    pub(super) fn take(&self, kind: &str, peer: &str, timeout: Duration) -> Option<StampedEvent> {
        let wanted = |event: &StampedEvent| event.kind == kind && event.peer == peer;
        let missing = |events: &mut Vec<StampedEvent>| !events.iter().any(wanted);
        let waited = self.came.wait_timeout_while(lock(&self.events), timeout, missing);
        let mut events = waited.unwrap_or_else(|e| e.into_inner()).0;
        let at = events.iter().position(wanted)?;
        Some(events.remove(at))
    }
}

fn stamped(event: Event, stamp: u64) -> Option<StampedEvent> {
    let of = |kind: &str, peer, cause| Some(StampedEvent { stamp, kind: kind.to_owned(), peer, cause });
    match event {
        Event::PeerUp { peer, .. } => of("up", peer, String::new()),
        Event::PeerLost { peer, cause, .. } => of("lost", peer, cause.to_string()),
        Event::PeerRestarted { peer, .. } => of("restarted", peer, String::new()),
        Event::Notified { peer } => of("notified", peer, String::new()),
        _ => None,
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
