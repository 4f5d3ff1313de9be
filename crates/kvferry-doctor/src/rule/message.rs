//! A rule from a message with placeholders.

use crate::record::pieces;

/// Longest run of literal text in a rule, in characters.
pub(crate) const LONGEST_LITERAL: usize = 40;
/// Letters of text below which a message says nothing by itself.
const LEAST_LETTERS: usize = 12;

/// The rule of a message: of each piece of text between placeholders the first words, in their order. None if
/// the text is too little to go by.
pub(crate) fn derive(message: &str) -> Option<String> {
    // Of several lines the one that says most.
    let line = message.split(['\n', '\r']).max_by_key(|line| letters(line))?;
    let kept: Vec<String> =
        pieces(line, true).iter().map(|piece| stem(piece)).filter(|piece| has_word(piece)).collect();
    if kept.iter().map(|piece| letters(piece)).sum::<usize>() < LEAST_LETTERS {
        return None;
    }
    Some(kept.iter().map(|piece| regex::escape(piece)).collect::<Vec<_>>().join(".*?"))
}

/// The first words of a piece, at most [`LONGEST_LITERAL`] characters.
fn stem(piece: &str) -> String {
    let piece = piece.trim().trim_end_matches(['\\', '.', ',', ':', ';', '(', '"', '\'']).trim();
    if piece.chars().count() <= LONGEST_LITERAL {
        return piece.to_owned();
    }
    let cut: String = piece.chars().take(LONGEST_LITERAL + 1).collect();
    match cut.rsplit_once(char::is_whitespace) {
        // A long name after a short word would leave the word alone, which says nothing.
        Some((words, _)) if words.chars().count() >= LONGEST_LITERAL / 2 => words.trim_end().to_owned(),
        _ => cut.chars().take(LONGEST_LITERAL).collect(),
    }
}

/// Punctuation between two placeholders differs from release to release.
fn has_word(piece: &str) -> bool {
    letters(piece) >= 2
}

fn letters(text: &str) -> usize {
    text.chars().filter(|letter| letter.is_alphabetic()).count()
}
