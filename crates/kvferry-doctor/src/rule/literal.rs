//! Text that any match of an expression must hold, found in its syntax tree.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir, HirKind, Repetition};
use thiserror::Error;

/// Shorter text is in every log.
const LEAST_NEEDLE: usize = 3;
/// More alternatives than this are no filter.
const MOST_NEEDLES: usize = 64;

/// Which numbers of a line decide whether an expression matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Numbers {
    /// None: it asks at most for digits of any kind.
    None,
    /// Whether they are nothing but zeros.
    Zeros,
    /// Those of less than [`LONG`] digits.
    Short,
    /// Long ones, too.
    Long,
}

/// Digits of a long number: ports, addresses, rooms. Errors have less.
pub(crate) const LONG: usize = 4;

/// What an expression's literals say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Literals {
    /// Any match holds one of these, in some case; lower case.
    pub(crate) needles: Vec<String>,
    /// Letters of literal text in the shortest match.
    pub(crate) weight: usize,
    /// The longest run of literal text.
    pub(crate) longest: String,
    /// Numbers that decide.
    pub(crate) numbers: Numbers,
}

/// Why an expression is no rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum LiteralError {
    #[error("{0}")]
    Syntax(String),
    #[error("a match need not hold any text of {LEAST_NEEDLE} characters")]
    NoNeedle,
}

/// Reads the literals of an expression.
pub(crate) fn literals(source: &str) -> Result<Literals, LiteralError> {
    let hir = ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .build()
        .parse(source)
        .map_err(|error| LiteralError::Syntax(error.to_string()))?;
    let mut longest = String::new();
    runs(&hir, &mut longest);
    let needles =
        needles(&hir).filter(|needles| least(needles) >= LEAST_NEEDLE).ok_or(LiteralError::NoNeedle)?;
    Ok(Literals { needles, weight: weight(&hir), longest, numbers: numbers(&hir) })
}

/// Which numbers decide whether an expression matches; long ones, if it is none.
pub(crate) fn numbers_of(source: &str) -> Numbers {
    let parsed = ParserBuilder::new().unicode(false).utf8(false).build().parse(source);
    parsed.map_or(Numbers::Long, |hir| numbers(&hir))
}

fn numbers(hir: &Hir) -> Numbers {
    match hir.kind() {
        HirKind::Literal(literal) => numbers_in(&literal.0),
        HirKind::Class(Class::Bytes(class)) => {
            let digits: u32 = class
                .iter()
                .map(|range| {
                    let (first, last) = (range.start().max(b'0'), range.end().min(b'9'));
                    if first > last { 0 } else { u32::from(last - first) + 1 }
                })
                .sum();
            if digits == 0 || digits == 10 { Numbers::None } else { Numbers::Short }
        }
        HirKind::Class(Class::Unicode(_)) => Numbers::Long,
        HirKind::Capture(capture) => numbers(&capture.sub),
        HirKind::Repetition(repetition) => match numbers(&repetition.sub) {
            // As `[1-9]+`, of any length.
            Numbers::Short if repetition.max.is_none_or(|most| most > 1) => Numbers::Long,
            other => other,
        },
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(numbers).max().unwrap_or(Numbers::None)
        }
        HirKind::Empty | HirKind::Look(_) => Numbers::None,
    }
}

/// The expression with any digit where it asks for a certain one: what differs from its matches by numbers matches
/// this. None if it is no expression.
pub(crate) fn loosened(source: &str) -> Option<String> {
    let parsed = ParserBuilder::new().unicode(false).utf8(false).build().parse(source);
    Some(loosen(&parsed.ok()?).to_string())
}

fn loosen(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Literal(literal) => Hir::concat(
            literal
                .0
                .iter()
                .map(|byte| if byte.is_ascii_digit() { any_digit() } else { Hir::literal([*byte]) })
                .collect(),
        ),
        HirKind::Class(Class::Bytes(class)) if numbers(hir) > Numbers::None => {
            let mut class = class.clone();
            class.push(ClassBytesRange::new(b'0', b'9'));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Capture(capture) => loosen(&capture.sub),
        HirKind::Repetition(repetition) => {
            Hir::repetition(Repetition { sub: Box::new(loosen(&repetition.sub)), ..repetition.clone() })
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(loosen).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(loosen).collect()),
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => hir.clone(),
    }
}

