//! The reading of one input: from needle to needle, line by line where lines hang together.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};

use aho_corasick::Input;
use memchr::{memchr, memchr_iter, memrchr};

use super::analysis::{Analysis, Best, Memory, holding};
use super::frames::Frames;
use super::{Finding, Place, Scan, Scanner, Seen, Span, Tier};
use crate::errno;
use crate::log::{Clock, Level, Part, Stripped, Tracebacks, clean, strip, unescape_json};

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
/// What is kept of a line whose system error may follow, in bytes.
const LONGEST_PENDING: usize = 2 * LONGEST_TEXT;

/// The reading of one input.
pub(super) struct Reading<'a> {
    scanner: &'a Scanner,
    pub(super) scan: &'a mut Scan,
    file: usize,
    line: u64,
    tracebacks: Tracebacks,
    frames: Frames,
    memory: Memory,
    /// A finding whose system error may follow on one of the next lines.
    pending: Option<Pending>,
    pending_text: Vec<u8>,
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
    line: u64,
    clock: Clock,
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
            frames: Frames::default(),
            memory: Memory::default(),
            pending: None,
            pending_text: Vec::new(),
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
        self.memory.scratch.narrow(self.scanner);
        let mut at = 0;
        while at < block.len() {
            if !self.tracebacks.any_open() && self.pending.is_none() && !is_message {
                // Nothing hangs on the next lines: on to the first that holds a needle.
                let automaton = if self.keeps_unknown() {
                    &self.scanner.with_hints
                } else {
                    &self.memory.scratch.words(self.scanner).automaton
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
        let line = unescaped.as_deref().unwrap_or(line);
        let stripped = strip(line);
        let part = self.tracebacks.take(&stripped);
        if part == Part::Frame {
            self.frames.take(&self.scanner.frames, stripped.writer, self.line + 1, stripped.text);
            return;
        }
        let analysis = self.memory.analysis(self.scanner, &stripped);
        if analysis.is_harmless {
            return;
        }
        self.scan.near.extend(analysis.near.iter().copied());
        if !analysis.evidence.is_empty() {
            self.succeeded(&analysis.evidence, line, stripped.text);
        }
        let is_frame = part == Part::Outside && is_frame(stripped.text);
        if is_frame {
            // A traceback whose head was left out.
            self.frames.take(&self.scanner.frames, stripped.writer, self.line + 1, stripped.text);
        }
        let best = self.by_frame(&analysis, stripped.writer).or(analysis.best.as_ref());
        if part == Part::End {
            self.frames.end(stripped.writer);
        }
        if let Some(best) = best {
            self.commit();
            self.hit(line, &stripped, best);
        } else {
            self.late_errno(stripped.text);
            if !is_frame {
                self.keep_unknown(&stripped);
            }
        }
    }

    /// What the line says as the end of its traceback, unless it says enough by itself.
    fn by_frame<'b>(&self, analysis: &'b Analysis, writer: u64) -> Option<&'b Best> {
        let at = (writer, self.line + 1);
        let says_less = |than: &Best| {
            let by_itself = analysis.best.as_ref();
            by_itself.is_none_or(|best| best.tier == Tier::Alike && best.weight < than.weight)
        };
        let fits = |(number, best): &&(usize, Best)| {
            says_less(best) && self.frames.fits(&self.scanner.frames, at, best.entry, *number)
        };
        analysis.framed.iter().find(fits).map(|(_, best)| best)
    }

    fn hit(&mut self, line: &[u8], stripped: &Stripped<'_>, best: &Best) {
        let may_recover = !self.scanner.evidence(best.entry, best.alike).is_empty();
        let clock = if may_recover { Clock::read(line) } else { Clock::default() };
        if !best.waits && self.is_repeat(best, clock) {
            return;
        }
        self.pending = Some(Pending {
            entry: best.entry,
            tier: best.tier,
            weight: best.weight,
            level: stripped.level,
            holds: best.holds,
            alike: best.alike,
            line: self.line + 1,
            clock,
            rivals: best.rivals.clone(),
            lines_left: LINES_FOR_ERRNO,
        });
        self.pending_text.clear();
        self.pending_text.extend_from_slice(&stripped.text[..stripped.text.len().min(LONGEST_PENDING)]);
        if !best.waits {
            self.commit();
        }
    }

    /// Counts one more of a finding of which enough places are kept.
    fn is_repeat(&mut self, best: &Best, clock: Clock) -> bool {
        let Some(&index) = self.known.get(&(best.entry, best.holds, best.alike)) else { return false };
        let finding = &mut self.scan.findings[index];
        let here = finding.places.iter().filter(|kept| kept.file == self.file).count();
        let is_full = here >= MOST_PLACES || finding.places.len() >= MOST_PLACES_IN_ALL;
        if is_full {
            finding.count += 1;
            self.failed(index, self.line + 1, clock);
        }
        is_full
    }

    /// A system error alone on a line after a message that waits for one.
    fn late_errno(&mut self, line: &[u8]) {
        let Some(pending) = &mut self.pending else { return };
        pending.lines_left -= 1;
        let errno = errno::find(line);
        if errno.is_some() {
            let conditions = &self.scanner.discriminators[pending.entry];
            pending.holds |= holding(conditions, &self.pending_text, errno);
        }
        if errno.is_some() || pending.lines_left == 0 {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let Pending { entry, tier, weight, level, holds, alike, line, clock, rivals, .. } = pending;
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
                    spans: Vec::new(),
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
            finding.places.push(Place { file: self.file, line, text: excerpt(&self.pending_text) });
        }
        self.failed(index, line, clock);
    }

    /// Notes when a finding that may recover was seen.
    fn failed(&mut self, index: usize, line: u64, clock: Clock) {
        let finding = &mut self.scan.findings[index];
        let evidence = self.scanner.evidence(finding.entry, finding.alike);
        if evidence.is_empty() {
            return;
        }
        let Some(span) = finding.spans.iter_mut().find(|span| span.file == self.file) else {
            let (file, first_line, last_line) = (self.file, line, line);
            finding.spans.push(Span { file, first_line, last_line, last: clock, is_again: false });
            return;
        };
        let since = evidence.iter().filter_map(|evidence| self.scan.seen.get(&(*evidence, self.file)));
        span.is_again |= since.into_iter().any(|seen| {
            seen.place.line > span.first_line && seen.last.compare(clock).is_none_or(Ordering::is_lt)
        });
        span.last_line = line;
        span.last = span.last.max(clock);
    }

    /// Notes evidence of success.
    fn succeeded(&mut self, evidence: &[usize], line: &[u8], text: &[u8]) {
        let clock = Clock::read(line);
        let place = Place { file: self.file, line: self.line + 1, text: excerpt(text) };
        for evidence in evidence {
            let seen = self.scan.seen.entry((*evidence, self.file)).or_insert_with(|| Seen {
                first: clock,
                last: clock,
                place: place.clone(),
            });
            seen.first = seen.first.min(clock);
            seen.last = seen.last.max(clock);
            seen.place.clone_from(&place);
        }
    }

    /// Whether there is still room for lines that fit no rule.
    fn keeps_unknown(&self) -> bool {
        self.hints < MOST_HINTS && self.scan.unknown.len() < MOST_UNKNOWN
    }

    fn keep_unknown(&mut self, line: &Stripped<'_>) {
        // What a logger calls information is no failure in unknown words.
        let is_information = line.level == Some(Level::Info);
        if is_information || !self.keeps_unknown() || line.text.trim_ascii().is_empty() {
            return;
        }
        self.hints += 1;
        let text: Vec<u8> =
            line.text.iter().copied().filter(|byte| !byte.is_ascii_digit()).take(LONGEST_TEXT).collect();
        if self.seen_unknown.insert(text) {
            self.scan.unknown.push(Place { file: self.file, line: self.line + 1, text: excerpt(line.text) });
        }
    }

    /// Whether a line of a log is looked at for what it holds, other than by what all errors have in common.
    #[cfg(test)]
    pub(super) fn looks_for(&self, line: &[u8]) -> bool {
        self.memory.scratch.words(self.scanner).automaton.is_match(line)
    }

    pub(super) fn finish(&mut self) {
        self.commit();
        self.scan.lines += self.line;
    }
}

/// Whether a line is a frame of a traceback.
fn is_frame(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"File \"")
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
