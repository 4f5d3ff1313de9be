use super::*;

const SEED: &str = include_str!("../../tests/data/seed.json");

fn parsed(text: &str) -> (Vec<Found>, Vec<DatasetError>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    parse("file.json", text, &mut found, &mut errors);
    (found, errors)
}

fn record() -> String {
    serde_json::to_string(&parsed(SEED).0[0].record).expect("JSON")
}

#[test]
fn envelopes_records_and_lines_are_read() {
    assert_eq!(parsed(SEED).0[0].dataset_version.as_deref(), Some("2026-08-28T06:17:29.519Z"));
    let pretty = serde_json::to_string_pretty(&parsed(SEED).0[0].record).expect("JSON");
    for text in [record(), pretty] {
        let (found, errors) = parsed(&text);
        assert_eq!((found.len(), errors.len()), (1, 0));
        assert_eq!(found[0].dataset_version, None);
    }
    let (found, errors) = parsed(&format!("{SEED}\n\n{}\n", record()));
    assert_eq!(errors, []);
    assert_eq!(found.iter().map(|one| one.at.as_str()).collect::<Vec<_>>(), ["file.json:1", "file.json:3"]);
}

#[test]
fn errors_name_file_field_and_reason() {
    let unknown = SEED.replacen("\"slug\"", "\"slog\"", 1);
    let (_, errors) = parsed(&unknown);
    assert!(
        errors[0].to_string().starts_with("file.json: record.slog: unknown field `slog`"),
        "{}",
        errors[0]
    );
    let missing = record().replacen("\"httpStatus\":null,", "", 1);
    assert!(
        parsed(&missing).1[0].to_string().contains("missing field `httpStatus`"),
        "{:?}",
        parsed(&missing).1
    );
    let wrong = SEED.replacen("\"lineNumber\":1396", "\"lineNumber\":\"1396\"", 1);
    assert!(parsed(&wrong).1[0].to_string().starts_with("file.json: record.lineNumber: invalid type"));
    let value = SEED.replacen("\"severity\":\"critical\"", "\"severity\":\"awful\"", 1);
    assert!(parsed(&value).1[0].to_string().contains("record.severity: unknown variant `awful`"));
    let id = SEED.replacen("75f97e832a3e9a92", "75f97e832a3e9a93", 1);
    assert!(parsed(&id).1[0].to_string().starts_with("file.json: id: 75f97e832a3e9a93 does not follow"));
    assert!(parsed("{").1[0].to_string().starts_with("file.json: "));
    assert!(parsed(&format!("{SEED}x")).1[0].to_string().contains("trailing characters"));
}

#[test]
fn folders_are_read_whole_and_repeats_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    std::fs::create_dir(path.join("errors")).expect("made");
    std::fs::write(path.join("errors/one.json"), SEED).expect("written");
    std::fs::write(path.join("manifest.json"), "{}").expect("written");
    assert_eq!(read(path).1, []);
    std::fs::write(path.join("two.txt"), SEED).expect("written");
    let (found, errors) = read(path);
    assert_eq!(found.len(), 2);
    assert_eq!(errors.len(), 2, "id and slug: {errors:?}");
    assert!(errors[0].to_string().contains("two.txt: id: is also that of"));
    let none = read(&path.join("none")).1;
    assert!(none[0].to_string().contains("none: cannot be read: "));
    let empty = tempfile::tempdir().expect("a folder");
    assert!(read(empty.path()).1[0].to_string().ends_with(": holds no record"));
}
