use super::*;

const GOOD: &str = r#"{"tokens_equal":true,"logits_equal":true,"pages_equal":true,"weights":"smollm2",
"path":"same_host","mechanism":"map","prompt_tokens":1100,"kv_bytes":50688000,"blocks":2070,
"transfer_ms":12.5,"hidden_ms":12.0,"gbps":4.1,"ttft_ms":9000}"#;

fn finished(script: &str, report: &str) -> Finished {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).env("REPORT", report.replace('\n', ""));
    process::run(&mut command, Duration::from_secs(30)).expect("sh")
}

fn judged(script: &str, report: &str) -> Outcome {
    judge(&finished(script, report))
}

#[test]
fn a_good_run_passes_whole() {
    let outcome = judged("echo Once upon; echo \"$REPORT\"", GOOD);
    assert_eq!(outcome.failed, [""; 0]);
    assert_eq!(outcome.passed, 12);
}

#[test]
fn one_wrong_bit_or_field_fails() {
    let print = "echo \"$REPORT\"";
    let failures = |report: &str| judged(print, report).failed;
    let flipped = GOOD.replace("\"logits_equal\":true", "\"logits_equal\":false");
    assert_eq!(failures(&flipped), ["logits_equal: false, not true"]);
    let random = GOOD.replace("smollm2", "random");
    assert_eq!(failures(&random), ["weights: \"random\", not \"smollm2\""]);
    let nothing = GOOD.replace("50688000", "0");
    assert!(failures(&nothing)[0].starts_with("kv_bytes: "));
    let renamed = GOOD.replace("pages_equal", "pages");
    assert_eq!(failures(&renamed), ["pages_equal: missing in the report"]);
    assert_eq!(failures("[true]"), ["the last line of stdout is no JSON object"]);
    assert_eq!(judged("echo \"$REPORT\"; exit 1", GOOD).failed.len(), 1);
    assert_eq!(judged("echo \"$REPORT\"; echo bye", GOOD).failed.len(), 1);
}

#[test]
fn a_kill_passes_only_with_its_code() {
    let judged = |script: &str, report: &str| judge_kill(&finished(script, report));
    let print = "echo \"$REPORT\"";
    let good = r#"{"tokens_equal":null,"kill":{"ok":true,"code":"peer.lost"}}"#;
    assert_eq!(judged(print, good), Ok(()));
    assert!(judged("echo \"$REPORT\"; exit 1", good).is_err());
    assert!(judged(print, &good.replace("peer.lost", "link.lost")).is_err());
    assert!(judged(print, &good.replace("true", "false")).is_err());
    assert!(judged(print, GOOD).is_err());
    assert!(judged("true", good).is_err());
}
