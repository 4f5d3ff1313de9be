use std::io::Cursor;

use super::*;
use crate::kind::Environment;
use crate::report::{json, text as report};

const SEED_ID: &str = "75f97e832a3e9a92";
const PREFILL: &str = "\
[1735787045.678901] [gpu-a:4711 :0]  ib_md.c:291  UCX  ERROR ibv_reg_mr(address=0x7f3a00000000, length=4096, access=0xf) failed: Cannot allocate memory
E0102 03:04:05.678901 4711 nixl_agent.cpp:470] registerMem: registration failed for the specified or all potential backends
nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND
";
const DECODE: &str = "\
[2026-11-30 10:11:12 TP0] KVTransferError(bootstrap_room=7): Failed to get kvcache from prefill instance, it might be dead
[2026-11-30 10:11:13 TP0] remote mooncake session 192.0.2.7:16000 is not alive
";

fn together(inputs: &[&str]) -> Explanation {
    let named = inputs.iter().map(|input| (format!("{:.12}", input), Cursor::new(input.as_bytes().to_vec())));
    Explainer::built_in().inputs(named).expect("memory")
}

fn key(explanation: &Explanation) -> Option<(String, Option<String>)> {
    explanation.primary.as_ref().map(|primary| (primary.id.clone(), primary.kind.clone()))
}

#[test]
fn the_seeds_message_leads_to_its_record_and_its_candidates() {
    let explanation = text("NIXL memory registration failed for VRAM kv tensors");
    let primary = explanation.primary.as_ref().expect("found");
    assert_eq!(primary.id, SEED_ID);
    assert_eq!(primary.confidence, Confidence::Medium);
    assert!(primary.candidates.len() >= 5);
    let shown = report(&explanation, Catalogue::built_in(), Environment::K8s);
    for cause in &primary.candidates {
        assert!(shown.contains(&cause.kind), "{shown}");
    }
    assert!(shown.contains("The text alone does not decide") && shown.contains("look at: "), "{shown}");
}

#[test]
fn consequences_give_way_to_the_cause_also_in_the_other_hosts_log() {
    for inputs in [[PREFILL, DECODE], [DECODE, PREFILL]] {
        let explanation = together(&inputs);
        let primary = explanation.primary.as_ref().expect("found");
        assert_eq!(primary.kind.as_deref(), Some("memlock-limit"));
        assert_eq!(primary.confidence, Confidence::Medium, "a small limit is the likeliest of several");
        assert!(explanation.secondary.len() >= 3, "{:?}", explanation.secondary);
    }
    let alone = together(&[DECODE]);
    assert_eq!(alone.primary.expect("promoted").confidence, Confidence::Low);
}

#[test]
fn the_first_of_two_certain_causes_wins() {
    let first =
        "address is null (register.null)\nUCP version is incompatible, required: 1.18, actual: 1.12\n";
    let second =
        "UCP version is incompatible, required: 1.18, actual: 1.12\naddress is null (register.null)\n";
    assert_eq!(text(first).primary.and_then(|p| p.kind).as_deref(), Some("null-allocation"));
    let second = text(second).primary.expect("found");
    assert_eq!((second.kind.as_deref(), second.confidence), (Some("ucx-version"), Confidence::High));
}

#[test]
fn repeated_lines_change_no_primary() {
    for log in [PREFILL, DECODE] {
        let twice: String = log.lines().flat_map(|line| [line, "\n", line, "\n"]).collect();
        assert_eq!(key(&text(&twice)), key(&text(log)));
    }
}

#[test]
fn a_candidate_that_another_line_shows_comes_first() {
    let log = "\
UCX  WARN  transports 'cuda_ipc','cuda_copy' are not available, please use one or more of: tcp
Exception: NIXL memory registration failed for VRAM kv tensors
";
    let explanation = text(log);
    assert_eq!(explanation.primary.as_ref().and_then(|p| p.kind.as_deref()), Some("ucx-no-cuda"));
}

#[test]
fn nothing_is_an_answer() {
    for log in ["", "\n\n", "all is well\n", "the kettle failed to boil"] {
        let explanation = text(log);
        assert!(!explanation.is_found(), "{log:?}: {explanation:?}");
        assert!(
            report(&explanation, Catalogue::built_in(), Environment::Bare).starts_with("no confident match")
        );
    }
}

