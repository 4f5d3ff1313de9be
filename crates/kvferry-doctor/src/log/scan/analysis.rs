//! What a line says by itself, and the memory of it: logs repeat their lines with other numbers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

use super::matching::Scratch;
use super::{Condition, Scanner, Tier};
use crate::errno;
use crate::log::{Level, Stripped};
use crate::rule::{LONG, Numbers, Rule, Target};

/// Lines that are remembered; of more than these all are forgotten.
const MOST: usize = 4096;
/// Letters of a hexadecimal word: the name of a request, a hash, an address.
const LEAST_HEX: usize = 8;
/// Other records that fit one line and are kept as alternatives.
const MOST_RIVALS: usize = 2;

/// What a line says, whatever comes before and after it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Analysis {
    /// Conditions on other lines that it meets: entry and discriminator.
    pub(super) near: Vec<(usize, usize)>,
    /// Evidence of success that it is.
    pub(super) evidence: Vec<usize>,
    /// Whether it is known to mean nothing.
    pub(super) is_harmless: bool,
    /// The record that it speaks of.
    pub(super) best: Option<Best>,
    /// Records that it speaks of if the traceback that it ends has the frame for it, with the number of the other words.
    pub(super) framed: Vec<(usize, Best)>,
}

/// Of the records that a line fits the one whose rule says most.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Best {
    pub(super) entry: usize,
    pub(super) tier: Tier,
    pub(super) weight: usize,
    /// The other words by which it was recognised, if those tell its kind.
    pub(super) alike: Option<usize>,
    /// Discriminators that hold by line and errno, as bits.
    pub(super) holds: u32,
    /// Whether a system error on one of the next lines may still decide.
    pub(super) waits: bool,
    /// Other records that it might be.
    pub(super) rivals: Vec<usize>,
}

impl Best {
    /// By other words that ask for a frame, too.
    fn framed(scanner: &Scanner, entry: usize, number: usize, weight: usize) -> Self {
        let alike = Some(number).filter(|number| scanner.telling[entry][*number]);
        Self { entry, tier: Tier::Alike, weight, alike, holds: 0, waits: false, rivals: Vec::new() }
    }
}

/// Lines by what is left of them without their numbers, as far as those decide nothing.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By the line without any number; none where short ones decide.
    blind: HashMap<u64, Option<Rc<Analysis>>>,
    /// By the line without long numbers.
    careful: HashMap<u64, Rc<Analysis>>,
    text: Vec<u8>,
    pub(super) scratch: Scratch,
    /// What most lines say.
    nothing: Rc<Analysis>,
}

impl Memory {
    /// What the line says.
    pub(super) fn analysis(&mut self, scanner: &Scanner, line: &Stripped<'_>) -> Rc<Analysis> {
        let blind = self.key(line, 1);
        match self.blind.get(&blind) {
            Some(Some(analysis)) => return Rc::clone(analysis),
            Some(None) => {
                let careful = self.key(line, LONG);
                if let Some(analysis) = self.careful.get(&careful) {
                    return Rc::clone(analysis);
                }
            }
            None => {}
        }
        let (analysis, numbers) = analyse(scanner, line, &mut self.scratch);
        let is_nothing = analysis == *self.nothing;
        let analysis = if is_nothing { Rc::clone(&self.nothing) } else { Rc::new(analysis) };
        if self.blind.len() + self.careful.len() >= MOST {
            self.blind.clear();
            self.careful.clear();
        }
        // Once numbers decided about a line, they may do so about all that differ from it by numbers.
        if numbers <= Numbers::Zeros && !self.blind.contains_key(&blind) {
            self.blind.insert(blind, Some(Rc::clone(&analysis)));
        } else {
            self.blind.insert(blind, None);
            if numbers < Numbers::Long {
                let careful = self.key(line, LONG);
                self.careful.insert(careful, Rc::clone(&analysis));
            }
        }
        analysis
    }

    /// A hash of the line without numbers of at least `least` digits.
    fn key(&mut self, line: &Stripped<'_>, least: usize) -> u64 {
        self.text.clear();
        self.text.extend_from_slice(line.text);
        blind(&mut self.text, least);
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.text);
        hasher.write_u8(line.level.map_or(0, |level| level as u8 + 1));
        hasher.finish()
    }
}

