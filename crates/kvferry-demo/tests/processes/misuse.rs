//! Nonsense on the command line, in files and in the environment: told in a sentence, exit code 2.

use std::io::Write;
use std::process::Command;

use crate::run::{Run, demo, finish, run};

#[track_caller]
fn refused(run: &Run, expected: &str) {
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(run.stderr.contains(expected), "expected {expected:?} in {run:#?}");
    assert!(run.stdout.is_empty(), "{run:#?}");
    for bad in ["panicked", "backtrace", "RUST_"] {
        assert!(!run.stderr.contains(bad), "{bad:?} in {run:#?}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (flag, values) in [
        ("--tokens", ["0", "8193", "-1", "ten", ""]),
        ("--page-size", ["0", "1025", "-16", "16.5", "0x10"]),
        ("--chunk", ["0", "1025", "-1", "ten", ""]),
        ("--requests", ["0", "33", "-1", "two", "18446744073709551616"]),
        ("--patience", ["0", "3601", "-1", "long", ""]),
    ] {
        for value in values {
            refused(&run(&["--tiny", &format!("{flag}={value}")]), "give a whole number from 1 to ");
        }
    }
}

#[test]
fn unknown_words_are_refused_with_the_known_ones() {
    refused(&run(&["--memory", "borrowed"]), "possible values: private, kvferry");
    refused(&run(&["--kill", "alone"]), "possible values: prefill, decode");
    refused(&run(&["--no-such-flag"]), "unexpected argument '--no-such-flag'");
    refused(&run(&["prefil"]), "unrecognized subcommand 'prefil'");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for (one, other) in [
        (["--prompt", "a"], ["--prompt-file", "b"]),
        (["--kill", "decode"], ["--flip-bit", "0:0:0"]),
        (["--tiny", "--json"], ["--model", "a.gguf"]),
    ] {
        refused(&run(&[one, other].concat()), "cannot be used with");
    }
}

#[test]
fn prompts_that_cannot_be_asked_are_refused() {
    refused(&run(&["--tiny", "--prompt", ""]), "the prompt is empty; say something");
    refused(&run(&["--tiny", "--prompt", " \n "]), "the prompt is empty; say something");
    refused(&run(&["--tiny", "--prompt", &"x".repeat(8_150)]), "give a shorter prompt or fewer --tokens");
    refused(&run(&["--tiny", "--prompt-file", "no/such/file"]), "cannot open no/such/file");
    refused(&run(&["--tiny", "--prompt-file", "/"]), "--prompt-file must name a readable UTF-8 text");
    refused(&run(&["--tiny", "--prompt-file", "/dev/zero"]), "/dev/zero is longer than 1 MiB");

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"caf\xe9").unwrap();
    let path = file.path().to_str().unwrap();
    refused(&run(&["--tiny", "--prompt-file", path]), "--prompt-file must name a readable UTF-8 text");
}

#[test]
fn files_that_are_no_model_are_refused() {
    let how = "must name a GGUF file of a Llama model";
    refused(&run(&["--model", "no/such/file.gguf"]), how);
    refused(&run(&["--model", "/"]), how);
    refused(&run(&["--model", "/dev/null"]), how);

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"a text about GGUF").unwrap();
    let path = file.path().to_str().unwrap();
    refused(&run(&["--model", path]), "is not a readable GGUF file");
    refused(&finish(demo(&[]).env("KVFERRY_DEMO_MODEL", path)), "is not a readable GGUF file");

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"GGUF\x03\0\0\0").unwrap();
    file.write_all(&[0xff; 64]).unwrap();
    refused(&run(&["--model", file.path().to_str().unwrap()]), "is not a readable GGUF file");
}

#[test]
fn bits_that_do_not_move_are_refused() {
    refused(&run(&["--tiny", "--flip-bit", "1:2"]), "give three whole numbers LAYER:PAGE:BIT");
    for bit in ["3:0:0", "0:78:0", "0:0:32768"] {
        refused(&run(&["--tiny", "--flip-bit", bit]), "layers go up to 2, pages to 77, bits to 32767");
    }
}

#[test]
fn a_kill_without_a_middle_is_refused() {
    let run = run(&["--tiny", "--kill", "decode", "--prompt", "short"]);
    refused(&run, "move in 1 transfer(s), so --kill has no middle to hit");
}

#[test]
fn settings_of_the_environment_are_checked_too() {
    refused(&finish(demo(&["--tiny"]).env("KVFERRY_THREADS", "many")), "KVFERRY_THREADS");
    refused(&finish(demo(&["--tiny"]).env("KVFERRY_LOG", "verbose")), "KVFERRY_LOG");
}

/// Help and version are no misuse, and help tells of the flags for tests.
#[test]
fn help_tells_all() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0), "{help:#?}");
    for flag in ["--prompt-file", "--path", "--netns", "--kill", "--json", "--flip-bit", "KVFERRY_DEMO_MODEL"]
    {
        assert!(help.stdout.contains(flag), "{flag} is missing in {}", help.stdout);
    }
    assert_eq!(run(&["--version"]).code, Some(0));
}

/// A worker that someone starts by hand says what it is and ends.
#[test]
fn a_worker_without_a_parent_ends() {
    let run = run(&["worker", "decode"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
    let mut command = Command::new("sh");
    let script = format!("echo hello | {} worker prefill", env!("CARGO_BIN_EXE_kvferry-demo"));
    let run = finish(command.args(["-c", &script]));
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert!(run.stderr.contains("started by kvferry-demo itself"), "{run:#?}");
    assert!(!run.stderr.contains("panicked"), "{run:#?}");
}