#[test]
fn words_alike_are_said_to_be_no_more() {
    let explanation = text(
        "prefill server has this page_size value, decode server has that: both servers must use the same",
    );
    let primary = explanation.primary.as_ref().expect("found");
    assert_eq!(primary.confidence, Confidence::Low);
    assert!(report(&explanation, Catalogue::built_in(), Environment::Bare).contains("low confidence"));
}

#[test]
fn other_words_are_less_sure_also_where_the_record_tells_the_kind() {
    let own = text("socket.gaierror: [Errno -2] Name or service not known").primary.expect("found");
    assert_eq!((own.basis, own.confidence), (Basis::Message, Confidence::High));
    let other = text("no such host: prefill-0.example").primary.expect("found");
    assert_eq!(other.kind, own.kind);
    assert_eq!((other.basis, other.confidence), (Basis::Alike, Confidence::Medium));
}

/// Words that failures of this field share with what is none of it make no rule match; a guess by words alike says it is one.
#[test]
fn shared_words_match_no_rule() {
    for line in [
        "Unable to register cuFFT factory: one for this plugin has already been registered",
        "WARNING Model architecture Foo is already registered, the new class takes its place",
        "WARNING handshake_timeout=30 bootstrap_port=8998 dist_timeout=None",
        "npm ERR! unable to resolve dependency tree",
        "RuntimeError: batch size must be a positive integer",
        "the page is larger, its size must be 64 here",
        "a block must be indented by four",
        "ERROR: device 'cuda:4' is not available",
        "error signals: SIGILL, SIGSEGV, SIGBUS, SIGFPE",
        "evaluated without context",
    ] {
        let primary = text(line).primary;
        assert!(primary.as_ref().is_none_or(|primary| primary.basis == Basis::Fuzzy), "{line}: {primary:?}");
    }
}

#[test]
fn json_has_what_programs_read() {
    let explanation = together(&[PREFILL, DECODE]);
    let json = json(&explanation, Catalogue::built_in(), Environment::Docker);
    let keys =
        |value: &serde_json::Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json["primary"]), ["confidence", "evidence", "id", "kind", "slug"]);
    assert_eq!(keys(&json["secondary"][0]), ["confidence", "evidence", "id", "kind", "slug"]);
    assert_eq!(json["primary"]["evidence"][0]["line"], 1);
    assert_eq!(json["primary"]["confidence"], "medium");
    assert!(json["others"].is_array());
    assert_eq!(json["detail"]["environment"], "docker");
    assert!(json["detail"]["fix"][0].as_str().is_some_and(|fix| fix.contains("--ulimit memlock")));
}

#[test]
fn each_environment_has_its_own_commands() {
    let explanation = text(PREFILL);
    let shown = |environment| report(&explanation, Catalogue::built_in(), environment);
    assert!(shown(Environment::Bare).contains("limits.d"));
    assert!(shown(Environment::Docker).contains("--ulimit memlock=-1:-1"));
    assert!(shown(Environment::K8s).contains("containerd"));
}

const DECODE_FIRST: &str = "\
[2026-11-30 18:11:01] Error fetching prefill server info from bootstrap: HTTPConnectionPool(host='192.0.2.10', port=8998): Max retries exceeded with url: /route (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))
[2026-11-30 18:11:02] Error fetching prefill server info from bootstrap: HTTPConnectionPool(host='192.0.2.10', port=8998): Max retries exceeded with url: /route (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))
[2026-11-30 18:11:04] Failed to get prefill server info: 503, Prefill server not fully registered yet (1 workers registered).
";
const PREFILL_LATER: &str = "\
[2026-11-30 18:11:03] CommonKVBootstrapServer started successfully on 192.0.2.10:8998
I1130 18:11:05.522862    1333 nixl_agent.cpp:1000] Selected backend: UCX
I1130 18:11:06.522862    1333 nixl_agent.cpp:1000] Selected backend: UCX
";

