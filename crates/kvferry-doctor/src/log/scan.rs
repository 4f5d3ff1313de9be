//! Finding the lines of logs that speak of records, in blocks and in bounded memory.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Read};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};
use memchr::memrchr;

use self::frames::FrameRules;
use self::matching::Words;
use self::reading::Reading;
use super::{Clock, Fuzzy, Level};
use crate::catalogue::{Catalogue, Entry};
use crate::errno;
use crate::evidence::HARMLESS;
use crate::record::OWN_REPO;
use crate::rule::{Numbers, Rule, Target, numbers_of, rules};
use crate::side::{Discriminator, Role};

mod analysis;
mod frames;
mod matching;
mod reading;

/// What is read at a time.
const BLOCK: usize = 1 << 20;
const TRACEBACK: &str = "Traceback (most recent call last)";
/// What each frame of a traceback holds.
const FRAME: &str = "\", line ";
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
    /// For each input when it happened; kept for records that may recover.
    pub(crate) spans: Vec<Span>,
}

/// From the first to the last line of a finding in one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) file: usize,
    first_line: u64,
    last_line: u64,
    last: Clock,
    /// It happened again after evidence of success.
    is_again: bool,
}

/// Evidence of success in one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    first: Clock,
    last: Clock,
    /// The last of its lines.
    pub(crate) place: Place,
}

impl Seen {
    /// Whether success came after the last failure, and no failure came after success. Within one log lines tell where
    /// times don't. Between logs it counts only if all of them came after: who serves others meanwhile shows nothing.
    pub(crate) fn ends(&self, span: &Span) -> bool {
        if span.is_again {
            false
        } else if self.place.file == span.file {
            let order = self.last.compare(span.last).unwrap_or(Ordering::Equal);
            order.then(self.place.line.cmp(&span.last_line)).is_gt()
        } else {
            self.first.compare(span.last).is_some_and(Ordering::is_ge)
        }
    }
}

/// All that was found in some inputs.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Findings, in no order that means anything.
    pub(crate) findings: Vec<Finding>,
    /// Conditions on other lines that were met: entry and discriminator.
    pub(crate) near: HashSet<(usize, usize)>,
    /// Evidence of success, by its index and the input's.
    pub(crate) seen: HashMap<(usize, usize), Seen>,
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
    /// The rules' needles.
    words: Words,
    /// Needles, traceback, hints.
    with_hints: AhoCorasick,
    roles: Vec<Role>,
    own: Vec<bool>,
    discriminators: Vec<Vec<Condition>>,
    /// For each entry, then for each of its other words, what shows that the failure is over, by index.
    evidence: Vec<Vec<Vec<usize>>>,
    /// The index of the evidence that a line is harmless.
    harmless: Option<usize>,
    /// Needles of rules that numbers decide, without these numbers.
    numbered: AhoCorasick,
    /// For each of these its rule.
    numbered_rules: Vec<u32>,
    /// For each entry, which of its other words tell the kind.
    telling: Vec<Vec<bool>>,
    /// Frames of tracebacks that other words ask for.
    frames: FrameRules,
    /// The fuzzy tier.
    pub(crate) fuzzy: Fuzzy,
}

#[derive(Debug)]
struct Condition {
    errno: Vec<&'static str>,
    line: Option<regex::bytes::Regex>,
    /// Numbers that decide about the line.
    numbers: Numbers,
}

impl Scanner {
    /// Compiles what a catalogue needs.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        let (rules, _) = rules(catalogue);
        let (of_frames, rules): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|rule| matches!(rule.target, Target::Frame(..)));
        let mut by_needle: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            for needle in &rule.needles {
                by_needle.entry(needle.clone()).or_default().push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        let words = Words::new(by_needle);
        let with: Vec<&str> = words.iter().chain([TRACEBACK, FRAME]).chain(HINTS.iter().copied()).collect();
        let condition = |condition: &Discriminator| Condition {
            errno: condition.errno.iter().filter_map(|name| errno::canonical(name)).collect(),
            line: condition.line.as_deref().map(crate::rule::compile),
            numbers: condition.line.as_deref().map_or(Numbers::None, numbers_of),
        };
        let numbered: Vec<(String, u32)> = rules
            .iter()
            .zip(0..)
            .filter(|(rule, _)| rule.numbers > Numbers::Zeros)
            .flat_map(|(rule, index)| {
                rule.needles.iter().map(move |needle| (analysis::without_numbers(needle), index))
            })
            .collect();
        let names: Vec<&String> = catalogue.evidences().keys().collect();
        let evidence = |entry: &Entry| {
            let index = |name: &String| names.binary_search(&name).ok();
            let indices = |names: &Vec<String>| names.iter().filter_map(index).collect();
            let alike = entry.side.alike.iter().map(|alike| &alike.recovered);
            std::iter::once(&entry.side.recovered).chain(alike).map(indices).collect()
        };
        let entries = catalogue.entries();
        Self {
            with_hints: automaton(&with),
            words,
            rules,
            roles: entries.iter().map(|entry| entry.side.role).collect(),
            own: entries.iter().map(|entry| entry.record.repo == OWN_REPO).collect(),
            discriminators: entries
                .iter()
                .map(|e| e.side.discriminators.iter().map(condition).collect())
                .collect(),
            evidence: entries.iter().map(evidence).collect(),
            harmless: names.iter().position(|name| *name == HARMLESS),
            numbered: automaton(&numbered.iter().map(|(needle, _)| needle.as_str()).collect::<Vec<_>>()),
            numbered_rules: numbered.into_iter().map(|(_, index)| index).collect(),
            telling: entries
                .iter()
                .map(|e| e.side.alike.iter().map(|alike| alike.kind.is_some()).collect())
                .collect(),
            frames: FrameRules::new(of_frames),
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

    /// What shows that the failure of an entry, or of its other words, is over, by index.
    pub(crate) fn evidence(&self, entry: usize, alike: Option<usize>) -> &[usize] {
        &self.evidence[entry][alike.map_or(0, |number| number + 1)]
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
