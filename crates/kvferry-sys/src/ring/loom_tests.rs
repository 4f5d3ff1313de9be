use loom::sync::Arc;
use loom::thread;

use super::*;

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

#[test]
fn loom_one_producer_one_consumer_in_order_across_the_wrap() {
    bounded(3).check(|| {
        let ring = Arc::new(HandleRing::with_capacity(2));
        let producer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || {
                for handle in 1..=3 {
                    while ring.push(handle).is_err() {
                        thread::yield_now();
                    }
                }
            }
        });
        for expected in 1..=3 {
            let popped = loop {
                match ring.pop() {
                    Some(handle) => break handle,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(popped, expected);
        }
        producer.join().unwrap();
        assert_eq!(ring.pop(), None);
    });
}

#[test]
fn loom_two_producers_two_consumers_lose_and_double_nothing() {
    bounded(3).check(|| {
        let ring = Arc::new(HandleRing::with_capacity(2));
        let producer = |handle: u64| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(handle).is_ok())
        };
        let producers = [producer(1), producer(2)];
        let consumer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || ring.pop()
        });
        let mut popped: Vec<u64> = ring.pop().into_iter().collect();
        popped.extend(consumer.join().unwrap());
        for producer in producers {
            assert!(producer.join().unwrap(), "there was room for both");
        }
        popped.extend(core::iter::from_fn(|| ring.pop()));
        popped.sort_unstable();
        assert_eq!(popped, [1, 2]);
    });
}

#[test]
fn loom_two_consumers_get_one_handle_once() {
    loom::model(|| {
        let ring = Arc::new(HandleRing::with_capacity(2));
        ring.push(7).unwrap();
        let consumer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || ring.pop()
        });
        let popped = (ring.pop(), consumer.join().unwrap());
        assert!(matches!(popped, (Some(7), None) | (None, Some(7))));
    });
}

#[test]
fn loom_a_handle_carries_what_its_producer_did_before() {
    loom::model(|| {
        let ring = Arc::new(HandleRing::with_capacity(2));
        let data = Arc::new(AtomicU64::new(0));
        let producer = thread::spawn({
            let (ring, data) = (Arc::clone(&ring), Arc::clone(&data));
            move || {
                data.store(42, Ordering::Relaxed);
                ring.push(1).unwrap();
            }
        });
        if ring.pop().is_some() {
            assert_eq!(data.load(Ordering::Relaxed), 42);
        }
        producer.join().unwrap();
    });
}