fn any_digit() -> Hir {
    Hir::class(Class::Bytes(ClassBytes::new([ClassBytesRange::new(b'0', b'9')])))
}

/// Numbers that stand by themselves in a text: not `mlx5`, and not the `0` of `0x`.
fn numbers_in(text: &[u8]) -> Numbers {
    let mut most = Numbers::None;
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(u8::is_ascii_digit) {
        let start = at + found;
        let length = text[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at = start + length;
        let is_in_word =
            start > 0 && text[start - 1].is_ascii_alphabetic() && !text[..start].ends_with(b"0x");
        let is_mark = &text[start..at] == b"0" && text.get(at) == Some(&b'x');
        if !is_in_word && !is_mark {
            let is_zero = text[start..at].iter().all(|digit| *digit == b'0');
            most = most.max(match length {
                _ if is_zero => Numbers::Zeros,
                0..LONG => Numbers::Short,
                _ => Numbers::Long,
            });
        }
    }
    most
}

/// A node that stands for one text in some case.
fn text(hir: &Hir) -> Option<String> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(String::from_utf8_lossy(&literal.0).into_owned()),
        HirKind::Class(class) => one_letter(class).map(String::from),
        HirKind::Capture(capture) => text(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(text).collect(),
        _ => None,
    }
}

/// The letter of a class that holds one letter in both cases, as `(?i)` makes them.
fn one_letter(class: &Class) -> Option<char> {
    let mut letters: Vec<char> = Vec::new();
    match class {
        Class::Bytes(class) => {
            for range in class.iter() {
                if range.end() - range.start() > 1 {
                    return None;
                }
                letters.extend((range.start()..=range.end()).map(char::from));
            }
        }
        Class::Unicode(_) => return None,
    }
    let first = letters.first()?.to_ascii_lowercase();
    (letters.len() <= 2 && letters.iter().all(|letter| letter.to_ascii_lowercase() == first)).then_some(first)
}

fn needles(hir: &Hir) -> Option<Vec<String>> {
    if let Some(text) = text(hir) {
        return Some(vec![text.to_lowercase()]);
    }
    match hir.kind() {
        HirKind::Capture(capture) => needles(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => needles(&repetition.sub),
        HirKind::Alternation(branches) => {
            let mut all = Vec::new();
            for branch in branches {
                all.extend(needles(branch)?);
            }
            (all.len() <= MOST_NEEDLES).then_some(all)
        }
        HirKind::Concat(parts) => {
            let joined = joined(parts).into_iter().map(|text| vec![text.to_lowercase()]);
            let nested = parts.iter().filter(|part| text(part).is_none()).filter_map(needles);
            joined.chain(nested).max_by_key(|needles| least(needles))
        }
        _ => None,
    }
}

/// The runs of text among the parts of a concatenation.
fn joined(parts: &[Hir]) -> Vec<String> {
    let mut runs = vec![String::new()];
    for part in parts {
        match (text(part), runs.last_mut()) {
            (Some(text), Some(run)) => run.push_str(&text),
            // Looking around takes no room.
            (None, _) if matches!(part.kind(), HirKind::Look(_)) => {}
            _ => runs.push(String::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn least(needles: &[String]) -> usize {
    needles.iter().map(String::len).min().unwrap_or(0)
}

fn weight(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.iter().filter(|byte| byte.is_ascii_alphabetic()).count(),
        HirKind::Class(class) => usize::from(one_letter(class).is_some_and(char::is_alphabetic)),
        HirKind::Capture(capture) => weight(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => weight(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().map(weight).sum(),
        HirKind::Alternation(branches) => branches.iter().map(weight).min().unwrap_or(0),
        _ => 0,
    }
}

/// Keeps the longest run of literal text of the whole tree.
fn runs(hir: &Hir, longest: &mut String) {
    let mut keep = |run: String| {
        if run.chars().count() > longest.chars().count() {
            *longest = run;
        }
    };
    match hir.kind() {
        HirKind::Concat(parts) => {
            joined(parts).into_iter().for_each(&mut keep);
            parts.iter().for_each(|part| runs(part, longest));
        }
        HirKind::Alternation(branches) => branches.iter().for_each(|branch| runs(branch, longest)),
        HirKind::Capture(capture) => runs(&capture.sub, longest),
        HirKind::Repetition(repetition) => runs(&repetition.sub, longest),
        _ => {
            if let Some(text) = text(hir) {
                keep(text);
            }
        }
    }
}
