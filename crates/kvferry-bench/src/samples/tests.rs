use super::*;

#[test]
fn rates_have_a_median_between_their_ends() {
    let mut rates = Rates::default();
    for milliseconds in [1000, 250, 500] {
        rates.record(1_000_000_000, Duration::from_millis(milliseconds));
    }
    assert_eq!((rates.min(), rates.median(), rates.max()), (1.0, 2.0, 4.0));
    rates.record(1_000_000_000, Duration::from_millis(125));
    assert_eq!(rates.median(), 3.0);
}

#[test]
fn quantiles_are_of_the_times_recorded() {
    let mut times = Times::new();
    for microseconds in 1..=100 {
        times.record(Duration::from_micros(microseconds));
    }
    assert!((times.microseconds(0.5) - 50.0).abs() < 0.1, "{}", times.microseconds(0.5));
    assert!((times.microseconds(0.99) - 99.0).abs() < 0.1, "{}", times.microseconds(0.99));
    times.record(Duration::from_secs(100_000));
    assert!(times.microseconds(1.0) >= 6e8);
}
