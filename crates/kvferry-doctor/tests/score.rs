//! How often real failures are named rightly, as the table of docs/explain.md.

use std::fmt::Write as _;

use kvferry_doctor::explain::Explainer;
use serde_json::Value;

const FAILURES: &str = include_str!("data/failures.jsonl");

struct Failure {
    id: String,
    kind: String,
    status: String,
    lines_kind: String,
    log: String,
}

fn failures() -> Vec<Failure> {
    let text = |value: &Value, key: &str| value[key].as_str().expect("a text").to_owned();
    FAILURES
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).expect("JSON");
            let lines: Vec<_> = value["error_lines"].as_array().expect("lines").iter().filter_map(Value::as_str).collect();
            Failure {
                id: text(&value, "id"),
                kind: text(&value, "kind"),
                status: text(&value, "cause_status"),
                lines_kind: text(&value, "lines_kind"),
                log: lines.join("\n"),
            }
        })
        .collect()
}

#[test]
fn print() {
    let mut table = String::new();
    for failure in failures() {
        let explanation = Explainer::built_in().text(&failure.log);
        let rank = explanation.kinds().iter().position(|kind| *kind == failure.kind).map(|rank| rank + 1);
        let _ = writeln!(table, "{} {} {} {:<24} {:?} {:?} {}", failure.id, failure.status, failure.lines_kind, failure.kind, rank, explanation.kinds(), explanation.primary.as_ref().map_or("", |p| p.slug.as_str()));
    }
    println!("{table}");
}
