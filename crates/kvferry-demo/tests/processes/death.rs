//! Processes that die or hang: the others notice in time, say so, and nothing stays behind.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::run::{demo, finish, run};

fn killed(side: &str, args: &[&str]) {
    let args = [&["--tiny", "--json", "--kill", side], args].concat();
    let run = run(&args);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let kill = &run.json()["kill"];
    assert_eq!(kill["killed"], side);
    assert_eq!(kill["code"], "peer.lost", "{run:#?}");
    assert_eq!(kill["ok"], true, "{run:#?}");
    let noticed = kill["noticed_ms"].as_f64().unwrap();
    println!("killed {side} {args:?}: noticed after {noticed:.2} ms");
    assert!(noticed <= kill["allowed_ms"].as_f64().unwrap(), "{run:#?}");
    assert!(run.stdout.contains("lived on and ended in good order"), "{run:#?}");
}

#[test]
fn decode_notices_that_prefill_was_killed() {
    killed("prefill", &[]);
    killed("prefill", &["--memory=kvferry"]);
    killed("prefill", &["--requests=3"]);
}

#[test]
fn prefill_notices_that_decode_was_killed() {
    killed("decode", &[]);
    killed("decode", &["--memory=kvferry"]);
    killed("decode", &["--requests=3"]);
}

#[test]
fn a_process_that_hangs_is_named() {
    for role in ["prefill", "decode", "alone"] {
        let run = run(&["--tiny", "--tokens=2", "--patience=2", "--hang", role]);
        assert_eq!(run.code, Some(1), "{run:#?}");
        let sentence = format!("nothing was heard for 2s: the {role} process hangs");
        assert!(run.stderr.contains(&sentence), "{run:#?}");
    }
}

#[test]
fn a_process_that_cannot_work_is_named_with_its_last_words() {
    // No way between two processes is left.
    let run = finish(demo(&["--tiny"]).env("KVFERRY_FORBID", "same_host,tcp"));
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert!(run.stderr.contains("process ended with exit code 1; its last words: error: "), "{run:#?}");
    assert!(!run.stderr.contains("panicked"), "{run:#?}");
}

#[test]
fn no_process_outlives_the_parent() {
    let mut parent = demo(&["--tiny", "--hang=decode", "--patience=60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its second line comes just before it starts the others.
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    lines.nth(1).unwrap().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let children = loop {
        let children = children_of(parent.id());
        if children.len() == 2 {
            break children;
        }
        assert!(Instant::now() < deadline, "the parent has started {children:?} only");
        std::thread::sleep(Duration::from_millis(5));
    };
    parent.kill().unwrap();
    parent.wait().unwrap();
    for child in children {
        while lives(child) {
            assert!(Instant::now() < deadline, "process {child} has outlived its parent");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The reader of the output goes away, as `head` does.
#[test]
fn a_reader_that_leaves_is_no_reason_to_panic() {
    let mut parent = demo(&["--tiny"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(parent.stdout.take());
    let output = parent.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether a process runs: one that is dead and waits to be reaped does not.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
