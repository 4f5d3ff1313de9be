//! Reading the JUnit reports of `cargo nextest run` and of pytest.

use roxmltree::{Document, Node, ParsingOptions};

use crate::libtest::{number_before, skip_reason};
use crate::report::{Outcome, Skip};

/// Sums up a report.
///
/// # Errors
/// It is not a JUnit report; the message says why.
pub(crate) fn parse(xml: &str) -> Result<Outcome, String> {
    // An attribute or text may be large: tests print much when they fail.
    let document = Document::parse_with_options(xml, ParsingOptions::default())
        .map_err(|error| format!("the test report is not XML: {error}"))?;
    if document.root_element().tag_name().name() != "testsuites" {
        return Err("the test report is not JUnit: no testsuites in it".to_owned());
    }
    let mut outcome = Outcome::default();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let name = format!(
            "{} {}",
            case.attribute("classname").unwrap_or("?"),
            case.attribute("name").unwrap_or("?")
        );
        let failure =
            case.children().find(|child| child.has_tag_name("failure") || child.has_tag_name("error"));
        if let Some(failure) = failure {
            let how = failure.attribute("type").unwrap_or_default();
            let message = failure.attribute("message").unwrap_or(how);
            outcome.failed.push(if how.starts_with("test failure") {
                // An assertion: the text is above, and too long for one line.
                name
            } else {
                format!("{name} ({})", message.lines().next().unwrap_or_default())
            });
        } else if let Some(skipped) = case.children().find(|child| child.has_tag_name("skipped")) {
            // pytest's way; nextest has none.
            let reason = skipped.attribute("message").unwrap_or("no reason given").to_owned();
            outcome.skipped.push(Skip { name, reason });
        } else if let Some(reason) = skip_reason(output(case)) {
            outcome.skipped.push(Skip { name, reason });
        } else {
            outcome.passed += 1;
        }
    }
    Ok(outcome)
}

/// How many tests nextest left out by default, from its closing line
/// `Summary [ 1.2s] 3 tests run: 3 passed, 1 skipped`.
pub(crate) fn left_out<S: AsRef<str>>(output: &[S]) -> usize {
    output
        .iter()
        .map(AsRef::as_ref)
        .rfind(|line| line.trim_start().starts_with("Summary ["))
        .and_then(|line| number_before(line, " skipped"))
        .unwrap_or(0)
}

fn output<'a>(case: Node<'a, 'a>) -> impl Iterator<Item = &'a str> {
    case.children()
        .filter(|child| child.has_tag_name("system-out") || child.has_tag_name("system-err"))
        .filter_map(|child| child.text())
        .flat_map(str::lines)
}

#[cfg(test)]
mod tests;
