//! The published formulas: id, slug and pattern follow from repository, code or message, and path.

use sha2::{Digest, Sha256};

/// Characters that the formula escapes.
const SPECIAL: &str = ".*+?^${}()|[]\\";
/// Longest pattern that counts as safe.
const LONGEST_PATTERN: usize = 500;
/// Fewer characters of literal text than this say nothing.
const LEAST_WEIGHT: usize = 6;
const SLUG_CHARACTERS: usize = 50;

/// The id: the first 16 hex digits of SHA-256 over repository, key (code, else message) and path, joined by
/// U+0001. Line and commit are no part of it, so it survives edits.
pub fn id(repo: &str, key: &str, path: &str) -> String {
    let hash = Sha256::digest(format!("{repo}\u{1}{key}\u{1}{path}").as_bytes());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The slug: the key's first 50 characters, lower case, everything but letters and digits as single dashes.
pub fn slug(key: &str) -> String {
    let mut slug = String::new();
    for letter in key.chars().take(SLUG_CHARACTERS).flat_map(char::to_lowercase) {
        if letter.is_ascii_lowercase() || letter.is_ascii_digit() {
            slug.push(letter);
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let trimmed = slug.trim_matches('-');
    if trimmed.is_empty() { "error".to_owned() } else { trimmed.to_owned() }
}

/// The pattern: placeholders become `(.+?)`, the rest is escaped. A message that is nearly all placeholders, or
/// too long, is escaped as it stands.
pub fn pattern(message: &str) -> String {
    let parts = pieces(message, false);
    let joined = parts.iter().map(|part| escape(part)).collect::<Vec<_>>().join("(.+?)");
    let weight: usize = parts.iter().map(|part| part.trim().chars().count()).sum();
    if parts.len() > 1 && (weight < LEAST_WEIGHT || joined.chars().count() > LONGEST_PATTERN) {
        escape(message)
    } else {
        joined
    }
}

/// The literal text between a message's placeholders, one more than there are placeholders. `c_too`: also
/// conversions of C with flags and lengths (`%-5zu`, `%p`), which the published formula does not know.
pub(crate) fn pieces(message: &str, c_too: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while at < message.len() {
        let rest = &message[at..];
        match placeholder(rest, c_too) {
            Some(length) => {
                parts.push(&message[from..at]);
                at += length;
                from = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    parts.push(&message[from..]);
    parts
}

/// The length of the placeholder that `text` begins with.
fn placeholder(text: &str, c_too: bool) -> Option<usize> {
    if !text.starts_with(['$', '%', '{']) {
        return None;
    }
    if let Some(inner) = text.strip_prefix("${") {
        return inner.find('}').map(|end| end + 3);
    }
    if let Some(inner) = text.strip_prefix("%(") {
        let close = inner.find(')')?;
        return inner[close + 1..].starts_with('s').then_some(close + 4);
    }
    if let Some(inner) = text.strip_prefix('{') {
        let close = inner.find(['{', '}'])?;
        return inner[close..].starts_with('}').then_some(close + 2);
    }
    let inner = text.strip_prefix('%')?;
    if inner.starts_with(['s', 'd', 'i', 'f', 'j', 'v']) {
        return Some(2);
    }
    if !c_too {
        return None;
    }
    let flags = inner.len() - inner.trim_start_matches(['-', '+', '#', '0', '.', '*']).len();
    let digits = inner[flags..].len()
        - inner[flags..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '*').len();
    let sizes = inner[flags + digits..].len()
        - inner[flags + digits..].trim_start_matches(['l', 'h', 'z', 'j', 't', 'q']).len();
    let end = flags + digits + sizes;
    inner[end..]
        .starts_with(['s', 'd', 'i', 'u', 'x', 'X', 'o', 'p', 'c', 'f', 'g', 'e', 'm'])
        .then_some(end + 2)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if SPECIAL.contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}
