//! The sizes of a Llama-like model.

use serde::{Deserialize, Serialize};

/// What the forward pass and the KV pools need to know of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Transformer layers.
    pub(crate) layers: usize,
    /// Width of the residual stream.
    pub(crate) dim: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub(crate) kv_heads: usize,
    /// Elements of one head.
    pub(crate) head_dim: usize,
    /// Width of the feed-forward layer.
    pub(crate) ffn: usize,
    /// Tokens the model knows.
    pub(crate) vocab: usize,
    /// Longest sequence, prompt and answer together.
    pub(crate) context: usize,
    /// Base of the rotary embedding.
    pub(crate) rope_theta: f32,
    /// Added under the root of each RMS norm.
    pub(crate) norm_eps: f32,
}

impl Shape {
    /// SmolLM2-135M, as its GGUF states it.
    pub(crate) fn smollm2_135m() -> Self {
        Self {
            layers: 30,
            dim: 576,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            ffn: 1536,
            vocab: 49_152,
            context: 8_192,
            rope_theta: 100_000.0,
            norm_eps: 1e-5,
        }
    }

    /// A model of milliseconds, with the same features (grouped queries, tied head), for tests.
    pub(crate) fn tiny() -> Self {
        Self {
            layers: 3,
            dim: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 128,
            vocab: 320,
            ..Self::smollm2_135m()
        }
    }

    /// Elements of one token's K (or V) in one layer.
    pub(crate) fn kv_row(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Bytes of one page of `page_size` tokens in one K (or V) pool.
    pub(crate) fn page_bytes(&self, page_size: usize) -> usize {
        page_size * self.kv_row() * size_of::<f32>()
    }

    /// Bytes of the weights in f32; the norms are too small to count.
    pub(crate) fn weight_bytes(&self) -> usize {
        let attention = 2 * self.dim * (self.heads * self.head_dim + self.kv_row());
        let layer = attention + 3 * self.dim * self.ffn;
        (self.vocab * self.dim + self.layers * layer) * size_of::<f32>()
    }

    /// Pools of a worker: K and V of each layer.
    pub(crate) fn pools(&self) -> usize {
        2 * self.layers
    }
}
