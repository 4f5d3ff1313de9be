use super::*;
use crate::explain::Explainer;

fn scan(text: &[u8]) -> Scan {
    let scanner = Scanner::new(Catalogue::built_in());
    let mut scan = Scan::default();
    scanner.read(0, &mut &*text, &mut scan).expect("memory");
    scan
}

#[test]
fn lines_keep_their_numbers_over_blocks() {
    let mut log = "an ordinary line of a log that says nothing\n".repeat(60_000);
    assert!(log.len() > 2 * BLOCK);
    log.push_str("E0821 10:11:12.123456 1 a.cpp:1] address is null (register.null)\n");
    log.push_str(&"more\n".repeat(10));
    let scan = scan(log.as_bytes());
    assert_eq!(scan.findings.len(), 1);
    assert_eq!(scan.findings[0].places[0].line, 60_001);
    assert_eq!(scan.lines, 60_011);
    assert_eq!(scan.bytes, log.len() as u64);
}

#[test]
fn repeats_are_folded_and_counted() {
    let log = "region 3: address is null (register.null)\n".repeat(5_000);
    let scan = scan(log.as_bytes());
    assert_eq!(scan.findings.len(), 1);
    assert_eq!(scan.findings[0].count, 5_000);
    assert_eq!(scan.findings[0].places.len(), 3);
}

#[test]
fn colours_carriage_returns_json_and_bad_bytes_hide_nothing() {
    for log in [
        &b"\x1b[31mERROR\x1b[0m region 3: address is \x1b[1mnull (register.null)\x1b[0m\r\n"[..],
        b"{\"log\":\"\\u001b[31mERROR\\u001b[0m address is null (register.null)\\n\",\"stream\":\"stderr\"}\n",
        b"\xff\xfe\xc3 address is null (register.null) \xff\n",
        b"address is null (register.null)",
    ] {
        assert_eq!(scan(log).findings.len(), 1, "{}", String::from_utf8_lossy(log));
    }
}

