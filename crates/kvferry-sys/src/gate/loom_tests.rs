use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

/// Copiers that take chunks from a counter, as the engine does.
struct Operation {
    gate: ChunkGate,
    next: AtomicU64,
    chunks: u64,
    copied: AtomicU64,
}

impl Operation {
    fn new(chunks: u64) -> Arc<Self> {
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { gate: ChunkGate::new(), next, chunks, copied })
    }

    /// One copier's share; what it heard.
    fn work(&self) -> Vec<GateState> {
        let mut heard = Vec::new();
        while self.gate.enter() {
            if self.next.fetch_add(1, Ordering::Relaxed) < self.chunks {
                self.copied.fetch_add(1, Ordering::Relaxed);
            } else {
                heard.push(self.gate.exhaust());
            }
            heard.push(self.gate.exit());
        }
        heard
    }
}

fn start(operation: &Arc<Operation>) -> thread::JoinHandle<Vec<GateState>> {
    let operation = Arc::clone(operation);
    thread::spawn(move || operation.work())
}

fn count(heard: &[GateState], state: GateState) -> usize {
    heard.iter().filter(|&&heard| heard == state).count()
}

#[test]
fn loom_finished_is_told_once_and_after_all_chunks() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let operation = Operation::new(2);
        let other = start(&operation);
        let mut heard = operation.work();
        heard.extend(other.join().unwrap());
        assert_eq!(count(&heard, GateState::Finished), 1);
        assert_eq!(count(&heard, GateState::Quiet), 0);
        assert_eq!(operation.copied.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn loom_quiet_is_told_once_and_to_one() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let operation = Operation::new(1);
        let copiers = [start(&operation), start(&operation)];
        let mut heard = vec![operation.gate.stop()];
        for copier in copiers {
            heard.extend(copier.join().unwrap());
        }
        assert_eq!(count(&heard, GateState::Quiet), 1);
        assert!(operation.gate.is_quiet());
        // It may have finished before the stop, but not twice.
        assert!(count(&heard, GateState::Finished) <= 1);
    });
}

#[test]
fn loom_an_empty_gate_is_finished_or_quiet_for_one_of_the_two() {
    loom::model(|| {
        let gate = Arc::new(ChunkGate::new());
        let other = thread::spawn({
            let gate = Arc::clone(&gate);
            move || gate.exhaust()
        });
        let heard = [gate.stop(), other.join().unwrap()];
        assert_eq!(count(&heard, GateState::Quiet), 1);
        assert!(count(&heard, GateState::Finished) <= 1);
    });
}

#[test]
fn loom_nobody_is_inside_a_gate_that_was_found_quiet() {
    loom::model(|| {
        let gate = Arc::new(ChunkGate::new());
        let inside = Arc::new(AtomicU64::new(0));
        let copier = thread::spawn({
            let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
            move || {
                for _ in 0..2 {
                    if gate.enter() {
                        inside.store(1, Ordering::Relaxed);
                        inside.store(0, Ordering::Relaxed);
                        gate.exit();
                    }
                }
            }
        });
        gate.stop();
        while !gate.is_quiet() {
            thread::yield_now();
        }
        assert_eq!(inside.load(Ordering::Relaxed), 0);
        copier.join().unwrap();
    });
}

#[test]
fn loom_a_stop_beside_an_opening_from_inside_is_told_once() {
    loom::model(|| {
        let gate = Arc::new(ChunkGate::new());
        gate.exhaust();
        let opener = thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                assert!(gate.reset_and_enter());
                gate.exit()
            }
        });
        // Before the opening it is the old operation that is stopped; after it, the new one.
        let heard = [gate.stop(), opener.join().unwrap()];
        assert_eq!(count(&heard, GateState::Quiet), 1);
        assert_eq!(count(&heard, GateState::Pending), 1);
    });
}
