//! One request on one worker: its pages, how far it is, and the fingerprint of its logits.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::block_table::BlockTable;
use crate::model::Model;
use crate::pools::KvPools;

/// A chain of hashes over the bits of all logits so far, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogitsHash([u8; 32]);

impl LogitsHash {
    /// Of no logits.
    pub(crate) const EMPTY: Self = Self([0; 32]);

    fn extend(&mut self, logits: &[f32]) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(bytemuck::cast_slice(logits));
        self.0 = *hasher.finalize().as_bytes();
    }

    /// The first 64 bits in hexadecimal, for people.
    pub(crate) fn short(&self) -> String {
        self.0[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A sequence that is being computed.
pub(crate) struct Sequence {
    table: BlockTable,
    len: usize,
    hash: LogitsHash,
    finite: bool,
}

impl Sequence {
    /// An empty sequence that will lie in `table`.
    pub(crate) fn new(table: BlockTable) -> Self {
        Self::resume(table, 0, LogitsHash::EMPTY, true)
    }

    /// A sequence whose first `len` tokens are in its pages already.
    pub(crate) fn resume(table: BlockTable, len: usize, hash: LogitsHash, finite: bool) -> Self {
        Self { table, len, hash, finite }
    }

    /// Its pages.
    pub(crate) fn table(&self) -> &BlockTable {
        &self.table
    }

    /// Tokens whose keys and values are in the pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Over all logits that were computed for this sequence.
    pub(crate) fn hash(&self) -> LogitsHash {
        self.hash
    }

    /// False once a logit was not a finite number: attention read a slot that nobody wrote, or a
    /// damaged one.
    pub(crate) fn finite(&self) -> bool {
        self.finite
    }

    /// Computes a chunk of the prompt that is not its last.
    pub(crate) fn absorb(&mut self, model: &Model, pools: &mut KvPools, chunk: &[u32]) -> Result<()> {
        model.forward(pools, &self.table, self.len, chunk)?;
        self.len += chunk.len();
        Ok(())
    }

    /// Computes the last chunk of a prompt, or the token chosen last, and chooses the next: the one
    /// with the greatest logit, the lowest of equals.
    pub(crate) fn advance(&mut self, model: &Model, pools: &mut KvPools, tokens: &[u32]) -> Result<u32> {
        let x = model.forward(pools, &self.table, self.len, tokens)?;
        let logits = model.logits(&x)?;
        self.len += tokens.len();
        self.hash.extend(&logits);
        self.finite &= logits.iter().all(|logit| logit.is_finite());
        Ok(greatest(&logits))
    }
}

fn greatest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best as u32
}
