//! How often real failures are named rightly: the table of docs/explain.md.
//!
//! Each record of `data/failures.jsonl` has lines of a report and the kind of its cause, as far as the report
//! established it. Records whose lines are those of a log, and whose cause is confirmed or likely, count.

use std::fmt::Write as _;
use std::path::Path;

use kvferry_doctor::explain::Explainer;
use serde_json::Value;

const FAILURES: &str = include_str!("data/failures.jsonl");
const MARKS: [&str; 2] = ["<!-- score: printed by the test score -->\n", "<!-- end of score -->"];

/// Records whose lines say nothing that decides between several causes, and why.
const UNDECIDABLE: &[(&str, &str)] = &[
    ("F029", "Bad address for GPU memory: a missing peer bridge and an expandable allocator look the same"),
    ("F040", "a bare NIXL_ERR_BACKEND after the plugin has loaded: any failure of its backend"),
    ("F049", "a bare NIXL_ERR_BACKEND"),
    ("F058", "retries exhausted: a wrong GID, a lost peer and a broken fabric look the same"),
    ("F077", "Cannot allocate memory: a small memlock limit and a pointer of an accelerator look the same"),
    ("F106", "a queue pair that cannot be joined: the peer was replaced, or its address is wrong"),
];

struct Failure {
    id: String,
    kind: String,
    counts: bool,
    log: String,
}

fn failures() -> Vec<Failure> {
    let text = |value: &Value, key: &str| value[key].as_str().expect("a text").to_owned();
    let parse = |line| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        let lines = value["error_lines"].as_array().expect("lines").iter().filter_map(Value::as_str);
        let is_known = ["confirmed", "likely"].contains(&text(&value, "cause_status").as_str());
        Failure {
            id: text(&value, "id"),
            kind: text(&value, "kind"),
            counts: is_known && text(&value, "lines_kind") == "log",
            log: lines.collect::<Vec<_>>().join("\n"),
        }
    };
    FAILURES.lines().map(parse).collect()
}

/// The place of the kind among those that the explanation names, from 1.
fn place(failure: &Failure) -> Option<usize> {
    let explanation = Explainer::built_in().text(&failure.log);
    explanation.kinds().iter().position(|kind| *kind == failure.kind).map(|index| index + 1)
}

fn row(table: &mut String, title: &str, failures: &[&Failure]) -> (usize, usize) {
    let places: Vec<_> = failures.iter().map(|failure| place(failure)).collect();
    let within = |most: usize| places.iter().filter(|place| place.is_some_and(|place| place <= most)).count();
    let percent = |count: usize| count * 1000 / failures.len().max(1);
    let cell = |count: usize| format!("{count} ({}.{} %)", percent(count) / 10, percent(count) % 10);
    let _ = writeln!(table, "| {title} | {} | {} | {} |", failures.len(), cell(within(1)), cell(within(3)));
    (within(1), within(3))
}

#[test]
fn nine_of_ten_come_first_and_nearly_all_within_three() {
    let all = failures();
    let counted: Vec<_> = all.iter().filter(|failure| failure.counts).collect();
    let others: Vec<_> = all.iter().filter(|failure| !failure.counts).collect();
    let mut table = "| records | number | first | within three |\n|---|---|---|---|\n".to_owned();
    let (first, three) = row(&mut table, "lines of logs, cause confirmed or likely", &counted);
    row(&mut table, "lines put together or symptoms in words, or cause open", &others);
    table.push_str("\nNot first among the counted:\n\n| record | cause | place | why |\n|---|---|---|---|\n");
    for failure in counted.iter().filter(|failure| place(failure) != Some(1)) {
        let why = UNDECIDABLE.iter().find(|(id, _)| *id == failure.id).map_or("missed", |(_, why)| why);
        let place = place(failure).map_or_else(|| "-".to_owned(), |place| place.to_string());
        let _ = writeln!(table, "| {} | {} | {place} | {why} |", failure.id, failure.kind);
    }
    println!("{table}");
    assert!(first * 100 >= counted.len() * 90, "{first} of {} first", counted.len());
    assert!(three * 100 >= counted.len() * 97, "{three} of {} within three", counted.len());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain.md");
    let text = std::fs::read_to_string(page).expect("docs/explain.md");
    let shown = text.split_once(MARKS[0]).and_then(|(_, rest)| rest.split_once(MARKS[1])).expect("marks").0;
    assert_eq!(shown.trim(), table.trim(), "docs/explain.md has another table than this");
}

#[test]
fn undecidable_records_give_several_candidates() {
    for (id, why) in UNDECIDABLE {
        let failure = failures().into_iter().find(|failure| failure.id == *id).expect("a record");
        let explanation = Explainer::built_in().text(&failure.log);
        assert!(explanation.kinds().len() >= 3, "{id}: {why}: {:?}", explanation.kinds());
    }
}
