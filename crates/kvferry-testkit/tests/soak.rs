//! The soak, for a short while with a fixed seed; and that it would notice.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use kvferry_testkit::harness::eventually;
use serde_json::Value;

const SOAK: &str = env!("CARGO_BIN_EXE_kvferry-soak");

fn soak(args: &[&str]) -> Command {
    let mut command = Command::new(SOAK);
    command.args(args).stdin(Stdio::null());
    command
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[test]
fn a_quarter_of_a_minute_goes_as_promised() {
    let dir = tempfile::tempdir().unwrap();
    let (json, markdown) = (dir.path().join("soak.json"), dir.path().join("soak.md"));
    let output = soak(&["--seconds", "15", "--seed", "20", "--json"])
        .arg(&json)
        .arg("--markdown")
        .arg(&markdown)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&report["ok"], &report["seed"], &report["failures"]), (&true.into(), &20.into(), &0.into()));
    assert!(report["rounds"].as_u64().unwrap() >= 10, "{report}");
    let inside: u64 =
        report["kinds"].as_array().unwrap().iter().map(|kind| kind["inside"].as_u64().unwrap()).sum();
    assert!(inside > 0, "no act came in the midst of a transfer: {report}");
    let bounds = report["bounds"].as_array().unwrap();
    assert!(bounds.iter().any(|bound| bound["p99_ms"].is_f64()), "{report}");
    let page = std::fs::read_to_string(markdown).unwrap();
    assert!(page.contains("| time | promised | n | p50 ms | p99 ms | max ms | within |"), "{page}");
}

#[test]
fn it_ends_with_its_workers_after_the_round_when_it_is_interrupted() {
    let mut run = soak(&["--minutes", "10", "--seed", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let workers = || children(run.id());
    assert!(eventually(Duration::from_secs(30), || workers().len() >= 2), "no workers");
    let workers = workers();
    let begun = Instant::now();
    // SAFETY: a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(run.id() as i32, libc::SIGINT) }, 0);
    let ended = eventually(Duration::from_secs(100), || run.try_wait().unwrap().is_some());
    if !ended {
        run.kill().unwrap();
    }
    let output = run.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(ended, "it plays on: {text}");
    println!("ended {:.1?} after the signal", begun.elapsed());
    assert!(text.lines().last().unwrap().starts_with("soak: "), "{text}");
    assert!(eventually(Duration::from_secs(5), || !workers.iter().any(|pid| lives(*pid))), "workers live on");
}

#[test]
fn workers_end_with_a_soak_that_is_killed() {
    let mut run = soak(&["--minutes", "10"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(eventually(Duration::from_secs(30), || children(run.id()).len() >= 2), "no workers");
    let workers = children(run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(
        eventually(Duration::from_secs(10), || !workers.iter().any(|pid| lives(*pid))),
        "workers live on"
    );
}

#[test]
fn a_worker_that_is_no_worker_is_a_failure_with_its_replay() {
    let output =
        soak(&["--seconds", "2", "--seed", "5", "--round", "3", "--child", "/bin/false"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("again: cargo xtask soak --seed 5 --round 3"), "{text}");
    assert!(text.ends_with("soak: 1 rounds, 1 failures\n"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for args in
        [&["--minutes", "0"][..], &["--seconds", "x"], &["--round", "1"], &["--json", "/no/such/dir/file"]]
    {
        let output = soak(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}
