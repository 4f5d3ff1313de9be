use super::*;

#[test]
fn paragraphs_are_wrapped_under_their_label() {
    let mut out = Paper::default();
    out.paragraph("label ", &"word ".repeat(30));
    let lines: Vec<_> = out.text.lines().collect();
    assert!(lines.len() > 1 && lines[0].starts_with("label word") && lines[1].starts_with("      word"));
    assert!(lines.iter().all(|line| line.len() <= WIDTH && !line.ends_with(' ')));
}

#[test]
fn every_record_can_be_shown() {
    let catalogue = Catalogue::built_in();
    for entry in catalogue.entries() {
        let shown = record(entry, catalogue, Environment::K8s);
        assert!(shown.contains(&entry.record.id), "{shown}");
    }
}