fn twice(log: &str) -> String {
    log.lines().flat_map(|line| [line, "\n", line, "\n"]).collect()
}

#[test]
fn what_recovers_is_no_cause_in_whatever_order_and_however_often() {
    let (decode, prefill) = (twice(DECODE_FIRST), twice(PREFILL_LATER));
    let one_after_the_other = format!("{DECODE_FIRST}{PREFILL_LATER}");
    for inputs in [
        vec![DECODE_FIRST, PREFILL_LATER],
        vec![PREFILL_LATER, DECODE_FIRST],
        vec![decode.as_str(), prefill.as_str()],
        vec![prefill.as_str(), decode.as_str()],
        vec![one_after_the_other.as_str()],
    ] {
        let explanation = together(&inputs);
        assert!(!explanation.is_found(), "{:?}", explanation.primary);
        let recovered: Vec<_> = explanation
            .recovered
            .iter()
            .map(|one| (one.verdict.kind.as_deref(), one.by.text.as_str()))
            .collect();
        assert_eq!(recovered.len(), 2, "{recovered:?}");
        assert!(recovered.iter().all(|(kind, _)| *kind == Some("bootstrap-timeout")), "{recovered:?}");
        let shown = report(&explanation, Catalogue::built_in(), Environment::Bare);
        assert!(shown.starts_with("no confident match") && shown.contains("Recovered"), "{shown}");
        let json = json(&explanation, Catalogue::built_in(), Environment::Bare);
        assert!(json["primary"].is_null());
        assert_eq!(json["recovered"][0]["kind"], "bootstrap-timeout");
        assert!(json["recovered"][0]["by"]["line"].is_u64(), "{json}");
    }
}

#[test]
fn without_success_after_it_a_retry_is_the_cause() {
    let started_before = PREFILL_LATER.replace(" 18:11:0", " 18:10:0");
    let no_times: String =
        PREFILL_LATER.lines().map(|line| format!("{}\n", &line[line.len() - 40..])).collect();
    let again = format!(
        "{DECODE_FIRST}[2026-11-30 18:11:09] Decode batch. #running-req: 1, #token: 300\n{}",
        DECODE_FIRST.replace("18:11:", "18:12:")
    );
    let and_again = format!("{again}[2026-11-30 18:13:09] Decode batch. #running-req: 1, #token: 300\n");
    let between = "[2026-11-30 18:11:01] Decode batch. #running-req: 1, #token: 300\n\
                   [2026-11-30 18:11:09] Decode batch. #running-req: 1, #token: 300\n";
    for inputs in [
        vec![DECODE_FIRST],
        vec![DECODE_FIRST, started_before.as_str()],
        vec![DECODE_FIRST, no_times.as_str()],
        vec![again.as_str()],
        vec![and_again.as_str()],
        // The other log may be of somebody who serves others all the time.
        vec![DECODE_FIRST, between],
    ] {
        let explanation = together(&inputs);
        let primary = explanation.primary.expect("a cause");
        assert_eq!(primary.kind.as_deref(), Some("bootstrap-timeout"), "{inputs:?}");
        assert_eq!(explanation.recovered, [], "{inputs:?}");
    }
}

#[test]
fn a_cause_beside_what_recovered_is_told() {
    let log = format!("{DECODE_FIRST}{PREFILL_LATER}{PREFILL}");
    let explanation = text(&log);
    assert_eq!(explanation.primary.as_ref().and_then(|p| p.kind.as_deref()), Some("memlock-limit"));
    assert_eq!(explanation.recovered.len(), 2);
    let shown = report(&explanation, Catalogue::built_in(), Environment::Bare);
    assert!(shown.starts_with("PRIMARY") && shown.contains("over by "), "{shown}");
}

#[test]
fn connections_tried_again_recover_in_other_words_too() {
    let tried = "WARN connect to 192.0.2.7:5600 failed: Connection refused, trying again in 1 s\n";
    let log = format!("{tried}{tried}INFO connected to 192.0.2.7:5600\n");
    assert!(text(tried).is_found());
    let explanation = text(&log);
    assert!(!explanation.is_found(), "{:?}", explanation.primary);
    assert_eq!(explanation.recovered.len(), 1);
}
