//! The last resort: messages alike in words, by the words' rarity.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::catalogue::Catalogue;
use crate::rule::compile;

/// Least likeness, from 0 to 1, that is worth a word.
const THRESHOLD: f64 = 0.4;
/// Words in common below which likeness is chance.
const LEAST_COMMON: usize = 3;
/// No message has more words; comparing costs by them.
const MOST_WORDS: usize = 80;

/// Paths, numbers and quoted texts, which differ between two lines of one message.
static NOISE: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r#"(?:/[\w.+-]+){2,}|0x[0-9a-fA-F]+|\{[^{}]*\}|%[-+#0-9.*]*[lhzjt]*[a-zA-Z]|'[^']{0,80}'|"[^"]{0,80}"|\d+"#,
    )
});
static WORD: LazyLock<Regex> = LazyLock::new(|| compile(r"[A-Za-z][A-Za-z_]+"));

/// The catalogue's messages as sets of words with their weights.
#[derive(Debug)]
pub(crate) struct Fuzzy {
    messages: Vec<BTreeSet<String>>,
    weights: HashMap<String, f64>,
    unknown: f64,
}

impl Fuzzy {
    /// Prepares a catalogue.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        let messages: Vec<_> =
            catalogue.entries().iter().map(|entry| words(entry.record.error_message.as_bytes())).collect();
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for word in messages.iter().flatten() {
            *counts.entry(word).or_default() += 1;
        }
        #[expect(clippy::cast_precision_loss, reason = "catalogues have thousands of records, not 2^52")]
        let total = messages.len() as f64;
        let weight = |count: u32| (1.0 + total / (1.0 + f64::from(count))).ln();
        let weights = counts.into_iter().map(|(word, count)| (word.to_owned(), weight(count))).collect();
        Self { messages, weights, unknown: weight(0) }
    }

    /// The entry whose message is most like the line, with the likeness, if any is like enough.
    pub(crate) fn nearest(&self, line: &[u8]) -> Option<(usize, f64)> {
        let line = words(line);
        if line.len() < LEAST_COMMON {
            return None;
        }
        let scored = self.messages.iter().enumerate().filter_map(|(index, message)| {
            let common: Vec<_> = line.intersection(message).collect();
            if common.len() < LEAST_COMMON {
                return None;
            }
            let common: f64 = common.into_iter().map(|word| self.weight(word)).sum();
            let all: f64 = line.union(message).map(|word| self.weight(word)).sum();
            Some((index, common / all))
        });
        scored.filter(|(_, score)| *score >= THRESHOLD).max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    }

    fn weight(&self, word: &str) -> f64 {
        self.weights.get(word).copied().unwrap_or(self.unknown)
    }
}

/// The words of a line in lower case, without what differs between two lines of one message.
fn words(line: &[u8]) -> BTreeSet<String> {
    let plain = NOISE.replace_all(line, &b" "[..]);
    WORD.find_iter(&plain)
        .take(MOST_WORDS)
        .map(|word| String::from_utf8_lossy(word.as_bytes()).to_lowercase())
        .collect()
}

#[cfg(test)]
mod tests;
