//! Which rules a line fits, within bounds: hostile lines hold the words of all rules.

use std::ops::Range;

use super::Scanner;
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

/// What is used from line to line.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// For each rule the lines that it was tried on in vain.
    futile: Vec<u32>,
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
        for hit in self.without_hints.find_overlapping_iter(line) {
            if effort.left == 0 {
                break;
            }
            for &index in self.starts.get(hit.pattern().as_usize()).into_iter().flatten() {
                if scratch.is_tried(index, &effort) {
                    continue;
                }
                let rule = &self.rules[index as usize];
                let part = effort.part(&hit.range());
                let futile = &mut scratch.futile[index as usize];
                if matches!(rule.target, Target::Alike(..)) {
                    if *futile < FUTILE_ALIKE {
                        alike.push((index, part));
                    }
                } else if *futile < FUTILE && effort.spend(&part) {
                    *futile += 1;
                    if rule.is_match_within(line, part) {
                        *futile = 0;
                        found.push(rule);
                    }
                }
            }
        }
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
