use super::*;

#[test]
fn each_bound_has_its_row() {
    let mut times = Times::new();
    for (index, bound) in Bound::ALL.into_iter().enumerate() {
        assert_eq!(bound as usize, index);
        times.push(bound, 5, 5 + 1_000_000 * (index as u64 + 1));
    }
    for (index, row) in times.rows().into_iter().enumerate() {
        let p50 = row.p50_ms.unwrap();
        assert!((p50 / (index as f64 + 1.0) - 1.0).abs() < 0.01, "{row:?}");
        assert_eq!(row.count, 1);
    }
}

#[test]
fn a_median_over_the_promise_is_broken_and_a_tail_is_shown() {
    let mut times = Times::new();
    let ms = |times: &mut Times, ms: u64| times.push(Bound::DeathSameHost, 0, ms * 1_000_000);
    (0..20).for_each(|_| ms(&mut times, 2));
    (0..5).for_each(|_| ms(&mut times, 200));
    assert_eq!(times.broken(0.0), [""; 0]);
    let row = &times.rows()[Bound::DeathSameHost as usize];
    assert_eq!((row.count, row.within), (25, Some(0.8)));
    assert!(row.max_ms.unwrap() >= 200.0);
    (0..30).for_each(|_| ms(&mut times, 200));
    assert_eq!(times.broken(0.0).len(), 1);
    assert_eq!(times.broken(200.0), [""; 0], "a machine that is that late by itself");
    assert!(times.broken(0.0)[0].starts_with("kill -9 until the event, same_host: expected 10 ms at most"));
}

#[test]
fn few_times_say_nothing() {
    let mut times = Times::new();
    (0..ENOUGH - 1).for_each(|_| times.push(Bound::Broken, 0, 1_000_000_000));
    assert_eq!(times.broken(0.0), [""; 0]);
    times.push(Bound::Broken, 0, 1_000_000_000);
    assert_eq!(times.broken(0.0).len(), 1);
}
