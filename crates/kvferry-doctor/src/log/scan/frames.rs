//! Frames of tracebacks: they say where an error came from that says little by itself.

use std::collections::VecDeque;

use super::automaton;
use crate::rule::{Rule, Target};

/// Frames that are remembered, of all writers.
const MOST: usize = 64;
/// An error further down than so many lines is none of these frames.
const NEAR: u64 = 60;

/// What other words ask of frames.
#[derive(Debug)]
pub(super) struct FrameRules {
    rules: Vec<Rule>,
    /// Text that a fitting frame holds, and for each the rule.
    words: aho_corasick::AhoCorasick,
    of_word: Vec<usize>,
}

impl FrameRules {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        let words: Vec<(&str, usize)> = rules
            .iter()
            .enumerate()
            .flat_map(|(index, rule)| rule.needles.iter().map(move |needle| (needle.as_str(), index)))
            .collect();
        let (texts, of_word): (Vec<_>, Vec<_>) = words.into_iter().unzip();
        Self { words: automaton(&texts), of_word, rules }
    }

    /// Whether these other words of an entry ask for a frame.
    pub(super) fn asks(&self, entry: usize, number: usize) -> bool {
        self.rule(entry, number).is_some()
    }

    /// Letters of literal text that the frame of these other words holds at least.
    pub(super) fn weight(&self, entry: usize, number: usize) -> usize {
        self.rule(entry, number).map_or(0, |rule| rule.weight)
    }

    fn rule(&self, entry: usize, number: usize) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.target == Target::Frame(entry, number))
    }

    /// The rules that a frame fits.
    fn fitting<'r>(&'r self, frame: &'r [u8]) -> impl Iterator<Item = usize> + 'r {
        let hits = self.words.find_overlapping_iter(frame);
        let indices = hits.map(|hit| self.of_word[hit.pattern().as_usize()]);
        indices.filter(|index| self.rules[*index].is_match_within(frame, 0..frame.len()))
    }
}

/// Frames that were seen and fit what other words ask for, the last at the end.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Writer, line, and rule.
    seen: VecDeque<(u64, u64, usize)>,
}

impl Frames {
    /// Takes a frame, or a line of source code below one.
    pub(super) fn take(&mut self, rules: &FrameRules, writer: u64, line: u64, frame: &[u8]) {
        for rule in rules.fitting(frame) {
            if self.seen.len() == MOST {
                self.seen.pop_front();
            }
            self.seen.push_back((writer, line, rule));
        }
    }

    /// Whether the error on this line came by a frame as these other words ask for.
    pub(super) fn fits(&self, rules: &FrameRules, at: (u64, u64), entry: usize, number: usize) -> bool {
        let (writer, line) = at;
        self.seen.iter().any(|(of, seen, rule)| {
            *of == writer && seen + NEAR > line && rules.rules[*rule].target == Target::Frame(entry, number)
        })
    }

    /// Forgets what a writer's traceback held: it has ended.
    pub(super) fn end(&mut self, writer: u64) {
        self.seen.retain(|(of, _, _)| *of != writer);
    }
}
