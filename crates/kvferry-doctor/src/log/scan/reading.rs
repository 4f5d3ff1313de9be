//! The reading of one input: from needle to needle, line by line where lines hang together.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use aho_corasick::Input;
use memchr::{memchr, memchr_iter, memrchr};

use super::{Condition, Finding, Place, Scan, Scanner, Tier};
use crate::errno;
use crate::log::{Level, Part, Stripped, Tracebacks, clean, strip, unescape_json};
use crate::rule::{Rule, Target};

/// Of a longer line only this is looked at: messages are short.
const LONGEST_LINE: usize = 16 << 10;
/// An input of so few line ends is a message rather than a log.
const MESSAGE_LINES: u64 = 3;
/// Places of a finding that are kept an input, and in all; more are only counted.
const MOST_PLACES: usize = 3;
const MOST_PLACES_IN_ALL: usize = 48;
/// Kept text of a place, in bytes.
const LONGEST_TEXT: usize = 400;
/// Lines after a message in which its system error may stand alone.
const LINES_FOR_ERRNO: u8 = 2;
/// Lines kept for the fuzzy tier, and lines looked at for them.
const MOST_UNKNOWN: usize = 256;
const MOST_HINTS: u32 = 4_000;
/// Other records that fit one line and are kept as alternatives.
const MOST_RIVALS: usize = 2;

/// The reading of one input.
pub(super) struct Reading<'a> {
    scanner: &'a Scanner,
    pub(super) scan: &'a mut Scan,
    file: usize,
    line: u64,
    tracebacks: Tracebacks,
    /// A finding whose system error may follow on one of the next lines.
    pending: Option<Pending>,
    /// Findings of this input: entry and discriminators that hold, to the index in `scan`.
    known: HashMap<(usize, u32, Option<usize>), usize>,
    ordinals: usize,
    hints: u32,
    seen_unknown: HashSet<Vec<u8>>,
}

struct Pending {
    entry: usize,
    tier: Tier,
    weight: usize,
    level: Option<Level>,
    holds: u32,
    alike: Option<usize>,
    place: Place,
    rivals: Vec<usize>,
    lines_left: u8,
}

impl<'a> Reading<'a> {
    pub(super) fn new(scanner: &'a Scanner, file: usize, scan: &'a mut Scan) -> Self {
        Self {
            scanner,
            scan,
            file,
            line: 0,
            tracebacks: Tracebacks::default(),
            pending: None,
            known: HashMap::new(),
            ordinals: 0,
            hints: 0,
            seen_unknown: HashSet::new(),
        }
    }

    /// Takes some whole lines. `is_all`: there are no others.
    pub(super) fn block(&mut self, block: &[u8], is_all: bool) {
        let block = &*clean(block);
        // A message by itself needs no word that makes a line of a log stand out.
        let is_message = is_all && count_lines(block) <= MESSAGE_LINES;
        let mut at = 0;
        while at < block.len() {
            if !self.tracebacks.any_open() && self.pending.is_none() && !is_message {
                // Nothing hangs on the next lines: on to the first that holds a needle.
                let automaton = if self.hints < MOST_HINTS {
                    &self.scanner.with_hints
                } else {
                    &self.scanner.without_hints
                };
                let Some(hit) = automaton.find(Input::new(block).range(at..)) else { break };
                let start = memrchr(b'\n', &block[at..hit.start()]).map_or(at, |end| at + end + 1);
                self.line += count_lines(&block[at..start]);
                at = start;
            }
            let end = memchr(b'\n', &block[at..]).map_or(block.len(), |end| at + end);
            self.take(&block[at..end.min(at + LONGEST_LINE)]);
            self.line += 1;
            at = end + 1;
        }
        if at < block.len() {
            self.line += count_lines(&block[at..]);
        }
    }

    /// Takes one line, whose number is `self.line` + 1.
    fn take(&mut self, line: &[u8]) {
        let unescaped = unescape_json(line).map(|text| clean(&text).into_owned());
        let stripped = strip(unescaped.as_deref().unwrap_or(line));
        let part = self.tracebacks.take(&stripped);
        if part == Part::Frame {
            return;
        }
        let mut matching = Vec::new();
        self.scanner.matching(stripped.text, &mut matching);
        for rule in &matching {
            if let Target::Near(entry, number) = rule.target {
                self.scan.near.insert((entry, number));
            }
        }
        match self.best(&matching, stripped.level) {
            Some((rule, entry, tier, rivals)) => {
                self.commit();
                self.hit(&stripped, rule, entry, tier, rivals);
            }
            None => {
                self.late_errno(stripped.text);
                self.keep_unknown(&stripped);
            }
        }
    }

    /// Of the rules that a line fits the one that says most, and what else it might be.
    fn best<'r>(
        &self,
        matching: &[&'r Rule],
        level: Option<Level>,
    ) -> Option<(&'r Rule, usize, Tier, Vec<usize>)> {
        let mut ranked: Vec<_> = matching
            .iter()
            .filter_map(|rule| match rule.target {
                Target::Code(entry) => Some((*rule, entry, Tier::Code)),
                Target::Message(entry) => Some((*rule, entry, Tier::Message)),
                Target::Alike(entry, _) if level != Some(Level::Info) => Some((*rule, entry, Tier::Alike)),
                Target::Alike(..) => None,
                Target::Near(..) => None,
            })
            .collect();
        ranked.sort_by_key(|(rule, entry, tier)| {
            // Our own codes say all there is to say; those of others say less than the message around them.
            let is_own = *tier == Tier::Code && self.scanner.own[*entry];
            (*tier == Tier::Alike, self.scanner.roles[*entry], !is_own, Reverse(rule.weight), *entry)
        });
        let &(rule, entry, tier) = ranked.first()?;
        let mut rivals: Vec<usize> = Vec::new();
        for (_, other, _) in ranked {
            if other != entry && !rivals.contains(&other) && rivals.len() < MOST_RIVALS {
                rivals.push(other);
            }
        }
        Some((rule, entry, tier, rivals))
    }

