//! Rules: what a line must look like to speak of a record.
//!
//! A record brings its code, its message, from which a rule is derived, and the rules of its side entry. No
//! rule holds a literal of more than 40 characters: wording changes between releases, stems
//! stay. Each rule has text that any match must hold, so that one automaton finds the few lines worth a look.

use std::ops::Range;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use crate::catalogue::Catalogue;
use crate::record::OWN_REPO;

mod literal;
mod message;

pub(crate) use self::literal::{LONG, LiteralError, Literals, Numbers, literals, loosened, numbers_of};
#[cfg(test)]
pub(crate) use self::message::LONGEST_LITERAL;
pub(crate) use self::message::derive;

/// One rule, compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct Rule {
    source: String,
    regex: OnceLock<Regex>,
    /// The same with any digit for each.
    loose: OnceLock<Regex>,
    /// What the rule is for.
    pub(crate) target: Target,
    /// Letters of literal text that a match holds at least: how specific it is.
    pub(crate) weight: usize,
    /// Text of which any match holds one, lower case.
    pub(crate) needles: Vec<String>,
    /// Numbers of a line that decide whether it fits.
    pub(crate) numbers: Numbers,
}

/// What a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The code of the entry of this index.
    Code(usize),
    /// The message of the entry of this index.
    Message(usize),
    /// The failure of the entry of this index, in other words.
    Alike(usize, usize),
    /// The frame that other words of an entry ask for.
    Frame(usize, usize),
    /// The condition on other lines of an entry's discriminator.
    Near(usize, usize),
    /// The evidence of this index.
    Evidence(usize),
}

impl Rule {
    fn new(source: String, target: Target) -> Result<Self, LiteralError> {
        let Literals { needles, weight, numbers, .. } = literals(&source)?;
        let (regex, loose) = Default::default();
        Ok(Self { source, regex, loose, target, weight, needles, numbers })
    }

    /// Whether the line fits.
    #[cfg(test)]
    pub(crate) fn is_match(&self, line: &[u8]) -> bool {
        self.is_match_within(line, 0..line.len())
    }

    /// Whether a part of the line fits.
    pub(crate) fn is_match_within(&self, line: &[u8], part: Range<usize>) -> bool {
        self.regex.get_or_init(|| compile(&self.source)).is_match_at(&line[..part.end], part.start)
    }

    /// Whether a part of the line might fit if it had other numbers.
    pub(crate) fn may_match_within(&self, line: &[u8], part: Range<usize>) -> bool {
        let compile = || compile(&loosened(&self.source).unwrap_or_default());
        self.loose.get_or_init(compile).is_match_at(&line[..part.end], part.start)
    }

    /// The expression.
    #[cfg(test)]
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

/// Compiles an expression that the tests of this crate have seen compile; nothing matches any other.
pub(crate) fn compile(source: &str) -> Regex {
    builder(source).build().unwrap_or_else(|_| never())
}

fn builder(source: &str) -> RegexBuilder {
    let mut builder = RegexBuilder::new(source);
    builder.unicode(false);
    builder
}

fn never() -> Regex {
    match Regex::new(r"[^\s\S]") {
        Ok(regex) => regex,
        Err(error) => unreachable!("an empty class: {error}"),
    }
}

/// All rules of a catalogue, with the faults of those that are none: file, expression, reason.
pub(crate) fn rules(catalogue: &Catalogue) -> (Vec<Rule>, Vec<String>) {
    let (mut rules, mut faults) = (Vec::new(), Vec::new());
    let mut add = |at: &str, source: String, target| match checked(&source, target) {
        Ok(rule) => rules.push(rule),
        Err(reason) => faults.push(format!("{at}: {source}: {reason}")),
    };
    for (index, entry) in catalogue.entries().iter().enumerate() {
        if let Some(code) = &entry.record.error_code {
            let own = entry.record.repo == OWN_REPO;
            add(&entry.at, if own { own_code_rule(code) } else { code_rule(code) }, Target::Code(index));
        }
        // Messages of our own always show their code.
        let derived = if entry.record.repo == OWN_REPO { None } else { derive(&entry.record.error_message) };
        for source in entry.side.rules.iter().cloned().chain(derived) {
            add(&entry.at, source, Target::Message(index));
        }
        for (number, alike) in entry.side.alike.iter().enumerate() {
            add(&entry.at, alike.rule.clone(), Target::Alike(index, number));
            if let Some(frame) = &alike.frame {
                add(&entry.at, frame.clone(), Target::Frame(index, number));
            }
        }
        for (number, condition) in entry.side.discriminators.iter().enumerate() {
            if let Some(near) = &condition.near {
                add(&entry.at, near.clone(), Target::Near(index, number));
            }
        }
    }
    for (index, (name, evidence)) in catalogue.evidences().iter().enumerate() {
        for source in &evidence.rules {
            add(name, source.clone(), Target::Evidence(index));
        }
    }
    (rules, faults)
}

fn checked(source: &str, target: Target) -> Result<Rule, String> {
    builder(source).build().map_err(|error| error.to_string())?;
    Rule::new(source.to_owned(), target).map_err(|error| error.to_string())
}

/// A code of another program as a word of its own: `NIXL_ERR_BACKEND`.
fn code_rule(code: &str) -> String {
    format!(r"(?:^|[^\w.]){}(?:$|[^\w.]|\.(?:$|\W))", regex::escape(code))
}

/// A code of our own, as our messages show it: in parentheses behind blanks, as the value of a key that ends in
/// `code`, or alone, with quotes or without. As bare words they are anybody's: `metadata.version` is a field of many
/// programs.
fn own_code_rule(code: &str) -> String {
    let code = regex::escape(code);
    format!(
        r#"(?:^|\s)\({code}\)(?:$|[^\w.]|\.(?:$|\W))|[Cc]ode["'\\]*\s*[:=]+\s*(?:Some\()?["'\\]*{code}(?:$|[^\w.]|\.(?:$|\W))|^\s*["'`\[]*{code}["'`\],]*\s*$"#
    )
}

#[cfg(test)]
mod tests;
