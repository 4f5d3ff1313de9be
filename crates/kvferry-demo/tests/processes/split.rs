//! The demo whole, on a random model of milliseconds: what crosses is what was computed, and what
//! does not is noticed.

use crate::run::{Run, demo, finish, run};

#[track_caller]
fn identical(run: &Run) -> serde_json::Value {
    assert_eq!(run.code, Some(0), "{run:#?}");
    let json = run.json();
    for key in ["tokens_equal", "logits_equal", "pages_equal"] {
        assert_eq!(json[key], true, "{key} in {run:#?}");
    }
    json
}

#[test]
fn two_processes_do_what_one_does_alone() {
    let run = run(&["--tiny", "--json"]);
    let json = identical(&run);
    // 1,237 bytes of prompt are 78 pages of 16; K and V of three layers, 2 KiB a page.
    assert_eq!(json["prompt_tokens"], 1_237);
    assert_eq!(json["answer_tokens"], 64);
    assert_eq!(json["pages"], 78);
    assert_eq!(json["blocks"], 78 * 6);
    assert_eq!(json["kv_bytes"], 78 * 6 * 2_048);
    assert_eq!(json["transfers"], 10);
    assert_eq!(json["path"], "same_host");
    assert_eq!(json["mechanism"], "cma");
    assert_eq!(json["weights"], "random");
    for key in ["transfer_ms", "gbps", "ttft_ms", "ttft_alone_ms"] {
        assert!(json[key].as_f64().is_some_and(|number| number > 0.0), "{key} in {json}");
    }
    let (hidden, all) = (json["hidden_ms"].as_f64().unwrap(), json["transfer_ms"].as_f64().unwrap());
    assert!((0.0..=all).contains(&hidden), "{json}");
    let first = run.stdout.lines().next().unwrap();
    assert!(first.contains("weights: random"), "{first}");
    assert!(run.stdout.contains("identical to one process alone"), "{run:#?}");
    assert!(run.stderr.is_empty(), "{run:#?}");
}

#[test]
fn memory_of_the_agent_is_mapped_by_the_peer() {
    let json = identical(&run(&["--tiny", "--json", "--tokens=5", "--memory=kvferry"]));
    assert_eq!((&json["path"], &json["mechanism"]), (&"same_host".into(), &"map".into()));
}

#[test]
fn the_answer_does_not_depend_on_pages_or_threads() {
    let hash = |args: &[&str], threads: &str| {
        let args = [&["--tiny", "--json", "--tokens=12", "--chunk=100"], args].concat();
        identical(&finish(demo(&args).env("RAYON_NUM_THREADS", threads)))["logits_hash"].clone()
    };
    let expected = hash(&[], "1");
    assert!(expected.is_string());
    for (args, threads) in [
        (&["--page-size=16"], "2"),
        (&["--page-size=1"], "1"),
        (&["--page-size=37"], "2"),
        (&["--page-size=1024"], "1"),
    ] {
        assert_eq!(hash(args, threads), expected, "{args:?}");
    }
}

#[test]
fn requests_in_flight_together_do_not_touch_each_other() {
    let run = run(&["--tiny", "--json", "--requests=3", "--tokens=6"]);
    let json = identical(&run);
    assert_eq!(json["requests"], 3);
    assert_eq!(json["answer_tokens"], 18);
    assert_eq!(json["transfers"], 30);
    for request in 0..3 {
        assert!(run.stdout.contains(&format!("decode, request {request}:")), "{run:#?}");
    }
}

#[test]
fn prompts_of_all_lengths_cross() {
    for (length, tokens) in [(1, 1), (1, 3), (15, 2), (16, 2), (17, 2), (128, 2), (129, 2), (256, 1)] {
        let prompt = "x".repeat(length);
        let tokens_flag = format!("--tokens={tokens}");
        let json = identical(&run(&["--tiny", "--json", "--prompt", &prompt, &tokens_flag]));
        assert_eq!(json["prompt_tokens"], length);
        assert_eq!(json["answer_tokens"], tokens);
        assert_eq!(json["pages"], length.div_ceil(16));
    }
}

#[test]
fn a_prompt_comes_from_a_file_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x".repeat(40)).unwrap();
    let path = file.path().to_str().unwrap();
    let json = identical(&run(&["--tiny", "--json", "--tokens=2", "--prompt-file", path]));
    assert_eq!(json["prompt_tokens"], 40);
}

/// Whether or not it changes a token, the page and the logits tell.
#[test]
fn one_flipped_bit_of_one_page_is_caught() {
    let bits_of_k = 8 * 2_048;
    for (flip, place) in [
        ("1:2:77".to_owned(), "layer 1 K, page 2 of 78 (tokens 32 to 47)"),
        (format!("2:0:{}", bits_of_k + 32 + 22), "layer 2 V, page 0 of 78 (tokens 0 to 15)"),
    ] {
        let run = run(&["--tiny", "--json", "--tokens=8", "--flip-bit", &flip]);
        assert_eq!(run.code, Some(1), "{run:#?}");
        let json = run.json();
        assert_eq!(json["pages_equal"], false, "{run:#?}");
        assert_eq!(json["logits_equal"], false, "{run:#?}");
        let sentence = format!("request 0: {place}: its bytes at decode differ from those at prefill");
        assert!(run.stdout.contains(&sentence), "{run:#?}");
        assert!(!run.stdout.contains("identical"), "{run:#?}");
    }
}

/// A bit beyond the prompt's end in its last page: nothing reads it, and yet the page differs.
#[test]
fn a_flipped_bit_that_nothing_reads_is_caught_by_the_page_alone() {
    let run = run(&["--tiny", "--json", "--tokens=1", "--flip-bit=0:77:16383"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
    let json = run.json();
    assert_eq!(
        (&json["tokens_equal"], &json["logits_equal"], &json["pages_equal"]),
        (&true.into(), &true.into(), &false.into()),
        "{run:#?}"
    );
}
