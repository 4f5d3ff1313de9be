use super::*;

fn last(rows: &[Row]) -> String {
    render(rows).lines().last().expect("a line").to_owned()
}

#[test]
fn the_last_line_sums_all_groups() {
    let seconds = Duration::from_millis(1500);
    let mut mixed = Outcome::passed(40);
    mixed.failed.push("agent::dies".to_owned());
    let rows = [("format", Outcome::passed(1), seconds), ("tests", mixed, seconds)];
    assert_eq!(last(&rows), "41 passed, 1 failed");
    assert!(any_failed(&rows));
    assert!(render(&rows).contains("failed  tests: agent::dies\n"));
    assert!(render(&rows).contains("total: 3.0 s"));

    let skipped = [
        ("tests", Outcome::passed(2), seconds),
        ("demo", Outcome::skipped("end to end", "no network"), seconds),
    ];
    assert_eq!(last(&skipped), "2 passed, 0 failed, 1 skipped");
    assert!(!any_failed(&skipped));
    assert!(render(&skipped).contains("skipped demo: end to end: no network\n"));
}

#[test]
fn a_group_that_only_skips_has_not_passed() {
    let took = Duration::ZERO;
    assert!(Outcome::skipped("a", "b").summary(took).starts_with("skipped"));
    assert!(Outcome::passed(1).summary(took).starts_with("passed"));
    let mut outcome = Outcome::skipped("a", "b");
    outcome.check("c", Ok(()));
    assert!(outcome.summary(took).starts_with("passed"));
    outcome.check("d", Err("is wrong".to_owned()));
    assert!(outcome.summary(took).starts_with("FAILED"));
    assert_eq!(outcome.failed, ["d: is wrong"]);
}
