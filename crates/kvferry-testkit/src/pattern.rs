//! Bytes that say where they belong.

use std::fmt;

const WORD: u64 = 8;

/// Content of memory in which every 8 bytes are a function of their offset and a seed: a byte that is missing, old, or
/// in the wrong place shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(u64);

/// The first byte that is not as a pattern has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its offset from the start of the memory.
    pub offset: u64,
    /// What should be there.
    pub expected: u8,
    /// What is there.
    pub found: u8,
    /// Bytes that were looked at, from the first one compared.
    pub of: u64,
}

impl Pattern {
    /// What destinations are filled with, so that untouched bytes are known.
    pub const POISON: Self = Self(0xdead_beef_0bad_f00d);

    /// The pattern of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// The 8 bytes at `index * 8`. Bijective in the index, so that no two words of one pattern are alike, and two
    /// patterns differ in every word.
    #[inline]
    fn word(self, index: u64) -> u64 {
        let word = index.wrapping_add(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^ (word >> 32)
    }

    fn byte(self, offset: u64) -> u8 {
        self.word(offset / WORD).to_le_bytes()[(offset % WORD) as usize]
    }

    /// Writes what belongs at `offset` and on into `bytes`.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let (head, body, index) = split(offset, bytes.len());
        let (front, rest) = bytes.split_at_mut(head);
        (offset..).zip(front).for_each(|(at, byte)| *byte = self.byte(at));
        let (words, tail) = rest[..body].as_chunks_mut();
        debug_assert!(tail.is_empty());
        (index..).zip(words).for_each(|(at, word)| *word = self.word(at).to_le_bytes());
        let end = offset + (head + body) as u64;
        (end..).zip(&mut rest[body..]).for_each(|(at, byte)| *byte = self.byte(at));
    }

    /// The first of `bytes`, which lie at `offset` and on, that is not as the pattern has it.
    pub fn difference(self, offset: u64, bytes: &[u8]) -> Option<Difference> {
        let (head, body, index) = split(offset, bytes.len());
        let (words, _) = bytes[head..head + body].as_chunks();
        let bad = (index..).zip(words).position(|(at, word)| u64::from_le_bytes(*word) != self.word(at));
        let suspects = match bad {
            // The head comes before the word, so it is looked at as well.
            Some(word) => 0..head + (word + 1) * WORD as usize,
            None => 0..bytes.len(),
        };
        let clean = |at: usize| bad.is_none() && (head..head + body).contains(&at);
        let at = suspects.filter(|&at| !clean(at)).find(|&at| bytes[at] != self.byte(offset + at as u64))?;
        let place = offset + at as u64;
        let (expected, found) = (self.byte(place), bytes[at]);
        Some(Difference { offset: place, expected, found, of: bytes.len() as u64 })
    }

    /// How many of the whole words in `bytes`, which lie at `offset` and on, are as the pattern has them, in bytes.
    pub fn matching(self, offset: u64, bytes: &[u8]) -> u64 {
        let (head, body, index) = split(offset, bytes.len());
        let (words, _) = bytes[head..head + body].as_chunks();
        let same = (index..).zip(words).filter(|(at, word)| u64::from_le_bytes(**word) == self.word(*at));
        same.count() as u64 * WORD
    }
}

/// Bytes before the first whole word, bytes of whole words, and the index of the first of them.
fn split(offset: u64, len: usize) -> (usize, usize, u64) {
    let index = offset.div_ceil(WORD);
    let head = ((index * WORD - offset) as usize).min(len);
    (head, (len - head) & !(WORD as usize - 1), index)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, expected, found, of } = self;
        write!(
            f,
            "the byte at offset {offset:#x} is {found:#04x}, expected {expected:#04x} ({of} bytes compared)"
        )
    }
}

#[cfg(test)]
mod tests;
