//! What the schema asks of values, beyond their types.

use std::fmt;

use super::{Record, id, pattern, slug};

/// The one version of the schema there is.
const SCHEMA_VERSION: u32 = 2;
const MOST_SOURCE_LINES: usize = 40;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The field, as the schema spells it.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// All faults of a record that somebody may publish.
pub fn check(record: &Record) -> Vec<Fault> {
    let mut faults = check_stored(record);
    match &record.analyzed_sha {
        Some(sha) if is_hex(sha, 40) => {}
        Some(sha) => faults.push(fault("analyzedSha", format!("{sha:?} is not 40 hex digits"))),
        None => faults.push(fault("analyzedSha", "is null")),
    }
    if record.github_url.as_ref().is_none_or(|url| !url.starts_with("https://")) {
        faults.push(fault("githubUrl", "is no https address"));
    }
    faults
}

/// All faults of a record but a missing location, which records of our own get when they are exported.
pub fn check_stored(record: &Record) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, field, reason: &dyn Fn() -> String| {
        if !holds {
            faults.push(fault(field, reason()));
        }
    };
    check(is_hex(&record.id, 16), "id", &|| format!("{:?} is not 16 hex digits", record.id));
    let id = id(&record.repo, record.key(), &record.file_path);
    check(record.id == id, "id", &|| {
        format!("{} does not follow from repo, message and path: {id} does", record.id)
    });
    check(is_repo(&record.repo), "repo", &|| format!("{:?} is not owner/name", record.repo));
    let slug = slug(record.key());
    check(slug_fits(&record.slug, &slug), "slug", &|| {
        format!("{:?} does not follow from code or message: {slug:?} does", record.slug)
    });
    let pattern = pattern(&record.error_message);
    check(record.message_pattern == pattern, "messagePattern", &|| {
        format!("{:?} does not follow from the message: {pattern:?} does", record.message_pattern)
    });
    let texts = [
        ("errorMessage", Some(&record.error_message)),
        ("filePath", Some(&record.file_path)),
        ("documentation", Some(&record.documentation)),
        ("triggerScenarios", Some(&record.trigger_scenarios)),
        ("commonSituations", Some(&record.common_situations)),
        ("errorCode", record.error_code.as_ref()),
        ("errorClass", record.error_class.as_ref()),
        ("sourceCode", record.source_code.as_ref()),
        ("validationCode", record.validation_code.as_ref()),
        ("typeGuard", record.type_guard.as_ref()),
        ("tryCatchPattern", record.try_catch_pattern.as_ref()),
    ];
    for (field, text) in texts {
        check(text.is_none_or(|text| !text.trim().is_empty()), field, &|| "is empty".to_owned());
    }
    check(!record.solutions.is_empty(), "solutions", &|| "holds nothing".to_owned());
    for (field, list) in [("solutions", &record.solutions), ("preventionTips", &record.prevention_tips)] {
        check(list.iter().all(|text| !text.trim().is_empty()), field, &|| "holds an empty text".to_owned());
    }
    for tag in record
        .tags
        .iter()
        .map(|tag| ("tags", tag))
        .chain(record.background_tag.iter().map(|tag| ("backgroundTag", tag)))
    {
        check(is_kebab(tag.1), tag.0, &|| format!("{:?} is not lower-case kebab", tag.1));
    }
    check(record.http_status.is_none_or(|status| (100..600).contains(&status)), "httpStatus", &|| {
        "is not 100 to 599".to_owned()
    });
    check(record.line_number != Some(0), "lineNumber", &|| "counts from 1".to_owned());
    check_source(record, &mut check);
    check(is_time(&record.analyzed_at), "analyzedAt", &|| {
        format!("{:?} is no ISO time in UTC", record.analyzed_at)
    });
    check(record.schema_version == SCHEMA_VERSION, "schemaVersion", &|| {
        format!("{} instead of {SCHEMA_VERSION}", record.schema_version)
    });
    faults
}

fn check_source(record: &Record, check: &mut impl FnMut(bool, &'static str, &dyn Fn() -> String)) {
    let span = (record.source_code_start, record.source_code_end);
    let lines = record.source_code.as_ref().map_or(0, |source| source.lines().count());
    check(lines <= MOST_SOURCE_LINES, "sourceCode", &|| {
        format!("{lines} lines, {MOST_SOURCE_LINES} at most")
    });
    check(
        record.source_code.is_some() == span.0.is_some() && span.0.is_some() == span.1.is_some(),
        "sourceCodeStart",
        &|| "excerpt, start and end are all there or all null".to_owned(),
    );
    if let (Some(start), Some(end)) = span {
        check(start >= 1 && start <= end, "sourceCodeEnd", &|| format!("{start} to {end} is no span"));
        check(record.line_number.is_none_or(|line| line >= start), "lineNumber", &|| {
            format!("is before the excerpt's first line {start}")
        });
    }
}

fn fault(field: &'static str, reason: impl Into<String>) -> Fault {
    Fault { field, reason: reason.into() }
}

/// The formula's slug, or that with a number where two messages of a repository have the same.
fn slug_fits(slug: &str, formula: &str) -> bool {
    slug.strip_prefix(formula).is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok_and(|n| n > 1))
    })
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_repo(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    text.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}

fn is_kebab(text: &str) -> bool {
    text.split('-')
        .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

/// `2026-08-28T05:10:05.995Z`, with or without the fraction.
fn is_time(text: &str) -> bool {
    let Some((seconds, fraction)) =
        text.strip_suffix('Z').map(|text| text.split_once('.').unwrap_or((text, "0")))
    else {
        return false;
    };
    let form = "0000-00-00T00:00:00";
    seconds.len() == form.len()
        && seconds
            .bytes()
            .zip(form.bytes())
            .all(|(byte, form)| if form == b'0' { byte.is_ascii_digit() } else { byte == form })
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}
