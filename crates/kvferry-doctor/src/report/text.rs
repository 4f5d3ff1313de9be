//! An explanation for people.

use std::fmt::Write as _;

use crate::catalogue::{Catalogue, Entry};
use crate::explain::{Basis, Confidence, Explanation, Recovered, Verdict};
use crate::kind::Environment;

const WIDTH: usize = 100;
/// Other and secondary findings that are shown.
const MOST_SHOWN: usize = 5;

/// What happened, which side, cause, evidence, fix for the environment, how to verify it.
pub fn text(explanation: &Explanation, catalogue: &Catalogue, environment: Environment) -> String {
    let mut out = Paper::default();
    let Some(primary) = &explanation.primary else {
        out.line(&format!("no confident match in {} lines", explanation.lines));
        out.line("`kvferry catalogue search WORDS` looks through the catalogue by words.");
        recovered(&mut out, &explanation.recovered, catalogue);
        return out.text;
    };
    head(&mut out, primary, catalogue);
    evidence(&mut out, primary);
    if !primary.candidates.is_empty() {
        out.line("");
        out.line("The text alone does not decide. Candidates, most likely first, and what to look at:");
        for (number, cause) in primary.candidates.iter().enumerate() {
            let meaning = catalogue.kind(&cause.kind).map_or("", |kind| kind.meaning.as_str());
            out.paragraph(&format!("  {}. ", number + 1), &format!("{}: {meaning}", cause.kind));
            if !cause.look.is_empty() {
                out.paragraph("     look at: ", &cause.look);
            }
        }
    }
    remedy(&mut out, primary, catalogue, environment);
    list(
        &mut out,
        "Others, which the text allows or the logs speak of as well",
        &explanation.others,
        primary,
        catalogue,
    );
    list(&mut out, "Consequences, not causes", &explanation.secondary, primary, catalogue);
    recovered(&mut out, &explanation.recovered, catalogue);
    out.text
}

/// One record as `show` prints it.
pub fn record(entry: &Entry, catalogue: &Catalogue, environment: Environment) -> String {
    let record = &entry.record;
    let mut out = Paper::default();
    out.line(record.error_code.as_deref().unwrap_or(&record.error_message));
    out.line("");
    if record.error_code.is_some() {
        out.paragraph("message   ", &record.error_message);
    }
    out.paragraph("record    ", &format!("{}, {} {}", record.id, record.repo, record.slug));
    out.paragraph("kind      ", entry.side.kind.as_deref().unwrap_or("the text alone does not decide"));
    let line = record.line_number.map(|line| format!(":{line}")).unwrap_or_default();
    out.paragraph("source    ", &format!("{}{line}", record.file_path));
    if let Some(url) = &record.github_url {
        out.line(&format!("          {url}"));
    }
    for (title, body) in [
        ("What it means", &record.documentation),
        ("What triggers it", &record.trigger_scenarios),
        ("Where it is met", &record.common_situations),
    ] {
        out.line("");
        out.line(title);
        out.paragraph("  ", body);
    }
    numbered(&mut out, "What to do", &record.solutions);
    if !entry.side.causes.is_empty() {
        out.line("");
        out.line("Candidate causes, most likely first");
        for cause in &entry.side.causes {
            out.paragraph("  - ", &format!("{}: {}", cause.kind, cause.look));
        }
    }
    if let Some(kind) = entry.side.kind.as_deref().and_then(|kind| catalogue.kind(kind)) {
        numbered(&mut out, &format!("Fix on {}", environment.describe()), kind.fix(environment));
        numbered(&mut out, "Verify", &kind.verify);
    }
    numbered(&mut out, "Prevent", &record.prevention_tips);
    out.text
}

fn head(out: &mut Paper, primary: &Verdict, catalogue: &Catalogue) {
    let kind = primary.kind.as_deref();
    let basis = match primary.basis {
        Basis::Code => "an exact code",
        Basis::Message => "the message",
        Basis::Alike => "the same failure in other words",
        Basis::Discriminated => "the message, and what decides between its causes",
        Basis::Undecided => "the most likely of several causes",
        Basis::Fuzzy => "words alike, no more",
    };
    let confidence = match primary.confidence {
        Confidence::High => "high confidence",
        Confidence::Medium => "medium confidence",
        Confidence::Low => "low confidence",
    };
    let name = kind.map_or_else(|| key(primary, catalogue), str::to_owned);
    out.line(&format!("PRIMARY   {name} ({confidence}: {basis})"));
    out.line("");
    let known = kind.and_then(|kind| catalogue.kind(kind));
    if let Some(entry) = catalogue.by_id(&primary.id) {
        out.paragraph("happened  ", &entry.record.documentation);
    }
    if let Some(known) = known {
        out.paragraph("cause     ", &format!("{}: {}", known.meaning, known.what));
        out.paragraph("side      ", known.side.describe());
    }
    if let Some(entry) = catalogue.by_id(&primary.id) {
        out.paragraph(
            "record    ",
            &format!("{}, {} {}", entry.record.id, entry.record.repo, entry.record.slug),
        );
    }
}

