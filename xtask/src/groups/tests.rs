use super::*;

fn finished(script: &str, limit: Duration) -> Finished {
    process::run(Command::new("sh").arg("-c").arg(script), limit).expect("sh")
}

#[test]
fn good_counts_of_a_bad_run_do_not_pass() {
    let limit = Duration::from_secs(30);
    let settled = |script, outcome| settle(outcome, &finished(script, limit), "tests").failed;

    assert_eq!(settled("exit 0", Outcome::passed(3)), [""; 0]);
    assert_eq!(settled("exit 0", Outcome::skipped("a", "b")), [""; 0]);
    assert!(settled("exit 4", Outcome::passed(3))[0].contains("exit status: 4"));
    assert!(settled("exit 0", Outcome::default())[0].contains("ran no test"));
    // One failure is one failure, although the command says so too.
    assert_eq!(settled("exit 100", Outcome::failed("a")), ["a"]);

    let late = finished("sleep 60", Duration::from_millis(100));
    assert!(settle(Outcome::passed(3), &late, "tests").failed[0].contains("too long"));
}

#[test]
fn group_names_are_unique() {
    let mut names: Vec<_> = all().iter().map(|group| group.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
