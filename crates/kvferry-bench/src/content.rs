use anyhow::Result;

use crate::layout::Layout;
use crate::message::{Plan, Role};
use crate::options::BenchOp;
use crate::pool::Pool;

/// What bytes are that nothing has been moved to.
const POISON: u8 = 0xdb;

/// Odd, so that no two words of a pool are equal.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes that are made or compared at a time; they stay in the first-level cache.
const PIECE: usize = 16 << 10;

/// One side's part in the contents of a row: the source holds words that depend on their place, the destination
/// poison, until something is moved.
pub(crate) struct Scene<'a> {
    pool: &'a Pool,
    seed: u64,
    len: u64,
    /// Offsets of the blocks here and in the source, if this is the destination.
    here: Vec<u64>,
    source: Option<Vec<u64>>,
}

impl<'a> Scene<'a> {
    /// Fills the whole pool.
    pub(crate) fn set(pool: &'a Pool, plan: &Plan, role: Role) -> Result<Self> {
        let Layout { shape, near, far } = Layout::new(plan.shape, pool.len(), plan.seed);
        let (here, there) = match role {
            Role::Near => (near, far),
            Role::Far => (far, near),
        };
        let is_source = (role == Role::Near) == (plan.op == BenchOp::Write);
        let scene =
            Self { pool, seed: plan.seed, len: shape.len, here, source: (!is_source).then_some(there) };
        let mut piece = vec![POISON; PIECE];
        for (at, len) in pieces(0, pool.len()) {
            if is_source {
                scene.write_words(at, &mut piece[..len]);
            }
            pool.write(at, &piece[..len])?;
        }
        Ok(scene)
    }

    /// Whether this side is the destination.
    pub(crate) fn is_destination(&self) -> bool {
        self.source.is_some()
    }

    /// Poisons the blocks, so that a later comparison sees whether all of them were moved.
    pub(crate) fn poison(&self) -> Result<()> {
        let poison = vec![POISON; PIECE];
        for &block in &self.here {
            for (at, len) in pieces(block, self.len) {
                self.pool.write(at, &poison[..len])?;
            }
        }
        Ok(())
    }

    /// Compares all blocks with what their sources hold; returns the first difference.
    pub(crate) fn verify(&self) -> Result<Option<String>> {
        let Some(source) = &self.source else { return Ok(None) };
        let (mut expected, mut found) = (vec![0; PIECE], vec![0; PIECE]);
        for (index, (&here, &there)) in self.here.iter().zip(source).enumerate() {
            for (at, len) in pieces(here, self.len) {
                self.pool.read(at, &mut found[..len])?;
                self.write_words(there + (at - here), &mut expected[..len]);
                if let Some(i) = difference(&found[..len], &expected[..len]) {
                    return Ok(Some(format!(
                        "block {index} holds {:#04x} at byte {} instead of {:#04x}",
                        found[i],
                        at - here + i as u64,
                        expected[i],
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Looks for bytes outside of the blocks that are not poison any more; returns the first.
    pub(crate) fn verify_gaps(&self) -> Result<Option<String>> {
        if !self.is_destination() {
            return Ok(None);
        }
        let mut blocks = self.here.clone();
        blocks.sort_unstable();
        let (poison, mut found) = (vec![POISON; PIECE], vec![0; PIECE]);
        let mut from = 0;
        for block in blocks.into_iter().chain([self.pool.len()]) {
            for (at, len) in pieces(from, block - from) {
                self.pool.read(at, &mut found[..len])?;
                if let Some(i) = difference(&found[..len], &poison[..len]) {
                    return Ok(Some(format!(
                        "byte {} of the pool changed, outside of all blocks",
                        at + i as u64
                    )));
                }
            }
            from = (block + self.len).min(self.pool.len());
        }
        Ok(None)
    }

    /// Makes the last byte of the last block wrong.
    pub(crate) fn flip(&self) -> Result<()> {
        let Some(at) = self.here.last().map(|block| block + self.len - 1) else { return Ok(()) };
        let mut byte = [0];
        self.pool.read(at, &mut byte)?;
        self.pool.write(at, &[!byte[0]])
    }

    /// The words that the source holds from `at` on.
    fn write_words(&self, at: u64, bytes: &mut [u8]) {
        for (word, i) in bytes.chunks_exact_mut(8).zip(0..) {
            word.copy_from_slice(&word_at(self.seed, at / 8 + i).to_le_bytes());
        }
    }
}

/// The word at a place of the source, counted in words.
pub(crate) fn word_at(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index).wrapping_mul(MULTIPLIER)
}

/// The bytes from `at` on in pieces: offset and length of each.
fn pieces(at: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len).step_by(PIECE).map(move |i| (at + i, (len - i).min(PIECE as u64) as usize))
}

fn difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    if found == expected {
        return None;
    }
    found.iter().zip(expected).position(|(f, e)| f != e)
}

#[cfg(test)]
mod tests;