/// The code or message of a verdict's record.
fn key(verdict: &Verdict, catalogue: &Catalogue) -> String {
    catalogue.by_id(&verdict.id).map_or("", |entry| entry.record.key()).to_owned()
}

fn evidence(out: &mut Paper, primary: &Verdict) {
    for (number, place) in primary.evidence.iter().enumerate() {
        let label = if number == 0 { "evidence  " } else { "          " };
        out.paragraph(label, &format!("{}:{}: {}", place.file, place.line, place.text));
    }
    let shown = primary.evidence.len() as u64;
    if primary.count > shown {
        out.line(&format!("          {} times in all", primary.count));
    }
}

fn remedy(out: &mut Paper, primary: &Verdict, catalogue: &Catalogue, environment: Environment) {
    let entry = catalogue.by_id(&primary.id);
    let kind = primary.kind.as_deref().and_then(|kind| catalogue.kind(kind));
    if let Some(kind) = kind {
        let which = if primary.candidates.is_empty() {
            String::new()
        } else {
            " if it is the first candidate".to_owned()
        };
        numbered(out, &format!("Fix{which}, on {}", environment.describe()), kind.fix(environment));
        numbered(out, "Verify", &kind.verify);
    }
    if let Some(entry) = entry {
        numbered(out, "What the record says", &entry.record.solutions);
        if !entry.side.checks.is_empty() {
            out.line("");
            out.paragraph("checks    ", &entry.side.checks.join(", "));
        }
    }
    let is_version = matches!(primary.kind.as_deref(), Some("engine-version-regression" | "ucx-version"));
    if is_version && !catalogue.pairs().is_empty() {
        out.line("");
        out.line("Releases known to fail together");
        for pair in catalogue.pairs() {
            let text = format!(
                "{} {} with {} {}: {}; instead {} ({}, {})",
                pair.component,
                pair.releases,
                pair.with,
                pair.with_releases,
                pair.symptom,
                pair.instead,
                pair.status,
                pair.source
            );
            out.paragraph("  - ", &text);
        }
    }
}

fn list(out: &mut Paper, title: &str, verdicts: &[Verdict], primary: &Verdict, catalogue: &Catalogue) {
    // What is listed among the candidates already.
    let listed = |verdict: &&Verdict| {
        verdict.id != primary.id
            || !primary.candidates.iter().any(|cause| Some(&cause.kind) == verdict.kind.as_ref())
    };
    let shown: Vec<_> = verdicts.iter().filter(listed).take(MOST_SHOWN).collect();
    if shown.is_empty() {
        return;
    }
    out.line("");
    out.line(title);
    for verdict in shown {
        item(out, verdict, catalogue);
    }
}

fn item(out: &mut Paper, verdict: &Verdict, catalogue: &Catalogue) {
    let message = catalogue.by_id(&verdict.id).map_or("", |entry| entry.record.key());
    let times = if verdict.count > 1 { format!(", {} times", verdict.count) } else { String::new() };
    let kind = verdict.kind.as_deref().unwrap_or("kind unknown");
    out.paragraph("  - ", &format!("{kind}: {message} ({}{times})", verdict.id));
    if let Some(place) = verdict.evidence.first() {
        out.paragraph("      ", &format!("{}:{}: {}", place.file, place.line, place.text));
    }
}

/// Failures that were over by the end.
fn recovered(out: &mut Paper, all: &[Recovered], catalogue: &Catalogue) {
    if all.is_empty() {
        return;
    }
    out.line("");
    out.line("Recovered: tried again until it worked, no cause of anything that is left");
    for one in all.iter().take(MOST_SHOWN) {
        item(out, &one.verdict, catalogue);
        let by = &one.by;
        out.paragraph("      over by ", &format!("{}:{}: {}", by.file, by.line, by.text));
    }
}

fn numbered(out: &mut Paper, title: &str, steps: &[String]) {
    if steps.is_empty() {
        return;
    }
    out.line("");
    out.line(title);
    for (number, step) in steps.iter().enumerate() {
        out.paragraph(&format!("  {}. ", number + 1), step);
    }
}

/// Text with wrapped paragraphs.
#[derive(Default)]
struct Paper {
    text: String,
}

impl Paper {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    /// A paragraph behind a label; further lines are indented like the first.
    fn paragraph(&mut self, label: &str, body: &str) {
        let indent = " ".repeat(label.chars().count());
        let mut label = label;
        for paragraph in body.lines() {
            let mut line = String::new();
            for word in paragraph.split_whitespace() {
                if !line.is_empty() && indent.len() + line.chars().count() + word.chars().count() >= WIDTH {
                    self.line(&format!("{label}{line}"));
                    label = &indent;
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            self.line(&format!("{label}{line}"));
            label = &indent;
        }
    }
}

#[cfg(test)]
mod tests;
