use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::explain::Explainer;
use crate::record::{OWN_REPO, check, check_stored};
use crate::{dataset, errno};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalogue")
}

#[test]
fn every_record_is_valid_and_in_its_place() {
    let (found, errors) = dataset::read(&folder());
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(found.len(), Catalogue::built_in().entries().len());
    assert!(found.len() >= 120, "{} records", found.len());
    for entry in Catalogue::built_in().entries() {
        let Record { repo, slug, .. } = &entry.record;
        assert_eq!(entry.at, format!("{}/{slug}.json", repo.replace('/', "-")));
    }
}

#[test]
fn foreign_records_copy_no_code_and_name_the_commit() {
    for entry in Catalogue::built_in().entries().iter().filter(|entry| entry.record.repo != OWN_REPO) {
        let record = &entry.record;
        assert_eq!(check(record), [], "{}", entry.at);
        // The seed came with an excerpt.
        if record.id != "75f97e832a3e9a92" {
            assert_eq!((&record.source_code, record.source_code_start), (&None, None), "{}", entry.at);
            assert_eq!(record.background_tag, entry.side.kind, "{}", entry.at);
        }
        let (url, sha) = (record.github_url.as_deref(), record.analyzed_sha.as_deref());
        let expected = format!(
            "https://github.com/{}/blob/{}/{}",
            record.repo,
            sha.unwrap_or_default(),
            record.file_path
        );
        assert!(url.is_some_and(|url| url.starts_with(&expected)), "{}: {url:?}", entry.at);
    }
}

#[test]
fn every_code_of_kvferry_has_a_record() {
    let catalogue = Catalogue::built_in();
    for code in kvferry::Code::all() {
        let entry = catalogue.find(code.code).unwrap_or_else(|| panic!("{} has no record", code.code));
        assert_eq!(entry.record.repo, OWN_REPO);
        assert!(entry.record.is_own(), "{} is stored with its location", code.code);
        assert_eq!(check_stored(&entry.record), []);
        assert_eq!(entry.record.documentation, code.summary, "{}: the record says another thing", code.code);
        assert_eq!(catalogue.kind(entry.side.kind.as_deref().unwrap_or("dns")).map(|_| ()), Some(()));
    }
    let own = catalogue.entries().iter().filter(|entry| entry.record.repo == OWN_REPO).count();
    assert_eq!(own, kvferry::Code::all().len(), "a record of a code that there is not");
}

#[test]
fn own_records_are_valid_once_they_are_located() {
    let catalogue = Catalogue::built_in();
    let sha = "0123456789abcdef0123456789abcdef01234567";
    for entry in catalogue.entries() {
        let located = catalogue.located(&entry.record, "owner/name", sha);
        assert_eq!(check(&located), [], "{}", entry.at);
        if entry.record.is_own() {
            let line = located.line_number.unwrap_or_else(|| panic!("{} is not in its file", entry.at));
            let source =
                std::fs::read_to_string(folder().join("..").join(&located.file_path)).expect("readable");
            assert!(source.lines().nth(line as usize - 1).is_some_and(|line| line.contains(located.key())));
        }
    }
}

#[test]
fn additions_belong_to_records_and_use_known_kinds_and_errors() {
    let catalogue = Catalogue::built_in();
    let mut ids = BTreeSet::new();
    for file in
        std::fs::read_dir(folder().join("side")).expect("readable").map(|file| file.expect("entry").path())
    {
        let text = std::fs::read_to_string(&file).expect("readable");
        let sides: BTreeMap<String, Side> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        ids.extend(sides.into_keys());
    }
    let records: BTreeSet<_> = catalogue.entries().iter().map(|entry| entry.record.id.clone()).collect();
    assert_eq!(ids, records);
    for Entry { at, side, .. } in catalogue.entries() {
        let conditions = side.discriminators.iter().flat_map(|c| std::iter::once(&c.kind).chain(&c.or));
        let alike = side.alike.iter().flat_map(|alike| alike.kind.iter().chain(&alike.or));
        for kind in
            side.kind.iter().chain(conditions).chain(alike).chain(side.causes.iter().map(|cause| &cause.kind))
        {
            assert!(catalogue.kind(kind).is_some(), "{at}: no kind {kind:?}");
        }
        for name in side.discriminators.iter().flat_map(|condition| &condition.errno) {
            assert!(errno::canonical(name).is_some(), "{at}: no error {name:?}");
        }
        let recovered = side.alike.iter().flat_map(|alike| &alike.recovered).chain(&side.recovered);
        for name in recovered {
            assert!(catalogue.evidences().contains_key(name), "{at}: no evidence {name:?}");
        }
        for id in &side.peer {
            assert!(catalogue.by_id(id).is_some(), "{at}: no record {id}");
        }
        assert!(side.discriminators.len() <= 32, "{at}: more conditions than bits");
    }
}

/// A line that several programs print names one of their records, but never another kind of thing.
#[test]
fn each_example_leads_to_its_record() {
    let explainer = Explainer::built_in();
    let mut astray = Vec::new();
    for Entry { at, record, side } in Catalogue::built_in().entries() {
        for example in &side.examples {
            let explanation = explainer.text(example);
            let found = explanation.primary.iter().chain(&explanation.others).chain(&explanation.secondary);
            let possible = || side.kind.iter().chain(side.causes.iter().map(|cause| &cause.kind));
            let same_kind = explanation
                .primary
                .iter()
                .any(|primary| possible().any(|kind| Some(kind) == primary.kind.as_ref()));
            if !same_kind && !found.clone().any(|verdict| verdict.id == record.id) {
                let found: Vec<_> = found.map(|verdict| &verdict.slug).collect();
                astray.push(format!("{at}: {example:?} leads to {found:?}"));
            }
        }
    }
    assert!(astray.is_empty(), "{astray:#?}");
}

#[test]
fn kinds_say_what_to_do_everywhere() {
    for (name, kind) in Catalogue::built_in().kinds() {
        for environment in crate::kind::Environment::ALL {
            assert!(!kind.fix(environment).is_empty(), "{name}");
        }
        assert!(!kind.verify.is_empty() && kind.what.ends_with('.') && !kind.meaning.is_empty(), "{name}");
    }
    for pair in Catalogue::built_in().pairs() {
        assert!(Catalogue::built_in().kind(&pair.kind).is_some(), "{pair:?}");
        assert!(["confirmed", "likely", "open"].contains(&pair.status.as_str()), "{pair:?}");
        assert!(!pair.source.is_empty() && !pair.instead.is_empty(), "{pair:?}");
    }
}

#[test]
fn records_are_found_by_id_code_slug_and_words() {
    let catalogue = Catalogue::built_in();
    let seed = "75f97e832a3e9a92";
    assert_eq!(catalogue.search(seed)[0].entry.record.id, seed);
    assert_eq!(catalogue.search("register.null")[0].entry.record.slug, "register-null");
    assert_eq!(
        catalogue.find("nixl-memory-registration-failed-for-mem-kind-kv").map(|e| e.record.id.as_str()),
        Some(seed)
    );
    assert!(catalogue.search("memory registration VRAM kv").iter().any(|hit| hit.entry.record.id == seed));
    assert!(catalogue.search("zebra crossing").is_empty());
    assert!(catalogue.search("  ").is_empty());
}
