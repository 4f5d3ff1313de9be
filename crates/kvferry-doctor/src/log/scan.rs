//! Finding the lines of logs that speak of records, in blocks and in bounded memory.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, Read};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};
use memchr::memrchr;

use self::reading::Reading;
use super::{Fuzzy, Level};
use crate::catalogue::Catalogue;
use crate::errno;
use crate::record::OWN_REPO;
use crate::rule::{Rule, rules};
use crate::side::{Discriminator, Role};

mod reading;

/// What is read at a time.
const BLOCK: usize = 1 << 20;
const TRACEBACK: &str = "Traceback (most recent call last)";
/// Words of lines that may report an error which no rule knows.
const HINTS: &[&str] = &[
    "error",
    "fail",
    "exception",
    "refused",
    "timed out",
    "timeout",
    "unable to",
    "cannot",
    "can't",
    "denied",
    "mismatch",
    "not found",
    "invalid",
    "abort",
    "fatal",
    "not supported",
    "unsupported",
    "not available",
];

/// Where a finding was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the input.
    pub(crate) file: usize,
    /// Line, from 1.
    pub(crate) line: u64,
    /// The message.
    pub(crate) text: String,
}

/// By what a finding was recognised, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    /// An exact code.
    Code,
    /// The message's rule.
    Message,
    /// A rule for other programs' words.
    Alike,
    /// Words alike.
    Fuzzy,
}

/// A record that lines speak of.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// Index of the entry.
    pub(crate) entry: usize,
    /// By what.
    pub(crate) tier: Tier,
    /// How specific the rule is.
    pub(crate) weight: usize,
    /// The gravest level of its lines.
    pub(crate) level: Option<Level>,
    /// The other words by which it was recognised, if those tell its kind.
    pub(crate) alike: Option<usize>,
    /// Which of the entry's discriminators hold by line and errno.
    pub(crate) holds: u32,
    /// How often.
    pub(crate) count: u64,
    /// The first places.
    pub(crate) places: Vec<Place>,
    /// The earliest rank among the findings of one input: repeats don't move it.
    pub(crate) ordinal: usize,
    /// Other entries that fit the same lines.
    pub(crate) rivals: BTreeSet<usize>,
}

/// All that was found in some inputs.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Findings, in no order that means anything.
    pub(crate) findings: Vec<Finding>,
    /// Conditions on other lines that were met: entry and discriminator.
    pub(crate) near: HashSet<(usize, usize)>,
    /// Lines that look like errors and fit no rule.
    pub(crate) unknown: Vec<Place>,
    /// Lines read.
    pub(crate) lines: u64,
    /// Bytes read.
    pub(crate) bytes: u64,
}

/// A catalogue made ready for reading logs.
#[derive(Debug)]
pub(crate) struct Scanner {
    rules: Vec<Rule>,
    /// For each needle the rules that it may start.
    starts: Vec<Vec<u32>>,
    /// Needles, traceback, hints.
    with_hints: AhoCorasick,
    /// The same without hints.
    without_hints: AhoCorasick,
    roles: Vec<Role>,
    own: Vec<bool>,
    discriminators: Vec<Vec<Condition>>,
    /// For each entry, which of its other words tell the kind.
    telling: Vec<Vec<bool>>,
    /// The fuzzy tier.
    pub(crate) fuzzy: Fuzzy,
}

#[derive(Debug)]
struct Condition {
    errno: Vec<&'static str>,
    line: Option<regex::bytes::Regex>,
}

impl Scanner {
    /// Compiles what a catalogue needs.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        let (rules, _) = rules(catalogue);
        let mut by_needle: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            for needle in &rule.needles {
                by_needle.entry(needle.clone()).or_default().push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        let needles: Vec<&str> = by_needle.keys().map(String::as_str).collect();
        let without: Vec<&str> = needles.iter().copied().chain([TRACEBACK]).collect();
        let with: Vec<&str> = without.iter().chain(HINTS).copied().collect();
        let condition = |condition: &Discriminator| Condition {
            errno: condition.errno.iter().filter_map(|name| errno::canonical(name)).collect(),
            line: condition.line.as_deref().map(crate::rule::compile),
        };
        let entries = catalogue.entries();
        Self {
            with_hints: automaton(&with),
            without_hints: automaton(&without),
            starts: by_needle.into_values().collect(),
            rules,
            roles: entries.iter().map(|entry| entry.side.role).collect(),
            own: entries.iter().map(|entry| entry.record.repo == OWN_REPO).collect(),
            discriminators: entries
                .iter()
                .map(|e| e.side.discriminators.iter().map(condition).collect())
                .collect(),
            telling: entries
                .iter()
                .map(|e| e.side.alike.iter().map(|alike| alike.kind.is_some()).collect())
                .collect(),
            fuzzy: Fuzzy::new(catalogue),
        }
    }

    /// Reads one input to its end.
    pub(crate) fn read(&self, file: usize, input: &mut dyn Read, scan: &mut Scan) -> io::Result<()> {
        let mut reading = Reading::new(self, file, scan);
        let mut buffer = vec![0; BLOCK];
        let mut filled = 0;
        let mut is_first = true;
        loop {
            let ended = fill(input, &mut buffer, &mut filled, &mut reading.scan.bytes)?;
            // A line that doesn't fit is taken in pieces.
            let whole = if ended { filled } else { memrchr(b'\n', &buffer).map_or(BLOCK, |end| end + 1) };
            reading.block(&buffer[..whole], ended && is_first);
            is_first = false;
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
            if ended {
                break;
            }
        }
        reading.finish();
        Ok(())
    }

    /// The rules whose needles the line holds and which it fits, with the state of the entry's discriminators.
    fn matching<'a>(&'a self, line: &[u8], found: &mut Vec<&'a Rule>) {
        found.clear();
        let mut tried: Vec<u32> = Vec::new();
        for hit in self.without_hints.find_overlapping_iter(line) {
            for &index in self.starts.get(hit.pattern().as_usize()).into_iter().flatten() {
                if !tried.contains(&index) {
                    tried.push(index);
                    let rule = &self.rules[index as usize];
                    if rule.is_match(line) {
                        found.push(rule);
                    }
                }
            }
        }
    }
}

/// Reads until the buffer is full; true at the end of the input.
fn fill(input: &mut dyn Read, buffer: &mut [u8], filled: &mut usize, bytes: &mut u64) -> io::Result<bool> {
    while *filled < buffer.len() {
        match input.read(&mut buffer[*filled..]) {
            Ok(0) => return Ok(true),
            Ok(got) => {
                *filled += got;
                *bytes += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn automaton(needles: &[&str]) -> AhoCorasick {
    let built = AhoCorasickBuilder::new()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(needles);
    match built {
        Ok(automaton) => automaton,
        Err(error) => unreachable!("some hundred short needles: {error}"),
    }
}

#[cfg(test)]
mod tests;