    fn hit(&mut self, line: &Stripped<'_>, rule: &Rule, entry: usize, tier: Tier, rivals: Vec<usize>) {
        let conditions = &self.scanner.discriminators[entry];
        let errno =
            if conditions.iter().any(|c| !c.errno.is_empty()) { errno::find(line.text) } else { None };
        let holds = holding(conditions, line.text, errno);
        let waits = errno.is_none() && conditions.iter().any(|condition| !condition.errno.is_empty());
        let alike = match rule.target {
            Target::Alike(entry, number) => {
                Some(number).filter(|number| self.scanner.telling[entry][*number])
            }
            _ => None,
        };
        if !waits && self.is_repeat(entry, holds, alike) {
            return;
        }
        self.pending = Some(Pending {
            entry,
            tier,
            weight: rule.weight,
            level: line.level,
            holds,
            alike,
            place: Place { file: self.file, line: self.line + 1, text: excerpt(line.text) },
            rivals,
            lines_left: LINES_FOR_ERRNO,
        });
        if !waits {
            self.commit();
        }
    }

    /// Counts one more of a finding of which enough places are kept.
    fn is_repeat(&mut self, entry: usize, holds: u32, alike: Option<usize>) -> bool {
        let Some(index) = self.known.get(&(entry, holds, alike)) else { return false };
        let finding = &mut self.scan.findings[*index];
        let is_full = finding.places.len() >= MOST_PLACES
            && finding.places.iter().rev().take(MOST_PLACES).all(|place| place.file == self.file);
        finding.count += u64::from(is_full);
        is_full
    }

    /// A system error alone on a line after a message that waits for one.
    fn late_errno(&mut self, line: &[u8]) {
        let Some(pending) = &mut self.pending else { return };
        pending.lines_left -= 1;
        let errno = errno::find(line);
        if errno.is_some() {
            let conditions = &self.scanner.discriminators[pending.entry];
            pending.holds |= holding(conditions, pending.place.text.as_bytes(), errno);
        }
        if errno.is_some() || pending.lines_left == 0 {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let Pending { entry, tier, weight, level, holds, alike, place, rivals, .. } = pending;
        let index = *self.known.entry((entry, holds, alike)).or_insert_with(|| {
            let is_same = |known: &Finding| (known.entry, known.holds, known.alike) == (entry, holds, alike);
            let known = self.scan.findings.iter().position(is_same);
            let index = known.unwrap_or_else(|| {
                self.scan.findings.push(Finding {
                    entry,
                    tier,
                    weight,
                    level,
                    alike,
                    holds,
                    count: 0,
                    places: Vec::new(),
                    ordinal: self.ordinals,
                    rivals: BTreeSet::new(),
                });
                self.scan.findings.len() - 1
            });
            let finding = &mut self.scan.findings[index];
            finding.ordinal = finding.ordinal.min(self.ordinals);
            self.ordinals += 1;
            index
        });
        let finding = &mut self.scan.findings[index];
        finding.count += 1;
        finding.weight = finding.weight.max(weight);
        finding.tier = finding.tier.min(tier);
        finding.level = match (finding.level, level) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        finding.rivals.extend(rivals);
        let here = finding.places.iter().filter(|kept| kept.file == self.file).count();
        if here < MOST_PLACES && finding.places.len() < MOST_PLACES_IN_ALL {
            finding.places.push(place);
        }
    }

    fn keep_unknown(&mut self, line: &Stripped<'_>) {
        let unknown = &mut self.scan.unknown;
        // What a logger calls information is no failure in unknown words.
        let is_information = line.level == Some(Level::Info);
        if is_information
            || self.hints >= MOST_HINTS
            || unknown.len() >= MOST_UNKNOWN
            || line.text.trim_ascii().is_empty()
        {
            return;
        }
        self.hints += 1;
        let text: Vec<u8> =
            line.text.iter().copied().filter(|byte| !byte.is_ascii_digit()).take(LONGEST_TEXT).collect();
        if self.seen_unknown.insert(text) {
            unknown.push(Place { file: self.file, line: self.line + 1, text: excerpt(line.text) });
        }
    }

    pub(super) fn finish(&mut self) {
        self.commit();
        self.scan.lines += self.line;
    }
}

/// Which conditions hold, as bits, as far as line and errno tell.
fn holding(conditions: &[Condition], line: &[u8], errno: Option<&'static str>) -> u32 {
    let mut bits = 0;
    for (number, condition) in conditions.iter().enumerate().take(32) {
        let by_errno =
            condition.errno.is_empty() || errno.is_some_and(|errno| condition.errno.contains(&errno));
        let by_line = condition.line.as_ref().is_none_or(|line_rule| line_rule.is_match(line));
        if by_errno && by_line {
            bits |= 1 << number;
        }
    }
    bits
}

fn count_lines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

/// The text of a line as it is shown.
fn excerpt(line: &[u8]) -> String {
    let line = line.trim_ascii();
    let mut text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_TEXT)]).into_owned();
    text.retain(|letter| !letter.is_control());
    if line.len() > LONGEST_TEXT {
        text.push('…');
    }
    text
}
