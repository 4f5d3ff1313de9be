//! The demo on the real model. Skipped where its file is not at hand.

use std::path::PathBuf;

use crate::run::{demo, finish};

/// The real model's file: what `KVFERRY_DEMO_MODEL` names, or where `cargo xtask demo` puts it.
fn model() -> Option<PathBuf> {
    let fetched = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/model/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("KVFERRY_DEMO_MODEL").map_or_else(|| PathBuf::from(fetched), PathBuf::from);
    let found = path.is_file();
    if !found {
        println!("skipped: no model file at {}; set KVFERRY_DEMO_MODEL", path.display());
    }
    found.then_some(path)
}

/// English, and the same bits with one thread and with two.
#[test]
fn the_real_model_says_the_same_split_and_alone() {
    let Some(model) = model() else { return };
    let question = "Explain in two sentences why the sky is blue.";
    let hashes = ["1", "2"].map(|threads| {
        let mut command = demo(&["--json", "--tokens=16", "--chunk=16", "--prompt", question, "--model"]);
        let run = finish(command.arg(&model).env("RAYON_NUM_THREADS", threads));
        assert_eq!(run.code, Some(0), "{run:#?}");
        assert!(
            run.stdout.contains("The sky is blue because of a process called Rayleigh scattering"),
            "{run:#?}"
        );
        let json = run.json();
        assert_eq!(json["weights"], "smollm2");
        assert_eq!(json["prompt_tokens"], 40);
        assert_eq!(json["kv_bytes"], 3 * 30 * 24_576);
        json["logits_hash"].as_str().unwrap().to_owned()
    });
    assert_eq!(hashes[0], hashes[1]);
}
