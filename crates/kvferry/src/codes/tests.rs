use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::*;

#[test]
fn every_line_of_the_table_is_a_whole_record() {
    let mut lines = TABLE.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let rest: Vec<&str> = lines.collect();
    assert_eq!(rest.len(), Code::all().len());
    let mut seen = BTreeSet::new();
    for line in rest {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns.len(), 3, "three columns: {line}");
        assert!(is_code(columns[0]), "family.cause in lower case: {line}");
        assert!(seen.insert(columns[0]), "twice in the table: {}", columns[0]);
        for text in &columns[1..] {
            assert!(text.len() >= 15, "says nothing: {line}");
            assert!(text.ends_with('.'), "no sentence: {line}");
            assert_eq!(text.trim(), *text, "stray blanks: {line}");
        }
    }
}

#[test]
fn a_code_leads_to_its_texts() {
    let record = Code::find("register.unmapped").expect("in the table");
    assert_eq!(remedy("register.unmapped"), record.remedy);
    assert!(record.remedy.contains("before the engine starts"));
    assert_eq!(record.hint(), "allocate the pool before the engine starts");
    assert_eq!(Code::find("register.nonsense"), None);
    assert_eq!(remedy("register.nonsense"), "");
}

/// Errors return their codes as string literals from functions whose names end in `code`, and show them in
/// brackets at the end of their messages. All of these are in the table.
#[test]
fn every_code_that_an_error_can_return_is_in_the_table() {
    let mut used: BTreeMap<String, PathBuf> = BTreeMap::new();
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(&file).expect("readable source");
        for code in codes_returned(&text).into_iter().chain(codes_shown(&text)) {
            used.insert(code, file.clone());
        }
    }
    assert!(used.contains_key("register.unmapped"), "the scan finds nothing");
    for (code, file) in &used {
        assert!(Code::find(code).is_some(), "{code} of {} is not in codes.tsv", file.display());
    }
}

#[test]
fn the_scan_of_sources_sees_returned_and_shown_codes() {
    let source = r#"
        #[error("peer {0} is away (peer.lost)")]
        pub fn code(&self) -> &'static str {
            match self { Self::A => "register.null", Self::B { .. } => "peer.unknown" }
        }
        fn list_code(error: &ListError) -> &'static str { "prepare.bounds" }
        fn other(self.error) -> &'static str { "not.this" }
    "#;
    assert_eq!(codes_returned(source), ["register.null", "peer.unknown", "prepare.bounds"]);
    assert_eq!(codes_shown(source), ["peer.lost"]);
}

/// The literals of the form of a code inside each function whose name ends in `code`.
fn codes_returned(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for function in source.split("fn ").skip(1) {
        let Some((name, rest)) = function.split_once('(') else { continue };
        if !name.ends_with("code") {
            continue;
        }
        let literals = body(rest).split('"').skip(1).step_by(2);
        found.extend(literals.filter(|literal| is_code(literal)).map(str::to_owned));
    }
    found
}

/// The codes in brackets right before the end of a literal.
fn codes_shown(source: &str) -> Vec<String> {
    source
        .split(")\"")
        .filter_map(|before| before.rsplit_once('('))
        .map(|(_, code)| code)
        .filter(|code| is_code(code))
        .map(str::to_owned)
        .collect()
}

/// What stands between the first brace and the one that closes it.
fn body(source: &str) -> &str {
    let mut depth = 0usize;
    for (at, letter) in source.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return &source[..at],
            '}' => depth -= 1,
            _ => {}
        }
    }
    source
}

fn is_code(text: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    text.split_once('.').is_some_and(|(family, cause)| plain(family) && plain(cause))
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("readable directory") {
        let path = entry.expect("readable entry").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files
}
