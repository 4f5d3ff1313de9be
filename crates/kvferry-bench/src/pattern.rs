use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::options::{FULL_POOL, UnknownName};

/// What is moved, or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One block of 256 MiB.
    A,
    /// 4,096 blocks of 64 KiB.
    B,
    /// 16,384 blocks of 4 KiB.
    C,
    /// 65,536 blocks of 1 KiB.
    D,
    /// 16,384 blocks of 4 KiB in runs of 16 that lie side by side on both sides.
    R,
    /// One block of 4 KiB, from post to done.
    E,
    /// A notification, half of the way there and back.
    G,
    /// What creating and posting a transfer of prepared blocks costs the caller.
    P,
}

/// Equally long blocks, and how they lie in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Number of blocks; a multiple of `run`.
    pub count: u64,
    /// Bytes of each; a multiple of 8.
    pub len: u64,
    /// How many lie side by side, in one order on both sides.
    pub run: u64,
}

impl Pattern {
    /// All patterns, in the order of the rows.
    pub const ALL: [Self; 8] = [Self::A, Self::B, Self::C, Self::D, Self::R, Self::E, Self::G, Self::P];

    /// Its letter.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::R => "r",
            Self::E => "e",
            Self::G => "g",
            Self::P => "p",
        }
    }

    /// Whether it is measured by its bytes a second.
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::A | Self::B | Self::C | Self::D | Self::R)
    }

    /// What of it fits into a pool of that many bytes, one entry a row; empty where no bytes move.
    pub fn shapes(self, pool: u64) -> Vec<Shape> {
        let shrunk = |count: u64, len: u64, run: u64| {
            let share = u128::from(count / run) * u128::from(pool.min(FULL_POOL)) / u128::from(FULL_POOL);
            vec![Shape { count: (share as u64).max(1) * run, len, run }]
        };
        match self {
            Self::A => vec![Shape { count: 1, len: (pool.min(FULL_POOL) / 4) & !4095, run: 1 }],
            Self::B => shrunk(4096, 64 << 10, 1),
            Self::C => shrunk(16_384, 4 << 10, 1),
            Self::D => shrunk(65_536, 1 << 10, 1),
            Self::R => shrunk(16_384, 4 << 10, 16),
            Self::E => vec![Shape { count: 1, len: 4 << 10, run: 1 }],
            Self::G => Vec::new(),
            // The number of blocks is what matters, so it is their length that shrinks.
            Self::P => {
                let len = (pool / 200_000).min(1 << 10) & !7;
                [1_000, 10_000, 100_000].map(|count| Shape { count, len, run: 1 }).to_vec()
            }
        }
    }
}

impl Shape {
    /// Bytes of all blocks together.
    pub fn bytes(&self) -> u64 {
        self.count * self.len
    }
}

impl FromStr for Pattern {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|pattern| pattern.name() == text)
            .ok_or_else(|| UnknownName::of_pattern(text))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grouped = group(self.count);
        match self.len {
            len if len >= 1 << 20 && len.is_multiple_of(1 << 20) => {
                write!(f, "{grouped} x {} MiB", len >> 20)
            }
            len if len.is_multiple_of(1 << 10) => write!(f, "{grouped} x {} KiB", len >> 10),
            len => write!(f, "{grouped} x {len} B"),
        }
    }
}

/// A number with a comma after every third digit.
fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
