//! The `kvferry` command as a user calls it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A call with an environment of its own, so that no variable of the caller's gets in.
fn kvferry() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvferry"));
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

fn run(args: &[&str]) -> Output {
    kvferry().args(args).output().expect("kvferry starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(!stderr.contains("panicked"), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in: {stderr}");
    }
}

#[test]
fn version_and_help_say_what_there_is() {
    let version = run(&["--version"]);
    assert_eq!(text(&version.stdout), format!("kvferry {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    for command in ["demo", "settings", "codes", "probe"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {help}");
    }
    assert!(!help.contains("probe-side"), "{help}");
}

#[test]
fn nonsense_is_refused() {
    assert_refused(&run(&[]), &["Usage"]);
    assert_refused(&run(&["ferry"]), &["ferry"]);
    assert_refused(&run(&["setings"]), &["settings"]);
    assert_refused(&run(&["settings", "extra"]), &["extra"]);
    assert_refused(&run(&["codes", "--what"]), &["--what"]);
    assert_refused(&run(&["probe", "--mib", "0"]), &["0", "1..=4096"]);
    assert_refused(&run(&["probe", "--mib", "many"]), &["many"]);
    assert_refused(&run(&["probe-side", "spectator"]), &["spectator"]);
    let bytes = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    assert_refused(&kvferry().arg("codes").arg(bytes).output().expect("kvferry starts"), &["UTF-8"]);
}

#[test]
fn settings_show_where_each_value_is_from() {
    let output = kvferry().arg("settings").env("KVFERRY_THREADS", "1").env("KVFERRY_TOKEN", "hush").output();
    let output = output.expect("kvferry starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let row = |name: &str| {
        let line =
            stdout.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {stdout}"));
        line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("KVFERRY_THREADS")[1..3], ["1", "environment"]);
    assert_eq!(row("KVFERRY_TOKEN")[1..3], ["(hidden)", "environment"]);
    assert_eq!(row("KVFERRY_PEER_TIMEOUT")[1..3], ["3s", "default"]);
    assert!(!stdout.contains("hush"));
    let shown = stdout.lines().filter(|line| line.starts_with("KVFERRY_")).count();
    assert_eq!(shown, kvferry::Settings::documentation().len(), "{stdout}");
}

#[test]
fn a_bad_setting_is_named_with_what_is_allowed() {
    for (variable, value, words) in [
        ("KVFERRY_THREADS", "many", "1 to 32"),
        ("KVFERRY_PEER_TIMEOUT", "3", "no unit"),
        ("KVFERRY_REQUIRE", "carrier_pigeon", "same_host"),
        ("KVFERRY_LOG", "loud", "debug"),
    ] {
        for command in ["settings", "probe"] {
            let output = kvferry().arg(command).env(variable, value).output().expect("kvferry starts");
            assert_refused(&output, &[variable, value, words]);
        }
    }
}

#[test]
fn a_misspelt_variable_is_pointed_out() {
    let output = kvferry().arg("settings").env("KVFERRY_THREAD", "1").output().expect("kvferry starts");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("did you mean KVFERRY_THREADS"), "{}", text(&output.stderr));
}

#[test]
fn codes_are_listed_and_explained() {
    let all = text(&run(&["codes"]).stdout);
    assert!(all.lines().count() > 50 && all.contains("\nregister.unmapped  "), "{all}");
    let family = text(&run(&["codes", "notify"]).stdout);
    assert!(
        family.lines().all(|line| line.starts_with("notify.")) && family.lines().count() == 2,
        "{family}"
    );
    let one = run(&["codes", "register.unmapped"]);
    assert_eq!(one.status.code(), Some(0));
    let one = text(&one.stdout);
    assert!(one.starts_with("register.unmapped\n") && one.contains("What to do: "), "{one}");
    assert_refused(&run(&["codes", "register.unmaped"]), &["register.unmapped"]);
    assert_refused(&run(&["codes", "qqqqqqqqqqq"]), &["kvferry codes"]);
    assert_refused(&run(&["codes", ""]), &["kvferry codes"]);
}

