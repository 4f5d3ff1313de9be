//! Which rules a line fits, within bounds: hostile lines hold the words of all rules.

use std::ops::Range;

use aho_corasick::AhoCorasick;

use super::{FRAME, Scanner, TRACEBACK, automaton};
use crate::rule::{Numbers, Rule, Target};

/// Of longer lines rules are tried only on the surroundings of the words that they ask for.
const LONG_LINE: usize = 2 << 10;
/// Parts of a long line that one rule is tried on.
const MOST_PARTS: u8 = 3;
/// Bytes that rules are tried on in all, beside the length of the line.
const EFFORT: usize = 16 << 10;
/// A rule whose word was in so many lines, each with other words around it, without fitting any isn't tried any more on
/// this input: one of nothing but errors that no rule knows would take long else. Messages are given up late.
const FUTILE: u32 = 50_000;
const FUTILE_ALIKE: u32 = 2_000;
/// Blocks after which words are dropped whose rules were all given up since: making the automaton takes as long as reading one.
const BLOCKS: u32 = 4;

/// Words that rules ask for.
#[derive(Debug)]
pub(super) struct Words {
    words: Vec<String>,
    /// For each word the rules that it may start.
    rules: Vec<Vec<u32>>,
    /// The words, then what begins a traceback and what its frames hold.
    pub(super) automaton: AhoCorasick,
}

impl Words {
    /// Of each word its rules.
    pub(super) fn new(words: impl IntoIterator<Item = (String, Vec<u32>)>) -> Self {
        let (words, rules): (Vec<_>, _) = words.into_iter().unzip();
        let all: Vec<&str> = words.iter().map(String::as_str).chain([TRACEBACK, FRAME]).collect();
        Self { automaton: automaton(&all), words, rules }
    }

    /// The words themselves.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Without these rules, and without words that start no other.
    pub(super) fn without(&self, is_dropped: impl Fn(u32) -> bool) -> Self {
        let kept = self.words.iter().zip(&self.rules).filter_map(|(word, rules)| {
            let rules: Vec<u32> = rules.iter().copied().filter(|rule| !is_dropped(*rule)).collect();
            (!rules.is_empty()).then(|| (word.clone(), rules))
        });
        Self::new(kept)
    }
}

/// What is used from line to line.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// For each rule the lines that it was tried on in vain.
    futile: Vec<u32>,
    /// The words that are left, once rules were given up.
    narrowed: Option<Words>,
    /// How many rules had been given up then.
    given_up: usize,
    blocks: u32,
    /// For each rule the turn in which it was tried last, and how often in it.
    tried: Vec<(u32, u8)>,
    turn: u32,
    blind: Vec<u8>,
}

impl Scratch {
    /// Begins with a line.
    fn begin(&mut self, rules: usize) {
        self.futile.resize(rules, 0);
        self.turn = self.turn.wrapping_add(1);
        if self.turn == 0 || self.tried.len() != rules {
            self.tried.clear();
            self.tried.resize(rules, (u32::MAX, 0));
        }
    }

    /// The words to look for.
    pub(super) fn words<'a>(&'a self, scanner: &'a Scanner) -> &'a Words {
        self.narrowed.as_ref().unwrap_or(&scanner.words)
    }

    /// Before a block: stops looking for words of rules that were given up.
    pub(super) fn narrow(&mut self, scanner: &Scanner) {
        self.blocks += 1;
        if self.blocks < BLOCKS || self.futile.is_empty() {
            return;
        }
        self.blocks = 0;
        let is_given_up = |rule: u32| self.futile[rule as usize] >= bound(&scanner.rules[rule as usize]);
        let given_up = (0..).take(scanner.rules.len()).filter(|rule| is_given_up(*rule)).count();
        if given_up > self.given_up {
            let narrowed = scanner.words.without(is_given_up);
            (self.narrowed, self.given_up) = (Some(narrowed), given_up);
        }
    }

