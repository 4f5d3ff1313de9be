//! Reading what a Rust test binary prints, and the mark by which a test says that it can't run.

use crate::report::{Outcome, Skip};

/// How a test that can't run on this machine says so: one line of its output, this and the reason.
/// It then returns as if it had passed, for want of another way out of a running test.
pub(crate) const SKIP_MARK: &str = "skipped: ";

/// The reason in a test's output if the test says that it could not run.
pub(crate) fn skip_reason<'a>(output: impl Iterator<Item = &'a str>) -> Option<String> {
    output
        .filter_map(|line| {
            // Without capture, the harness may have left its own words at the line's start.
            let line = line.split_once(" ... ").map_or(line, |(_, rest)| rest);
            line.trim_start().strip_prefix(SKIP_MARK)
        })
        .map(|reason| reason.trim_end().to_owned())
        .next()
}

/// Sums up the test binaries that one `cargo test` ran, from its output.
pub(crate) fn parse<S: AsRef<str>>(output: &[S]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut ignored = 0;
    // The binary that is running: how many tests it announced, how many ended.
    let mut open: Option<(usize, usize)> = None;
    let mut named = Vec::new();
    let mut shown: Option<(&str, Vec<&str>)> = None;
    let skip = |shown: &mut Option<(&str, Vec<&str>)>| {
        let (name, lines) = shown.take()?;
        let reason = skip_reason(lines.into_iter())?;
        Some(Skip { name: name.to_owned(), reason })
    };

    for line in output.iter().map(AsRef::as_ref) {
        // What a test printed may look like the harness's own words; its result line alone ends it.
        if let (Some(count), None) = (announced(line), &shown) {
            close(&mut outcome, open.replace((count, 0)), &mut named);
        } else if let Some([passed, failed, left_out]) = result(line) {
            outcome.skipped.extend(skip(&mut shown));
            if open.take().is_some() {
                outcome.passed += passed;
                ignored += left_out;
                named.resize_with(failed, || "a test without a name".to_owned());
                outcome.failed.append(&mut named);
            }
        } else if let Some((name, verdict)) = verdict(line) {
            if let Some((_, ended)) = &mut open {
                *ended += 1;
                if verdict == "FAILED" {
                    named.push(name.to_owned());
                }
            }
        } else if let Some(name) = section(line) {
            outcome.skipped.extend(skip(&mut shown));
            shown = Some((name, Vec::new()));
        } else if let Some((_, lines)) = &mut shown {
            lines.push(line);
        }
    }
    outcome.skipped.extend(skip(&mut shown));
    close(&mut outcome, open, &mut named);
    // A skipped test counted itself as passed.
    outcome.passed = outcome.passed.saturating_sub(outcome.skipped.len());
    if ignored > 0 {
        outcome.note = format!("{ignored} ignored by default");
    }
    outcome
}

/// Counts a binary that announced its tests and never summed them up: it crashed or was killed.
fn close(outcome: &mut Outcome, open: Option<(usize, usize)>, named: &mut Vec<String>) {
    if let Some((announced, ended)) = open {
        outcome.passed += ended.saturating_sub(named.len());
        outcome.failed.append(named);
        outcome.failed.push(format!("a test binary ended after {ended} of {announced} tests"));
    }
}

/// `running 12 tests`.
fn announced(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("running ")?;
    rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test"))?.parse().ok()
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; ...; finished in 0.00s`: the three numbers.
fn result(line: &str) -> Option<[usize; 3]> {
    let rest = line.strip_prefix("test result: ").filter(|rest| rest.contains("; finished in "))?;
    let number = |word| number_before(rest, word);
    Some([number(" passed")?, number(" failed")?, number(" ignored")?])
}

/// `test agent::tests::name ... ok`.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let verdict = verdict.split([',', ' ']).next()?;
    matches!(verdict, "ok" | "FAILED" | "ignored").then_some((name, verdict))
}

/// `---- agent::tests::name stdout ----`, before a test's own output.
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The number in front of a word in `ok. 3 passed; 0 failed; ...`.
pub(crate) fn number_before(text: &str, word: &str) -> Option<usize> {
    let before = &text[..text.find(word)?];
    let start = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    before[start..].parse().ok()
}

#[cfg(test)]
mod tests;
