use super::*;
use crate::soak::bounds::Bound;

fn report() -> Report {
    let conditions = Conditions {
        commit: "abc".into(),
        kernel: "6.1".into(),
        cpu: "some".into(),
        cores: 2,
        memory_gib: 8,
        load: [0.5, 2.0],
    };
    let mut report = Report::new(7, conditions);
    report.took = Duration::from_secs(75);
    report
}

fn draft(round: u64) -> Draft {
    Draft::new(7, round, 32 << 20, 16 << 20)
}

#[test]
fn nothing_played_is_not_good() {
    let mut report = report();
    assert!(!report.good());
    report.passed(&draft(0), true);
    assert!(report.good());
    assert_eq!(report.json()["ok"], true);
}

#[test]
fn a_failure_names_the_round_and_how_to_play_it_again() {
    let mut report = report();
    report.passed(&draft(0), true);
    let broken = report.failed(&draft(1), "expected this, found that".into()).to_string();
    for part in ["round 1 (", "expected this, found that", "again: cargo xtask soak --seed 7 --round 1"] {
        assert!(broken.contains(part), "no {part:?} in {broken}");
    }
    assert!(!report.good());
    assert!(report.tables(false).contains("1 FAILED"));
    (0..100).for_each(|round| drop(report.failed(&draft(round), "again".into())));
    assert_eq!((report.failures.len(), report.failures()), (KEPT, 101));
    assert_eq!(report.json()["failures"], 101);
}

#[test]
fn times_over_the_promise_are_failures_too() {
    let mut report = report();
    report.passed(&draft(0), true);
    (0..20).for_each(|_| report.times.push(Bound::CancelTcp, 0, 90_000_000));
    assert!(!report.good());
    assert!(
        report.told().contains("1 rounds in 1:15 min with seed 7, 1 failures; commit abc"),
        "{}",
        report.told()
    );
}

#[test]
fn markdown_has_a_row_for_each_bound() {
    let mut report = report();
    report.passed(&draft(0), true);
    let text = report.markdown();
    let bounds = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).count();
    assert!(bounds >= Bound::ALL.len(), "{text}");
    let columns = |line: &&str| line.matches('|').count() == 8;
    assert_eq!(text.lines().filter(columns).count(), Bound::ALL.len() + 2, "{text}");
}