    /// Whether a rule has been tried often enough on this line; if not, it counts as tried.
    fn is_tried(&mut self, rule: u32, effort: &Effort) -> bool {
        let (turn, times) = &mut self.tried[rule as usize];
        if *turn != self.turn {
            (*turn, *times) = (self.turn, 0);
        }
        let is_enough = *times >= if effort.is_long() { MOST_PARTS } else { 1 };
        *times += u8::from(!is_enough);
        is_enough
    }
}

/// The lines in vain after which a rule is given up.
fn bound(rule: &Rule) -> u32 {
    if matches!(rule.target, Target::Alike(..)) { FUTILE_ALIKE } else { FUTILE }
}

/// Bounds how much of a line rules are tried on.
struct Effort {
    length: usize,
    left: usize,
}

impl Effort {
    fn new(line: &[u8]) -> Self {
        Self { length: line.len(), left: EFFORT + line.len() }
    }

    fn is_long(&self) -> bool {
        self.length > LONG_LINE
    }

    /// The part of the line that a rule is tried on whose word was found there.
    fn part(&self, word: &Range<usize>) -> Range<usize> {
        if self.is_long() {
            word.start.saturating_sub(LONG_LINE / 8)..self.length.min(word.end + LONG_LINE / 4)
        } else {
            0..self.length
        }
    }

    fn spend(&mut self, part: &Range<usize>) -> bool {
        let is_enough = part.len() <= self.left;
        self.left = self.left.saturating_sub(part.len());
        is_enough
    }
}

impl Scanner {
    /// The rules that the line fits; those for other words only if it fits no other record's.
    pub(super) fn matching(&self, line: &[u8], scratch: &mut Scratch) -> Vec<&Rule> {
        scratch.begin(self.rules.len());
        let mut effort = Effort::new(line);
        let mut alike: Vec<(u32, Range<usize>)> = Vec::new();
        let mut found: Vec<&Rule> = Vec::new();
        let narrowed = scratch.narrowed.take();
        let words = narrowed.as_ref().unwrap_or(&self.words);
        for hit in words.automaton.find_overlapping_iter(line) {
            if effort.left == 0 {
                break;
            }
            for &index in words.rules.get(hit.pattern().as_usize()).into_iter().flatten() {
                if scratch.is_tried(index, &effort) {
                    continue;
                }
                let rule = &self.rules[index as usize];
                let part = effort.part(&hit.range());
                let futile = &mut scratch.futile[index as usize];
                if *futile >= bound(rule) {
                    continue;
                }
                if matches!(rule.target, Target::Alike(..)) {
                    alike.push((index, part));
                } else if effort.spend(&part) {
                    *futile += 1;
                    if rule.is_match_within(line, part) {
                        *futile = 0;
                        found.push(rule);
                    }
                }
            }
        }
        scratch.narrowed = narrowed;
        let speaks = |rule: &&Rule| matches!(rule.target, Target::Code(_) | Target::Message(_));
        if !found.iter().any(speaks) {
            for (index, part) in alike {
                let rule = &self.rules[index as usize];
                let futile = &mut scratch.futile[index as usize];
                *futile += 1;
                if effort.spend(&part) && rule.is_match_within(line, part) {
                    *futile = 0;
                    found.push(rule);
                }
            }
        }
        found
    }

    /// The numbers that would decide in a line that differs from this one by its numbers.
    pub(super) fn deciding_numbers(&self, line: &[u8], scratch: &mut Scratch) -> Numbers {
        let mut blind = std::mem::take(&mut scratch.blind);
        blind.clear();
        blind.extend(line.iter().map(|byte| if byte.is_ascii_digit() { b'1' } else { *byte }));
        scratch.begin(self.rules.len());
        let mut effort = Effort::new(line);
        let mut most = Numbers::None;
        for hit in self.numbered.find_overlapping_iter(&blind) {
            if effort.left == 0 {
                break;
            }
            let index = self.numbered_rules[hit.pattern().as_usize()];
            let rule = &self.rules[index as usize];
            if rule.numbers <= most || scratch.is_tried(index, &effort) {
                continue;
            }
            let part = effort.part(&hit.range());
            if effort.spend(&part) && rule.may_match_within(line, part) {
                most = rule.numbers;
            }
        }
        scratch.blind = blind;
        most
    }
}
