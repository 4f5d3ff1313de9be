//! Healthy logs give no finding; among noise the cause comes first.
//!
//! `data/healthy` holds logs of real runs: two NIXL agents with UCX at full verbosity; the prefill and the decode side of
//! SGLang's classes and of vLLM's servers over NIXL, at the usual level and at debug; requests that decode aborts; kvferry's
//! demo and its probe. They are short: of lines that differ in numbers alone only the first few are kept. Those that are
//! called composed are of no run: they put together lines of healthy starts.

use std::fs;
use std::path::{Path, PathBuf};

use kvferry_doctor::catalogue::Catalogue;
use kvferry_doctor::explain::{Confidence, Explainer};
use kvferry_doctor::side::Role;

fn logs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/healthy");
    let mut logs: Vec<_> =
        fs::read_dir(folder).expect("readable").map(|entry| entry.expect("entry").path()).collect();
    logs.sort();
    logs
}

#[test]
fn healthy_logs_give_no_finding() {
    let names: Vec<_> =
        logs().iter().map(|log| log.file_name().expect("a name").to_string_lossy().into_owned()).collect();
    for program in ["demo", "nixl", "probe", "sglang-decode", "sglang-prefill", "vllm-decode", "vllm-prefill"]
    {
        assert!(names.contains(&format!("{program}.log")), "{program} is missing in {names:?}");
    }
    for log in logs() {
        let explanation = Explainer::built_in().files([&log]).expect("readable");
        assert!(!explanation.is_found(), "{}: {:?}", log.display(), explanation.primary);
        assert!(explanation.lines > 20, "{}", log.display());
    }
}

/// Lines of one healthy log don't make a finding of another's.
#[test]
fn healthy_logs_give_no_finding_together() {
    let explanation = Explainer::built_in().files(logs()).expect("readable");
    assert!(!explanation.is_found(), "{:?}", explanation.primary);
}

/// Its tries while prefill still starts are over when both logs are read, or its own goes on. Else they are the cause.
#[test]
fn a_decode_that_starts_first_recovers_and_one_that_never_gets_an_answer_does_not() {
    let log = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/healthy");
        fs::read_to_string(folder.join(name)).expect("readable")
    };
    let (decode, prefill) = (log("composed-sglang-decode.log"), log("composed-sglang-prefill.log"));
    let tries: String = decode
        .lines()
        .take_while(|line| !line.contains("Decode batch"))
        .map(|line| format!("{line}\n"))
        .collect();
    let explain = |logs: &[&str]| {
        let inputs = logs.iter().map(|log| (format!("{:.20}", log), log.as_bytes()));
        Explainer::built_in().inputs(inputs).expect("memory")
    };
    for logs in [vec![decode.as_str()], vec![&tries, &prefill], vec![&prefill, &tries]] {
        let explanation = explain(&logs);
        assert!(!explanation.is_found(), "{:?}", explanation.primary);
        let kinds: Vec<_> =
            explanation.recovered.iter().filter_map(|one| one.verdict.kind.as_deref()).collect();
        assert!(kinds.len() >= 2 && kinds.iter().all(|kind| *kind == "bootstrap-timeout"), "{kinds:?}");
    }
    // A healthy start that is cut off holds the same lines, so this isn't certain.
    let primary = explain(&[&tries]).primary.expect("found");
    assert_eq!(
        (primary.kind.as_deref(), primary.confidence),
        (Some("bootstrap-timeout"), Confidence::Medium)
    );
}

/// A healthy log with one cause, and consequences of it before and after.
#[test]
fn among_noise_the_cause_comes_first() {
    let secondary =
        "KVTransferError(bootstrap_room=7): Failed to get kvcache from prefill instance, it might be dead";
    // Some of each program: the beginnings, since the whole of them for every example takes long.
    let noise: String = logs()
        .iter()
        .flat_map(|log| {
            let text = fs::read_to_string(log).expect("readable");
            text.lines().take(30).map(|line| format!("{line}\n")).collect::<Vec<_>>()
        })
        .collect();
    let mut checked = 0;
    for entry in Catalogue::built_in().entries().iter().filter(|entry| entry.side.role == Role::Primary) {
        for example in &entry.side.examples {
            let alone = Explainer::built_in().text(example).primary;
            // By their times these logs show success after any failure that is tried again.
            let noise = if entry.side.recovered.is_empty() { noise.as_str() } else { "" };
            let mixed = Explainer::built_in()
                .text(&format!("{noise}\n{secondary}\n{example}\n{noise}\n{secondary}\n"));
            let key =
                |verdict: &Option<kvferry_doctor::explain::Verdict>| verdict.as_ref().map(|v| v.id.clone());
            assert_eq!(key(&mixed.primary), key(&alone), "{example}");
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked}");
}
