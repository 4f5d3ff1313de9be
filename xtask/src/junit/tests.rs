use super::*;

const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="5" failures="2" errors="0" uuid="0" time="1.0">
  <testsuite name="kvferry" tests="3" disabled="0" errors="0" failures="1">
    <testcase name="agent::tests::opens" classname="kvferry" time="0.01"/>
    <testcase name="agent::tests::closes" classname="kvferry" time="0.01">
      <failure message="left &lt; right" type="test failure with exit code 101">panicked</failure>
      <system-out>skipped: not when it failed</system-out>
    </testcase>
    <testcase name="agent::tests::hangs" classname="kvferry" time="60">
      <failure type="test timeout"/>
    </testcase>
  </testsuite>
  <testsuite name="kvferry-sys" tests="1" disabled="0" errors="1" failures="0">
    <testcase name="page" classname="kvferry-sys" time="0.01">
      <failure message="process aborted with signal 6 (SIGABRT)" type="test abort">so it did</failure>
    </testcase>
  </testsuite>
  <testsuite name="kvferry-testkit::forbidden" tests="2" disabled="0" errors="0" failures="0">
    <testcase name="user_namespace" classname="kvferry-testkit::forbidden" time="0.01">
      <system-out>
running 1 test
test user_namespace ... ok
</system-out>
      <system-err>skipped: unshare answers EPERM
</system-err>
    </testcase>
    <testcase name="seccomp" classname="kvferry-testkit::forbidden" time="0.01">
      <system-out>test seccomp ... skipped by nobody</system-out>
    </testcase>
  </testsuite>
</testsuites>
"#;

#[test]
fn passed_failed_and_skipped_are_told_apart() {
    let outcome = parse(REPORT).expect("report");
    assert_eq!(outcome.passed, 2);
    assert_eq!(
        outcome.failed,
        [
            "kvferry agent::tests::closes",
            "kvferry agent::tests::hangs (test timeout)",
            "kvferry-sys page (process aborted with signal 6 (SIGABRT))"
        ]
    );
    let expected = Skip {
        name: "kvferry-testkit::forbidden user_namespace".to_owned(),
        reason: "unshare answers EPERM".to_owned(),
    };
    assert_eq!(outcome.skipped, [expected]);
}

#[test]
fn other_files_are_refused() {
    assert!(parse("").is_err());
    assert!(parse("<html/>").is_err());
    assert!(parse(&REPORT[..REPORT.len() / 2]).is_err());
}

#[test]
fn what_nextest_left_out_is_read_from_its_summary() {
    let line = "     Summary [   0.005s] 7 tests run: 7 passed, 2 skipped";
    assert_eq!(left_out(&["noise", line]), 2);
    assert_eq!(left_out(&["     Summary [   0.005s] 7 tests run: 7 passed"]), 0);
    assert_eq!(left_out::<&str>(&[]), 0);
}

#[test]
fn the_report_of_pytest_is_read_too() {
    let outcome = parse(
        r#"<testsuites><testsuite name="pytest" tests="3">
<testcase classname="test_a" name="passes" time="0.1"/>
<testcase classname="test_a" name="fails" time="0.1"><failure message="AssertionError: 1 != 2&#10;more">text</failure></testcase>
<testcase classname="test_a" name="waits" time="0"><skipped type="pytest.skip" message="no etcd here">x</skipped></testcase>
</testsuite></testsuites>"#,
    )
    .expect("report");
    assert_eq!(outcome.passed, 1);
    assert_eq!(outcome.failed, ["test_a fails (AssertionError: 1 != 2)"]);
    let skip = Skip { name: "test_a waits".to_owned(), reason: "no etcd here".to_owned() };
    assert_eq!(outcome.skipped, [skip]);
}
