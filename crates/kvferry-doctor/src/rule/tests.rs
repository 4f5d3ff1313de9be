use super::*;

const FAILURES: &str = include_str!("../../tests/data/failures.jsonl");

#[test]
fn every_rule_compiles_and_has_text_to_be_found_by() {
    let (rules, faults) = rules(Catalogue::built_in());
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(rules.len() > 150, "{} rules", rules.len());
}

#[test]
fn every_foreign_record_has_a_rule() {
    let (rules, _) = rules(Catalogue::built_in());
    for (index, entry) in Catalogue::built_in().entries().iter().enumerate() {
        let has = rules.iter().any(|rule| matches!(rule.target, Target::Code(of) | Target::Message(of) | Target::Alike(of, _) if of == index));
        assert!(has, "{} is found by nothing", entry.at);
    }
}

/// A rule is for what a failure has in common, not for a sample of it.
#[test]
fn no_rule_holds_a_long_literal() {
    let catalogue = Catalogue::built_in();
    let lines = catalogue
        .entries()
        .iter()
        .flat_map(|entry| &entry.side.discriminators)
        .filter_map(|c| c.line.clone());
    let (rules, _) = rules(catalogue);
    for source in rules.iter().map(|rule| rule.source().to_owned()).chain(lines) {
        let longest = literals(&source).map(|literals| literals.longest).unwrap_or_default();
        let code = source.contains(r"[^\w.]");
        assert!(code || longest.chars().count() <= LONGEST_LITERAL, "{source}: {longest:?}");
        assert!(
            longest.chars().count() <= LONGEST_LITERAL || !FAILURES.contains(&longest),
            "{source}: {longest:?} is in a sample"
        );
    }
}

#[test]
fn the_longest_literal_is_measured_through_groups() {
    let longest = |source: &str| literals(source).expect("a rule").longest;
    assert_eq!(longest("abc(def)ghi.*jk"), "abcdefghi");
    assert_eq!(longest("(?i)abcd.e"), "abcd");
    assert_eq!(longest("(?:one|three)x"), "three");
    assert_eq!(longest(r"a\.b\(c\d"), "a.b(c");
}

#[test]
fn needles_are_in_every_match() {
    let needles = |source: &str| literals(source).map(|literals| literals.needles);
    assert_eq!(needles("abc.*defgh"), Ok(vec!["defgh".to_owned()]));
    assert_eq!(needles("(?i)ABC"), Ok(vec!["abc".to_owned()]));
    assert_eq!(needles("(?:one|two) x?"), Ok(vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!(needles("(?:one)?"), Err(LiteralError::NoNeedle));
    assert_eq!(needles(r"\d+"), Err(LiteralError::NoNeedle));
    assert!(matches!(needles("("), Err(LiteralError::Syntax(_))));
}

#[test]
fn rules_derived_from_messages_keep_stems_only() {
    assert_eq!(
        derive("Failed to register memory {addr}: {error}").as_deref(),
        Some("Failed to register memory")
    );
    let long = "Request {room} timed out after {elapsed:.1f}s in the phase that nobody would ever have called by so long a name";
    assert_eq!(
        derive(long).as_deref(),
        Some("Request.*?timed out after.*?s in the phase that nobody would ever")
    );
    assert_eq!(
        derive("Transport: cuFabricExportHandleToEverybodyElse failed: {result}").as_deref(),
        Some("Transport: cuFabricExportHandleToEverybo"),
        "the first word alone would be anything that the transport says"
    );
    assert_eq!(derive("%s(fd=%d) failed"), None, "too little");
    assert_eq!(
        derive("shmget(size=%zu flags=0x%x) failed: %m").as_deref(),
        Some(r"shmget\(size=.*?flags=0x.*?\) failed")
    );
}

#[test]
fn codes_of_others_match_as_words_of_their_own() {
    let rule = Rule::new(code_rule("NIXL_ERR_BACKEND"), Target::Code(0)).expect("a rule");
    for line in ["nixlBackendError: NIXL_ERR_BACKEND", "NIXL_ERR_BACKEND", "it was NIXL_ERR_BACKEND."] {
        assert!(rule.is_match(line.as_bytes()), "{line}");
    }
    for line in ["x.NIXL_ERR_BACKEND", "NIXL_ERR_BACKENDS"] {
        assert!(!rule.is_match(line.as_bytes()), "{line}");
    }
}

#[test]
fn codes_of_ours_match_as_our_messages_show_them() {
    let rule = Rule::new(own_code_rule("metadata.version"), Target::Code(0)).expect("a rule");
    for line in [
        "metadata refused whole: format version 3, this version reads 1 to 2 (metadata.version)",
        "entry 3: metadata refused whole (metadata.version); and 1 other",
        "(metadata.version)",
        "metadata.version",
        "'metadata.version'",
        "  \"metadata.version\",",
        r#"{"code": "metadata.version", "message": "..."}"#,
        r#"{\"code\":\"metadata.version\"}"#,
        "{'code': 'metadata.version'}",
        "WARN kvferry::agent: refused code=metadata.version peer=decode-0",
        r#"Refusal { code: "metadata.version", cause: "..." }"#,
        r#"error_code: Some("metadata.version")"#,
    ] {
        assert!(rule.is_match(line.as_bytes()), "{line}");
    }
    for line in [
        "the field metadata.version is missing",
        "package metadata.version: 1.2.3",
        "importlib.metadata.version('nixl')",
        "print(metadata.version)",
        "version = metadata.version",
        r#"unknown field "metadata.version" in the manifest"#,
        "metadata.version=4",
        "code: metadata.versions",
        "code=x.metadata.version",
        "(metadata.version.major)",
    ] {
        assert!(!rule.is_match(line.as_bytes()), "{line}");
    }
}

/// Fields of others that are spelled like a code make no finding.
#[test]
fn fields_of_others_are_no_codes() {
    for line in [
        "ERROR: unknown field metadata.version in the manifest",
        "kubectl: error: peer.unknown is not a label, wait.timeout is not set",
        "KeyError: 'settings.invalid' is not in the index",
        "  File \"agent.py\", line 4, in agent.closed",
    ] {
        let found = crate::explain::text(line).primary;
        assert!(
            found.as_ref().is_none_or(|found| found.basis != crate::explain::Basis::Code),
            "{line}: {found:?}"
        );
    }
}
