use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::*;

#[test]
fn capacity_is_a_power_of_two_and_at_least_two() {
    for (asked, got) in [(0, 2), (1, 2), (2, 2), (3, 4), (1000, 1024)] {
        assert_eq!(HandleRing::with_capacity(asked).capacity(), got);
    }
}

#[test]
fn a_full_ring_gives_the_handle_back() {
    let ring = HandleRing::with_capacity(2);
    assert_eq!(ring.pop(), None);
    assert_eq!((ring.push(1), ring.push(u64::MAX), ring.push(3)), (Ok(()), Ok(()), Err(3)));
    assert_eq!(ring.len(), 2);
    assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(u64::MAX), None));
    assert!(ring.is_empty());
}

#[test]
fn many_threads_lose_and_double_nothing() {
    const EACH: u64 = 20_000;
    let ring = HandleRing::with_capacity(64);
    let (popped, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for producer in 0..3 {
            let ring = &ring;
            scope.spawn(move || {
                for number in 0..EACH {
                    while ring.push(producer * EACH + number).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while popped.load(Ordering::Relaxed) < 3 * EACH as usize {
                    match ring.pop() {
                        Some(handle) => {
                            sum.fetch_add(handle, Ordering::Relaxed);
                            popped.fetch_add(1, Ordering::Relaxed);
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
    });
    let all = 3 * EACH;
    assert_eq!(popped.into_inner() as u64, all);
    assert_eq!(sum.into_inner(), all * (all - 1) / 2);
    assert_eq!(ring.pop(), None);
}

proptest! {
    /// One thread's view is a bounded queue.
    #[test]
    fn it_is_a_bounded_queue(capacity in 1usize..9, steps in prop::collection::vec(any::<Option<u64>>(), 0..200)) {
        let ring = HandleRing::with_capacity(capacity);
        let mut model = VecDeque::new();
        for step in steps {
            match step {
                Some(handle) if model.len() < ring.capacity() => {
                    prop_assert_eq!(ring.push(handle), Ok(()));
                    model.push_back(handle);
                }
                Some(handle) => prop_assert_eq!(ring.push(handle), Err(handle)),
                None => prop_assert_eq!(ring.pop(), model.pop_front()),
            }
            prop_assert_eq!(ring.len(), model.len());
        }
    }
}
