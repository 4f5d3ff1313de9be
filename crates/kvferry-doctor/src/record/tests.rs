use super::*;
use crate::dataset::Envelope;

const SEED: &str = include_str!("../../tests/data/seed.json");

fn seed() -> Envelope {
    serde_json::from_str(SEED).expect("the seed follows the schema")
}

#[test]
fn the_seed_survives_reading_and_writing_byte_for_byte() {
    assert_eq!(serde_json::to_string(&seed()).expect("JSON"), SEED);
    assert_eq!(check(&seed().record), []);
}

#[test]
fn the_seeds_id_slug_and_pattern_follow_from_the_formulas() {
    let record = seed().record;
    assert_eq!(id(&record.repo, record.key(), &record.file_path), "75f97e832a3e9a92");
    assert_eq!(slug(record.key()), record.slug);
    assert_eq!(pattern(&record.error_message), record.message_pattern);
}

#[test]
fn slugs_are_cut_trimmed_and_never_empty() {
    assert_eq!(slug("  ERR_X: no %s!"), "err-x-no-s");
    assert_eq!(slug("{}"), "error");
    assert_eq!(slug(&"a".repeat(80)), "a".repeat(50));
}

#[test]
fn each_published_placeholder_becomes_a_group() {
    for placeholder in ["${x}", "%(name)s", "%s", "%d", "%i", "%f", "%j", "%v", "{x}", "{}"] {
        assert_eq!(pattern(&format!("peer {placeholder} (gone)")), r"peer (.+?) \(gone\)", "{placeholder}");
    }
    assert_eq!(pattern("size %zu of 100%"), "size %zu of 100%");
    assert_eq!(pattern("a.b"), r"a\.b");
    assert_eq!(pattern("{a}: {b}"), r"\{a\}: \{b\}", "too little text to go by");
    assert_eq!(pattern(&format!("{}{{x}}", "y".repeat(500))), format!(r"{}\{{x\}}", "y".repeat(500)));
}

#[test]
fn values_that_the_schema_refuses_are_named_by_field() {
    let change = |change: &dyn Fn(&mut Record)| {
        let mut record = seed().record;
        change(&mut record);
        check(&record).into_iter().map(|fault| fault.field).collect::<Vec<_>>()
    };
    assert_eq!(change(&|r| r.id = "75f97e832a3e9a93".to_owned()), ["id"]);
    assert_eq!(change(&|r| r.slug = "other".to_owned()), ["slug"]);
    assert_eq!(change(&|r| r.slug.push_str("-2")), [""; 0]);
    assert_eq!(change(&|r| r.message_pattern.push('x')), ["messagePattern"]);
    assert_eq!(change(&|r| r.tags.push("Not_Kebab".to_owned())), ["tags"]);
    assert_eq!(change(&|r| r.documentation.clear()), ["documentation"]);
    assert_eq!(change(&|r| r.solutions.clear()), ["solutions"]);
    assert_eq!(change(&|r| r.http_status = Some(99)), ["httpStatus"]);
    assert_eq!(change(&|r| r.line_number = Some(1)), ["lineNumber"]);
    assert_eq!(change(&|r| r.source_code = None), ["sourceCodeStart"]);
    assert_eq!(change(&|r| r.analyzed_sha = None), ["analyzedSha"]);
    assert_eq!(change(&|r| r.analyzed_at = "yesterday".to_owned()), ["analyzedAt"]);
    assert_eq!(change(&|r| r.schema_version = 1), ["schemaVersion"]);
    assert_eq!(change(&|r| r.github_url = None), ["githubUrl"]);
}

#[test]
fn a_record_of_our_own_gets_its_place_when_it_is_exported() {
    let mut record = seed().record;
    record.error_code = Some("register.null".to_owned());
    let located = record.located("owner/name", &"a".repeat(40), Some(7));
    assert_eq!(located.id, id("owner/name", "register.null", &record.file_path));
    let url = format!("https://github.com/owner/name/blob/{}/{}#L7", "a".repeat(40), record.file_path);
    assert_eq!(located.github_url, Some(url));
    assert_eq!(located.line_number, Some(7));
}
