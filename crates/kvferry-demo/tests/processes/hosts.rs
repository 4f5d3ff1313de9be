//! The demo over TCP, and between two network namespaces.

use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::run::{Run, demo, finish, run};

/// Where the two hosts of `--netns` are.
const FAR: &str = "10.83.0.2";

#[track_caller]
fn identical(run: &Run) -> Value {
    assert_eq!(run.code, Some(0), "{run:#?}");
    let json = run.json();
    for key in ["tokens_equal", "logits_equal", "pages_equal"] {
        assert_eq!(json[key], true, "{key} in {run:#?}");
    }
    json
}

/// Each way by its path, and nothing else.
#[track_caller]
fn linked(json: &Value, path: &str, mechanism: &str) {
    let links = json["links"].as_array().unwrap();
    let told: Vec<_> =
        links.iter().map(|link| ["from", "to", "path", "mechanism"].map(|key| &link[key])).collect();
    assert_eq!(
        told,
        [["prefill", "decode", path, mechanism], ["decode", "prefill", path, mechanism]],
        "{json}"
    );
}

/// Why this machine gives us no two hosts; none if it does.
fn without_hosts() -> Option<String> {
    let hosts = kvferry_hosts::Hosts::new(1_500);
    hosts.err().inspect(|reason| println!("skipped: {reason}"))
}

#[test]
fn what_is_computed_crosses_over_tcp() {
    for memory in ["private", "kvferry"] {
        let run = run(&["--tiny", "--json", "--tokens=6", "--path=tcp", "--memory", memory]);
        let json = identical(&run);
        assert_eq!((&json["path"], &json["mechanism"]), (&"tcp".into(), &"stream".into()));
        assert_eq!(json["kv_bytes"], 78 * 6 * 2_048);
        linked(&json, "tcp", "stream");
        assert!(run.stdout.contains("prefill to decode at 127.0.0.1: tcp, stream"), "{run:#?}");
    }
}

#[test]
fn the_path_of_one_host_can_be_asked_for() {
    let json = identical(&run(&["--tiny", "--json", "--tokens=2", "--path=same_host"]));
    linked(&json, "same_host", "cma");
    assert_eq!(json["links"][0]["address"], Value::Null);
}

#[test]
fn one_flipped_bit_is_caught_over_tcp() {
    let run = run(&["--tiny", "--json", "--tokens=2", "--path=tcp", "--flip-bit=1:2:77"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(run.json()["pages_equal"], false, "{run:#?}");
}

#[track_caller]
fn killed(side: &str, how: &str) {
    let run = run(&["--tiny", "--json", "--kill", side, how]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let json = run.json();
    assert_eq!((&json["kill"]["killed"], &json["kill"]["ok"]), (&side.into(), &true.into()), "{run:#?}");
    linked(&json, "tcp", "stream");
    println!("killed {side} with {how}: noticed after {} ms", json["kill"]["noticed_ms"]);
}

#[test]
fn a_killed_side_is_noticed_over_tcp() {
    killed("prefill", "--path=tcp");
    killed("decode", "--path=tcp");
}

#[test]
fn what_is_computed_crosses_between_two_hosts() {
    if without_hosts().is_some() {
        return;
    }
    let run = run(&["--tiny", "--json", "--netns", "--requests=2", "--tokens=6"]);
    let json = identical(&run);
    linked(&json, "tcp", "stream");
    assert_eq!(json["links"][0]["address"], FAR);
    assert!(run.stdout.contains("two hosts, each a network namespace"), "{run:#?}");
}

#[test]
fn a_killed_side_is_noticed_on_another_host() {
    if without_hosts().is_some() {
        return;
    }
    killed("prefill", "--netns");
    killed("decode", "--netns");
}

/// The kernel's count of network namespaces that processes of ours are in.
fn spaces() -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let spaces = processes.filter_map(|entry| std::fs::read_link(entry.path().join("ns/net")).ok());
    spaces.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn nothing_of_the_hosts_stays_behind_when_the_demo_is_interrupted() {
    if without_hosts().is_some() {
        return;
    }
    let before = spaces();
    let mut command = demo(&["--tiny", "--netns", "--hang=decode", "--patience=60"]);
    let mut parent = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        while !done() {
            assert!(std::time::Instant::now() < deadline, "in vain waited for: {what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    wait("two hosts", &|| spaces() >= before + 2);
    let pid = rustix::process::Pid::from_child(&parent);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    parent.wait().unwrap();
    wait("their end", &|| spaces() <= before);
}

#[test]
fn without_the_right_to_make_hosts_it_says_what_is_missing() {
    let mut command = demo(&["--tiny", "--netns"]);
    if rustix::process::geteuid().is_root() {
        // Anybody else will do.
        command.uid(65_534).gid(65_534);
    }
    let run = finish(&mut command);
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(run.stderr.contains("--netns: a network namespace cannot be made"), "{run:#?}");
    assert!(run.stderr.contains("that takes root"), "{run:#?}");
    assert!(!run.stderr.contains("panicked"), "{run:#?}");
}

#[test]
fn without_the_tool_it_says_what_is_missing() {
    if without_hosts().is_some() {
        return;
    }
    let run = finish(demo(&["--tiny", "--netns"]).env("PATH", "/no/such/dir"));
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(run.stderr.contains("`ip` is missing: install iproute2"), "{run:#?}");
}

#[test]
fn impossible_paths_are_explained() {
    for (args, variable, words) in [
        (&["--netns", "--path=same_host"][..], ("", ""), "between hosts there is no same_host"),
        (&["--path=tcp"], ("KVFERRY_FORBID", "tcp"), "KVFERRY_FORBID=tcp forbids it"),
        (&["--path=tcp"], ("KVFERRY_REQUIRE", "same_host"), "KVFERRY_REQUIRE=same_host allows no tcp"),
        (&["--path=carrier_pigeon"], ("", ""), "possible values: same_host, tcp"),
    ] {
        let mut command = demo(&[&["--tiny"], args].concat());
        if !variable.0.is_empty() {
            command.env(variable.0, variable.1);
        }
        let run = finish(&mut command);
        assert_eq!(run.code, Some(2), "{run:#?}");
        assert!(run.stderr.contains(words), "{words:?} in {run:#?}");
    }
    // Allowed, and yet there is no way: the address is nobody's.
    let run = finish(demo(&["--tiny", "--path=tcp"]).env("KVFERRY_ADDRESS", "192.0.2.1"));
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert!(run.stderr.contains("its last words: error: "), "{run:#?}");
    assert!(run.stderr.contains("192.0.2.1"), "{run:#?}");
}