/// Overwrites numbers of at least `least` digits and hexadecimal words, whose lengths stay. A number behind a letter
/// is a part of a name, as in `mlx5`.
fn blind(text: &mut [u8], least: usize) {
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(u8::is_ascii_digit) {
        let digit = at + found;
        let is_hex = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let start = digit - text[at..digit].iter().rev().take_while(is_hex).count();
        let end = digit + text[digit..].iter().take_while(is_hex).count();
        let is_marked = text[..start].ends_with(b"0x");
        let is_bounded = (is_marked || start == 0 || !text[start - 1].is_ascii_alphanumeric())
            && text.get(end).is_none_or(|byte| !byte.is_ascii_alphanumeric());
        if is_bounded && end - start >= LEAST_HEX && text[start..end].iter().any(u8::is_ascii_alphabetic) {
            text[start..end].fill(b'h');
            at = end;
            // The rest of a UUID.
            while text.get(at) == Some(&b'-') {
                let length = text[at + 1..].iter().take_while(is_hex).count();
                if length < LONG {
                    break;
                }
                text[at + 1..at + 1 + length].fill(b'h');
                at += 1 + length;
            }
            continue;
        }
        let length = text[digit..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = digit..digit + length;
        at = number.end;
        let is_in_word =
            digit > 0 && text[digit - 1].is_ascii_alphabetic() && !text[..digit].ends_with(b"0x");
        let is_mark = length == 1 && text[digit] == b'0' && text.get(at) == Some(&b'x');
        let is_zero = text[number.clone()].iter().all(|digit| *digit == b'0');
        let is_address = least > 1 && length < least && is_address(text, number.start);
        // Nothing but zeros is no number like others: no address, no length.
        if !is_in_word && !is_mark && !is_zero && (length >= least || is_address) {
            text[number].fill(b'1');
        }
    }
}

/// Whether a number begins a part of an IPv4 address, other than those of this host and of any.
fn is_address(text: &[u8], at: usize) -> bool {
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let start = at - text[..at].iter().rev().take_while(is_part).count();
    let end = at + text[at..].iter().take_while(is_part).count();
    let address = &text[start..end];
    let parts = || address.split(|byte| *byte == b'.');
    parts().count() == 4
        && parts().all(|part| (1..=3).contains(&part.len()))
        && !address.starts_with(b"127.")
        && !address.starts_with(b"0.")
}

/// A needle without its numbers.
pub(super) fn without_numbers(needle: &str) -> String {
    needle.chars().map(|letter| if letter.is_ascii_digit() { '1' } else { letter }).collect()
}

/// What a line says, and which of its numbers decide that.
fn analyse(scanner: &Scanner, line: &Stripped<'_>, scratch: &mut Scratch) -> (Analysis, Numbers) {
    let mut analysis = Analysis::default();
    let matching = scanner.matching(line.text, scratch);
    let mut numbers = scanner.deciding_numbers(line.text, scratch);
    for rule in &matching {
        match rule.target {
            Target::Near(entry, number) => analysis.near.push((entry, number)),
            Target::Evidence(evidence) if Some(evidence) == scanner.harmless => analysis.is_harmless = true,
            Target::Evidence(evidence) => analysis.evidence.push(evidence),
            Target::Alike(entry, number) if scanner.frames.asks(entry, number) => {
                if line.level != Some(Level::Info) {
                    analysis.framed.push((number, Best::framed(scanner, entry, number, rule.weight)));
                }
            }
            Target::Code(_) | Target::Message(_) | Target::Alike(..) | Target::Frame(..) => {}
        }
    }
    if analysis.is_harmless {
        return (analysis, numbers);
    }
    // What asks for more comes first.
    analysis
        .framed
        .sort_by_key(|(number, best)| Reverse(best.weight + scanner.frames.weight(best.entry, *number)));
    if let Some((rule, entry, tier, rivals)) = best(scanner, &matching, line.level) {
        let conditions = &scanner.discriminators[entry];
        let asks_errno = conditions.iter().any(|condition| !condition.errno.is_empty());
        let errno = if asks_errno { errno::find(line.text) } else { None };
        if asks_errno && errno::hangs_on_numbers(line.text) {
            numbers = numbers.max(Numbers::Short);
        }
        numbers = conditions.iter().map(|condition| condition.numbers).fold(numbers, Numbers::max);
        analysis.best = Some(Best {
            entry,
            tier,
            weight: rule.weight,
            alike: match rule.target {
                Target::Alike(entry, number) => Some(number).filter(|number| scanner.telling[entry][*number]),
                _ => None,
            },
            holds: holding(conditions, line.text, errno),
            waits: errno.is_none() && asks_errno,
            rivals,
        });
    }
    (analysis, numbers)
}

/// Of the rules that a line fits the one that says most, and what else it might be.
fn best<'r>(
    scanner: &Scanner,
    matching: &[&'r Rule],
    level: Option<Level>,
) -> Option<(&'r Rule, usize, Tier, Vec<usize>)> {
    let mut ranked: Vec<_> = matching
        .iter()
        .filter_map(|rule| match rule.target {
            Target::Code(entry) => Some((*rule, entry, Tier::Code)),
            Target::Message(entry) => Some((*rule, entry, Tier::Message)),
            Target::Alike(entry, number)
                if level != Some(Level::Info) && !scanner.frames.asks(entry, number) =>
            {
                Some((*rule, entry, Tier::Alike))
            }
            Target::Alike(..) | Target::Frame(..) | Target::Near(..) | Target::Evidence(_) => None,
        })
        .collect();
    ranked.sort_by_key(|(rule, entry, tier)| {
        // Our own codes say all there is to say; those of others say less than the message around them.
        let is_own = *tier == Tier::Code && scanner.own[*entry];
        (*tier == Tier::Alike, scanner.roles[*entry], !is_own, Reverse(rule.weight), *entry)
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

/// Which conditions hold, as bits, as far as line and errno tell.
pub(super) fn holding(conditions: &[Condition], line: &[u8], errno: Option<&'static str>) -> u32 {
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

#[cfg(test)]
mod tests;