#[test]
fn a_reader_who_leaves_early_is_no_error() {
    let mut child =
        kvferry().arg("codes").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("end");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

/// The probe's one JSON object, with its exit code.
fn probe(command: &mut Command) -> (serde_json::Value, Option<i32>) {
    let output = command.args(["probe", "--json", "--mib", "1"]).output().expect("kvferry starts");
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "{stdout}{}", text(&output.stderr));
    (serde_json::from_str(&stdout).expect("JSON"), output.status.code())
}

#[test]
fn a_probe_moves_bytes_each_way_that_there_is() {
    let (report, code) = probe(&mut kvferry());
    let rows = report["same_host"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["mechanism"].as_str().expect("name")).collect();
    assert_eq!(names, ["map", "cma"]);
    if let Some(row) = rows.iter().find(|row| row["ok"] == false) {
        // A sandbox may forbid it: then the probe has to say so.
        assert_eq!((code, &report["ok"]), (Some(1), &false.into()));
        assert!(!row["cause"].as_str().expect("cause").is_empty());
        eprintln!("skipped: {} does not work here: {}", row["mechanism"], row["cause"]);
        return;
    }
    assert_eq!((code, &report["ok"]), (Some(0), &true.into()));
    for row in rows {
        assert_eq!(row["path"], "same_host");
        for speed in ["write_gbps", "read_gbps"] {
            assert!(row[speed].as_f64().expect("speed") > 0.0, "{row}");
        }
    }
}

#[test]
fn a_probe_names_what_forbids_a_mechanism() {
    let (report, code) = probe(kvferry().env("KVFERRY_FORBID", "cma"));
    assert_eq!((code, &report["ok"]), (Some(1), &false.into()));
    let cma = &report["same_host"][1];
    assert_eq!((&cma["mechanism"], &cma["code"]), (&"cma".into(), &"connect.path_required".into()));
    assert!(cma["cause"].as_str().expect("cause").contains("KVFERRY_FORBID=cma"), "{cma}");
    assert!(!cma["remedy"].as_str().expect("remedy").is_empty());

    let output = kvferry().arg("probe").env("KVFERRY_REQUIRE", "rdma").output().expect("kvferry starts");
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert_eq!(stdout.matches("KVFERRY_REQUIRE=rdma").count(), 2, "{stdout}");
    assert_eq!(stdout.matches("what to do: ").count(), 2, "{stdout}");
}

/// A directory with the command in it, and nothing beside. Links, for a file that was just written may not be run
/// while another test forks.
fn installed() -> (TempDir, Command) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory");
    let program = dir.path().join("kvferry");
    fs::hard_link(env!("CARGO_BIN_EXE_kvferry"), &program).expect("link");
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").arg("demo");
    (dir, command)
}

#[test]
fn the_demo_gets_its_arguments_as_they_are_and_gives_its_code() {
    let (dir, mut command) = installed();
    symlink("/bin/sh", dir.path().join("kvferry-demo")).expect("link");
    let output = command
        .args([
            "-c",
            "printf '<%s>' \"$@\"; exit 7",
            "demo",
            "--json",
            "--help",
            "-V",
            "a b",
            "--",
            "--prompt=",
        ])
        .output()
        .expect("start");
    assert_eq!(text(&output.stdout), "<--json><--help><-V><a b><--><--prompt=>");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_demo_on_the_path_is_found_and_an_absent_one_explained() {
    let (dir, mut command) = installed();
    let output = command.output().expect("start");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("kvferry-demo is not installed") && stderr.contains("cargo xtask demo"),
        "{stderr}"
    );

    // A file that can't be run is not it.
    fs::write(dir.path().join("kvferry-demo"), "text").expect("file");
    let elsewhere = tempfile::tempdir().expect("directory");
    symlink("/bin/echo", elsewhere.path().join("kvferry-demo")).expect("link");
    let path = format!(":{}", elsewhere.path().display());
    let output = command.arg("found").env("PATH", path).output().expect("start");
    assert_eq!(text(&output.stdout), "found\n");
}
