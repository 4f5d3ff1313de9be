//! Healthy logs give no finding; among noise the cause comes first.
//!
//! `data/healthy` holds logs of real runs: two NIXL agents with UCX at full verbosity; the prefill and the decode side of
//! SGLang's classes and of vLLM's servers over NIXL, at the usual level and at debug; requests that decode aborts; kvferry's
//! demo and its probe. They are short: of lines that differ in numbers alone only the first few are kept.

use std::fs;
use std::path::{Path, PathBuf};

use kvferry_doctor::catalogue::Catalogue;
use kvferry_doctor::explain::Explainer;
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
