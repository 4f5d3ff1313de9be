//! `kvferry explain` and `kvferry catalogue` as they are called.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn kvferry(args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvferry"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // It may have ended without reading.
    let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    child.wait_with_output().expect("ended")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_seeds_message_shows_its_record_and_what_to_look_at() {
    let output = kvferry(&["explain", "-"], "NIXL memory registration failed for VRAM kv tensors\n");
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output);
    for part in
        ["75f97e832a3e9a92", "does not decide", "ucx-no-cuda", "peermem-missing", "memlock-limit", "look at:"]
    {
        assert!(shown.contains(part), "{part} is missing in {shown}");
    }
}

#[test]
fn exit_codes_tell_found_nothing_and_bad_usage_apart() {
    assert_eq!(kvferry(&["explain", "-"], "all is well\n").status.code(), Some(1));
    assert_eq!(kvferry(&["explain", "no-such-file.log"], "").status.code(), Some(2));
    assert_eq!(kvferry(&["explain"], "").status.code(), Some(2));
    assert_eq!(kvferry(&["explain", "--env", "moon", "-"], "").status.code(), Some(2));
    assert_eq!(kvferry(&["explain", "register.null"], "").status.code(), Some(0));
    assert_eq!(kvferry(&["explain", "ibv_reg_mr() failed: Bad address"], "").status.code(), Some(0));
}

#[test]
fn json_is_one_object_with_the_three_lists() {
    let output =
        kvferry(&["explain", "--json", "--env", "k8s", "-"], "region 3: address is null (register.null)\n");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["primary"]["slug"], "register-null");
    assert_eq!(value["primary"]["confidence"], "high");
    assert_eq!(value["primary"]["evidence"][0]["file"], "stdin");
    assert!(value["others"].is_array() && value["secondary"].is_array());
}

#[test]
fn the_seed_is_exported_byte_for_byte() {
    let seed = include_str!("../../kvferry-doctor/tests/data/seed.json");
    let args = [
        "catalogue",
        "export",
        "75f97e832a3e9a92",
        "--envelope",
        "--dataset-version",
        "2026-08-28T06:17:29.519Z",
    ];
    assert_eq!(text(&kvferry(&args, "")), format!("{seed}\n"));
}

#[test]
fn own_records_are_exported_only_with_their_place() {
    let without = kvferry(&["catalogue", "export"], "");
    assert!(!text(&without).contains("register.null"));
    assert!(String::from_utf8_lossy(&without.stderr).contains("need --repo and --sha"));
    let sha = "0123456789abcdef0123456789abcdef01234567";
    let with = kvferry(&["catalogue", "export", "register.null", "--repo", "owner/name", "--sha", sha], "");
    assert!(text(&with).contains(&format!(
        "https://github.com/owner/name/blob/{sha}/crates/kvferry/src/error/register.rs#L"
    )));
    let wrong =
        kvferry(&["catalogue", "export", "register.null", "--repo", "owner/name", "--sha", "abc"], "");
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn records_are_searched_and_data_sets_checked() {
    assert!(
        text(&kvferry(&["catalogue", "search", "page", "size", "mismatch"], "")).contains("layout-mismatch")
    );
    assert_eq!(kvferry(&["catalogue", "search", "zebra"], "").status.code(), Some(1));
    assert_eq!(kvferry(&["catalogue", "show", "nothing"], "").status.code(), Some(2));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("broken.json");
    let seed = include_str!("../../kvferry-doctor/tests/data/seed.json");
    std::fs::write(&file, seed.replacen("\"critical\"", "\"awful\"", 1)).expect("written");
    let output = kvferry(&["catalogue", "validate", file.to_str().expect("a path")], "");
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("broken.json: record.severity: unknown variant"), "{complaint}");
}