#[test]
fn frames_of_a_traceback_quote_errors_and_its_end_is_one() {
    let log = "\
(Worker pid=1) ERROR 11-30 10:14:00 [core.py:1] Traceback (most recent call last):
(Worker pid=1) ERROR 11-30 10:14:00 [core.py:1]   File \"conn.py\", line 12, in register
(Worker pid=2) INFO 11-30 10:14:00 [core.py:1] something else
(Worker pid=1) ERROR 11-30 10:14:00 [core.py:1]     raise Exception(\"NIXL memory registration failed for aux tensors\")
(Worker pid=1) ERROR 11-30 10:14:00 [core.py:1] Exception: NIXL memory registration failed for aux tensors
";
    let scan = scan(log.as_bytes());
    assert_eq!(scan.findings.len(), 1);
    assert_eq!(scan.findings[0].places.iter().map(|place| place.line).collect::<Vec<_>>(), [5]);
}

/// SGLang's scheduler puts words before the head.
#[test]
fn a_traceback_may_begin_behind_words() {
    let log = "\
[2026-11-30 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File \"conn.py\", line 12, in register
    raise Exception(\"NIXL memory registration failed for aux tensors\")
SomeError: nothing that a rule knows

[2026-11-30 10:00:01 TP0] NIXL memory registration failed for aux tensors
";
    let scan = scan(log.as_bytes());
    assert_eq!(scan.findings.len(), 1);
    assert_eq!(scan.findings[0].places.iter().map(|place| place.line).collect::<Vec<_>>(), [6]);
}

#[test]
fn a_system_error_on_the_next_line_counts() {
    let explainer = Explainer::built_in();
    let with = explainer.text("Couldn't register MR\nerrno: 12\n");
    assert_eq!(with.primary.and_then(|primary| primary.kind).as_deref(), Some("memlock-limit"));
    let without = explainer.text("Couldn't register MR\n");
    assert!(!without.primary.expect("found").candidates.is_empty());
}

#[test]
fn a_line_without_end_is_read_in_bounded_memory() {
    let mut log = vec![b'x'; 3 * BLOCK];
    log.extend_from_slice(b"\naddress is null (register.null)\n");
    let scan = scan(&log);
    assert_eq!(scan.findings.len(), 1);
}

/// Words of a rule, each line with others around them, so that none is remembered.
fn strangers() -> String {
    let name = |n: u32| -> String { format!("{n:b}").replace('0', "x").replace('1', "y") };
    (0..200_000)
        .map(|n| format!("ERROR {}: the pump failed to start, address not available\n", name(n)))
        .collect()
}

#[test]
fn words_of_rules_that_were_given_up_are_not_looked_for_and_others_still_are() {
    let mut log = strangers();
    assert!(log.len() > 9 * BLOCK);
    log.push_str("E0821 10:11:12.123456 1 a.cpp:1] address is null (register.null)\n");
    let scanner = Scanner::new(Catalogue::built_in());
    let mut scan = Scan::default();
    let mut reading = Reading::new(&scanner, 0, &mut scan);
    let looks = |reading: &Reading<'_>, text: &str| reading.looks_for(text.as_bytes());
    let (stranger, error) =
        ("the pump failed to start, address not available", "address is null (register.null)");
    assert!(looks(&reading, stranger), "the test needs a line that holds a word of some rule");
    for block in log.split_inclusive('\n').collect::<Vec<_>>().chunks(16_000) {
        reading.block(block.concat().as_bytes(), false);
    }
    assert!(!looks(&reading, stranger));
    assert!(looks(&reading, error));
    reading.finish();
    assert_eq!(scan.findings.len(), 1);
    assert_eq!(scan.findings[0].places[0].line, 200_001);
}

#[test]
fn a_word_goes_with_the_last_of_its_rules() {
    let words = Words::new([("one".to_owned(), vec![0]), ("two".to_owned(), vec![0, 1])]);
    let left = words.without(|rule| rule == 0);
    assert_eq!(left.iter().collect::<Vec<_>>(), ["two"]);
    assert!(left.automaton.is_match("TRACEBACK (most recent call last):"));
    assert_eq!(words.without(|_| true).iter().count(), 0);
}

/// A line that is anybody's counts by where it came from, and by that alone.
#[test]
fn an_error_that_says_little_counts_by_its_frames() {
    let error = "TypeError: 'NoneType' object is not iterable\n";
    let head = "Traceback (most recent call last):\n";
    let ours =
        "  File \"vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py\", line 9, in register\n";
    let other = "  File \"models/llama.py\", line 12, in forward\n";
    let found = |log: &str| scan(log.as_bytes()).findings.len();
    assert_eq!(found(&format!("{head}{ours}{error}")), 1);
    assert_eq!(found(&format!("{head}{ours}    for block in blocks:\n{other}    x\n{error}")), 1);
    assert_eq!(found(&format!("an excerpt\n{ours}{error}and\nmore\n")), 1, "without its head");
    assert_eq!(found(error), 0);
    assert_eq!(found(&format!("{head}{other}{error}")), 0);
    assert_eq!(
        found(&format!("{head}{ours}ValueE: nothing\n{head}{other}{error}")),
        0,
        "another traceback's frame"
    );
    let far = "a line\n".repeat(100);
    assert_eq!(found(&format!("{ours}{far}{error}")), 0, "a frame long before");
    let (one, two) = (
        "(Worker pid=1) ERROR 11-30 10:14:00 [core.py:1] ",
        "(Worker pid=2) ERROR 11-30 10:14:00 [core.py:1] ",
    );
    assert_eq!(
        found(&format!("{one}{head}{two}{head}{one}{ours}{two}{other}{two}{error}")),
        0,
        "another writer's frame"
    );
    assert_eq!(found(&format!("{one}{head}{two}{head}{one}{ours}{two}{other}{one}{error}")), 1);
    assert_eq!(found(&format!("{head}{ours}ImportError: libx.so: cannot open shared object file\n")), 1);
}

/// What a line says by itself tells more than where it came from.
#[test]
fn frames_give_way_to_the_words_of_the_line() {
    let log = "Traceback (most recent call last):\n  File \"nixl_connector.py\", line 9, in f\n\
               ImportError: libx.so: cannot open shared object file: No such file or directory\n";
    let explanation = crate::explain::text(log);
    assert_eq!(explanation.primary.and_then(|primary| primary.kind).as_deref(), Some("plugin-load"));
}
