use core::sync::atomic::Ordering;
use std::time::Instant;

use super::*;

#[test]
fn a_word_that_holds_something_else_is_not_slept_on() {
    assert!(park(&AtomicU32::new(1), 0, None));
}

#[test]
fn the_time_runs_out() {
    let before = Instant::now();
    assert!(!park(&AtomicU32::new(0), 0, Some(Duration::from_millis(20))));
    assert!(before.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_sleeper_is_woken() {
    let word = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while word.load(Ordering::Acquire) == 0 {
                assert!(park(&word, 0, Some(Duration::from_secs(10))), "nobody woke it");
            }
        });
        // Wakes only who sleeps already.
        while unpark(&word, u32::MAX) == 0 {
            std::thread::yield_now();
        }
        word.store(1, Ordering::Release);
        unpark(&word, 1);
        sleeper.join().unwrap();
    });
}
