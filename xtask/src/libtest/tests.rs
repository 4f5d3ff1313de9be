use super::*;

fn parse_text(text: &str) -> Outcome {
    parse(&text.lines().collect::<Vec<_>>())
}

#[test]
fn several_binaries_are_summed() {
    let outcome = parse_text(
        "   Compiling kvferry v0.1.0\n\
         running 3 tests\n\
         test link::one ... ok\n\
         test link::two - should panic ... ok\n\
         test link::slow ... ignored, takes an hour\n\n\
         test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n\
         running 1 test\n\
         test src/lib.rs - Agent (line 12) ... ok\n\n\
         test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.52s\n\n\
         running 0 tests\n\n\
         test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
    );
    let expected = Outcome { note: "1 ignored by default".to_owned(), ..Outcome::passed(3) };
    assert_eq!(outcome, expected);
}

#[test]
fn failures_keep_their_names() {
    let outcome = parse_text(
        "running 2 tests\n\
         test a ... FAILED\n\
         test b ... ok\n\n\
         failures:\n\n\
         ---- a stdout ----\n\
         thread 'a' panicked at src/lib.rs:1:1:\n\
         test result: ok. 99 passed; was only quoted\n\n\
         failures:\n    a\n\n\
         test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n\
         error: test failed, to rerun pass `-p x --lib`\n",
    );
    assert_eq!(outcome.failed, ["a"]);
    assert_eq!(outcome.passed, 1);
}

#[test]
fn a_crashed_binary_counts_as_a_failure() {
    let outcome = parse_text(
        "running 3 tests\n\
         test a ... ok\n\
         error: test failed, to rerun pass `--lib`\n\n\
         Caused by:\n  process didn't exit successfully (signal: 11, SIGSEGV)\n\
         running 1 test\n\
         test b ... ok\n\n\
         test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
    );
    assert_eq!(outcome.passed, 2);
    assert_eq!(outcome.failed, ["a test binary ended after 1 of 3 tests"]);
}

#[test]
fn a_test_that_says_it_could_not_run_is_skipped() {
    let outcome = parse_text(
        "running 2 tests\n\
         test a ... ok\n\
         test b ... ok\n\n\
         successes:\n\n\
         ---- a stdout ----\n\
         skipped: no user namespaces: EPERM\n\n\
         ---- b stdout ----\n\
         nothing skipped: here\n\n\
         successes:\n    a\n    b\n\n\
         test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
    );
    assert_eq!(outcome.passed, 1);
    let expected = Skip { name: "a".to_owned(), reason: "no user namespaces: EPERM".to_owned() };
    assert_eq!(outcome.skipped, [expected]);
}

#[test]
fn nonsense_counts_nothing() {
    assert_eq!(parse_text(""), Outcome::default());
    let odd = "running x tests\ntest result: \ntest ... ok\n---- \nrunning 99999999999999999999999 tests\n\u{1b}[0m test";
    assert_eq!(parse_text(odd), Outcome::default());
    assert_eq!(number_before("ok.  passed", " passed"), None);
    assert_eq!(number_before("17 passed", " passed"), Some(17));
}
