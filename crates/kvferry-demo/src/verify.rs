//! Whether two runs of the same requests agree, and where they part.

use crate::pools::Kind;
use crate::sequence::LogitsHash;

/// Differences named one by one; the rest is counted.
const NAMED: usize = 5;

/// What is known of one request in one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Track {
    /// Tokens of the answer, in order.
    pub(crate) tokens: Vec<u32>,
    /// Over the bits of all logits, once the answer is complete.
    pub(crate) logits: Option<LogitsHash>,
    /// Whether all logits were finite numbers.
    pub(crate) finite: bool,
    /// Hash of each page where it was computed.
    pub(crate) computed: Vec<String>,
    /// Hash of each page where it arrived.
    pub(crate) received: Vec<String>,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) tokens: bool,
    pub(crate) logits: bool,
    pub(crate) pages: bool,
}

impl Verdict {
    /// Nothing compared yet.
    pub(crate) const EQUAL: Self = Self { tokens: true, logits: true, pages: true };

    /// All that was compared is the same.
    pub(crate) fn equal(self) -> bool {
        self == Self::EQUAL
    }

    fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens && other.tokens,
            logits: self.logits && other.logits,
            pages: self.pages && other.pages,
        }
    }
}

/// Compares what two processes did with what one did alone, request by request. Returns the verdict
/// and, for each difference, a sentence.
pub(crate) fn compare(
    split: &[Track],
    alone: &[Track],
    pools: usize,
    page_size: usize,
) -> (Verdict, Vec<String>) {
    let mut verdict = Verdict::EQUAL;
    let mut sentences = Vec::new();
    for (request, (split, alone)) in split.iter().zip(alone).enumerate() {
        let mut found = Differences { request, pools, page_size, sentences: Vec::new() };
        verdict = verdict.and(found.compare(split, alone));
        sentences.append(&mut found.sentences);
    }
    (verdict, sentences)
}

struct Differences {
    request: usize,
    /// K and V pools of all layers.
    pools: usize,
    page_size: usize,
    sentences: Vec<String>,
}

impl Differences {
    fn compare(&mut self, split: &Track, alone: &Track) -> Verdict {
        let moved = self.pages("at decode", &split.received, "at prefill", &split.computed);
        let computed = self.pages("at prefill", &split.computed, "of the process alone", &alone.computed);
        Verdict {
            tokens: self.tokens(split, alone),
            logits: self.logits(split, alone),
            pages: moved && computed,
        }
    }

    fn tokens(&mut self, split: &Track, alone: &Track) -> bool {
        let parts = split.tokens.iter().zip(&alone.tokens).position(|(a, b)| a != b);
        match parts {
            Some(at) => self.say(format!(
                "token {at} of the answer is {} split and {} alone",
                split.tokens[at], alone.tokens[at]
            )),
            None if split.tokens.len() != alone.tokens.len() => self.say(format!(
                "the answer has {} tokens split and {} alone",
                split.tokens.len(),
                alone.tokens.len()
            )),
            None => return true,
        }
        false
    }

    fn logits(&mut self, split: &Track, alone: &Track) -> bool {
        let short = |track: &Track| track.logits.map_or_else(|| "none".to_owned(), |hash| hash.short());
        if split.logits != alone.logits {
            let (split, alone) = (short(split), short(alone));
            self.say(format!("the hash over all logits is {split} split and {alone} alone"));
        }
        for (track, run) in [(split, "split"), (alone, "alone")] {
            if !track.finite {
                self.say(format!(
                    "not all logits are finite numbers {run}: a slot was read that nobody wrote"
                ));
            }
        }
        split.logits.is_some() && split.logits == alone.logits && split.finite && alone.finite
    }

    fn pages(&mut self, here: &str, hashes: &[String], there: &str, others: &[String]) -> bool {
        if hashes.is_empty() || hashes.len() != others.len() {
            self.say(format!("there are {} pages {here} and {} {there}", hashes.len(), others.len()));
            return false;
        }
        let differing: Vec<usize> = (0..hashes.len()).filter(|&at| hashes[at] != others[at]).collect();
        for &at in differing.iter().take(NAMED) {
            let place = self.place(at, hashes.len());
            self.say(format!("{place}: its bytes {here} differ from those {there}"));
        }
        if differing.len() > NAMED {
            self.say(format!("{} more pages {here} differ from those {there}", differing.len() - NAMED));
        }
        differing.is_empty()
    }

    /// Names page `at` of the `total` in the order of [`crate::pools::KvPools::page_hashes`].
    fn place(&self, at: usize, total: usize) -> String {
        let pages = (total / self.pools).max(1);
        let (pool, page) = (at / pages, at % pages);
        format!(
            "layer {} {:?}, page {page} of {pages} (tokens {} to {})",
            pool / 2,
            Kind::BOTH[pool % 2],
            page * self.page_size,
            (page + 1) * self.page_size - 1
        )
    }

    fn say(&mut self, what: String) {
        self.sentences.push(format!("request {}: {what}", self.request));
    }
}

#[cfg(test)]
mod tests;
